"""Damage the files of runs at random, and check how each command reacts. Run by ``make fuzz``.

For each case, this changes one file in a copy of a run (finished, of gradients, or unfinished), an
analysis, a file of labels, a golden file, a picture of each installed decoder, weights, an export,
or a folder of a model of each installed library. Then a command reads the result in this process.
The command must end in time, with an exit code of hookcli. It must not open, link or change a file
outside the folder, must not ask for a connection, and must not print control characters. This
prints each failure, with the arguments to repeat it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from hookcli.__main__ import _run
from hookcli.errors import HookcliError, ModelError
from hookcli.outside.foreign import ForeignCode
from hookcli.reading.load import load_run
from hookcli.run import pipeline
from hookcli.store.chunks import hash_line

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.two_directories import with_two_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 20  # of processor time for a command; most take a tenth of it
MEMORY = 32 << 30  # of the process
NET = """
import torch
from torch import nn


class Attention(nn.Module):
    def forward(self, x):
        x = x.unsqueeze(1)
        return torch.softmax(x @ x.transpose(-1, -2), -1) @ x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.attend, self.head = nn.Conv2d(3, 4, 4, 4), Attention(), nn.Linear(4, 3)

    def forward(self, x):
        x = self.patch(x).relu().flatten(2).transpose(1, 2)
        return self.head(self.attend(x).squeeze(1).mean(1))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))
