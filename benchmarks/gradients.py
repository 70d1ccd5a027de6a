"""The third part of `make bench`: forward and backward passes with hooks, and without."""

from __future__ import annotations

import statistics
import time
from functools import partial

import torch
from torchvision.models import resnet34

from hookcli.config import BackwardStyle, GridStyle
from hookcli.hooks.filter import select_layers
from hookcli.networks.scores import Scorer, score_output
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import BackwardSettings, run_backward

TURNS = 25


def main() -> None:
    torch.manual_seed(0)
    model = resnet34(weights=None).eval()
    pixels = torch.randn(1, 3, 224, 224)
    style = BackwardStyle()
    score = partial(score_output, style=style, aim=None, categories=())

    def bare() -> None:
        output = model(pixels)
        output[0, output[0].argmax()].backward()
        model.zero_grad(set_to_none=True)

    for layers, goal in (("conv", "at most 1.25"), ("leaf", "")):
        chosen = select_layers(model, [layers])
        grids = GridStyle(mode="none")
        settings = BackwardSettings(EagerRunner(model, chosen), grids, {"": Scorer(score)}, style)
        ratios = []
        for turn in range(TURNS + 2):
            began = time.perf_counter()
            bare()
            middle = time.perf_counter()
            run_backward(settings, ["photo"], pixels)
            if turn >= 2:  # the first turns warm up
                ratios.append((time.perf_counter() - middle) / (middle - began))
        what = f"gradients of '{layers}' and their parameters / bare forward and backward"
        figures = (statistics.median(ratios), min(ratios), max(ratios))
        print(f"{what:<72}" + "".join(f"{figure:>8.2f}" for figure in figures) + f"   {goal}")


if __name__ == "__main__":
    main()
