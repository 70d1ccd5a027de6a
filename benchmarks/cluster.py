"""The last part of `make bench`: a folder of photos with `--cluster auto`, and without.

Images per second are measured in the middle half of a run, which leaves out the start of Ray and of
its workers. The time of this start is printed, too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from folders import BATCH, make_photos, plain_loop, report
from PIL import Image

from hookcli.cluster.run import run_on_cluster
from hookcli.config import (
    ClusterRequest,
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
)
from hookcli.plan.prepare import prepare_run
from hookcli.run.listener import ProgressListener
from hookcli.run.pipeline import run

PHOTOS, TURNS = 2000, 3
FEW, MANY = 2000, 20_000
TOY = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
"""


class Stopwatch(ProgressListener):
    """Records the times at which chunks are done."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.moments: list[tuple[float, int]] = []

    def chunk_done(self, done: int, skipped: int) -> None:  # noqa: ARG002
        self.moments.append((time.perf_counter(), done))

    @property
    def speed(self) -> float:
        """Images per second in the middle half of the run."""
        quarter = len(self.moments) // 4
        (first, few), (last, many) = self.moments[quarter], self.moments[-quarter - 1]
        return (many - few) / (last - first)

    @property
    def start(self) -> float:
        """Seconds until the first chunk was done."""
        return self.moments[0][0] - self.began


def main() -> None:
    photos = int(sys.argv[1]) if len(sys.argv) > 1 else PHOTOS
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_photos(home / "photos", photos)
        print(f"{'what':<62}{'median':>8}{'least':>8}{'most':>8}   goal")
        turns = [(measure(home), measure(home, ClusterRequest("auto"))) for _ in range(TURNS)]
        plain = [photos / plain_loop(home / "photos") for _ in range(TURNS)]
        local, spread = ([each[i].speed for each in turns] for i in (0, 1))
        over_local = [b / a for a, b in zip(local, spread, strict=True)]
        report(f"--cluster auto over a local run, {photos} photos", over_local, "at least 1.15")
        over_plain = [a / b for a, b in zip(spread, plain, strict=True)]
        report("--cluster auto over a plain loop", over_plain, "at least 1.0")
        report("images/s on --cluster auto", spread, "")
        report("seconds until its first chunk is done", [b.start for _, b in turns], "")
        few, many = (driver_memory(home, count) for count in (FEW, MANY))
        report(f"memory of the driver at {MANY} images over {FEW}", [many / few], "at most 1.1")


def measure(home: Path, cluster: ClusterRequest | None = None) -> Stopwatch:
    """Run the photos through ResNet-34, with figures of 36 convolutions."""
    config = InspectConfig(
        RunRequest(
            ModelRequest("resnet34", weights="random", device="cpu"),
            ImageRequest((str(home / "photos"),)),
        ),
        FolderRequest(home / "run", overwrite=True),
        GridStyle("none"),
        batch_size=BATCH,
    )
    prepared, watch = prepare_run(config), Stopwatch()
    if cluster is None:
        run(prepared, watch)
    else:
        run_on_cluster(prepared, cluster, watch)
    return watch


def driver_memory(home: Path, count: int) -> float:
    """Return the peak memory (MB) of the driver of a run over ``count`` small pictures."""
    (home / "toy.py").write_text(TOY)
    pictures = home / f"pictures-{count}"
    pictures.mkdir()
    Image.effect_noise((16, 16), 50).convert("RGB").save(home / "picture.png")
    for number in range(count):
        (pictures / f"{number:06d}.png").hardlink_to(home / "picture.png")
    words = ("toy.py:make", str(pictures), "--size", "16", "--grids", "none", "--device", "cpu")
    code = (
        "import sys; from hookcli.__main__ import _run; sys.argv[1:1] = ['inspect']; _run(); "
        "print(open('/proc/self/status').read(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--cluster", "auto", "-q", "--format", "csv"],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
    )
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert peak is not None, done.stderr  # noqa: S101
    return int(peak[1]) / 1e3


if __name__ == "__main__":
    main()