"""
PLAIN = ("--device", "cpu", "--size", "8", "--resize", "8", "-q")
PICTURES = ("--grids", "layers", "--attention", "all", "--rollout", "--overview")
INSPECT = ("inspect", "net.py:Net", "a.png", "b.png", "--save", "tensors", "--sketch", *PICTURES)
GRADIENTS: tuple[str, ...] = (
    "gradients",
    "net.py:Net",
    "a.png",
    "b.png",
    "--cam",
    "patch",
    "--saliency",
)
GRADIENTS += ("--save", "tensors", "--sketch")
ANALYZED = ("inspect", "net.py:Net", "many", "--save", "tensors")
ROOTS = ("done", "flow", "killed", "analyzed", "basis")
SHOTS = "shots"  # pictures of every decoder
MODELS = "models"  # weights, exports and folders of models
MODEL_SECONDS = 10  # of processor time for a command that reads one of these
_WAITS = 6  # a command may take as many times longer in wall time, on a busy machine
BASIS = ("places", "analyzed", "--layers", "patch")
MANY = ("inspect", "net.py:Net", "many", "--layers", "conv", "--workers", "0", "--save", "tensors")
HOSTILE: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 2**40, 10**400, -(10**30), 0.5, -0.0, 1e308, -1e-320),
    *("", "x", "\0", "\ud800", "\udcff", "\x1b[31mred\x07", "a\nb", "\u202egnp", "%41", "'\"><b>"),
    *("../outside/x.png", "grids/../../outside/x.png", "/etc/passwd", "//host/share/x.png"),
    *("https://host/x.png", "file:///etc/passwd", "javascript:alert(1)", "=1+1", "x" * 5000),
    *([], {}, [[]], [None], [1, -1, 5], [2**40, 2**40], {"a": {}}, ["../outside/x.png"]),
)
ELSEWHERE = ("hf-hub:org/name", "local-dir:../../../outside", "org/name", "../outside", "outside")
COLUMNS: tuple[Callable[[int], Any], ...] = (
    lambda rows: pa.array([{"a": "x"}] * rows),
    lambda rows: pa.array([["x"]] * rows),
    lambda rows: pa.array([[[1]]] * rows),
    lambda rows: pa.array([None] * rows),
    lambda rows: pa.array([True] * rows),
    lambda rows: pa.array([2**62] * rows),
    lambda rows: pa.array([-1] * rows, pa.int8()),
    lambda rows: pa.array([float("nan")] * rows),
    lambda rows: pa.array(["\x1b[31m"] * rows),
    lambda rows: pa.array(["../outside"] * rows).dictionary_encode(),
    lambda rows: pa.array([b"\xff"] * rows),
    lambda rows: pa.array([b"\xff" * 268] * rows),
    lambda rows: pa.array([0] * rows, pa.timestamp("ns")),
    lambda rows: pa.array([[2**40] * 3] * rows),
    lambda rows: pa.array([[-1]] * rows),
    lambda rows: pa.array([[("a", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
)


class SlowError(BaseException):
    """A command took too long."""


class WrongError(Exception):
    """A command did something that it must not do."""


# Changes of a file


def bits(data: bytes, dice: random.Random) -> bytes:
    """Flip single bits."""
    changed = bytearray(data or b"\0")
    for _ in range(dice.choice([1, 1, 2, 8])):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def cut(data: bytes, dice: random.Random) -> bytes:
    """Cut off the end, empty the file, or append something."""
    whole = [data + data, data + b"\0" * 100, b""]
    return dice.choice([data[: dice.randrange(len(data) or 1)]] * 3 + whole)


def junk(_data: bytes, dice: random.Random) -> bytes:
    """Replace the content by something else."""
    texts = (b"[" * 200_000, b"{}", b"[]", b"null", b'""', b"PAR1" * 3, b"\xff\xfe", b"\x89PNG\r\n")
    return dice.choice([*texts, dice.randbytes(300)])


def values(data: bytes, dice: random.Random) -> bytes:
    """Replace, remove, add or copy values of JSON, or replace a cell of CSV."""
    if b"," in data and data[:1] not in b"[{" and not _head_of(data):
        rows = [line.split(",") for line in data.decode().splitlines()]
        row = dice.choice(rows)
        row[dice.randrange(len(row))] = dice.choice(
            ["", "x", "-1", "nan", "1e999", '"', "9" * 5000]
        )
        return "\n".join(",".join(row) for row in rows).encode()

    def swap(document: Any) -> Any:
        found = list(_walk(document))
        for _ in range(dice.choice([1, 1, 1, 3])):
            parent, key = dice.choice(found) if found else ([document], 0)
            other, its_key = dice.choice(found) if found else ([None], 0)
            with contextlib.suppress(KeyError, IndexError):
                way = dice.random()
                if way < 0.15:
                    del parent[key]
                elif way < 0.6:
                    parent[key] = dice.choice((*HOSTILE, *ELSEWHERE))
                elif way < 0.7 and isinstance(parent, dict):
                    parent[dice.choice([each for each in HOSTILE if isinstance(each, str)])] = 1
                else:
                    parent[key] = json.loads(json.dumps(other[its_key]))
        return document

    return _edit_json(data, swap, dice)


def nesting(data: bytes, dice: random.Random) -> bytes:
    """Put a deeply nested value into JSON."""
    levels = dice.choice([20, 70, 300, 500, 900, 3000])

    def nest(document: Any) -> Any:
        parent, key = dice.choice(list(_walk(document)) or [([document], 0)])
        deep: Any = "x"
        for _ in range(levels):
            deep = [deep] if dice.random() < 0.5 else {"a": deep}
        parent[key] = deep
        return document

    sys.setrecursionlimit(20_000)
    try:
        return _edit_json(data, nest, dice)
    finally:
        sys.setrecursionlimit(1000)


def columns(data: bytes, dice: random.Random) -> bytes:
    """Remove, rename or retype columns of a Parquet file, or repeat its rows."""
    table = pq.read_table(io.BytesIO(data))
    for _ in range(dice.choice([1, 1, 2])):
        index = dice.randrange(table.num_columns)
        name = table.column_names[index]
        way = dice.random()
        if way < 0.1:
            table = table.remove_column(index)
        elif way < 0.2:
            names = table.column_names
            names[index] = dice.choice(names)
            table = table.rename_columns(names)
        elif way < 0.3:
            table = pa.concat_tables([table, table])
        else:
            table = table.set_column(index, name, dice.choice(COLUMNS)(len(table)))
    stream = io.BytesIO()
    pq.write_table(table, stream, store_schema=dice.random() < 0.7)
    return stream.getvalue()


def archive(data: bytes, dice: random.Random) -> bytes:
    """Add a second directory to a zip archive, or compress, repeat, cut or enlarge its members."""
    with zipfile.ZipFile(io.BytesIO(data)) as before:
        members = [(name, before.read(name)) for name in before.namelist()]
    hidden = [(name, dice.choice((each, bits(each, dice), bytes(99)))) for name, each in members]
    way = dice.random()
    if way < 0.4:
        return with_two_directories(members, hidden, dice.choice([0, zipfile.ZIP_DEFLATED]))
    stream = io.BytesIO()
    packing = zipfile.ZIP_DEFLATED if way < 0.6 else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", packing) as after:
        for name, each in hidden:
            larger = bytes(1 << 26) if dice.random() < 0.02 else b""
            after.writestr(name, (each if dice.random() < 0.9 else each[:-1]) + larger)
            if dice.random() < 0.05:
                after.writestr(name.swapcase(), each)
    return b"\0" * dice.choice([0, 0, 7]) + stream.getvalue()


def removal(file: Path, _dice: random.Random) -> None:
    file.unlink()


def in_place(file: Path, dice: random.Random) -> None:
    """Replace the file by a link, a pipe or a folder, or replace its folder by a link."""
    folder = file.parent
    if dice.random() < 0.2 and folder.parent.parent.name == "work":
        outside = Path("outside", folder.name)
        shutil.copytree(folder, outside)
        shutil.rmtree(folder)
        folder.symlink_to(outside.absolute())
        return
    outside = Path("outside", file.name)
    file.rename(outside)
    kinds = [outside.absolute()] * 4 + ["../outside.txt", file.name, "nowhere", "/dev/zero", "/"]
    target = dice.choice([*kinds, "pipe", "folder"])
    if target == "pipe":
        os.mkfifo(file)
    elif target == "folder":
        file.mkdir()
    else:
        file.symlink_to(target)


CHANGES = {each.__name__: each for each in (bits, cut, junk, values, nesting, columns, archive)}
REPLACEMENTS = {each.__name__: each for each in (removal, in_place)}


def kinds_of(root: str, name: str) -> list[str]:
    """Return the kinds of changes for a file of this name; repeated kinds are chosen more often."""
    if root == SHOTS:
        return ["bits"] * 6 + ["cut"] * 2 + ["junk"]
    kinds = ["bits", "cut", "junk", "removal"] + ["in_place"] * (
        name not in ("golden.json", "labels.csv") and root != MODELS  # models may have links
    )
    if name.endswith((".pt2", ".pth", ".bin")):
        kinds += ["archive"] * 4
    if name.endswith((".json", ".jsonl", ".csv")):
        kinds += ["values"] * 5
    if name.endswith((".json", ".jsonl")):
        kinds += ["nesting"]
    return kinds + ["columns"] * 5 * name.endswith(".parquet")


def _head_of(data: bytes) -> bytes:
    """Return the first line of a saved chunk, which is the hash of the rest; else nothing."""
    return data[:65] if re.match(rb"[0-9a-f]{64}\n", data) else b""


def _edit_json(data: bytes, edit: Callable[[Any], Any], dice: random.Random) -> bytes:
    """Edit a JSON file, or a line of a JSON Lines file; update the hash in a saved chunk."""
    if head := _head_of(data):
        text = _edit_json(data[len(head) :], edit, dice)
        return hash_line(text) + text
    lines = data.splitlines(keepends=True)
    try:
        return json.dumps(edit(json.loads(data))).encode()
    except ValueError:
        at = dice.randrange(len(lines) or 1)
        with contextlib.suppress(ValueError, IndexError):
            lines[at] = json.dumps(edit(json.loads(lines[at]))).encode() + b"\n"
        return b"".join(lines)


def _walk(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (object, key) and (list, index) in a document; of long lists, only 20 indices."""
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 20))
    for key in keys if isinstance(value, (dict, list)) else ():
        yield value, key
        yield from _walk(value[key]) if isinstance(value[key], (dict, list)) else ()


