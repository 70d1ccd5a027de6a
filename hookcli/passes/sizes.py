"""The sizes of a model's tensors: estimated from its modules, or measured in one forward pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hookcli.activations.pooling import saved_shape
from hookcli.errors import RequestError
from hookcli.networks.task import COLOURS
from hookcli.outside.foreign import ask
from hookcli.passes.runner import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from hookcli.config import SaveStyle
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import Call, LayerInfo

_WIDTHS = ("out_channels", "num_features", "out_features", "embed_dim")  # attributes of modules


def guess_widths(model: nn.Module, layers: Sequence[LayerInfo]) -> list[int]:
    """Estimate the number of channels of each layer; the model does not run.

    If the attributes of a module do not state the number of channels, hookcli takes the number of
    the module registered before. For a block, it takes the number of the last submodule.
    """
    width, widths = COLOURS, dict[str, int]()
    modules = dict(model.named_modules())
    for path, module in modules.items():
        own = _width_of(module)
        if own is not None or not any(module.children()):
            width = widths[path] = width if own is None else own
    for path in reversed(modules):
        names = reversed([name for name, _ in modules[path].named_children()])
        inside = [each for name in names if (each := f"{path}.{name}".lstrip(".")) in modules]
        widths.setdefault(path, widths[inside[0]] if inside else width)
    return [widths.get(layer.module_path, width) for layer in layers]


def _width_of(module: nn.Module) -> int | None:
    widths = (ask(module, name) for name in _WIDTHS)
    width = next((width for width in widths if width is not None), None)
    shape = ask(module, "normalized_shape")
    width = shape[-1] if isinstance(shape, tuple) and shape else width
    return width if isinstance(width, int) else None


def measure_saved(runner: Runner, pixels: Tensor, style: SaveStyle) -> int:
    """Return how many bytes of tensors a run saves for one image, from a run of the model."""
    runner = runner.plain or runner
    size = runner.size_of(pixels)
    total = 0

    def measure(call: Call, tensor: Tensor) -> None:
        nonlocal total
        layout = call.layout_of(tuple(tensor.shape), size)
        shape = saved_shape(tuple(tensor.shape), layout, style)
        kept = tensor.dtype if style.dtype is None else getattr(torch, style.dtype)
        total += math.prod(shape) * kept.itemsize

    with runner.unchanged():
        runner.run(Batch([""], runner.place(pixels)), measure)
    if style.channels is not None and not total:
        raise RequestError(
            "no selected layer has any of the channels that `save.channels` asks for",
            "channels are counted from 0; `hookcli.layers(MODEL)` shows how many there are",
        )
    return total
