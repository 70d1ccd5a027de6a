"""The cost of observing operations and attention, as ratios of alternating forward passes.

Run ``make bench`` while nothing else runs on the machine.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch
from torchvision.models import resnet34, vit_b_16

from hookcli.config import GridStyle
from hookcli.hooks.filter import select_layers
from hookcli.hooks.layers import list_layers
from hookcli.hooks.observe import observe
from hookcli.networks.inputs import PLAIN
from hookcli.passes.attention_run import AttentionSettings, attend
from hookcli.passes.eager import EagerRunner
from hookcli.passes.find_operations import find_operations
from hookcli.passes.forward import ForwardSettings, run_forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.records.calls import LayerInfo

TIMES = 30


def main() -> None:
    torch.manual_seed(0)
    model = resnet34(weights=None).eval()
    pixels = torch.randn(1, 3, 224, 224)
    operations = find_operations(model, (pixels,))
    forwards = {
        name: observed(model, select_layers(model, forms, operations=operations), pixels)
        for name, forms in {
            "all modules": ["all"],
            "op:*": ["op:*"],
            "all modules and op:*": ["all", "op:*"],
        }.items()
    }

    def bare() -> None:
        with torch.inference_mode():
            model(pixels)

    deepest = 0

    def look(_call: object, _tensor: object) -> None:
        nonlocal deepest
        deepest = max(deepest, torch._C._len_torch_function_stack())

    with observe(model, select_layers(model, ["all"]), look):
        bare()
    print(f"modes entered for all modules: {deepest}  (goal 0)")
    every = forwards["all modules"]
    print(ratio("all modules / bare", every, bare))
    print(ratio("op:* / all modules", forwards["op:*"], every), " (goal 1.6)")
    print(ratio("all modules and op:* / all modules", forwards["all modules and op:*"], every))
    print(attention())


def attention() -> str:
    """Return the ratio of a forward pass of vit_b_16 with all its attention to a bare one."""
    torch.manual_seed(0)
    model = vit_b_16(weights=None).eval()
    pixels = torch.randn(1, 3, 224, 224)
    settings = AttentionSettings(model, PLAIN, lambda: pixels, list_layers(model)[:1], draws=False)
    found = settings.find(pixels)

    def bare() -> None:
        with torch.inference_mode():
            model(pixels)

    def attended() -> None:
        with torch.inference_mode(), attend(settings, "image", pixels) as attending:
            model(pixels)
        if attending is not None:
            attending.finish()

    what = f"attention of the {len(found.calls)} layers of vit_b_16 / bare"
    return f"{ratio(what, attended, bare)}  (goal 1.5)"


def observed(
    model: torch.nn.Module, layers: tuple[LayerInfo, ...], pixels: torch.Tensor
) -> Callable[[], object]:
    """Return a forward pass with hooks, which computes figures and draws no pictures."""
    settings = ForwardSettings(EagerRunner(model, layers), GridStyle(mode="none"))
    return lambda: run_forward(settings, ["image"], pixels)


def ratio(what: str, one: Callable[[], object], other: Callable[[], object]) -> str:
    """Return the median and quartiles of ``one``'s seconds over ``other``'s, in alternation."""
    for _ in range(3):
        one()
        other()
    ratios = [seconds(one) / seconds(other) for _ in range(TIMES)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{what}: {middle:.2f} ({low:.2f} to {high:.2f})"


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