# Commands that read the changed file


def read_all(folder: str) -> None:
    """Read everything that the Python API returns about a run."""
    run = load_run(folder)
    _ = run.images, run.layers, run.figures(), run.records.num_rows, repr(run), run._repr_html_()
    for call_id in run.calls:
        _ = run[call_id], run.images_of(call_id)
    for row in run.layers:
        run.grid(str(row.get("call_id")))


def commands_for(root: str, name: str) -> list[tuple[str, ...]]:
    """Return commands that read a changed file in ``work``; an empty one means ``read_all``."""
    run = f"work/{root}"
    if root == "killed":
        resumed = (*MANY, *PLAIN, "-o", run)
        return [(*resumed, "--resume")] * 4 + [(*resumed, "--overwrite"), ("report", run)]
    if root == "golden.json":
        return [("diff", "done", run, "--format", each) for each in ("table", "json", "csv")]
    made = ("-q", "-o", "work/made")
    if root == SHOTS:
        look = ("inspect", "net.py:Net", f"{run}/{name}", *PLAIN, "--grids", "none")
        wishes: tuple[tuple[str, ...], ...] = (
            (),
            ("--bands", "2,1,0"),
            ("--page", "all"),
            ("--page", "1"),
        )
        wishes += (("--range", "minmax"), ("--range=-5,300",), ("--range", "percent:1"))
        return [(*look, "-o", "work/made", *wish) for wish in wishes]
    if root == MODELS:
        index = f"{run}/{name.partition('/')[0]}"
        prefix = Path(index).name.partition("-")[0]
        shared: tuple[str, ...] = ("a.png", "--device", "cpu", "--grids", "none", "-q")
        shared += ("-o", "work/made")
        small = ("--size", "32") * index.endswith(("detr", "linknet"))  # else they take 800 pixels
        shared += small
        if "/" in name:
            weights = [("--weights", each) for each in ("pretrained", "auto", "random")]
            model = f"{prefix}:{index}"
            return [
                ("layers", model, *small),
                *(("inspect", model, *shared, *each) for each in weights),
            ]
        if name.endswith((".onnx", ".pt2", ".data")):
            export = f"{run}/{Path(name).stem}.onnx" if name.endswith(".data") else f"{run}/{name}"
            way = "torch-export" if name.endswith(".pt2") else "onnx"
            return [
                ("layers", export),
                ("inspect", export, *shared),
                ("compare", "net.py:Small", "a.png", "--against", f"{way}={export}", "-q"),
            ]
        return [("inspect", "net.py:Small", *shared, "--weights", f"{run}/{name}")]
    if root == "labels.csv":
        return [
            ("map", "analyzed", "--labels", run, *made),
            ("probe", "analyzed", "--labels", run, "--folds", "2", *made),
        ]
    if root == "basis":
        return [(*BASIS, "--basis", run, *made), ("map", "analyzed", "-o", run, "--overwrite")]
    if root == "analyzed":
        return [
            ("places", run, "--layers", "patch", *made),
            ("places", run, "--layers", "patch", "--similar", "3,3", *made),
            ("places", run, "--layers", "patch", "--at", "3,3", "--correspond", "01.png", *made),
            ("map", run, "--neighbours", "3", *made),
            ("probe", run, "--labels", "labels.csv", "--folds", "2", *made),
            ("similarity", run, *made),
            ("similarity", "analyzed", run, *made),
        ]
    again = INSPECT if root == "done" else GRADIENTS
    pages = [("report", run), ("report", run, "--single-file")]
    return [
        *(pages * (4 if name.endswith(("report.json", ".png", ".jpg")) else 1)),
        ("golden", run, "-o", "work/made.json"),
        ("diff", root, run, "--format", "json"),
        ("diff", run, root, "--format", "csv", "--pictures", "work/pictures"),
        ("export", run, "--to", "npy", "-o", "work/exported"),
        ("export", run, "--to", "csv", "-o", "work/exported"),
        (*again, *PLAIN, "-o", run, "--resume"),
        (*again, *PLAIN, "-o", run, "--overwrite", "--dry-run"),
        (),
        (),
    ]


