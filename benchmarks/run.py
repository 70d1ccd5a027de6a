"""`make bench`: speed and memory as ratios of hookcli and a plain program.

Absolute times say little on a shared machine, so the two sides of a ratio run in alternation,
and the median of several ratios is printed, with the goal beside it. Nothing is asserted. `--all`
adds the slowest comparison, which draws all maps (five turns of four minutes each).
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
PHOTO = HERE.parent / "sample_images" / "cat.png"
ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main() -> None:
    print(f"{'what':<58}{'median':>8}{'least':>8}{'most':>8}   goal")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        command = inspect_command(out / "run")
        report(
            "one image, table and 36 grids / bare script",
            pair_commands(command, [sys.executable, str(HERE / "bare.py"), str(PHOTO)], 7),
            "at most 0.75",
        )
        dinov2 = out / "dinov2-small"
        write_dinov2(dinov2)
        bare = [sys.executable, str(HERE / "bare_transformers.py"), str(dinov2)]
        report(
            "hf: DINOv2-S, one image, table and grids / bare script",
            pair_commands(
                inspect_command(out / "hf", f"hf:{dinov2}", "*.mlp.fc2"),
                [*bare, str(PHOTO)],
                7,
            ),
            "at most 1.0",
        )
        for words, goal in ((["--help"], "at most 0.12"), (["inspect", "--help"], "at most 0.18")):
            asked = [sys.executable, "-m", "hookcli", *words]
            times = [seconds(partial(run, asked)) for _ in range(8)][1:]
            report(f"seconds of hookcli {' '.join(words)}", times, goal)
        for what, channels in (("64 channels a layer", "64"), ("all 8,512 maps", "all")):
            ours = [*command, "--channels", "all"] if channels == "all" else command
            theirs = [
                sys.executable,
                str(HERE / "tutorial.py"),
                str(PHOTO),
                str(out / "t"),
                channels,
            ]
            turns = 5 if "--all" in sys.argv else 3
            if channels == "all" and "--all" not in sys.argv:
                continue
            slower = [1 / ratio for ratio in pair_commands(ours, theirs, turns, warm_up=False)]
            goal = "at least 18" if channels == "all" else ""
            report(f"tutorial way / whole command, {what} ({turns} turns)", slower, goal)
        report_onnx(out / "resnet34.onnx")
    for batch, goals in (
        (1, ("at most 1.15", "at most 1.3")),
        (8, ("at most 1.12", "")),
    ):
        for layers, goal in zip(("conv", "leaf"), goals, strict=True):
            ratios = pair_forwards(batch, layers)
            report(f"forward, figures of '{layers}', batch {batch} / bare forward", ratios, goal)
    report("seconds that the page adds", [page_seconds() for _ in range(7)], "at most 0.15")
    extra = sorted(peak_over_bare(8) for _ in range(5))
    print(
        f"{'peak memory over the bare forward, 36 convs, batch 8, MB':<58}"
        f"{statistics.median(extra):>8.1f}{extra[0]:>8.1f}{extra[-1]:>8.1f}   at most 100"
    )


def report_onnx(file: Path) -> None:
    """Report the comparison of a model with an ONNX file, which this writes to ``file``."""
    if lacking := [name for name in ONNX_PACKAGES if find_spec(name) is None]:
        print(f"no figures of ONNX files: install hookcli[onnx], which has {', '.join(lacking)}")
        return
    command = [sys.executable, "-m", "hookcli", "compare", "resnet34", str(PHOTO)]
    command += ["--weights", "random", "--against"]
    run([*command, "onnx", "--keep-export", str(file)])
    command += [f"onnx={file}"]
    bare = [sys.executable, str(HERE / "bare_onnx.py"), str(PHOTO), str(file)]
    report(
        "compare with an ONNX file / bare script", pair_commands(command, bare, 7), "at most 1.3"
    )
    ratios = pair_commands([*command, "--blame"], command, 7)
    report("compare with an ONNX file, with --blame / without", ratios, "at most 1.6")


def report(what: str, ratios: Sequence[float], goal: str) -> None:
    middle = statistics.median(ratios)
    print(f"{what:<58}{middle:>8.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}   {goal}", flush=True)


def inspect_command(out: Path, model: str = "resnet34", layers: str = "conv") -> list[str]:
    """Return the words of a ``hookcli inspect`` of one photo."""
    tool = [sys.executable, "-m", "hookcli", "inspect", model, str(PHOTO), "--layers", layers]
    weights = "pretrained" if model.startswith("hf:") else "random"
    return [*tool, "--weights", weights, "-o", str(out), "--overwrite"]


def write_dinov2(folder: Path) -> None:
    """Write a model of the size of DINOv2-S, with random weights, as ``save_pretrained`` does."""
    code = (
        "import sys, transformers as t\n"
        "sizes = dict(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14)\n"
        "t.Dinov2Model(t.Dinov2Config(**sizes)).save_pretrained(sys.argv[1])\n"
        "crop = dict(size={'shortest_edge': 256}, crop_size={'height': 224, 'width': 224})\n"
        "t.BitImageProcessor(**crop).save_pretrained(sys.argv[1])"
    )
    run([sys.executable, "-c", code, str(folder)])


def pair_commands(
    first: list[str], second: list[str], times: int, *, warm_up: bool = True
) -> list[float]:
    """Run two commands in alternation; return ratios of ``first``'s seconds to ``second``'s."""
    turns = times + warm_up
    ratios = [seconds(lambda: run(first)) / seconds(lambda: run(second)) for _ in range(turns)]
    return ratios[warm_up:]


def pair_forwards(batch: int, layers: str) -> list[float]:
    """Return ratios of the seconds of forward passes with figures to bare ones, in alternation."""
    import torch
    from torchvision.models import resnet34

    from hookcli.config import GridStyle
    from hookcli.hooks.filter import select_layers
    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.forward import ForwardSettings, run_forward

    torch.manual_seed(0)
    model = resnet34(weights=None).eval()
    pixels = torch.randn(batch, 3, 224, 224)
    keys = [str(index) for index in range(batch)]
    chosen = select_layers(model, [layers])
    settings = ForwardSettings(EagerRunner(model, chosen), GridStyle(mode="none"))

    def bare() -> None:
        with torch.inference_mode():
            model(pixels)

    for _ in range(3):
        bare()
        run_forward(settings, keys, pixels)
    times = 40 if batch == 1 else 12
    return [
        seconds(lambda: run_forward(settings, keys, pixels)) / seconds(bare) for _ in range(times)
    ]


def page_seconds() -> float:
    """Return the seconds in which a new process imports what the page needs, and renders it."""
    with tempfile.TemporaryDirectory() as folder:
        run(inspect_command(Path(folder) / "run"))
        code = (
            "import sys, time, json, pathlib; start = time.perf_counter()\n"
            "from hookcli.reading.report import read_report\n"
            "from hookcli.render.report.page import render_report\n"
            "from hookcli.reading.run_files import open_files\n"
            "render_report(*read_report(open_files(pathlib.Path(sys.argv[1]))))\n"
            "print(time.perf_counter() - start)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(Path(folder) / "run")],
            check=True,
            capture_output=True,
            text=True,
        )
    return float(done.stdout)


def peak_over_bare(batch: int) -> float:
    """Return how many MiB more peak memory a forward pass with figures needs than a bare one."""
    return peak_of("observed", batch) - peak_of("bare", batch)


def peak_of(side: str, batch: int) -> float:
    """Return the peak memory (MiB) of a new process that calls ``run_for_peak``."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), side, str(batch)],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def run_for_peak(side: str, batch: int) -> None:
    """In the new process: run three forward passes, and print the peak memory in MiB."""
    import torch
    from torchvision.models import resnet34

    from hookcli.config import GridStyle
    from hookcli.hooks.filter import select_layers
    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.forward import ForwardSettings, run_forward

    model = resnet34(weights=None).eval()
    pixels = torch.randn(batch, 3, 224, 224)
    chosen = select_layers(model, ["conv"])
    settings = ForwardSettings(EagerRunner(model, chosen), GridStyle(mode="none"))
    for _ in range(3):
        if side == "observed":
            run_forward(settings, [str(index) for index in range(batch)], pixels)
        else:
            with torch.inference_mode():
                model(pixels)
    # not ru_maxrss, which a process inherits from its parent
    status = Path("/proc/self/status").read_text()
    (peak,) = re.findall(r"VmHWM:\s+(\d+)", status)
    print(int(peak) / 1024)


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def run(command: list[str]) -> None:
    """Run a command silently; raise an error if it fails."""
    subprocess.run(command, check=True, capture_output=True, env=os.environ)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run_for_peak(sys.argv[1], int(sys.argv[2]))
    else:
        main()
