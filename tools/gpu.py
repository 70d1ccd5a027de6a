"""Test hookcli on a GPU, and measure the figures of docs/speed.md.

    make test-gpu                         on a machine with a GPU and a network
    python tools/gpu.py                   the same, where hookcli's packages are installed
    python tools/gpu.py --device cpu --quick      a rehearsal without a GPU

For a GPU machine with torch and torchvision but no network, collect the other packages first:

    python tools/gpu.py --pack wheels --python 3.12      where hookcli is installed, with a network
    python tools/gpu.py --wheels wheels                  on the GPU machine, in a copy of this repository

This prints a table in Markdown, and ends with code 1 if a test fails or a figure misses its goal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import nn

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_images"
MODEL = "resnet34"
# The largest allowed L2 distance from the CPU in float32, relative to the norm of a layer.
TOLERANCES = {"float32": 1e-4, "float32 with TF32": 1e-2, "float16": 2e-2, "bfloat16": 1e-1}
THERE = ("torch", "torchvision", "numpy", "pillow")  # every machine with torchvision has these
# matplotlib and what it requires: without it, hookcli draws no pictures, but computes all figures
CHARTS = ("matplotlib", "contourpy", "kiwisolver", "fonttools", "cycler", "pyparsing")
LIMIT = 64.0  # MiB


@dataclass
class Report:
    """The rows of the table, and whether all goals were met."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def add(self, what: str, figure: str, goal: str = "", *, holds: bool = True) -> None:
        """Add a row; ``holds`` is whether the figure meets its goal."""
        self.rows.append((what, figure, goal))
        if not holds:
            self.missed.append(what)
        print(f"{what}: {figure}" + (f" (goal: {goal})" if goal else ""), flush=True)

    @contextlib.contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Turn an error in the ``with`` block into a row, so that the other parts still run."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any error of any part
            line = (str(error).splitlines() or [""])[0].replace("|", "/")[:200]
            self.add(what, f"failed: {type(error).__name__}: {line}", holds=False)


