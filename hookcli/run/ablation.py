"""Plan and run an ablation: zero channels one by one, and rank them by how the score changes.

A batch repeats one image, and each row has a different channel set to zero. The score of a row is
compared with the score of the same row in an unchanged batch, which has the same rounding errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from hookcli import errors
from hookcli.errors import ForwardError, NoBoxError, RequestError
from hookcli.hooks.change import Change, change
from hookcli.hooks.layers import explain_uncalled
from hookcli.hooks.observe import observe
from hookcli.images.fit import require_image, skip_failing
from hookcli.images.prepare import prepare_image, prepare_like
from hookcli.networks.tasks import finite
from hookcli.passes.call import has_rows, row_of, run_model
from hookcli.records.calls import Uncalled
from hookcli.records.images import SkippedImage
from hookcli.records.rows import ChannelRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from hookcli.config import AblationStyle
    from hookcli.images.prepare import PreparedImage
    from hookcli.networks.load import LoadedModel
    from hookcli.plan.prepared import EagerModel, PreparedAblation
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.images import ImageResult
    from hookcli.records.runs import ModelInfo


@dataclass(frozen=True, slots=True)
class AblationLayer:
    layer: LayerInfo
    channels: tuple[int, ...]  # counted from 0, in order
    keys: frozenset[str]  # of the output tensors that have these channels
    alone: bool  # whether each channel needs a forward pass of its own


@dataclass(frozen=True, slots=True)
class AblationBatch:
    rows: int
    # the module path and the channel to zero in each row; rows beyond these stay unchanged
    channels: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AblationPlan:
    layers: tuple[AblationLayer, ...]
    uncalled: tuple[Uncalled, ...]
    images: int  # the number of images to run
    batch_size: int  # the most rows in a forward pass
    skipped: tuple[SkippedImage, ...] = ()

    @property
    def channels(self) -> list[tuple[str, int]]:
        return [(each.layer.module_path, c) for each in self.layers for c in each.channels]

    @property
    def batches(self) -> list[AblationBatch]:
        alone = {each.layer.module_path for each in self.layers if each.alone}
        shared = [key for key in self.channels if key[0] not in alone]
        rows = max(1, min(self.batch_size, len(shared)))
        zeroed = [
            AblationBatch(rows, tuple(shared[i : i + rows])) for i in range(0, len(shared), rows)
        ]
        zeroed += [AblationBatch(1, (key,)) for key in self.channels if key[0] in alone]
        return [*map(AblationBatch, dict.fromkeys(batch.rows for batch in zeroed)), *zeroed]

    @property
    def forwards(self) -> int:
        return len(self.batches) * self.images


def plan_ablation(
    model: EagerModel, style: AblationStyle, pixels: Tensor | None = None
) -> AblationPlan:
    loaded, layers = model.loaded, model.runner.layers
    if pixels is None:
        pixels = prepare_image(model.fitter, model.sources[0]).pixels
    if pixels is None:  # the image cannot be read: use zeros of the usual size
        pixels = torch.zeros(loaded.prepare.nominal_shape[1:])
    pixels = model.runner.to_device(pixels.unsqueeze(0))
    one = two = _observe_shapes(loaded, layers, pixels)
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
        what = "none of the layers runs and returns floating-point numbers"
        raise RequestError(what, "`hookcli.layers(MODEL)` shows what runs")
    silent = "it ran, but returned no floating-point numbers"
    uncalled = [
        Uncalled(layer, silent if path in one.called else explain_uncalled(loaded.module, layer))
        for layer in layers
        if (path := layer.module_path) not in one.shapes
    ]
    return AblationPlan(tuple(ablated), tuple(uncalled), len(model.sources), style.batch_size)


class _Observed(NamedTuple):
    shapes: dict[str, list[tuple[Call, tuple[int, ...]]]]  # by module path
    called: dict[str, str]
    output: object


def _observe_shapes(loaded: LoadedModel, layers: Sequence[LayerInfo], pixels: Tensor) -> _Observed:
    shapes: dict[str, list[tuple[Call, tuple[int, ...]]]] = {}
    called: dict[str, str] = {}

    def note(call: Call, tensor: Tensor) -> None:
        if tensor.is_floating_point() and tensor.numel():
            shapes.setdefault(call.layer.module_path, []).append((call, tuple(tensor.shape)))

    with observe(loaded.module, layers, note, called=called):
        output = run_model(loaded, pixels.clone())
    return _Observed(shapes, called, output)


def _describe(
    layer: LayerInfo,
    shapes: Sequence[tuple[Call, tuple[int, ...]]],
    size: tuple[int, int],
    style: AblationStyle,
    *,
    alone: bool,
) -> AblationLayer:
    # If a call returns several tensors, the first with a channel axis decides the number of
    # channels, and hookcli zeroes every tensor that has this number.
    counts: dict[int, int] = {}  # by call index: a ReLU may have more channels when called again
    keys = set()
    for call, shape in shapes:
        axis = replace(call, layer=layer).layout_of(shape, size).channel_axis
        if axis is not None and counts.setdefault(call.call_index, shape[axis]) == shape[axis]:
            keys.add(call.output_key)
    if not counts:
        hint = "`hookcli.layers(MODEL)` shows the layouts; leave it out with `exclude`"
        raise RequestError(f"{layer.label} ({layer.module_type}) has no known channels", hint)
    count = max(counts.values())
    if missing := [channel for channel in style.channels or () if channel >= count]:
        what = f"`style.channels`: {layer.label} has no channel {missing[0]}"
        raise RequestError(what, f"it has {count}, counted from 0")
    channels = range(count) if style.channels is None else sorted(style.channels)
    return AblationLayer(layer, tuple(channels), frozenset(keys), alone)


@dataclass(frozen=True, slots=True)
class AblationResult:
    model: ModelInfo
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    uncalled: tuple[Uncalled, ...]
    rows: tuple[ChannelRow, ...]  # one per channel, sorted by rank

    @property
    def exit_code(self) -> int:
        return errors.choose_code(skipped=bool(self.skipped))


def ablate_images(
    prepared: PreparedAblation,
    planned: Callable[[AblationPlan], None],
    forward_done: Callable[[], None],
) -> AblationResult:
    # ``planned`` is called when the first image is ready, ``forward_done`` after each forward pass.
    model, style, on_error = prepared.model, prepared.config.style, prepared.model.request.on_error
    skipped = list(model.skipped)
    ablation: _Ablation | None = None
    several = len(model.sources) > 1
    for source in model.sources:
        first_shape = None if ablation is None else ablation.first_shape
        image = prepare_like(model.fitter, source, first_shape)
        if image.pixels is None:
            skipped.append(SkippedImage(image.file, image.reason))
            continue
        with skip_failing(on_error, image.file, skipped, is_one_of_several=several):
            if ablation is None:
                plan = plan_ablation(model, style, image.pixels)
                planned(plan)
                ablation = _Ablation(prepared, plan, forward_done)
            ablation.add(image, model.runner.to_device(image.pixels.unsqueeze(0)))
    require_image(() if ablation is None else ablation.images, skipped)
    assert ablation is not None  # noqa: S101  otherwise there was no image
    images, uncalled = tuple(ablation.images), ablation.plan.uncalled
    return AblationResult(model.loaded.info, images, tuple(skipped), uncalled, ablation.rank())


@dataclass(slots=True)
class _Ablation:
    prepared: PreparedAblation
    plan: AblationPlan
    forward_done: Callable[[], None]
    images: list[ImageResult] = field(default_factory=list)  # that have gone through the model
    # by module path and channel: the sums of scores without and with the channel zeroed
    sums: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    first_shape: tuple[int, ...] | None = None  # of the pixels, without the leading axis

    def add(self, image: PreparedImage, pixels: Tensor) -> None:
        """Run copies of an image (1, …) through the model, each with a different channel zeroed."""
        # If a forward pass fails, ``sums`` and ``images`` stay as they are.
        loaded = self.prepared.model.loaded
        layers = tuple(ablated.layer for ablated in self.plan.layers)
        zeroing = _Zeroing(self.plan.layers, loaded.inputs.size_of(pixels), AblationBatch(1))
        unchanged: dict[int, list[float]] = {}  # the score of each row, by the number of rows
        scores: dict[tuple[str, int], tuple[float, float]] = {}
        result: ImageResult | None = None
        with change(loaded.module, [Change("output", layers, (), zeroing)]):
            for batch in self.plan.batches:
                zeroing.batch = batch
                outputs = self._run(pixels, batch.rows)
                if result is None:
                    result = self._describe(image, outputs[0])
                if not batch.channels:
                    unchanged[batch.rows] = [self._score(output, result) for output in outputs]
                for row, key in enumerate(batch.channels):
                    scores[key] = unchanged[batch.rows][row], self._score(outputs[row], result)
                self.forward_done()
        assert result is not None  # noqa: S101  the plan begins with a batch without zeroing
        self.images.append(result)
        self.first_shape = self.first_shape or tuple(pixels.shape[1:])
        for key, (before, after) in scores.items():
            sum_before, sum_after = self.sums.get(key, (0.0, 0.0))
            self.sums[key] = sum_before + before, sum_after + after

    def rank(self) -> tuple[ChannelRow, ...]:
        labels = {each.layer.module_path: each.layer.label for each in self.plan.layers}
        count = len(self.images)
        rows = []
        for path, channel in self.plan.channels:
            plain, zeroed = (total / count for total in self.sums[path, channel])
            effect, score, unchanged = map(finite, (plain - zeroed, zeroed, plain))
            label = labels[path]
            rows.append(ChannelRow(0, label, channel, effect, score, unchanged, images=count))
        sign = -1 if self.prepared.config.score.score == "cross-entropy" else 1  # lower is better
        rows.sort(key=lambda row: math.inf if row.effect is None else -sign * row.effect)
        return tuple(replace(row, rank=rank) for rank, row in enumerate(rows, 1))

    def _run(self, pixels: Tensor, rows: int) -> list[object]:
        batch = pixels.repeat(rows, *[1] * (pixels.dim() - 1))
        if self.prepared.channels_last:
            batch = batch.contiguous(memory_format=torch.channels_last)
        output = run_model(self.prepared.model.loaded, batch)
        if rows == 1:
            return [output]
        with self.prepared.model.loaded.guard():
            if not has_rows(output, rows):
                raise _refuse_batch("the output of the model", rows)
            return [row_of(output, row) for row in range(rows)]

    def _score(self, output: object, image: ImageResult) -> float:
        """Return the score of ``output`` for the target class of ``image``."""
        # NaN for a score that is not finite, and 0 if no predicted box has this class
        plain = image.score
        try:
            value = self.prepared.scorer(output, aim=plain.target if plain else None).score.value
        except NoBoxError:
            return 0.0
        return math.nan if value is None else value

    def _describe(self, image: PreparedImage, output: object) -> ImageResult:
        predictions = self.prepared.model.loaded.read(output, [image.size])
        result = image.record(predictions[0] if len(predictions) == 1 else ())
        return replace(result, score=self.prepared.scorer(output).score)


@dataclass(slots=True)
class _Zeroing:
    layers: tuple[AblationLayer, ...]
    size: tuple[int, int]  # the height and width of the image that the layers receive
    batch: AblationBatch  # the caller sets it before each forward pass

    def __call__(self, call: Call | None, values: Tensor) -> Tensor:
        assert call is not None  # noqa: S101  only a change of parameters has no call
        layer, rows = call.layer, self.batch.rows
        path = layer.module_path
        channels = [(row, c) for row, (name, c) in enumerate(self.batch.channels) if name == path]
        keys = next(ablated.keys for ablated in self.layers if ablated.layer is layer)
        if not channels or not values.numel() or call.output_key not in keys:
            return values
        axis = call.layout_of(tuple(values.shape), self.size).channel_axis
        if axis is None:
            raise RequestError(f"the channel axis of {layer.label} is unknown")
        if rows > 1 and len(values) != rows:
            raise _refuse_batch(layer.label, rows)
        zeroed = values.clone()
        for row, channel in channels:
            if channel < values.shape[axis]:  # another call of the layer may have more channels
                image = zeroed if rows == 1 else zeroed[row : row + 1]
                image.select(axis, channel).zero_()
        return zeroed


def _refuse_batch(what: str, rows: int) -> RequestError:
    return RequestError(
        f"the leading axis of {what} is not that of its {rows} input rows",
        "zero one channel at a time: `batch_size=1`",
    )