def execute(words: tuple[str, ...], root: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and output.

    Raises:
        SlowError: the command took too long.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    began, most = time.process_time(), MODEL_SECONDS if root == MODELS else SECONDS
    signal.setitimer(signal.ITIMER_REAL, _WAITS * most)
    signal.setitimer(signal.ITIMER_PROF, most)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if words:
                with mock.patch.object(sys, "argv", ["hookcli", *words]):
                    code = _run()
            else:
                code = 0
                try:
                    read_all(f"work/{root}")
                except HookcliError as error:
                    code = error.exit_code
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    if time.process_time() - began > most:  # even if the command caught the SlowError
        raise SlowError(f"more than {most} s")
    out.flush()
    err.flush()
    return code, (out.buffer.getvalue() + err.buffer.getvalue()).decode()


# Checks of what a command must not do


class Guard:
    """Detects that a command opens or changes files outside ``work``, or asks for a connection."""

    def __init__(self, home: Path) -> None:
        self._outside = str(home / "outside")
        self._opened: list[str] = []
        self._asked: list[str] = []
        self._watching = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, facts: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo") and self._watching:
            self._asked.append(str(facts[:2]))
            raise OSError("no connection is allowed here")
        if event == "open" and self._watching and isinstance(facts[0], (str, bytes)):
            file = os.path.realpath(os.fsdecode(facts[0]))
            if file.startswith(self._outside) or file in ("/etc/passwd", "/dev/zero"):
                self._opened.append(file)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Raise a WrongError if the block opens or changes outside files, or asks to connect."""
        before = self._look()
        self._opened.clear()
        self._asked.clear()
        self._watching = True
        try:
            yield
        finally:
            self._watching = False
        if self._asked:
            raise WrongError(f"asked for a connection to {self._asked[0]}")
        if self._opened:
            raise WrongError(f"opened {self._opened[0]}")
        if changed := before ^ self._look():
            raise WrongError(f"changed {sorted(changed)[:3]}")

    def _look(self) -> set[tuple[str, int, int]]:
        """Return the files outside ``work``, with sizes in bytes and modification times in ns."""
        files = [file for root in (".", "outside") for file in Path(root).iterdir()]
        files += [file for root in ROOTS for file in Path(root).rglob("*")]
        facts = [(str(file), file.lstat()) for file in files if str(file) != "work"]
        return {(name, each.st_size, each.st_mtime_ns) for name, each in facts}


def check_page(page: str) -> None:
    """Raise a WrongError if a page links anything but itself and pictures in its folder."""
    for link in sorted(links_of(page)):
        is_inside = re.fullmatch(r"([\w-][\w.#-]*/)*[\w-][\w.#-]*", unquote(link))
        if not is_inside and not re.match(r"#|data:image/(png|jpeg);base64,", link):
            raise WrongError(f"the page links {link[:80]!r}")


def links_of(page: str) -> set[str]:
    """Return all addresses in the elements, the styles and the script data of a page."""
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    page = re.sub("<script.*?</script>", "", page, flags=re.DOTALL)
    found = set(re.findall(r"""(?:href|src)="([^"]*)\"""", page))
    found |= set(re.findall(r"""url\(["']?([^"')]*)""", page))
    for text in data:
        for parent, key in _walk([json.loads(text)]):
            if key in ("src", "seen", "drawn") and isinstance(parent[key], str):
                found.add(parent[key])
            if key == "pictures" and isinstance(parent[key], list):
                found |= set(parent[key])
    return found - {""}


# Cases


def make_runs() -> None:
    """Make everything that is going to be changed, in the working directory."""
    Path("net.py").write_text(NET)
    Path("outside.txt").write_text("outside")
    Path("many").mkdir()
    make_models()
    dice = np.random.default_rng(0)
    make_shots(dice)
    for name in ("a.png", "b.png", *(f"many/{number:02}.png" for number in range(33))):
        Image.fromarray(dice.integers(0, 256, (8, 8, 3)).astype(np.uint8)).save(name)
    rows = [f"{number:02}.png,{'ab'[number % 2]}" for number in range(33)]
    Path("labels.csv").write_text("\n".join(["image,label", *rows]))
    stopped = mock.patch.object(pipeline, "close_run", side_effect=KeyboardInterrupt)
    for words, code, patch in (
        ((*INSPECT, *PLAIN, "-o", "done"), 0, contextlib.nullcontext()),
        ((*GRADIENTS, *PLAIN, "-o", "flow"), 0, contextlib.nullcontext()),
        ((*MANY, *PLAIN, "-o", "killed"), 130, stopped),
        ((*ANALYZED, *PLAIN, "-o", "analyzed"), 0, contextlib.nullcontext()),
        ((*BASIS, "-q", "-o", "basis"), 0, contextlib.nullcontext()),
        (("golden", "done", "-o", "golden.json"), 0, contextlib.nullcontext()),
    ):
        with patch:
            ended = execute(words, "")
        assert ended[0] == code, ended  # noqa: S101


def make_shots(dice: np.random.Generator) -> None:
    """Make a small picture for every installed decoder."""
    Path(SHOTS).mkdir()
    bytes_, words = (dice.integers(0, 1 << bits, (9, 8, 3)) for bits in (8, 16))
    colours, deep = Image.fromarray(bytes_.astype("u1")), words.astype("u2")
    for suffix in ("png", "jpg", "gif", "webp", "tif", "bmp", "jp2", "avif"):
        colours.save(f"{SHOTS}/a.{suffix}")
    for name, kind in (
        ("grey.png", "u2"),
        ("grey.tif", "u2"),
        ("signed.tif", "i4"),
        ("f.tif", "f4"),
    ):
        Image.fromarray(words[..., 0].astype(kind)).save(f"{SHOTS}/{name}")
    colours.save(f"{SHOTS}/pages.tif", save_all=True, append_images=[colours.convert("L")] * 2)
    np.save(f"{SHOTS}/u2.npy", deep)
    np.save(f"{SHOTS}/f4.npy", deep.transpose(2, 0, 1).astype("f4"))
    with contextlib.suppress(ImportError):
        import tifffile

        for name, options in (("rgb16", {}), ("zip", {"compression": "deflate"})):
            tifffile.imwrite(f"{SHOTS}/{name}.tif", deep, photometric="rgb", **options)
        apart = deep.transpose(2, 0, 1)
        tifffile.imwrite(f"{SHOTS}/apart.tif", apart, photometric="rgb", planarconfig="separate")
        many = np.concatenate([deep] * 4, -1)
        how = {"photometric": "minisblack", "planarconfig": "contig", "compression": "deflate"}
        tifffile.imwrite(f"{SHOTS}/bands.tif", many, **how)
    with contextlib.suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
        colours.resize((64, 64)).save(f"{SHOTS}/a.heic")
    with contextlib.suppress(ImportError):
        from pydicom.dataset import Dataset, FileMetaDataset

        scan = Dataset()
        scan.file_meta = FileMetaDataset()
        scan.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
        scan.SOPClassUID = scan.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2"
        scan.Rows, scan.Columns, scan.SamplesPerPixel, scan.PixelRepresentation = 9, 8, 1, 0
        scan.BitsAllocated, scan.BitsStored, scan.HighBit = 16, 12, 11
        scan.PhotometricInterpretation, scan.RescaleSlope, scan.RescaleIntercept = (
            "MONOCHROME2",
            1,
            -1024,
        )
        scan.NumberOfFrames = 2
        scan.PixelData = np.stack([deep[..., 0] & 4095] * 2).tobytes()
        scan.save_as(f"{SHOTS}/scan.dcm", enforce_file_format=True)


def make_models() -> None:
    """Make small files of weights and exports, and a model folder for each installed library."""
    import torch

    folder = Path(MODELS)
    folder.mkdir()
    scope: dict[str, Any] = {}
    exec(NET, scope)  # noqa: S102
    net, pixels = scope["Small"]().eval(), torch.zeros(1, 3, 8, 8)
    torch.save(net.state_dict(), folder / "w.pth")
    torch.save({"model": net.state_dict(), "epoch": 3}, folder / "checkpoint.pth")
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()):
        torch.export.save(torch.export.export(net, (pixels,)), folder / "net.pt2")
        with contextlib.suppress(ImportError):
            from safetensors.torch import save_file

            save_file(net.state_dict(), folder / "w.safetensors")
        with contextlib.suppress(ImportError):
            program: Any = torch.onnx.export(net, (pixels,), dynamo=True, verbose=False)
            program.save(folder / "net.onnx")
            program.save(folder / "apart.onnx", external_data=True)
            (folder / "apart.onnx.data").rename(folder / "apart.data")
            _rename_data(folder / "apart.onnx", "apart.data")
        for make in (_make_transformers, _make_timm, _make_smp, _make_open_clip):
            with contextlib.suppress(ImportError):
                make(folder)


def _rename_data(file: Path, name: str) -> None:
    import onnx

    model = onnx.load(file, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = name if entry.key == "location" else entry.value
    file.write_bytes(model.SerializeToString())


def _make_transformers(folder: Path) -> None:
    import torch
    import transformers as hf
    from safetensors.torch import load_file, save_file

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16, "image_size": 32}
    config = hf.ViTConfig(**sizes, num_attention_heads=2, patch_size=16, num_labels=3)
    model = hf.ViTForImageClassification(config)
    for name in ("hf-whole", "hf-parts", "hf-bin"):
        model.save_pretrained(folder / name)
        hf.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / name)
    whole = folder / "hf-parts/model.safetensors"
    tensors, names = load_file(whole), dict[str, str]()
    for number in range(2):
        part = dict(list(tensors.items())[number::2])
        file = f"model-{number}.safetensors"
        save_file(part, whole.with_name(file), metadata={"format": "pt"})
        names |= dict.fromkeys(part, file)
    whole.unlink()
    index = whole.with_name("model.safetensors.index.json")
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    (folder / "hf-bin/model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "hf-bin/pytorch_model.bin")
    stages = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8], "embedding_size": 8}
    backbone = {"model_type": "resnet", **stages, "layer_type": "basic"}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "num_queries": 4}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    detr = {"model_type": "detr", "backbone_config": backbone, **layers, **heads}
    detr |= {"use_timm_backbone": False, "backbone": None, "encoder_ffn_dim": 16}
    (folder / "hf-detr").mkdir()
    (folder / "hf-detr/config.json").write_text(json.dumps(detr | {"decoder_ffn_dim": 16}))