@dataclass(frozen=True)
class Job:
    """What to measure: on which device, and whether ``quick`` shortens everything."""

    device: str
    quick: bool

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a GPU of NVIDIA or AMD."""
        return self.device.startswith("cuda")

    @property
    def batch(self) -> int:
        return 8 if self.quick else 32

    def wait(self) -> None:
        """Wait until the device has done all its work."""
        import torch

        if self.is_cuda:
            torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu for a rehearsal")
    parser.add_argument("--quick", action="store_true", help="fewer images and turns")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--wheels", type=Path, help="install these wheels first, without a network")
    parser.add_argument("--pack", type=Path, help="collect the wheels in this folder, and stop")
    parser.add_argument("--python", default="3.12", help="with --pack: the version of Python there")
    parser.add_argument(
        "--have", default="", help="with --pack: packages that are there, with commas between them"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="with --pack: MiB of wheels and repository"
    )
    options = parser.parse_args()
    if not re.fullmatch(r"cpu|cuda(:\d+)?", options.device):
        parser.error(f"--device {options.device}: one of cuda, cuda:N and cpu")
    if options.pack:
        return pack(options.pack, options.python, options.have.split(","), options.limit)
    if options.wheels:
        return run_with_wheels(options.wheels)
    return check(Job(options.device, options.quick), options.out)


def check(job: Job, out: Path | None) -> int:
    sys.path.insert(0, str(ROOT))
    import torch

    if job.is_cuda and not torch.cuda.is_available():
        print("error: torch finds no GPU here: rehearse with --device cpu --quick", file=sys.stderr)
        return 2
    began = time.perf_counter()
    report = Report()
    lacking = [name for name in ("pyarrow", "safetensors", "msgspec") if find_spec(name) is None]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if lacking:
            names = ", ".join(lacking)
            report.add("whole commands", f"left out: {names} cannot be imported", holds=False)
        else:
            with report.part("tests"):
                run_tests(job, report)
            with report.part("main job"):
                run_main_job(job, report, home)
            with report.part("folder"):
                run_folder(job, report, home)
            if not find_spec("matplotlib"):
                report.add("pictures", "left out: matplotlib, which has their font, is not there")
        with report.part("forward pass"):
            time_forward(job, report)
        if job.is_cuda:
            with report.part("memory"):
                measure_memory(job, report)
            with report.part("synchronisations"):
                count_waits(job, report)
        else:
            report.add("peak memory and synchronisations", "left out: they need a GPU")
    table = render(job, report, time.perf_counter() - began)
    print(f"\n{table}")
    if out:
        out.write_text(table, encoding="utf-8")
    for what in report.missed:
        print(f"error: the goal is missed: {what}", file=sys.stderr)
    return int(bool(report.missed))


def render(job: Job, report: Report, seconds: float) -> str:
    """Return the table in Markdown, below a line that describes the machine."""
    import torch
    import torchvision

    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    where = f"the CPU (a rehearsal), {versions}"
    if job.is_cuda:
        device = torch.device(job.device)
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        where = (
            f"{torch.cuda.get_device_name(device)}, {memory:.0f} GiB, {versions}, CUDA"
            f" {torch.version.cuda}, {os.cpu_count()} CPU cores"
        )
    size = "quick, " if job.quick else ""
    lines = [
        f"Taken by `python tools/gpu.py` on {where} ({size}{seconds / 60:.1f} minutes).",
        "",
        "| what | figure | goal |",
        "| --- | --- | --- |",
        *(f"| {what} | {figure} | {goal} |" for what, figure, goal in report.rows),
    ]
    return "\n".join(lines) + "\n"


def run_tests(job: Job, report: Report) -> None:
    """Run the tests marked ``gpu``; in a rehearsal, only those that can run on a CPU."""
    files = [
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        if "mark.gpu" in file.read_text(encoding="utf-8")
    ]
    if not job.is_cuda:
        files = ["tests/world/test_gpu.py"]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = {"HOOKCLI_TEST_DEVICE": job.device, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-q", *files]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    for name in failed:
        print(f"  failed: {name}")
    counts = re.findall(r"^(?:=+ )?((?:\d+ \w+(?:, )?)+) in ", done.stdout, re.MULTILINE)
    dots = re.findall(r"^([.FEsx]+) +\[", done.stdout, re.MULTILINE)
    said = counts[-1] if counts else describe_dots("".join(dots))
    if done.returncode and not failed:
        print(done.stdout[-3000:], done.stderr[-3000:])
    report.add("tests marked `gpu`", said, "none fails", holds=not done.returncode)


def describe_dots(dots: str) -> str:
    """Count the tests that passed, failed and were skipped, in the letters that pytest prints."""
    words = {".": "passed", "F": "failed", "E": "errors", "s": "skipped"}
    return ", ".join(f"{dots.count(each)} {word}" for each, word in words.items() if each in dots)


def run_main_job(job: Job, report: Report, home: Path) -> None:
    """Compare every saved tensor of ``inspect`` with the CPU's in float32, for several dtypes."""
    import numpy as np

    truth = inspect("cpu", "float32", home / "cpu")
    for name, room in TOLERANCES.items():
        if not job.is_cuda and "TF32" in name:
            continue
        with products(tf32="TF32" in name):
            began = time.perf_counter()
            run = inspect(job.device, name.split()[0], home / name.replace(" ", "-"))
            seconds = time.perf_counter() - began
        worst, layer = max(
            (float(np.linalg.norm(run[call] - truth[call]) / np.linalg.norm(truth[call])), call)
            for call in truth
        )
        report.add(
            f"`inspect {MODEL}` on {job.device} in {name}, from the CPU in float32",
            f"{worst:.1e} of the norm, in {layer} ({len(truth)} layers, {seconds:.1f} s)",
            f"at most {room:.0e}",
            holds=list(run) == list(truth) and worst <= room,
        )


