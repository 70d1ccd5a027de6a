"""The second part of `make bench`: hookcli over a folder of photos, a plain loop, and torchlens.

The photos are crops of the sample photos. hookcli and torchlens observe ResNet-34's 36 convolutions
on the CPU. Imports and building the model are left out. Each turn runs the loop or torchlens, and
then hookcli.
"""

from __future__ import annotations

import itertools
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torchvision
from PIL import Image

from hookcli.config import (
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
)
from hookcli.hooks.filter import select_layers
from hookcli.plan.prepare import prepare_run
from hookcli.run.listener import ProgressListener
from hookcli.run.pipeline import run
from hookcli.summary.chunks import chunk_size

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = Path(__file__).parent.parent / "sample_images"
PHOTOS, TURNS = 300, 5
FEW, MANY = 200, 2000
BATCH = 8
CHUNK = chunk_size(BATCH)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_photos(home / "photos", PHOTOS)
        print(f"{'what':<62}{'median':>8}{'least':>8}{'most':>8}   goal")
        pairs = [(plain_loop(home / "photos"), ours(home)) for _ in range(TURNS)]
        speeds = [plain / mine for plain, mine in pairs]
        report(f"images/s over a plain loop's, {PHOTOS} photos", speeds, "at least 0.9")
        report("images/s", [PHOTOS / mine for _, mine in pairs], "")
        with_torchlens(home)
        make_photos(home / "many", MANY)
        make_photos(home / "few", FEW)
        (_, small), (chunks, large) = (alone(home, name) for name in ("few", "many"))
        report(f"peak memory at {MANY} images over {FEW}", [large / small], "at most 1.05")
        few = FEW // CHUNK
        early, late = chunks[1 : few + 1], chunks[-few - 3 : -3]  # without both ends
        cost = statistics.median(late) / statistics.median(early)
        report(
            f"seconds an image, near the end of {MANY} over near the start", [cost], "0.9 to 1.1"
        )


def report(what: str, values: list[float], goal: str) -> None:
    middle = statistics.median(values)
    print(f"{what:<62}{middle:>8.2f}{min(values):>8.2f}{max(values):>8.2f}   {goal}", flush=True)


def make_photos(folder: Path, count: int) -> None:
    """Write square crops of the sample photos, from a fixed seed."""
    folder.mkdir()
    choose = random.Random(0)  # noqa: S311
    photos = [Image.open(file).convert("RGB") for file in sorted(SAMPLES.glob("*.[pj][np]g"))]
    for number in range(count):
        photo = photos[number % len(photos)]
        side = choose.randint(200, min(photo.size))
        left, top = (choose.randint(0, length - side) for length in photo.size)
        crop = photo.crop((left, top, left + side, top + side))
        crop.save(folder / f"{number:05d}.jpg", quality=90)


def plain_loop(folder: Path) -> float:
    """Return the seconds of a plain loop: decode, prepare and run batches, without hooks."""
    model, transform = plain_model()
    files = sorted(folder.iterdir())
    began = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(files), BATCH):
            batch = [transform(Image.open(f).convert("RGB")) for f in files[start : start + BATCH]]
            model(torch.stack(batch))
    return time.perf_counter() - began


def plain_model() -> tuple[torch.nn.Module, Callable[[Image.Image], torch.Tensor]]:
    """Return ResNet-34 with random weights, and the transforms of its trained weights."""
    torch.manual_seed(0)
    model = torchvision.models.resnet34(weights=None).eval()
    return model, torchvision.models.ResNet34_Weights.DEFAULT.transforms()


def ours(home: Path, photos: str = "photos", watcher: ProgressListener | None = None) -> float:
    """Return the seconds of a run of hookcli, from reading the first image to the manifest."""
    config = InspectConfig(
        RunRequest(
            ModelRequest("resnet34", weights="random", device="cpu"),
            ImageRequest((str(home / photos),)),
        ),
        FolderRequest(home / f"{photos}-run", overwrite=True),
        GridStyle("none"),
        batch_size=BATCH,
    )
    prepared = prepare_run(config)
    began = time.perf_counter()
    run(prepared, watcher)
    return time.perf_counter() - began


def with_torchlens(home: Path) -> None:
    """Compare with ``torchlens.extract_dataset`` on the same layers; it keeps means of the maps."""
    try:
        import torchlens
    except ImportError:
        print("torchlens is not installed: pip install torchlens")
        return
    count = 64
    make_photos(home / "some", count)
    model, transform = plain_model()
    layers = [layer.module_path for layer in select_layers(model, ("conv",), ())]
    ratios = []
    for _ in range(TURNS):
        began = time.perf_counter()
        stimuli = [
            transform(Image.open(f).convert("RGB")) for f in sorted((home / "some").iterdir())
        ]
        torchlens.extract_dataset(
            model,
            torch.stack(stimuli),
            layers,
            batch_size=BATCH,
            progress=False,
            pool="spatial_mean",
        )
        ratios.append((time.perf_counter() - began) / ours(home, "some"))
    report(f"torchlens extract_dataset over hookcli, {count} photos", ratios, "at least 6")


def alone(home: Path, photos: str) -> tuple[list[float], int]:
    """Run in a new process; return the seconds of each whole chunk, and the peak memory in MB."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), str(home), photos],
        capture_output=True,
        text=True,
        check=True,
    )
    *moments, peak = map(float, done.stdout.split())
    return [end - begin for begin, end in itertools.pairwise(moments)], int(peak)


class Stopwatch(ProgressListener):
    """Prints the moment at which each whole chunk is done."""

    def chunk_done(self, done: int, skipped: int) -> None:  # noqa: ARG002
        if done % CHUNK == 0:
            print(time.perf_counter())


def print_moments(home: Path, photos: str) -> None:
    """In the new process of ``alone``: print the times of chunks, and the peak memory in MB."""
    print(time.perf_counter())
    ours(home, photos, Stopwatch())
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None  # noqa: S101
    print(int(peak[1]) / 1e3)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print_moments(Path(sys.argv[1]), sys.argv[2])
    else:
        main()
