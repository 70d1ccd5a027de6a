"""The fourth part of `make bench`: the cost of sketches in a forward pass of one or 8 images."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch
from torchvision.models import resnet34

from hookcli.activations.sketch import take_sketches
from hookcli.config import GridStyle
from hookcli.hooks.filter import select_layers
from hookcli.hooks.observe import observe
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import ForwardSettings, run_forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hookcli.records.calls import Call

FORMS = {  # the number of images, the memory format, and the number of turns
    "one image": (1, torch.contiguous_format, 60),
    "8 images channels last": (8, torch.channels_last, 20),
}


def main() -> None:
    """Print the cost of figures and sketches of ResNet-34's 36 convolutions in a forward pass."""
    torch.manual_seed(0)
    print(f"{'forward of ResNet-34 / bare forward':<58}{'median':>8}{'least':>8}{'most':>8}   goal")
    for form, (images, memory_format, turns) in FORMS.items():
        model = resnet34(weights=None).eval().to(memory_format=memory_format)
        pixels = torch.randn(images, 3, 224, 224).contiguous(memory_format=memory_format)
        for what, ratios in measure(model, pixels, turns).items():
            goal = "at most 1.10" if what == "sketches alone" else ""
            figures = (statistics.median(ratios), min(ratios), max(ratios))
            print(
                f"{form}, {what:<{56 - len(form)}}"
                + "".join(f"{f:>8.2f}" for f in figures)
                + f"   {goal}"
            )


def measure(model: torch.nn.Module, pixels: Tensor, turns: int) -> dict[str, list[float]]:
    """Return ratios of the seconds of each kind of forward pass to a bare one, in alternation."""
    keys = [str(index) for index in range(len(pixels))]
    chosen = select_layers(model, ["conv"])
    style = GridStyle(mode="none")
    figures = ForwardSettings(EagerRunner(model, chosen), style)
    both = ForwardSettings(EagerRunner(model, chosen), style, sketch=True)

    def bare() -> None:
        with torch.inference_mode():
            model(pixels)

    def sketch(_call: Call, tensor: Tensor) -> None:
        take_sketches(tensor)

    def alone() -> None:
        with torch.inference_mode(), observe(model, chosen, sketch):
            model(pixels)

    kinds: dict[str, Callable[[], object]] = {
        "sketches alone": alone,
        "figures": lambda: run_forward(figures, keys, pixels),
        "figures and sketches": lambda: run_forward(both, keys, pixels),
    }
    ratios: dict[str, list[float]] = {what: [] for what in kinds}
    for turn in range(turns + 3):
        for what, forward in kinds.items():
            plain = seconds(bare)
            ratio = seconds(forward) / plain
            if turn >= 3:  # the first turns warm up
                ratios[what].append(ratio)
    return ratios


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