def inspect(device: str, dtype: Any, out: Path) -> dict[str, Any]:
    """Run ``hookcli inspect``, check its figures with numpy, and return its tensors by call id."""
    import numpy as np

    import hookcli
    from hookcli.config import (
        FolderRequest,
        GridStyle,
        ImageRequest,
        InspectConfig,
        ModelRequest,
        RunRequest,
        SaveStyle,
        TensorRequest,
    )
    from hookcli.run.pipeline import inspect_images

    request = RunRequest(
        ModelRequest(MODEL, "random", device=device, dtype=dtype),
        ImageRequest((str(SAMPLES / "cat.png"),)),
    )
    tensors = TensorRequest(SaveStyle())
    grids = GridStyle() if find_spec("matplotlib") else GridStyle("none")
    result = inspect_images(InspectConfig(request, FolderRequest(out), grids, tensors=tensors))
    run = hookcli.load_run(out)
    found = {}
    for row in result.rows:
        values = np.asarray(run[row.call_id], np.float64)
        figures = (values.mean(), values.std(), values.min(), values.max())
        stated = np.array((row.mean, row.std, row.min, row.max), np.float64)
        if not np.allclose(stated, figures, rtol=1e-4, atol=1e-4 * figures[1]):
            message = f"the figures of {row.call_id} are not those of its values"
            raise ValueError(message)
        found[row.call_id] = values
    return found


@contextlib.contextmanager
def products(*, tf32: bool) -> Iterator[None]:
    """Let convolutions compute in TF32, or in float32."""
    import torch

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
        yield


def run_folder(job: Job, report: Report, home: Path) -> None:
    """Compare the speed of hookcli over a folder of photos with a plain loop, in alternation."""
    count, turns = (24, 1) if job.quick else (300, 3)
    photos = home / "photos"
    make_photos(photos, count)
    pairs = []
    for turn in range(turns + 1):
        pair = (loop_over(job, photos), inspect_folder(job, photos, home / "run"))
        if turn or job.quick:  # the first turn warms up
            pairs.append(pair)
    ratios = [plain / mine for plain, mine in pairs]
    speed = count / statistics.median(mine for _, mine in pairs)
    report.add(
        f"images a second of {count} crops at batch {job.batch}, over a plain loop's",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f});"
        f" {speed:.0f} images/s",
        "at least 0.8" if job.is_cuda else "",
        holds=not job.is_cuda or statistics.median(ratios) >= 0.8,
    )


def make_photos(folder: Path, count: int) -> None:
    """Write square crops of the sample photos, from a fixed seed."""
    from PIL import Image

    folder.mkdir()
    choose = random.Random(0)  # noqa: S311
    photos = [Image.open(file).convert("RGB") for file in sorted(SAMPLES.glob("*.[pj][np]g"))]
    for number in range(count):
        photo = photos[number % len(photos)]
        side = choose.randint(200, min(photo.size))
        left, top = (choose.randint(0, length - side) for length in photo.size)
        crop = photo.crop((left, top, left + side, top + side))
        crop.save(folder / f"{number:05d}.jpg", quality=90)


def loop_over(job: Job, photos: Path) -> float:
    """Return the seconds of a plain loop: decode, prepare and run batches, without hooks."""
    import torch
    import torchvision
    from PIL import Image

    model = build(job, MODEL)
    transform = torchvision.models.ResNet34_Weights.DEFAULT.transforms()
    files = sorted(photos.iterdir())
    job.wait()
    began = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(files), job.batch):
            names = files[start : start + job.batch]
            batch = torch.stack([transform(Image.open(each).convert("RGB")) for each in names])
            model(batch.to(job.device)).cpu()
    return time.perf_counter() - began


def inspect_folder(job: Job, photos: Path, out: Path) -> float:
    """Return the seconds of hookcli's run over the same photos, from the first image on."""
    from hookcli.config import (
        FolderRequest,
        GridStyle,
        ImageRequest,
        InspectConfig,
        MachineRequest,
        ModelRequest,
        RunRequest,
    )
    from hookcli.plan.prepare import prepare_run
    from hookcli.run.pipeline import run

    request = RunRequest(
        ModelRequest(MODEL, "random", device=job.device),
        ImageRequest((str(photos),)),
    )
    prepared = prepare_run(
        InspectConfig(
            request,
            FolderRequest(out, overwrite=True),
            GridStyle("none"),
            batch_size=job.batch,
            machine=MachineRequest(workers=None),  # as the command line does
        )
    )
    job.wait()
    began = time.perf_counter()
    run(prepared)
    return time.perf_counter() - began


