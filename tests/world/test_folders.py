"""Runs over folders: values as in single runs, and nothing lost to bad files, kills, full disks."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import dataloader

from hookcli.config import GridStyle, ImageRequest, ModelRequest
from hookcli.errors import HookcliError
from hookcli.images import prepare
from hookcli.passes.forward import run_forward
from hookcli.plan.prepare import prepare_run
from hookcli.products import input_pictures
from hookcli.run import chunk_runner, chunk_writer, pipeline
from hookcli.run.listener import ProgressListener
from hookcli.store import chunks
from hookcli.store.locations.names import LOCK, portable_name
from tests import processes
from tests.configs import changed, inspect_config
from tests.conftest import own_state, parts_of_eight
from tests.toy_models import SLOW_NET, outputs, seeded_squeezed

MODEL = "tests.toy_models:Squeezed"
LAYERS = ("features.0", "features.3.expand1x1", "classifier.1")
RANDOM = ("--weights", "random", "--device", "cpu", "--grids", "none")
PLAIN = (*RANDOM, "--size", "32", *(word for each in LAYERS for word in ("--layers", each)))
MEASURED = ("mean", "std", "min", "max")
PATIENCE = 40  # seconds

NET = ("net.py:make", *RANDOM, "--size", "16", "--layers", "conv")


def draw(file, number):
    noise = np.random.default_rng(number).integers(0, 256, (36 + number % 3, 40, 3))
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise.astype(np.uint8)).save(file, format="PNG")
    return str(file)


def photos(count, folder="photos"):
    return [draw(f"{folder}/p{number:03}.png", number) for number in range(count)]


def asked(*images, out, **other):
    model = ModelRequest(MODEL, weights="random", device="cpu", size=32)
    style = GridStyle("none")
    return inspect_config(model, *images, layers=LAYERS, out=out, grids=style, **other)


def inspect(*images, out="out", **other):
    return pipeline.inspect_images(asked(*images, out=out, **other))


def all_files(folder):
    root = Path(folder)
    found = {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}
    return {name: data for name, data in found.items() if name != LOCK}


def assert_same_folders(one, two):
    first, second = all_files(one), all_files(two)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def records(out="out"):
    files = sorted(Path(out, "records.parquet").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def layers(out="out"):
    with Path(out, "layers.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def skipped(out="out"):
    with Path(out, "skipped.csv").open(newline="") as stream:
        return {row["file"]: row["reason"] for row in csv.DictReader(stream)}


def manifest(out="out"):
    return json.loads(Path(out, "manifest.json").read_bytes())


def keys(out="out"):
    return [image["key"] for image in manifest(out)["images"]]


def files(out="out"):
    return [image["file"] for image in manifest(out)["images"]]


# What is found


def test_every_way_to_name_the_files_gives_the_same_figures(run, monkeypatch, tmp_path):
    names = photos(9, "photos/a") + photos(1, "photos/b")
    Path("list.txt").write_text("".join(f"{name}\n" for name in names))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(names).encode())))
    ways = {
        "named": names,
        "folder": ["photos"],
        "list": ["@list.txt"],
        "input": ["-"],
    }
    for way, words in ways.items():
        code, _, err = run("inspect", MODEL, *words, *PLAIN, "-o", tmp_path / way)
        assert code == 0, (way, err)
        assert files(way) == names, way
        assert Path(way, "layers.csv").read_bytes() == Path("named/layers.csv").read_bytes(), way
    assert layers("named")[0]["images"] == "10"


@pytest.mark.usefixtures("small_parts")
def test_a_name_that_is_not_utf8_comes_back_from_every_table_and_from_a_chunk(run):
    photos(10)
    odd = os.fsdecode(b"photos/caf\xe9 %41.png")
    bad = os.fsdecode(b"photos/r\xfc.png")
    draw(odd, 77)
    Path(bad).write_bytes(b"no picture")
    code, _, err = run("inspect", MODEL, "photos", *PLAIN, "-o", "out")
    assert code == 6, err
    assert unquote(files()[0], errors="surrogateescape") == odd
    assert [unquote(name, errors="surrogateescape") for name in skipped()] == [bad]
    (told,) = manifest()["skipped"]
    assert unquote(told["file"], errors="surrogateescape") == bad
    inspect(odd, out="alone")
    mine = [row for row in records() if row["image"] == keys()[0]]
    for one, alone in zip(mine, records("alone"), strict=True):
        assert one["mean"] == pytest.approx(alone["mean"], abs=1e-4 * alone["std"])
    interrupt(asked("photos", out="cut"), at="p009")
    pipeline.inspect_images(asked("photos", out="cut", resume=True))
    assert_same_folders("out", "cut")


# What comes out


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ten")
    with contextlib.chdir(folder):
        alone = {}
        for number, name in enumerate(photos(10)):
            inspect(name, out=f"alone/{number}")
            alone[Path(name).stem] = records(f"alone/{number}")
    return SimpleNamespace(photos=folder / "photos", alone=alone)


def test_a_folder_gives_what_each_image_gives_alone_with_any_number_of_workers(ten, small_parts):
    for workers in (0, 1):
        inspect(str(ten.photos), out=f"w{workers}", batch_size=4, workers=workers)
    assert_same_folders("w0", "w1")
    found = {
        key: list(rows) for key, rows in itertools.groupby(records("w0"), lambda r: r["image"])
    }
    assert list(found) == sorted(ten.alone)
    for key, rows in found.items():
        for row, alone in zip(rows, ten.alone[key], strict=True):
            for name in ("image", "call_id", "shape", "layout", "nan_count", "inf_count"):
                assert row[name] == alone[name]
            near = 1e-4 * max(abs(alone["mean"]), alone["std"])
            for name in MEASURED:
                assert row[name] == pytest.approx(alone[name], rel=0, abs=near), (key, name)


def save_arrays(sizes):
    """Save tensor files with different heights and standard deviations, some of them all zero."""
    arrays = []
    for number, side in enumerate(sizes):
        noise = np.random.default_rng(number).normal(number % 5, 1 + number % 3, (3, side, 40))
        arrays.append((noise * (number % 7 > 0)).astype(np.float32))
        Path("arrays").mkdir(exist_ok=True)
        np.save(f"arrays/t{number:03}.npy", arrays[-1])
    return arrays


@pytest.mark.usefixtures("small_parts")
def test_images_of_two_sizes_share_a_run_in_their_own_sizes_and_order():
    arrays = save_arrays([(32, 48)[number % 3 == 1] for number in range(10)])
    inspect("arrays/*.npy", batch_size=4)
    rows = [row for row in records() if row["call_id"] == "features.0"]
    seen = outputs(seeded_squeezed(), "features.0", arrays)
    assert [row["image"] for row in rows] == [f"t{number:03}" for number in range(10)]
    assert [row["image"] for row in records()] == [
        f"t{number:03}" for number in range(10) for _ in LAYERS
    ]
    assert [tuple(row["shape"]) for row in rows] == [(1, *value.shape) for value in seen]
    for row, value in zip(rows, seen, strict=True):
        near = 1e-4 * max(abs(value.mean()), value.std())
        assert row["mean"] == pytest.approx(value.mean(), rel=0, abs=near)
        assert row["std"] == pytest.approx(value.std(), rel=0, abs=near)
    (first,) = [row for row in layers() if row["call_id"] == "features.0"]
    every = np.concatenate([value.ravel() for value in seen])  # the larger count for more
    assert float(first["mean"]) == pytest.approx(every.mean(), rel=0, abs=1e-6 * every.std())
    assert float(first["std"]) == pytest.approx(every.std(), rel=1e-6)
    assert float(first["min"]) == pytest.approx(every.min(), rel=1e-4)
    assert float(first["max"]) == pytest.approx(every.max(), rel=1e-4)
    assert float(first["zero_fraction"]) == pytest.approx((every == 0).mean(), abs=1e-9)


# Bad images among good ones


@pytest.mark.usefixtures("small_parts")
def test_bad_images_are_skipped_and_the_records_of_good_ones_stay_the_same_bytes(run):
    good = photos(10)
    inspect("photos", out="clean", batch_size=1)
    whole = Path(good[0]).read_bytes()
    bad = {
        "photos/a-text.png": (b"no picture", "is not an image that can be decoded"),
        "photos/p001x-empty.png": (b"", "is empty"),
        "photos/p002x-cut.png": (whole[: len(whole) // 2], "is damaged or cut short"),
    }
    for name, (data, _) in bad.items():
        Path(name).write_bytes(data)
    Path("photos/p003x-folder.png").mkdir()  # a folder of that name is walked, not an image
    Path("photos/p004x-link.png").symlink_to("nowhere.png")
    code, _, err = run("inspect", MODEL, "photos", *PLAIN, "--batch-size", 1, "-o", "out")
    told = skipped()
    assert code == 6, err
    assert list(told) == sorted([*bad, "photos/p004x-link.png"])
    assert (told["photos/p001x-empty.png"], told["photos/p004x-link.png"]) == (
        "is empty",
        "does not exist",
    )
    assert all(f"warning: skipped '{name}': {reason}" in err for name, reason in told.items())
    assert records() == records("clean")
    assert files() == good
    for one, two in zip(layers(), layers("clean"), strict=True):
        for name in MEASURED:  # parts begin elsewhere, so sums are rounded elsewhere
            assert float(one[name]) == pytest.approx(float(two[name]), rel=1e-12)


@pytest.mark.usefixtures("small_parts")
def test_an_image_that_changes_after_the_plan_is_skipped_with_the_reason():
    names = photos(10)
    prepared = prepare_run(asked("photos", out="out", workers=0))
    Path(names[5]).unlink()
    Path(names[8]).write_bytes(Path(names[8]).read_bytes()[:200])
    Path(names[9]).write_bytes(b"")
    result = pipeline.run(prepared)
    assert [each.file for each in result.skipped] == [names[5], names[8], names[9]]
    assert result.skipped[0].reason == "does not exist"
    assert result.skipped[2].reason == "is empty"
    assert [image.file for image in result.images] == [
        name for name in names if name not in (names[5], names[8], names[9])
    ]


# Interrupted and resumed


class Interrupting:
    """Presses Ctrl-C when hookcli is about to prepare a certain image."""

    def __init__(self, fitter, key):
        self._fitter, self._key = fitter, key
        self.prepare = fitter.prepare

    def fit(self, source):
        if source.key == self._key:
            raise KeyboardInterrupt
        return self._fitter.fit(source)


class Listener(ProgressListener):
    stood = 0

    def resumed(self, done):
        self.stood = done


def interrupt(config, *, at):
    """Interrupt a run at the image with this key; the chunks before it are on disk."""
    prepared = prepare_run(changed(config, workers=0))
    model = replace(prepared.model, fitter=Interrupting(prepared.model.fitter, at))  # type: ignore[arg-type]
    prepared = replace(prepared, model=model)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(prepared)
    assert not Path(config.folder.out, "manifest.json").exists()


def resume(**other):
    listener = Listener()
    result = pipeline.run(prepare_run(asked("photos", out="out", resume=True, **other)), listener)
    return listener.stood, result


@pytest.fixture(scope="module")
def eighteen(tmp_path_factory):
    """Eighteen pictures in three chunks; the complete run ``whole``, ``cut`` with one chunk, and
    one with two, ``two``."""
    folder = tmp_path_factory.mktemp("eighteen")
    with contextlib.chdir(folder), parts_of_eight():
        photos(18)
        inspect("photos", out="whole")
        interrupt(asked("photos", out="cut"), at="p010")
        interrupt(asked("photos", out="two"), at="p017")
    return folder


@pytest.fixture
def cut(eighteen, small_parts):
    """The pictures as ``photos``, with their times, and the interrupted run as ``out``."""
    shutil.copytree(eighteen / "photos", "photos")
    shutil.copytree(eighteen / "cut", "out")
    return eighteen / "whole"


@pytest.fixture
def parts_two(eighteen, cut):
    shutil.rmtree("out")
    shutil.copytree(eighteen / "two", "out")
    return cut


def test_a_resumed_run_ends_with_the_bytes_of_one_that_was_never_interrupted(cut):
    assert resume()[0] == 8
    assert_same_folders("out", cut)
    assert not Path("out/parts").exists()


def test_a_run_may_be_interrupted_again_and_again(cut):
    for key in ("p009", "p015", "p016", "p017"):
        interrupt(asked("photos", out="out", resume=True), at=key)
    assert resume()[0] == 16
    assert_same_folders("out", cut)


def test_a_resumed_run_with_sheets_and_sketches_ends_with_the_same_bytes(cut):
    shutil.rmtree("out")
    style = GridStyle("sheet")
    sheets = changed(asked("photos", out="whole", sketch=True), grids=style)
    pipeline.inspect_images(sheets)
    interrupt(changed(sheets, out=Path("out")), at="p010")
    pipeline.inspect_images(changed(sheets, out=Path("out"), resume=True))
    assert_same_folders("out", "whole")


@pytest.mark.parametrize("damage", ["cut short", "another digit", "no records", "the first"])
def test_a_damaged_part_is_done_again(parts_two, damage):
    file = Path("out/parts/000001.json")
    whole = file.read_bytes()
    if damage == "cut short":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "another digit":
        *_, figure = re.finditer(rb"\d\.\d", whole)
        digit = b"1" if figure[0][-1:] != b"1" else b"2"
        file.write_bytes(whole[: figure.end() - 1] + digit + whole[figure.end() :])
    elif damage == "no records":
        Path("out/records.parquet/part-000001.parquet").unlink()
    else:
        Path("out/parts/000000.json").write_bytes(b"")
    assert resume()[0] <= (0 if damage == "the first" else 8)
    assert_same_folders("out", parts_two)


@pytest.mark.parametrize("change", ["time", "name"])
def test_the_time_of_a_file_or_its_name_is_enough_to_begin_again(cut, change):
    file = Path("photos/p005.png")
    if change == "name":
        file.rename("photos/p005a.png")
    else:
        os.utime(file)
    assert resume()[0] == 0


@pytest.mark.parametrize("change", ["gone", "another", "no picture", "new", "fewer"])
def test_a_folder_that_changed_ends_as_a_fresh_run_would(parts_two, change):
    if change == "gone":
        Path("photos/p010.png").unlink()
    elif change == "another":
        draw("photos/p010.png", 999)
    elif change == "no picture":
        Path("photos/p010.png").write_bytes(b"no picture")
    elif change == "new":
        draw("photos/p010a.png", 999)
    else:
        for number in range(7, 18):
            Path(f"photos/p{number:03}.png").unlink()
    resume()
    inspect("photos", out="fresh")
    assert_same_folders("out", "fresh")


def test_only_verify_notices_a_later_image_that_changed_but_kept_its_size_and_time(cut):
    shutil.rmtree("out")
    interrupt(asked("photos", out="out", batch_size=2), at="p010")  # the first batch: p000 to p002
    file = Path("photos/p005.png")
    before = file.stat()
    Image.new("RGB", (40, 37), "red").save(file)  # smaller; what follows the end is not read
    file.write_bytes(file.read_bytes().ljust(before.st_size, b"\0"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    shutil.copytree("out", "trusting")
    inspect("photos", out="fresh", batch_size=2)
    trusting = asked("photos", out="trusting", resume=True, batch_size=2)
    listener = Listener()
    pipeline.run(prepare_run(trusting), listener)
    assert listener.stood == 8
    assert Path("trusting/layers.csv").read_bytes() != Path("fresh/layers.csv").read_bytes()
    assert resume(verify=True, batch_size=2)[0] == 0
    assert_same_folders("out", "fresh")


def test_verify_keeps_what_has_not_changed(cut):
    os.utime("photos/p012.png")  # in no part yet
    assert resume(verify=True)[0] == 8
    assert_same_folders("out", cut)


def test_verify_does_not_wait_for_a_pipe(cut):
    shutil.rmtree("out")
    Path("photos/p003.png").unlink()
    os.mkfifo("photos/p003.png")
    inspect("photos", out="fresh")
    interrupt(asked("photos", out="out"), at="p010")
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("waits for a pipe"))
    signal.alarm(20)
    try:
        assert resume(verify=True)[0] == 8
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert_same_folders("out", "fresh")


@pytest.mark.usefixtures("small_parts")
def test_a_run_whose_first_part_holds_no_image_is_resumed_to_the_same_bytes():
    Path("photos").mkdir()
    for number in range(8):
        Path(f"photos/b{number:02}.png").write_bytes(b"no picture")
    photos(10)
    inspect("photos", out="fresh")
    interrupt(asked("photos", out="out"), at="p003")
    assert resume()[0] == 8
    assert_same_folders("out", "fresh")


OTHERS = {
    "model": (["squeezenet1_0"], f"with {MODEL}, not squeezenet1_0"),
    "layers": (["--layers", "features.1"], "without --layers features.1"),
    "two": (
        ["--size", "33", "--no-recursive"],
        "with --size 32, not --size 33, and without --no-recursive",
    ),
}


@pytest.mark.parametrize(
    ("other", "state"), [*((other, "cut") for other in OTHERS), ("two", "whole")]
)
def test_another_request_is_refused_and_its_difference_named(run, cut, state, other):
    words, named = OTHERS[other]
    if state == "whole":
        shutil.rmtree("out")
        shutil.copytree(cut, "out")
    before = all_files("out")
    model = MODEL
    if other == "model":
        (model,), words = words, []
    code, out, err = run("inspect", model, "photos", *PLAIN, *words, "-o", "out", "--resume")
    assert (code, out) == (2, "")
    (error,) = [line for line in err.splitlines() if line.startswith("error: ")]
    begun = "started" if state == "cut" else "done"
    assert error == f"error: --resume: the run in 'out' was {begun} {named}"
    assert all_files("out") == before


@pytest.mark.usefixtures("small_parts")
def test_other_weights_under_the_same_name_are_refused(run):
    photos(10)
    state = seeded_squeezed().state_dict()
    torch.save(state, "weights.pth")
    request = asked("photos", out="out")
    request = changed(request, model=replace(request.run.model, weights="weights.pth"))
    interrupt(request, at="p009")
    torch.save({name: value + 1 for name, value in state.items()}, "weights.pth")
    words = [word if word != "random" else "weights.pth" for word in PLAIN]
    code, _, err = run("inspect", MODEL, "photos", *words, "-o", "out", "--resume")
    assert code == 2
    assert "was started with other weights: sha256 " in err


def test_a_complete_run_is_left_as_it_is(run, eighteen, small_parts):
    shutil.copytree(eighteen / "photos", "photos")
    shutil.copytree(eighteen / "whole", "out")
    times = {file: file.stat().st_mtime_ns for file in Path("out").rglob("[!.]*")}
    code, out, err = run("inspect", MODEL, "photos", *PLAIN, "-o", "out", "--resume")
    assert (code, out, err) == (0, "", "the run in 'out' is complete\n")
    assert run("inspect", MODEL, "photos", *PLAIN, "-o", "out", "--resume", "-q").err == ""
    assert {file: file.stat().st_mtime_ns for file in Path("out").rglob("[!.]*")} == times


def test_a_run_that_was_killed_after_its_manifest_is_tidied_up(run, cut):
    shutil.copytree(cut, "done")
    shutil.copytree("out/parts", "done/parts")
    code, _, err = run("inspect", MODEL, "photos", *PLAIN, "-o", "done", "--resume")
    assert (code, err) == (0, "the run in 'done' is complete\n")
    assert_same_folders("done", cut)


def test_overwrite_of_an_interrupted_run_starts_again(cut):
    inspect("photos", overwrite=True)
    assert_same_folders("out", cut)


# Disks that fill


@contextlib.contextmanager
def largest_file(limit):
    resource = pytest.importorskip("resource")  # not on Windows
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("where", ["the second part", "report.html"])
def test_a_disk_that_fills_ends_with_5_and_can_be_resumed(run, where, monkeypatch):
    monkeypatch.setattr(input_pictures, "MOST_THUMBNAILS", 0)  # of noise they are larger than parts
    photos(10)
    for number in range(8):  # the second part says more
        draw(f"photos/{'z' * 200}{number:02}.png", 100 + number)
    inspect("photos", out="whole", top_images=0)
    interrupt(asked("photos", out="out", top_images=0), at=portable_name("z" * 120 + "-8"))
    first, second = (Path(f"out/parts/{n:06}.json").stat().st_size for n in (0, 1))
    shutil.rmtree("out")
    assert second > first + 1000
    limit = {
        "the second part": (first + second) // 2,
        "report.html": Path("whole/report.html").stat().st_size - 1,
    }[where]
    words = ("inspect", MODEL, "photos", *PLAIN, "--workers", 0, "-o", "out")
    words += ("--top-images", 0)
    with largest_file(limit):
        code, out, err = run(*words)
        assert (code, out) == (5, ""), err
        assert "error: cannot write 'out" in err
        assert "Traceback" not in err
        again = run(*words, "--resume")
        assert again.code == 5, again.err
    complete = all_files("whole")
    for name, data in all_files("out").items():
        if name != "run.json" and not name.startswith("parts/"):
            assert data == complete[name], name
    code, _, err = run(*words, "--resume")
    assert code == 0, err
    stood = {"the second part": 8, "report.html": 18}[where]
    assert f"continuing after {stood} of 18 images" in err
    assert_same_folders("out", "whole")


@pytest.mark.usefixtures("small_parts")
def test_a_run_with_another_number_of_threads_begins_again():
    photos(10)
    interrupt(asked("photos", out="out", threads=1), at="p009")
    assert resume(threads=2)[0] == 0


# Other processes


@pytest.fixture
def start():
    started = []

    def command(*words, **environment):
        files = {"out": "out.txt", "err": "err.txt"}
        process = processes.start(processes.COMMAND, "inspect", *words, **files, **environment)
        started.append(process)
        return process

    yield command
    for process in started:  # its workers notice some seconds later
        process.kill()
        process.join()
        process.close()


def wait_for(file, process):
    end = time.monotonic() + PATIENCE
    while not Path(file).exists():
        assert process.is_alive(), Path("err.txt").read_text()
        assert time.monotonic() < end
        time.sleep(0.02)


SLOW = inspect_config(
    ModelRequest("net.py:make", weights="random", device="cpu", size=16),
    "photos",
    layers=("conv",),
    out="whole",
    grids=GridStyle("none"),
)


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    with own_state(folder):
        Path("net.py").write_text(SLOW_NET)
        photos(130)
        pipeline.inspect_images(SLOW)
    return folder


@pytest.fixture
def net(slow, tmp_path):
    shutil.copytree(slow, tmp_path, dirs_exist_ok=True)
    return changed(SLOW, out="out")


def test_a_run_that_was_interrupted_and_killed_ends_with_the_same_bytes(run, net, start):
    words = (*NET[:1], "photos", *NET[1:], "--workers", 1, "-o", "out")
    first = start(*words, NAP="0.05")
    wait_for("out/parts/000000.json", first)
    for more in (("--resume",), ("--overwrite",)):
        code, _, err = run("inspect", *words, *more)
        assert code == 5, err
        assert "error: another run is writing into 'out'" in err.splitlines()
    os.kill(first.pid, signal.SIGINT)
    first.join(PATIENCE)
    out, err = (Path(name).read_text() for name in ("out.txt", "err.txt"))
    assert (first.exitcode, out) == (130, "")
    assert err.splitlines()[-2] == "error: interrupted"
    kept = r"hint: the first \d+ images are kept; --resume continues after them"
    assert re.fullmatch(kept, err.splitlines()[-1])
    assert "Traceback" not in err
    second = start(*words, "--resume", NAP="0.1")
    wait_for("out/parts/000002.json", second)
    second.kill()
    second.join()
    code, _, err = run("inspect", *words, "--workers", 0, "--resume")
    assert code == 0, err
    assert "continuing after " in err
    assert_same_folders("out", "whole")


@pytest.fixture
def noticed_at_once(monkeypatch):
    """Look for dead workers every 0.2 s; torch looks every 5 s."""
    waiting = dataloader._MultiProcessingDataLoaderIter._try_get_data
    monkeypatch.setattr(waiting, "__defaults__", (0.2,))


@pytest.fixture
def killed_workers(monkeypatch, noticed_at_once):
    """Kill the processes that prepare images once the first chunk is on disk, and list them.

    The model waits for that chunk, so the workers have images in the queue that nobody took.
    """
    killed = []
    monkeypatch.setattr(chunk_writer, "_MOST_WAITING", 0)

    def write_chunk(folder, chunk):
        chunks.write_chunk(folder, chunk)
        if chunk.number == 0:
            killed.extend(multiprocessing.active_children())
            for worker in killed:
                worker.kill()

    monkeypatch.setattr(chunk_writer, "write_chunk", write_chunk)
    return killed


@pytest.fixture
def told(monkeypatch):
    """What runs with ``Listener`` warn of."""
    told = []
    monkeypatch.setattr(Listener, "warn", lambda _self, text: told.append(text))
    return told


def test_workers_that_are_killed_with_large_images_on_their_way_are_replaced(
    net, killed_workers, told
):
    """The images in a killed worker's queue are lost, so hookcli must not wait for them."""
    images = ImageRequest(("photos/p0[0-4]?.png",))
    large = replace(net.run, model=replace(net.run.model, size=224), images=images)
    pipeline.run(prepare_run(changed(replace(net, run=large), workers=2)), Listener())
    assert len(killed_workers) == 2
    assert told == ["a process that prepared images was killed; it is replaced"]
    assert layers()[0]["images"] == "50"


