"""Run all images through a model whose layers are rounded, and measure what the answers lose."""

from __future__ import annotations

import itertools
import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hookcli.comparison.answer import compare_answers
from hookcli.comparison.rounded_layers import run_model
from hookcli.comparison.side import to_array
from hookcli.config import LARGEST_ROUNDED
from hookcli.distance.metrics import measure_arrays
from hookcli.errors import ForwardError, ModelError, RequestError
from hookcli.hooks.change import Change, change
from hookcli.hooks.nested import list_not_finite, map_tensors, named_tensors, tensors_in
from hookcli.hooks.observe import observe
from hookcli.hooks.watch import watch
from hookcli.images.fit import require_image, skip_failing
from hookcli.images.prepare import prepare_like
from hookcli.networks.modules import find_modules
from hookcli.outside.parse import split_goal
from hookcli.passes.call import has_rows, row_of
from hookcli.passes.rounding import (
    Range,
    RoundedWeights,
    Rounding,
    Weights,
    list_weights,
    run_again,
    using,
)
from hookcli.passes.unchanged import unchanged
from hookcli.records.images import SkippedImage
from hookcli.records.rows import AnswerLoss, SensitivityRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from hookcli.config import RoundingStyle
    from hookcli.plan.prepared import EagerModel
    from hookcli.records.calls import Call, LayerInfo

    _Key = tuple[str, int, str]  # the module path, the index of the call, and the output key

_MOST_BYTES = 4 << 30  # of prepared images, and of as many outputs


@dataclass(slots=True)
class PreparedImages:
    model: EagerModel
    batch_size: int
    keys: list[str] = field(default_factory=list)
    pixels: list[Tensor] = field(default_factory=list)  # (1, …) each, on the host
    skipped: list[SkippedImage] = field(default_factory=list)

    def prepare(self) -> None:
        model, total = self.model, 0
        for source in model.sources:
            first = self.pixels[0].shape[1:] if self.pixels else None
            image = prepare_like(model.fitter, source, first)
            if image.pixels is None:
                self.skipped.append(SkippedImage(image.file, image.reason))
                continue
            several = len(model.sources) > 1
            with skip_failing(
                model.request.on_error, image.file, self.skipped, is_one_of_several=several
            ):
                if model.request.on_error == "skip":
                    run_model(model, image.pixels[None])
                self.keys.append(image.key)
                self.pixels.append(image.pixels[None])
            total += image.pixels.nbytes
            check_memory(total)
        require_image(self.keys, (*model.skipped, *self.skipped))

    def batches(self) -> Iterator[Tensor]:
        size = 1 if self.model.runner.alone else self.batch_size
        for _, same in itertools.groupby(self.pixels, lambda each: each.shape):
            alike = [*same]
            yield from (torch.cat(alike[i : i + size]) for i in range(0, len(alike), size))


def check_memory(taken: int) -> None:
    if taken > _MOST_BYTES:
        most = f"{_MOST_BYTES >> 30} GB of memory"
        hint = "some hundred images rank layers well; or use a smaller `size`"
        raise RequestError(f"so many images, or their outputs, take more than {most}", hint)


@dataclass(slots=True)
class _OwnError:
    """Sums of squares over all images: of how far a layer's outputs move, and of the outputs."""

    whole: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))
    channels: Tensor = field(default_factory=lambda: torch.zeros(2, 0))  # (2, C)

    def add(self, exact: Tensor, rounded: Tensor, axis: int | None) -> None:
        if exact.shape != rounded.shape:  # such as other boxes
            self.whole += math.nan
            return
        one, two = exact.cpu().double(), rounded.cpu().double()
        squares = torch.stack([two - one, one]).square()
        self.whole += squares.flatten(1).sum(1)
        if axis is not None:
            sums = squares.movedim(axis + 1, 1).flatten(2).sum(2)
            if not self.channels.numel():
                self.channels = sums
            elif self.channels.shape == sums.shape:  # else another call has other channels
                self.channels = self.channels + sums

    def list_channels(self) -> tuple[float | None, ...]:
        return tuple(_ratio(*pair) for pair in self.channels.T.tolist())


def _ratio(difference: float, size: float) -> float | None:
    if difference == 0:
        return 0.0
    return math.sqrt(difference / size) if size and math.isfinite(difference) else None