def build(job: Job, name: str) -> nn.Module:
    """Return a network of torchvision with random weights, on the device."""
    import torch
    import torchvision

    torch.manual_seed(0)
    model: nn.Module = torchvision.models.get_model(name, weights=None)
    return model.eval().to(job.device)


def forwards(
    job: Job, name: str, layers: str, count: int | None = None
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return functions: a plain forward pass, and one with figures of the first ``count`` layers."""
    import torch

    from hookcli.config import GridStyle
    from hookcli.hooks.filter import select_layers
    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.forward import ForwardSettings, run_forward

    model = build(job, name)
    pixels = torch.randn(job.batch, 3, 224, 224).to(job.device)
    chosen = select_layers(model, [layers])[:count]
    settings = ForwardSettings(EagerRunner(model, chosen), GridStyle(mode="none"))
    keys = [str(index) for index in range(job.batch)]

    def plain() -> torch.Tensor:
        with torch.inference_mode():
            output: torch.Tensor = model(pixels)
            return output

    return plain, lambda: run_forward(settings, keys, pixels)


def time_forward(job: Job, report: Report) -> None:
    """Time forward passes with figures and plain ones in alternation, and report the ratio."""
    for layers in ("conv", "leaf"):
        plain, observed = forwards(job, MODEL, layers)
        ratios = []
        for turn in range(2 if job.quick else 23):
            pair = []
            for action in (observed, plain):
                job.wait()
                began = time.perf_counter()
                action()
                job.wait()
                pair.append(time.perf_counter() - began)
            if turn > (0 if job.quick else 2):
                ratios.append(pair[0] / pair[1])
        report.add(
            f"forward pass with figures of `{layers}` at batch {job.batch}, over a plain one",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        )


def measure_memory(job: Job, report: Report) -> None:
    """Compare the peak GPU memory of a forward pass with figures and of a plain one."""
    import torch

    plain, observed = forwards(job, MODEL, "leaf")
    peaks = []
    for action in (plain, observed):
        action()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        action()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() / 2**20)
    ratio = peaks[1] / peaks[0]
    report.add(
        f"peak memory with figures of `leaf` at batch {job.batch}, over a plain forward pass",
        f"{ratio:.2f} ({peaks[1]:.0f} MiB over {peaks[0]:.0f})",
        "at most 1.25",
        holds=ratio <= 1.25,
    )


def count_waits(job: Job, report: Report) -> None:
    """Check that a forward pass synchronises with the GPU as often for 5 layers as for 50."""
    import torch

    counts = []
    for layers in (5, 50):
        _, observed = forwards(job, "resnet50", "conv", layers)
        observed()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                observed()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        counts.append(sum("synchroniz" in str(each.message) for each in caught))
    report.add(
        "synchronisations of a forward pass with figures of 5 and of 50 layers",
        f"{counts[0]} and {counts[1]}",
        "the same number, and at least 1",
        holds=counts[0] == counts[1] > 0,
    )


def pack(folder: Path, python: str, have: list[str], limit: float) -> int:
    """Download the wheels that hookcli and its tests need; ``limit`` is MiB with the repository."""
    wanted = sorted(list_needs("hookcli", {"pytest"}) - {normalize(each) for each in have})
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"error: {folder} is not empty: name a new folder", file=sys.stderr)
        return 2
    for name in wanted:
        if not download(f"{name}=={metadata.version(name)}", python, folder):
            print(
                f"warning: there is no wheel of {name} for Python {python}: another version is taken"
            )
            download(name, python, folder)
    room = limit * 2**20 - size_of_repository()
    if sum(sizes(folder).values()) > room and "pyarrow" in wanted:
        for file in folder.glob("pyarrow-*.whl"):
            file.unlink()
        oldest = lowest_version("pyarrow")
        print(f"note: pyarrow {oldest}, which is the smallest that hookcli allows, is taken")
        download(f"pyarrow=={oldest}.*", python, folder)
    leave_out(folder, room)
    kept = sizes(folder)
    total = (sum(kept.values()) + size_of_repository()) / 2**20
    print(f"{len(kept)} wheels in {folder}; with the repository {total:.1f} of {limit:g} MiB")
    lost = sorted(set(wanted) - set(map(name_of, kept)))
    if lost:
        print(f"without {', '.join(lost)}: the machine must have them, or some parts are left out")
    return 0


def leave_out(folder: Path, room: float) -> None:
    """Delete wheels until the rest has at most ``room`` bytes: first optional ones, then large ones."""
    while sum((kept := sizes(folder)).values()) > room:
        spare = [file for file in kept if name_of(file) in CHARTS]
        for file in spare or [max(kept, key=lambda file: kept[file])]:
            print(f"left out: {file.name} ({kept[file] / 2**20:.1f} MiB)")
            file.unlink()


def name_of(wheel: Path) -> str:
    return normalize(wheel.name.split("-")[0])


def list_needs(name: str, more: set[str]) -> set[str]:
    """Return all packages that ``name`` and ``more`` require, without those in ``THERE``."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = [name, *more]
    while waiting:
        each = normalize(waiting.pop())
        if each in found or each in THERE:
            continue
        found.add(each)
        for line in metadata.requires(each) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return found - {name}


def download(requirement: str, python: str, folder: Path) -> bool:
    """Download a wheel for Linux on x86-64, and return whether one exists."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for glibc in (34, 31, 28, 27, 24, 17, 12, 5):
        command += ["--platform", f"manylinux_2_{glibc}_x86_64"]
    command += ["--platform", "manylinux2014_x86_64", "--dest", str(folder), requirement]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def sizes(folder: Path) -> dict[Path, int]:
    """Return the size of every wheel of a folder, in bytes."""
    return {file: file.stat().st_size for file in sorted(folder.glob("*.whl"))}


def size_of_repository() -> int:
    """Return the size of all tracked files, in bytes."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = filter(None, listed.stdout.decode().split("\0"))
    return sum((ROOT / name).stat().st_size for name in names if (ROOT / name).is_file())


def lowest_version(name: str) -> str:
    """Return the lowest version of a dependency that ``pyproject.toml`` allows."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (found,) = (re.match(rf"{name}>=([\d.]+)", line) for line in needed if line.startswith(name))
    if found is None:
        message = f"pyproject.toml has no lowest version of {name}"
        raise ValueError(message)
    return found[1]


def normalize(name: str) -> str:
    """Return a package's normalized name, as PEP 503 defines it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run_with_wheels(folder: Path) -> int:
    """Install wheels into a temporary folder, and run this script again with them.

    The folder is put on PYTHONPATH. A virtual environment with ``--system-site-packages`` would not
    do: if it is made from another virtual environment, it lacks the packages of that one.
    """
    wheels = [str(file) for file in sorted(folder.glob("*.whl"))]
    if not wheels:
        print(f"error: there are no wheels in {folder}: collect them with --pack", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        done = subprocess.run([*command, "--target", target, *wheels], check=False)
        if done.returncode:
            print("error: pip could not install the wheels, as it says above", file=sys.stderr)
            return 2
        install_hookcli(Path(target))
        paths = [target, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        words = list(sys.argv[1:])
        for index, word in enumerate(words):
            if word == "--wheels":
                del words[index : index + 2]
                break
            if word.startswith("--wheels="):
                del words[index]
                break
        return subprocess.run(
            [sys.executable, str(Path(__file__)), *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=False,
        ).returncode


def install_hookcli(target: Path) -> None:
    """Write metadata of this repository's hookcli, which is then imported without installing it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    about = target / f"hookcli-{version}.dist-info"
    about.mkdir()
    text = f"Metadata-Version: 2.1\nName: hookcli\nVersion: {version}\n"
    (about / "METADATA").write_text(text)
    (about / "entry_points.txt").write_text(
        "[pytest11]\nhookcli = hookcli.integrations.pytest_plugin\n"
    )


if __name__ == "__main__":
    sys.exit(main())