MAY_NOT_MOUNT = 77
SMALL_MEMORY = f"""
import ctypes, os, sys
if ctypes.CDLL(None).unshare(0x20000):  # CLONE_NEWNS: what is mounted from now on is its own
    sys.exit({MAY_NOT_MOUNT})
assert not os.system("mount --make-rprivate / && mount -t tmpfs -o size=1m none /dev/shm")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /dev/shm")
def test_a_run_with_workers_needs_no_large_shared_memory(net):
    """As in a container, whose ``/dev/shm`` may be 64 MB: here 1 MB, less than two images."""
    some = "photos/p00?.png"
    words = [word if word != "16" else "384" for word in (*NET[:1], some, *NET[1:])]
    command = ("inspect", *words, "--workers", "2", "-o", "out")
    running = processes.start(SMALL_MEMORY + processes.COMMAND, *command, err="err.txt")
    running.join(PATIENCE)
    if running.exitcode == MAY_NOT_MOUNT:
        pytest.skip("may not mount")
    assert running.exitcode == 0, Path("err.txt").read_text()
    assert layers()[0]["images"] == "10"


@pytest.mark.usefixtures("noticed_at_once")
def test_workers_that_die_again_and_again_end_the_run_with_4_and_it_can_be_resumed(
    net, told, monkeypatch
):
    before, here = prepare.prepare_image, os.getpid()

    def die(fitter, image):
        if image.key == "p100" and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return before(fitter, image)

    monkeypatch.setattr(prepare, "prepare_image", die)
    with pytest.raises(HookcliError) as raised:
        pipeline.run(prepare_run(changed(net, workers=1)), Listener())
    assert raised.value.exit_code == 4
    assert raised.value.message == "processes that prepare images are killed repeatedly"
    assert told == ["a process that prepared images was killed; it is replaced"]
    pipeline.inspect_images(changed(net, workers=0, resume=True))
    assert_same_folders("out", "whole")


def files_of(folder):
    return [str(file) for file in sorted(Path(folder).iterdir())]


def test_each_image_that_ran_has_a_thumbnail_in_order(monkeypatch):
    """Of the first 40 images, so of two chunks of 32; the second image cannot be read."""
    monkeypatch.setattr(input_pictures, "MOST_THUMBNAILS", 40)
    Path("photos").mkdir()
    for number in range(70):
        Image.new("RGB", (48, 40), (3 * number, 0, 200)).save(f"photos/p{number:03}.png")
    Path("photos/p001.png").write_bytes(b"broken")
    pipeline.inspect_images(asked("photos", out="out"))
    sheets = json.loads(Path("out/report.json").read_text())["thumbnails"]
    names = [f"p{number:03}" for number in range(64) if number != 1]
    assert [each["images"] for each in sheets] == [names[:31], names[31:]]
    assert sorted(files_of("out/thumbnails")) == [f"out/{each['file']}" for each in sheets]
    for each in sheets:
        with Image.open(Path("out", each["file"])) as picture:
            for index, key in enumerate(each["images"]):
                row, column = divmod(index, each["columns"])
                red, green, blue = np.array(picture)[112 * row + 56, 112 * column + 56].tolist()
                assert abs(red - 3 * int(key[1:])) < 10
                assert green < 10
                assert abs(blue - 200) < 10


def test_ctrl_c_does_not_wait_for_the_images_of_the_next_part(monkeypatch):
    """The signal comes while the second part is being prepared; no other image is."""
    photos(100)
    prepared, seen = prepare_run(asked("photos", out="out", workers=0)), []
    before = prepare.prepare_image

    def ring(fitter, image):
        seen.append(image.key)
        if image.key == "p040":
            os.kill(os.getpid(), signal.SIGINT)
        return before(fitter, image)

    monkeypatch.setattr(prepare, "prepare_image", ring)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(prepared)
    assert seen[-1] == "p040"
    assert len(list(Path("out/parts").glob("[0-9]*.json"))) == 1


@pytest.mark.parametrize(("rings", "ended"), [(1, 11), (2, 10)])
def test_the_first_ctrl_c_lets_the_batch_end_and_the_second_does_not_wait(
    monkeypatch, rings, ended
):
    """It comes in the second batch of the second part; the first part has nine: one alone, then
    fours."""
    photos(100)
    begun, done = [], []

    def ring(settings, keys, pixels, **more):
        begun.append(keys)
        for _ in range(rings * (len(begun) == 11)):
            signal.raise_signal(signal.SIGINT)
        result = run_forward(settings, keys, pixels, **more)
        done.append(keys)
        return result

    monkeypatch.setattr(chunk_runner, "run_forward", ring)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        inspect("photos", workers=0, batch_size=4)
    assert (len(begun), len(done)) == (11, ended)
    assert signal.getsignal(signal.SIGINT) is handler
    assert len(list(Path("out/parts").glob("[0-9]*.json"))) == 1


@pytest.mark.usefixtures("small_parts")
def test_parts_that_wait_for_a_slow_disk_are_not_lost_by_ctrl_c(monkeypatch):
    photos(26)
    before = chunks.write_chunk

    def slow(folder, part):
        time.sleep(0.1)
        before(folder, part)

    monkeypatch.setattr("hookcli.run.chunk_writer.write_chunk", slow)
    interrupt(asked("photos", out="out"), at="p025")
    assert len(list(Path("out/parts").glob("[0-9]*.json"))) == 3


# Memory that runs out

NARROW_NET = """
import torch