def _make_timm(folder: Path) -> None:
    import timm
    from timm.models import save_for_hf

    model = timm.create_model("test_vit", num_classes=3)
    save_for_hf(model, str(folder / "timm-vit"), safe_serialization=True)
    save_for_hf(timm.create_model("test_resnet", num_classes=3), str(folder / "timm-bin"))


def _make_smp(folder: Path) -> None:
    import segmentation_models_pytorch as smp

    made = smp.create_model("linknet", "timm-mobilenetv3_small_minimal_100", encoder_weights=None)
    made.save_pretrained(folder / "smp-linknet")


def _make_open_clip(folder: Path) -> None:
    import open_clip
    from safetensors.torch import save_file

    vision = {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}
    text = {"context_length": 4, "vocab_size": 10, "width": 8, "heads": 1, "layers": 1}
    model = {"embed_dim": 8, "vision_cfg": vision, "text_cfg": text}
    home = folder / "open_clip-vit"
    home.mkdir()
    config = {"model_cfg": model, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (home / "open_clip_config.json").write_text(json.dumps(config))
    made = open_clip.create_model(f"local-dir:{home}", load_weights=False)
    save_file(made.state_dict(), home / "open_clip_model.safetensors")


def lay_out(root: str) -> None:
    """Put a fresh copy of ``root`` into ``work``."""
    for folder in ("work", "outside"):
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir()
    if root == MODELS:  # a changed configuration may name this file
        Path("outside/config.json").write_text('{"model_type": "vit", "architecture": "test_vit"}')
    (shutil.copytree if Path(root).is_dir() else shutil.copy)(root, f"work/{root}")


def change(file: Path, kind: str, dice: random.Random) -> None:
    """Change a file of ``work``; in most cases, also write its new size into the manifest."""
    if kind in REPLACEMENTS:
        REPLACEMENTS[kind](file, dice)
        return
    file.write_bytes(CHANGES[kind](file.read_bytes(), dice))
    manifest = Path(*file.parts[:2], "manifest.json")
    name = str(file.relative_to(Path(*file.parts[:2])))
    if file != manifest and manifest.is_file() and dice.random() < 0.8:
        document = json.loads(manifest.read_bytes())
        document["sizes"][name] = file.stat().st_size
        manifest.write_text(json.dumps(document))


def one_case(seed: int, case: int, targets: list[tuple[str, str]], guard: Guard) -> tuple[str, ...]:
    """Make one change and run one command; return the file, the kind of change, and the outcome."""
    dice = random.Random(f"{seed}/{case}")  # noqa: S311
    root, name = targets[case % len(targets)]
    kind = dice.choice(kinds_of(root, name or root))
    words = dice.choice(commands_for(root, name))
    lay_out(root)
    change(Path("work", root, name) if name else Path("work", root), kind, dice)
    failure = ""
    code = 1
    try:
        with ForeignCode("the command"), guard.watching():
            code, output = execute(words, root)
            if words[:1] == ("report",) and code == 0:
                check_page(Path("work", root, "report.html").read_text())
        codes = (0, 2, 3, 5, 6, 7) + (4,) * (root in (SHOTS, MODELS))
        if code not in codes:
            failure = f"exit code {code}: {output[-200:]}"
        elif found := re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output):
            failure = f"printed the control character {found[0]!r}"
    except ModelError as error:
        cause = error.__cause__ or error
        last = traceback.extract_tb(cause.__traceback__)[-1]
        failure = f"{error.message} ({Path(last.filename).name}:{last.lineno})"
    group = re.sub(r"/(?:[^/]+/)?[^/]*(\.\w+)$", r"/*\1", name) if name.count("/") else name
    if failure:
        print(f"FAILED  --seed {seed} --case {case}: {kind} of {root}/{name}")
        print(f"        {' '.join(words) or 'load_run'}\n        {failure}", flush=True)
    return (
        f"{root}/{group}".rstrip("/"),
        kind,
        "failed" if failure else "refused" * (code in (2, 4, 5)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="change the files of this folder alone, such as shots")
    parser.add_argument("--case", type=int, help="repeat one change")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")

    def ring(_number: int, _frame: object) -> None:
        raise SlowError("too slow")

    signal.signal(signal.SIGALRM, ring)
    signal.signal(signal.SIGPROF, ring)
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        make_runs()
        targets = [("golden.json", "")] * 6 + [("labels.csv", "")] * 6
        for root in ROOTS:
            names = [str(f.relative_to(root)) for f in sorted(Path(root).rglob("*")) if f.is_file()]
            pictures = [name for name in names if name.endswith((".png", ".jpg"))]
            read = [name for name in names if name not in pictures]
            targets += [(root, name) for name in read * 4 + pictures[:: len(pictures) // 8 or 1]]
            targets += [(root, name) for name in read if name.endswith((".json", ".parquet"))] * 4
        targets += [(SHOTS, file.name) for file in sorted(Path(SHOTS).iterdir())] * 8
        made = [file for file in sorted(Path(MODELS).rglob("*")) if file.is_file()]
        targets += [(MODELS, str(f.relative_to(MODELS))) for f in made for _ in range(_weight(f))]
        if asked.only:
            targets = [each for each in targets if each[0] == asked.only]
        random.Random(asked.seed).shuffle(targets)  # noqa: S311
        guard = Guard(Path.cwd())
        if asked.case is not None:
            print(one_case(asked.seed, asked.case, targets, guard))
            return
        ended = [one_case(asked.seed, case, targets, guard) for case in range(asked.changes)]
    print_table(ended)
    sys.exit(any(each[2] == "failed" for each in ended))


def _weight(file: Path) -> int:
    """Return how often to change a model's file: most often a configuration."""
    return 16 if file.suffix == ".json" else 0 if file.suffix == ".md" else 5


def print_table(ended: list[tuple[str, ...]]) -> None:
    """Print, for each file and kind of change, the number of refused changes and of all changes."""
    kinds = [*CHANGES, *REPLACEMENTS]
    made = collections.Counter(each[:2] for each in ended)
    refused = collections.Counter(each[:2] for each in ended if each[2] == "refused")
    files = sorted({each[0] for each in ended})
    print("refused / changes")
    print("".join(f"{word:>11}" for word in ("", *kinds, "all")))
    for file in [*files, "all"]:
        cells = []
        for kind in [*kinds, "all"]:
            keys = [key for key in made if file in (key[0], "all") and kind in (key[1], "all")]
            total = sum(made[key] for key in keys)
            cells.append(f"{sum(refused[key] for key in keys)}/{total}" if total else "")
        print(f"{file}\n{'':>11}" + "".join(f"{cell:>11}" for cell in cells))
    failed = sum(each[2] == "failed" for each in ended)
    print(
        f"{len(ended)} changes: {sum(refused.values())} refused, {failed} failed, the rest accepted"
    )


if __name__ == "__main__":
    main()
