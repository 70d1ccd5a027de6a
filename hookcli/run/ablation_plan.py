"""The plan of an ablation: which channels are zeroed, found in passes of one image, and of two."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from hookcli.errors import ForwardError, RequestError
from hookcli.hooks.layers import explain_uncalled
from hookcli.hooks.observe import observe
from hookcli.images.prepare import prepare_image
from hookcli.passes.call import has_rows, run_model
from hookcli.records.calls import Uncalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from hookcli.config import AblationStyle
    from hookcli.networks.load import LoadedModel
    from hookcli.plan.prepared import EagerModel
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.images import SkippedImage


@dataclass(frozen=True, slots=True)
class AblationLayer:
    """A layer whose channels are zeroed."""

    layer: LayerInfo
    channels: tuple[int, ...]  # counted from 0, in order
    keys: frozenset[str]  # of the output tensors that have these channels
    alone: bool  # whether each channel needs a forward pass of its own


@dataclass(frozen=True, slots=True)
class AblationBatch:
    """One forward pass, whose ``rows`` rows all hold the same image."""

    rows: int
    # the module path and the channel to zero in each row; hookcli zeroes nothing in more rows
    places: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AblationPlan:
    """The channels that an ablation will zero, and the forward passes that it takes."""

    layers: tuple[AblationLayer, ...]
    uncalled: tuple[Uncalled, ...]
    images: int  # how many run
    batch_size: int  # the most rows in a forward pass
    skipped: tuple[SkippedImage, ...] = ()

    @property
    def places(self) -> list[tuple[str, int]]:
        """The module path and the number of each channel to zero, in order."""
        return [(each.layer.module_path, c) for each in self.layers for c in each.channels]

    @property
    def batches(self) -> list[AblationBatch]:
        """For each size of a batch, a pass without zeroing; then the passes with zeroing."""
        alone = {each.layer.module_path for each in self.layers if each.alone}
        shared = [place for place in self.places if place[0] not in alone]
        rows = max(1, min(self.batch_size, len(shared)))
        zeroed = [
            AblationBatch(rows, tuple(shared[i : i + rows])) for i in range(0, len(shared), rows)
        ]
        zeroed += [AblationBatch(1, (place,)) for place in self.places if place[0] in alone]
        return [*map(AblationBatch, dict.fromkeys(batch.rows for batch in zeroed)), *zeroed]

    @property
    def forwards(self) -> int:
        """The number of forward passes, over all images."""
        return len(self.batches) * self.images


def plan_ablation(
    model: EagerModel, style: AblationStyle, pixels: Tensor | None = None
) -> AblationPlan:
    """Return which channels will be zeroed, in which forward passes; weights are not needed."""
    loaded, layers = model.loaded, model.runner.layers
    if pixels is None:
        pixels = prepare_image(model.fitter, model.sources[0]).pixels
    if pixels is None:  # the image cannot be read: use zeros of the usual size
        pixels = torch.zeros(loaded.prepare.nominal_shape[1:])
    pixels = model.runner.place(pixels.unsqueeze(0))
    one = _observe_shapes(loaded, layers, pixels)
    two = one
    is_batched = not loaded.inputs.alone and style.batch_size > 1
    if is_batched:
        try:
            two = _observe_shapes(loaded, layers, torch.cat([pixels, pixels]))
        except ForwardError:
            is_batched = False  # the model accepts one image at a time
    with loaded.guard():
        is_batched = is_batched and has_rows(one.output, 1) and has_rows(two.output, 2)
    size = loaded.inputs.size_of(pixels)
    ablated = []
    for layer in layers:
        path = layer.module_path
        if path in one.shapes:
            leads = {shape[:1] for _, shape in one.shapes[path]}
            leads_of_two = {shape[:1] for _, shape in two.shapes.get(path, ())}
            alone = not is_batched or leads != {(1,)} or leads_of_two != {(2,)}
            ablated.append(_describe(layer, one.shapes[path], size, style, alone=alone))
    if not ablated:
        raise RequestError(
            "none of the layers runs and returns floating-point numbers",
            "`hookcli.layers(MODEL)` shows what runs",
        )
    uncalled = [
        Uncalled(layer, _explain(loaded.module, layer, one))
        for layer in layers
        if layer.module_path not in one.shapes
    ]
    return AblationPlan(tuple(ablated), tuple(uncalled), len(model.sources), style.batch_size)


@dataclass(slots=True)
class _Shapes:
    # by module path
    shapes: dict[str, list[tuple[Call, tuple[int, ...]]]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    output: object = None

    def __call__(self, call: Call, tensor: Tensor) -> None:
        if tensor.is_floating_point() and tensor.numel():
            shape = tuple(tensor.shape)
            self.shapes.setdefault(call.layer.module_path, []).append((call, shape))


def _observe_shapes(loaded: LoadedModel, layers: Sequence[LayerInfo], pixels: Tensor) -> _Shapes:
    shapes = _Shapes()
    with observe(loaded.module, layers, shapes, called=shapes.called):
        shapes.output = run_model(loaded, pixels.clone())
    return shapes


def _describe(
    layer: LayerInfo,
    shapes: Sequence[tuple[Call, tuple[int, ...]]],
    size: tuple[int, int],
    style: AblationStyle,
    *,
    alone: bool,
) -> AblationLayer:
    """Choose the channels to zero; ``size`` is (height, width) of the image."""
    # Of several tensors, the first with channels decides how many there are; hookcli zeroes every
    # tensor that has this number.
    counts: dict[int, int] = {}  # by call index: a ReLU may have more channels when called again
    keys = set()
    for call, shape in shapes:
        axis = replace(call, layer=layer).layout_of(shape, size).channel_axis
        if axis is not None and counts.setdefault(call.call_index, shape[axis]) == shape[axis]:
            keys.add(call.output_key)
    if not counts:
        raise RequestError(
            f"{layer.label} ({layer.module_type}) has no known channels",
            "`hookcli.layers(MODEL)` shows the layouts; leave it out with `exclude`",
        )
    count = max(counts.values())
    missing = [channel for channel in style.channels or () if channel >= count]
    if missing:
        raise RequestError(
            f"`style.channels`: {layer.label} has no channel {missing[0]}",
            f"it has {count}, counted from 0",
        )
    channels = range(count) if style.channels is None else sorted(style.channels)
    return AblationLayer(layer, tuple(channels), frozenset(keys), alone)


def _explain(model: nn.Module, layer: LayerInfo, shapes: _Shapes) -> str:
    if layer.module_path in shapes.called:
        return "it ran, but returned no floating-point numbers"
    return explain_uncalled(model, layer)