@dataclass(slots=True)
class Passes:
    model: EagerModel
    style: RoundingStyle
    images: PreparedImages
    layers: Sequence[LayerInfo]
    pass_done: Callable[[], None]
    norms: Mapping[str, LayerInfo]  # the BatchNorm into whose output a layer is merged, by path
    weights: Weights
    outputs: list[object] = field(default_factory=list)  # of the model as it is, by image
    ranges: dict[_Key, Range] = field(default_factory=dict)

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.style.to, self.style.per_tensor)

    def run_plain(self) -> None:
        has_ranges = self._rounds("outputs") and self.style.to in LARGEST_ROUNDED

        def see(call: Call, tensor: Tensor) -> None:
            if has_ranges and tensor.is_floating_point():
                key = _key_of(call)
                self.ranges.setdefault(key, Range(self.style.percentile)).add(tensor)

        ends = [*map(self._end_of, self.layers)]
        self.outputs = [*self._run(partial(observe, self.model.runner.module, ends, see))]
        if self.images.batch_size > 1 and len(self.outputs) != len(self.images.pixels):
            self.images.batch_size = 1
            self.ranges.clear()
            self.outputs = [*self._run(partial(observe, self.model.runner.module, ends, see))]
        for key, output in zip(self.images.keys, self.outputs, strict=True):
            if list_not_finite(output):
                raise ModelError(
                    f"the output of the model for {key} is not finite before anything is rounded",
                    "`hookcli.inspect` finds where it begins",
                )
        measure, same = name_measure(self.style.reach), self._compare(iter(self.outputs))
        if getattr(same, measure) is None:
            raise RequestError(
                f"`reach` {measure}: the model's answers are no classes",
                "`reach='rel-l2<=0.05'` compares any outputs",
            )

    def measure(self, layer: LayerInfo) -> SensitivityRow:
        error, weights = _OwnError(), self._weights_of(layer)
        loss = self._compare(self._run(partial(self._rounding_alone, layer, weights, error)))
        channels = error.list_channels()
        known = sorted((e, c) for c, e in enumerate(channels) if e is not None)
        return SensitivityRow(
            rank=1,
            layer=layer.label,
            module_type=layer.module_type,
            agreement=loss.agreement,
            divergence=loss.divergence,
            rel_l2=loss.rel_l2,
            is_finite=loss.is_finite,
            own_rel_l2=_ratio(*error.whole.tolist()),
            weight_rel_l2=None if weights is None else weights.error(),
            channel_median=known[len(known) // 2][0] if known else None,
            channel_worst=known[-1][0] if known else None,
            worst_channel=known[-1][1] if known else None,
            channels=channels,
        )

    def run_rounded(self, layers: Sequence[LayerInfo]) -> AnswerLoss:
        return self._compare(self._run(partial(self._rounding_all, layers)))

    def _end_of(self, layer: LayerInfo) -> LayerInfo:
        return self.norms.get(layer.module_path, layer)

    def _weights_of(self, layer: LayerInfo) -> RoundedWeights | None:
        modules = find_modules(self.model.runner.module)
        module = modules.get(layer.module_path)
        if not (module and self._rounds("weights") and list_weights(module, self.weights)):
            return None
        norms = {modules[path]: modules[norm.module_path] for path, norm in self.norms.items()}
        return RoundedWeights(module, self.weights, self.rounding, norms)

    @contextmanager
    def _rounding_alone(
        self, layer: LayerInfo, weights: RoundedWeights | None, error: _OwnError
    ) -> Iterator[None]:
        end, modules = self._end_of(layer), find_modules(self.model.runner.module)
        own = [] if weights is None else weights.list_own()
        size = self.model.runner.size_of(self.images.pixels[0])
        unrounded = list[object]()  # outputs of the layer on what it is given, not rounded

        def start(call: Call, inputs: object) -> None:
            if weights is not None and call.layer is layer:
                given = map_tensors(inputs, lambda _, tensor: tensor.clone())  # may be overwritten
                with using(own), unchanged(weights.module):
                    unrounded.append(run_again(weights.module, given))

        def finish(call: Call, output: object) -> object:
            if output is None:  # the call raised
                return None
            exact = rounded = output
            if call.layer is layer and weights is not None:
                exact = unrounded.pop()
            if call.layer is not layer:
                exact = run_again(modules[end.module_path], unrounded.pop())
            if call.layer is not end:
                unrounded.append(exact)
                return rounded
            rounded = map_tensors(rounded, partial(self._round_output, call))
            pairs = zip(named_tensors(exact), named_tensors(rounded), strict=False)
            for (key, one), (_, two) in pairs:
                if one.is_floating_point():
                    called = replace(call, side="output", output_key=key)
                    error.add(one, two, called.layout_of(tuple(one.shape), size).channel_axis)
            return rounded

        watched = watch(self.model.runner.module, [*dict.fromkeys((layer, end))], start, finish)
        with using([] if weights is None else weights.list_rounded()), watched:
            yield

    @contextmanager
    def _rounding_all(self, layers: Sequence[LayerInfo]) -> Iterator[None]:
        with ExitStack() as stack:
            for weights in filter(None, map(self._weights_of, layers)):
                stack.enter_context(using(weights.list_rounded()))

            def apply(call: Call | None, tensor: Tensor) -> Tensor:
                assert call is not None  # noqa: S101  only a change of parameters has no call
                return self._round_output(call, call.output_key, tensor)

            changes = [Change("output", (*map(self._end_of, layers),), (), apply)]
            stack.enter_context(change(self.model.runner.module, changes))
            yield

    def _round_output(self, call: Call, key: str, tensor: Tensor) -> Tensor:
        if not (self._rounds("outputs") and tensor.is_floating_point()):
            return tensor
        own = _key_of(replace(call, output_key=key))
        # A call that the model makes only now has the range of its other calls.
        others = [each for k, each in self.ranges.items() if (k[0], k[2]) == (own[0], own[2])]
        known = [self.ranges[own]] if own in self.ranges else others
        if self.style.to in LARGEST_ROUNDED and not known:
            return tensor
        return self.rounding.round(tensor, torch.tensor(max([0.0, *(e.limit for e in known)])))

    def _rounds(self, what: str) -> bool:
        return self.style.what in (what, "both")

    def _run(self, around: Callable[[], AbstractContextManager[None]]) -> Iterator[object]:
        for batch in self.images.batches():
            rows = len(batch)
            try:
                with around():  # for each batch, since it counts the calls
                    output = run_model(self.model, batch)
            except ForwardError:
                if rows == 1 or self.outputs:
                    raise
                return  # the model takes one image at a time
            if rows > 1 and not has_rows(output, rows):
                return
            output = map_tensors(output, lambda _, tensor: tensor.clone())  # the model may reuse it
            yield from [output] if rows == 1 else [row_of(output, row) for row in range(rows)]
        self.pass_done()

    def _compare(self, outputs: Iterator[object]) -> AnswerLoss:
        pairs = zip(self.outputs, [*outputs], strict=True)  # the pass ends before they are compared
        losses = [self._compare_one(*pair) for pair in pairs]
        return AnswerLoss(
            _mean([loss.agreement for loss in losses]),
            _mean([loss.divergence for loss in losses]),
            _mean([loss.rel_l2 for loss in losses]),
            all(loss.is_finite for loss in losses),
        )

    def _compare_one(self, exact: object, rounded: object) -> AnswerLoss:
        answer = compare_answers(self.model.loaded, exact, rounded)
        share = None if answer is None or answer.kind == "output" else answer.share
        divergence = answer.distance if answer and answer.kind == "top class" else None
        worst, is_finite = None, not list_not_finite(rounded)
        ones, twos = ([*map(to_array, tensors_in(each))] for each in (exact, rounded))
        if is_finite and [e.shape for e in ones] == [e.shape for e in twos]:  # not other boxes
            pairs = zip(ones, twos, strict=True)
            worst = max((measure_arrays(*pair).rel_l2 for pair in pairs), default=None)
        return AnswerLoss(share, divergence, worst, is_finite)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and value < math.inf]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _key_of(call: Call) -> _Key:
    return call.layer.module_path, call.call_index, call.output_key


def name_measure(goal: str | None) -> str:
    return "rel_l2" if goal is None else split_goal(goal)[0].replace("-", "_")
