"""Find out what a file holds, running none of it; suggest what to type for a wrong model name."""

from __future__ import annotations

import io
import itertools
import json
import lzma
import os
import pickletools
import re
import shlex
import struct
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.networks.code_files import list_definitions, split_name
from hookcli.networks.torchvision import Torchvision
from hookcli.outside.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    from hookcli.networks.source import Source

_FILES = (".bin", ".ckpt", ".h5", ".onnx", ".pb", ".pkl", ".pt", ".pt2", ".pth", ".safetensors")
_NAMES = "models are named like resnet18, timm:NAME, hf:NAME or FILE.py:FUNCTION"
_OFFERED = {  # by the form of their names: what to type for models of other libraries
    r"(?:(?:open-?)?clip:)?((?:RN\d+(?:x\d+)?|ViT-(?:\w|bigG)[-/]\d+)(?:-\w+)*)": "open_clip:{}",
    r"(\w+\.\w*in\d+k\w*|\w+_patch\d+_\w+)": "timm:{}",
    r"((?i:unet|unetplusplus|linknet|manet|fpn|pan|pspnet|upernet))": "smp:{}/resnet34",
}
_LIBRARIES = {  # by the form of their names: the library, and the code that makes a model
    r"(yolo\w*?\d\w*)(?:\.pt)?": (
        "ultralytics",
        'from ultralytics import YOLO; make = lambda: YOLO("{}.pt").model',
    ),
    r"([\w.-]+/[\w.-]+):(\w+)": (
        "torch.hub",
        'import torch; make = lambda: torch.hub.load("{}", "{}")',
    ),
}
_ON_HUB = re.compile(r"(?:(?:hf[-_]hub|huggingface|transformers):)?([\w.-]+/[\w.-]+)")
WRAPPERS = ("state_dict", "model_state_dict", "model")  # the keys of the weights in checkpoints
_OURS = ("torch.", "collections.", "__builtin__.", "builtins.")
_NO_MODULES = ("argparse.", "numpy.", "omegaconf.", "pathlib.")  # often saved beside weights
_MODULES = "torch.nn.modules."
_TENSORS = "torch._utils._rebuild_"
_OLD_MARK = "module"  # precedes a class in files from before torch 1.6, with its source code
_MOST = 1 << 20  # bytes of a pickle that are read
_BEFORE = 3  # pickles that precede the content in a file from before torch 1.6
# The exceptions that a damaged or hostile archive raises
DAMAGED = (
    *(ValueError, LookupError, RuntimeError, EOFError, MemoryError, OverflowError),
    *(struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


def find_elsewhere(name: str, sources: Sequence[type[Source]]) -> RequestError | None:
    origin, function = split_name(name) if ":" in name else (name, "")
    if name == origin and name.endswith(".py"):
        names = ", ".join(f"{name}:{each}" for each in list_definitions(Path(name))[:3])
        hint = names or "write FILE.py:FUNCTION"
        return RequestError(f"{name!r} is a file, not a model in it", hint)
    if origin.endswith(".py") or name in Torchvision.list_shelf():
        return None
    if _is_file(name):
        return _explain_file(name)
    file, _, made = (origin, "", function or "FUNCTION") if "/" in origin else name.rpartition(".")
    if _is_file(f"{file}.py"):
        return RequestError(f"no model is called {name!r}", f"is it {file}.py:{made}?")
    for form, typed in _OFFERED.items():
        if found := re.fullmatch(form, name):
            text = f"torchvision has no {name!r}, but {typed.partition(':')[0]} has"
            return RequestError(text, typed.format(found[1].replace("/", "-")))
    if error := next(filter(None, (source.correct(name) for source in sources)), None):
        return error
    for form, (library, code) in _LIBRARIES.items():
        if found := re.fullmatch(form, name):
            return _explain_code(f"{name!r} is a model of {library}", code.format(*found.groups()))
    folder = os.path.dirname(name)  # noqa: PTH120
    is_in_folder = folder != "" and os.path.isdir(folder)  # noqa: PTH112  pathlib's may raise
    if name.lower().endswith(_FILES) or is_in_folder:
        return RequestError(f"there is no file {name!r}", _NAMES)
    if on_hub := _ON_HUB.fullmatch(name):
        return RequestError(f"{name!r} is the name of a model on the hub", f"hf:{on_hub[1]}")
    if known := suggest_hub_names(name, Torchvision.list_shelf()):
        return RequestError(f"no model is called {name!r}", known)
    return None


def suggest_hub_names(name: str, others: Iterable[str] = ()) -> str:
    """Suggest names known to be on the hub that begin with ``name``, or else its first word."""
    short, at, revision = name.partition("@")
    family = re.split("[-_]", short.lower())[0]
    is_others = any(each.startswith(family) for each in others)  # as vit_b_16 is torchvision's
    # The file lists only repositories that exist
    known = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split()
    for start in (short.lower(), family):
        form = re.compile(rf"\w+/{re.escape(start)}(?!\w)")
        found = [f"hf:{each}{at}{revision}" for each in known if form.match(each)]
        if found and not (is_others and start == family):
            is_exact = found[0].endswith(f"/{start}{at}{revision}")
            return found[0] if is_exact else f"did you mean {', '.join(found)}?"
    return ""


def _is_file(name: str) -> bool:
    return "." in name and os.path.isfile(name)  # noqa: PTH113  pathlib's may raise


def _explain_file(name: str) -> RequestError:
    file = Path(name)
    kind = find_kind(file)
    if kind == UNKNOWN:
        return RequestError(f"{name!r} is a file without a model", _NAMES)
    if kind == WEIGHTS:
        hint = f"name the model, and load the file with `weights={name!r}`"
        return RequestError(f"{name!r} holds weights, and no module to put hooks into", hint)
    if kind.model:
        return _explain_code(
            f"{name!r} holds {kind.what}, and loading it would run its code",
            f"import torch; make = lambda: {kind.model}",
        )
    if kind.state:
        hint = f"{save_line(file, kind.state)}; then `weights={weights_name(file)!r}`"
        return RequestError(f"{name!r} holds {kind.what}, and no module to put hooks into", hint)
    hint = "name the code that it was made from: FILE.py:FUNCTION"
    return RequestError(f"{name!r} holds {kind.what}, and a PyTorch model is needed here", hint)


def _explain_code(message: str, code: str) -> RequestError:
    file = _unused("net", ".py")
    hint = f"echo {shlex.quote(code)} > {file}; the model is then {file}:make"
    return RequestError(message, hint)


@dataclass(frozen=True, slots=True)
class FileKind:
    what: str = ""  # the content in words, such as ``an ONNX graph``
    model: str = ""  # the Python expression for the ``nn.Module`` in the file
    state: str = ""  # the Python expression for a state dict that must be made from the file
    join: str = ""  # how to join the file with the others, if it is one of several shards


UNKNOWN = FileKind()
WEIGHTS = FileKind("weights")
ZERO = FileKind(
    "a shard of DeepSpeed's ZeRO: one process's part of the weights",
    join="join the shards, in the folder of the checkpoint: python zero_to_fp32.py FOLDER FILE",
)
_FSDP = FileKind(
    "a shard of FSDP: one process's part of the weights",
    join="save all weights on one process, with StateDictType.FULL_STATE_DICT",
)
_SHARDS = {
    re.compile(r"zero_stage|single_partition_of_fp32_groups|fp32_flat_groups"): ZERO,
    re.compile(r"(.*[._])?(flat_param(_\d+)?|distcp|ShardedTensor|DTensor(Spec)?)"): _FSDP,
}


def name_shard(names: Iterable[str]) -> FileKind | None:
    found = (kind for name in names for form, kind in _SHARDS.items() if form.fullmatch(name))
    return next(found, None)


def find_kind(file: Path) -> FileKind:
    if file.suffix == ".onnx":
        return FileKind("an ONNX graph")
    if file.suffix == ".safetensors":
        return WEIGHTS
    name = json.dumps(str(file), ensure_ascii=False)
    load = f'torch.load({name}, map_location="cpu", weights_only=False)'
    with suppress(OSError, *DAMAGED), open_regular(file) as stream:
        if zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as archive:
                return _find_archive(name, load, archive)
        stream.seek(0)
        start = io.BytesIO(stream.read(_MOST))
        for _ in range(_BEFORE):
            _list_names(start)
        return _find_pickle(load, start)
    return UNKNOWN


def _find_archive(name: str, load: str, archive: zipfile.ZipFile) -> FileKind:
    members = {member.partition("/")[2] or member: member for member in archive.namelist()}
    if "constants.pkl" in members:
        state = f'torch.jit.load({name}, map_location="cpu").state_dict()'
        return FileKind("a TorchScript program", state=state)
    if any(member.startswith(("models/", "serialized_exported")) for member in members):
        return FileKind("an exported program", state=f"torch.export.load({name}).state_dict")
    if "data.pkl" not in members:
        return UNKNOWN
    with archive.open(members["data.pkl"]) as data:
        return _find_pickle(load, io.BytesIO(data.read(_MOST)))


def _find_pickle(load: str, data: BinaryIO) -> FileKind:
    names = _list_names(data)
    texts = {name for kind, name in names if kind == "text"}
    classes = [name for kind, name in names if kind == "class"]
    if shard := name_shard(name for _, name in names):
        return shard
    foreign = [each for each in classes if each.startswith(_MODULES) or not each.startswith(_OURS)]
    if not foreign:
        return WEIGHTS if any(name.startswith(_TENSORS) for name in classes) else UNKNOWN
    made = next((name for name in foreign if not name.startswith(_NO_MODULES)), "")
    if any(name.startswith(_MODULES) for name in classes) and not texts & {*WRAPPERS[:2]}:
        keys = [name for kind, name in names[: names.index(("class", made))] if kind == "text"]
        model = f"{load}[{json.dumps(keys[-1], ensure_ascii=False)}]" if keys else load
        return FileKind(f"a whole model ({made})", model, f"{model}.state_dict()")
    states = (f'{load}["{key}"]' for key in WRAPPERS if key in texts)
    return FileKind(f"more than tensors ({foreign[0]})", state=next(states, ""))


def _list_names(data: BinaryIO) -> list[tuple[str, str]]:
    """List the strings, classes and functions that a pickle mentions, without unpickling it.

    The items are pairs such as ``("text", "state_dict")`` and ``("class", "torch.nn.Linear")``.
    Classes and functions are found only in pickles of protocols 0 to 3.
    """
    names: list[tuple[str, str]] = []
    with suppress(ValueError, IndexError):  # damaged, or cut short
        for code, argument, _ in pickletools.genops(data):
            if code.name == "GLOBAL":
                names.append(("class", str(argument).replace(" ", ".")))
            elif isinstance(argument, str) and argument != _OLD_MARK:
                names.append(("text", argument))
    return names


def save_line(file: Path, state: str) -> str:
    name = json.dumps(weights_name(file), ensure_ascii=False)
    return f"python -c {shlex.quote(f'import torch; torch.save({state}, {name})')}"


def weights_name(file: Path) -> str:
    return _unused(str(file.with_name(f"{file.stem}-weights")), ".pt")


def _unused(start: str, end: str) -> str:
    names = (f"{start}{number or ''}{end}" for number in itertools.count())
    return next(name for name in names if not os.path.lexists(name))
