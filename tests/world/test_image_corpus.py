"""Pillow's own test images, about a thousand files of every kind and many broken ones, as
one run.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_image

from hookcli.images.read import read_images

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

MOST_MEMORY = 8e9
MOST_SECONDS = 600
PROGRESS = re.compile(r"\d+ of \d+ images, [\d.]+ images/s(, \d+ skipped)?, about \d+ s left$")


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    memory: float
    folder: Path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The folder of the images, out of the sources of the Pillow that is published now."""
    folder = tmp_path_factory.mktemp("pillow")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-deps", "--no-binary", "pillow", "--dest", folder, "pillow"],
        check=True,
        timeout=MOST_SECONDS,
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(folder, filter="data")
    (images,) = folder.glob("*/Tests/images")
    return images


@pytest.fixture(scope="module")
def files(corpus):
    return sorted(str(file.relative_to(corpus)) for file in corpus.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def ended(corpus, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    words = ["inspect", "resnet18", "--weights", "random", "--size", "64", "--layers", "conv1"]
    words += ["--grids", "none", "--device", "cpu", "--out", str(folder / "out"), "--", *files]
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        started = subprocess.Popen(
            [sys.executable, "-m", "hookcli", *words], cwd=corpus, stdout=out, stderr=err
        )
        _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    memory = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    out, err = (folder / "stdout").read_text(), (folder / "stderr").read_text()
    return Ended(started.returncode, out, err, memory, folder / "out")


@pytest.fixture(scope="module")
def manifest(ended):
    return json.loads((ended.folder / "manifest.json").read_text())


@pytest.fixture
def upright(corpus):
    """A picture of the corpus, as the tool sees it, as (H, W, C)."""

    def read(name):
        ((source,), _) = read_images([str(corpus / name)])
        return np.asarray(source.read().pictures[0]).astype(float)

    return read


# --- one run over all


def test_every_file_is_recorded_under_its_own_key_or_skipped(ended, files, manifest):
    assert len(files) > 1000
    assert ended.code == 6
    assert ended.memory < MOST_MEMORY
    recorded = [image["file"] for image in manifest["images"]]
    skipped = [image["file"] for image in manifest["skipped"]]
    assert sorted(recorded + skipped) == files
    assert len(recorded) > 800
    keys = [image["key"].lower() for image in manifest["images"]]
    assert len(set(keys)) == len(keys)


def test_every_reason_is_a_readable_line(ended, manifest):
    for skipped in manifest["skipped"]:
        reason = skipped["reason"]
        assert 5 < len(reason) < 200, skipped
        assert reason.isprintable(), skipped
        assert not re.search(r"<|>|\b0x|b'|PIL|Error|Exception|Errno|error -?\d|literal", reason), (
            skipped
        )
    with (ended.folder / "skipped.csv").open(newline="") as table:
        assert list(csv.DictReader(table)) == manifest["skipped"]


def test_nothing_but_our_own_lines_is_on_stderr(ended, files, manifest):
    skipped = [f"warning: skipped {s['file']!r}: {s['reason']}" for s in manifest["skipped"]]
    plan, random, *lines, wrote = ended.err.splitlines()
    # of so many, what is an image turns out on the way
    assert plan.startswith(f"resnet18: 1 layer, {len(files)} images, ")
    assert random == "warning: the weights are RANDOM, as asked for"
    assert [line for line in lines if not PROGRESS.match(line)] == skipped
    written = sum(file.is_file() for file in ended.folder.rglob("[!.]*"))
    told = f"wrote {written} files into {ended.folder}"
    assert wrote == f"{told}; {len(skipped)} images skipped, see skipped.csv"


# --- the pictures are right


TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a[::-1].swapaxes(0, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a[:, ::-1].swapaxes(0, 1),
}


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("kind", ["jpg", "webp"])
def test_every_turned_variant_of_a_picture_is_the_picture(upright, corpus, kind, orientation):
    name = f"hopper_orientation_{orientation}.{kind}"
    with Image.open(corpus / name) as image:
        stored = np.asarray(image.convert("RGB")).astype(float)
    assert np.array_equal(upright(name), TURNS[orientation](stored))
    # each variant was coded anew, and a mirrored block is rounded otherwise
    assert np.abs(upright(name) - upright("hopper.jpg")).mean() < 8


@pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")
def test_png_files_are_what_libpng_itself_reads(upright, corpus, manifest):
    compared = 0
    for name in (image["file"] for image in manifest["images"]):
        data = (corpus / name).read_bytes()
        if (
            not data.startswith(PNG)
            or data[25] == PALETTE
            or any(word in data for word in TURNED_OR_CLEAR)
        ):
            continue
        assert np.abs(upright(name) - by_libpng(corpus / name)).max() <= 1, name
        compared += 1
    assert compared > 300


PNG, PALETTE, TURNED_OR_CLEAR = b"\x89PNG\r\n\x1a\n", 3, (b"tRNS", b"rientation", b"Raw profile")


def by_libpng(file):
    """The picture as torchvision's decoder gives it, alpha on white, as (H, W, 3)."""
    stored = decode_image(str(file), ImageReadMode.UNCHANGED)
    values = stored.double() / (257 if stored.dtype == torch.uint16 else 1)
    if len(values) in (2, 4):
        alpha = values[-1:] / 255
        values = values[:-1] * alpha + 255 * (1 - alpha)
    return values.expand(3, -1, -1).permute(1, 2, 0).numpy()
