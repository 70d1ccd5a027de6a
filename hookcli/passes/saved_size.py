"""How large the tensors of an image are that a run saves: one forward, of which shapes are read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hookcli.activations.pooling import saved_shape
from hookcli.errors import RequestError
from hookcli.passes.eager import EagerRunner
from hookcli.passes.runner import Batch
from hookcli.passes.unchanged import unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.config import SaveStyle
    from hookcli.models.load import LoadedModel
    from hookcli.records.calls import Call, LayerInfo


def measure_saved(
    loaded: LoadedModel, layers: Sequence[LayerInfo], at: str, style: SaveStyle
) -> int:
    """Return the bytes that the saved tensors of the first image take.

    The model runs once, and only the shapes of its tensors are read.

    Raises:
        RequestError: no selected layer has any of the channels that are to be saved.
        ForwardError: the model raised an exception.
    """
    runner = EagerRunner.of(loaded, layers, at)
    pixels = loaded.pixels_to_try()
    size = runner.size_of(pixels)
    total = 0

    def measure(call: Call, tensor: Tensor) -> None:
        nonlocal total
        layout = call.layer.layout_of(tuple(tensor.shape), size)
        shape = saved_shape(tuple(tensor.shape), layout, style)
        kept = tensor.dtype if style.dtype is None else getattr(torch, style.dtype)
        total += math.prod(shape) * kept.itemsize

    with unchanged(loaded.module):
        runner.run(Batch([""], pixels), measure)
    if style.channels is not None and not total:
        raise RequestError(
            "no selected layer has any of the channels that --tensor-channels asks for",
            "channels are counted from 0; hookcli layers MODEL shows how many there are",
        )
    return total