class Narrow(Net):
    def forward(self, x):
        outputs = super().forward(x)
        if len(x) > int(os.environ["ROOM"]):
            raise torch.OutOfMemoryError("tried to allocate")
        return outputs
"""


def test_a_batch_that_takes_too_much_memory_is_halved_and_that_is_said(run, monkeypatch):
    Path("net.py").write_text(SLOW_NET + NARROW_NET)
    photos(40)
    words = ("inspect", "net.py:Narrow", "photos", *NET[1:], "--batch-size", 8)
    for room in (8, 3):
        monkeypatch.setenv("ROOM", str(room))
        code, _, err = run(*words, "-o", f"room{room}")
        assert code == 0, err
    told = [line for line in err.splitlines() if "memory" in line]
    assert len(told) == 1, err
    assert "8 images ran out of memory" in told[0]
    assert "--batch-size 4" in told[0]
    assert (manifest("room8")["halved_batches"], files("room8")) == (0, files("room3"))
    # parts of 32 and 8; of 31 others 8, 8, 8, 7, each to 2 and 2 or 1 and 2; the 8 like the first
    # ones
    assert manifest("room3")["halved_batches"] == 3 + 3 + 3 + 2 + 3
    for one, two in zip(records("room8"), records("room3"), strict=True):
        assert (one["image"], one["call_id"]) == (two["image"], two["call_id"])
        near = 1e-4 * max(abs(one["mean"]), one["std"])
        for name in MEASURED:
            assert two[name] == pytest.approx(one[name], rel=0, abs=near)


# What is said


def test_quiet_says_nothing_but_warnings(run):
    photos(70)
    Path("photos/bad.png").write_bytes(b"")
    words = ("inspect", MODEL, "photos", *PLAIN, "-o", "out")
    code, _, err = run(*words, "--quiet")
    assert code == 6
    assert err.splitlines() == [
        "warning: the weights are RANDOM, as asked for",
        "warning: skipped 'photos/bad.png': is empty",
    ]


def test_a_resumed_run_says_where_it_goes_on_unless_quiet(run, cut):
    shutil.copytree("out", "quiet")
    words = ("inspect", MODEL, "photos", *PLAIN, "--resume")
    loud, quiet = run(*words, "-o", "out"), run(*words, "--quiet", "-o", "quiet")
    assert loud.err.splitlines()[2] == "continuing after 8 of 18 images"
    assert quiet.err.splitlines() == ["warning: the weights are RANDOM, as asked for"]


def test_every_ten_seconds_a_line_says_how_far_it_is(run, monkeypatch):
    """The test replaces the clock: the first 32 images take a minute, the others six seconds."""
    photos(150)
    ticks = itertools.chain([0], itertools.count(60, 6))
    monkeypatch.setattr(
        "hookcli.cli.output.progress.time", SimpleNamespace(monotonic=lambda: next(ticks))
    )
    code, _, err = run("inspect", MODEL, "photos", *PLAIN, "-o", "out")
    assert code == 0
    told = [line for line in err.splitlines() if " images/s" in line]
    assert told == [
        "32 of 150 images, 0.5 images/s, about 221 s left",
        "96 of 150 images, 5.3 images/s, about 10 s left",
        "150 of 150 images, 3.7 images/s, about 0 s left",
    ]
