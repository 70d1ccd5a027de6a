"""Round a model's layers one at a time, measure what its answers lose, and choose what to keep.

A pass runs all images once. One pass runs the model as it is and finds the ranges of outputs, one
pass for each layer rounds it alone, and one rounds all layers; lists of layers to leave alone take
a pass each. Before, the first image goes through the model once, to find what is called.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hookcli import errors
from hookcli.comparison.answer import compare_answers
from hookcli.comparison.side import to_array
from hookcli.config import GRAPH_FILES
from hookcli.distance.metrics import measure_arrays
from hookcli.errors import ForwardError, ModelError, RequestError
from hookcli.hooks.change import Change, change
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import list_not_finite, map_tensors, named_tensors, tensors_in
from hookcli.hooks.observe import observe
from hookcli.hooks.register import Hook
from hookcli.hooks.watch import watch
from hookcli.images.fit import require_image, skip_failing
from hookcli.images.prepare import prepare_like
from hookcli.networks.modules import find_modules
from hookcli.networks.tasks import CLASSIFICATION
from hookcli.outside.foreign import ask
from hookcli.outside.parse import split_goal
from hookcli.passes.call import has_rows, row_of
from hookcli.passes.rounding import (
    SCALED,
    Range,
    RoundedWeights,
    Rounding,
    list_weights,
    run_again,
)
from hookcli.passes.second_pass import is_equal
from hookcli.records.calls import LayerInfo, Uncalled
from hookcli.records.images import SkippedImage
from hookcli.records.rows import AnswerLoss, SensitivityRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hookcli.config import RoundingStyle
    from hookcli.plan.prepared import EagerModel
    from hookcli.records.calls import Call
    from hookcli.records.runs import ModelInfo

    _Key = tuple[str, int, str]  # the module path, the index of the call, and the output key

_MOST_BYTES = 4 << 30  # of prepared images, and of as many outputs
_OWN_WEIGHTS = ("weight", "in_proj_weight", "weight_ih_l0")
_NO_WEIGHT = "it has no weight of two or more axes to round"


@dataclass(frozen=True, slots=True)
class KeptList:
    """Layers to leave alone, and what the model loses if all others are rounded."""

    modules: tuple[str, ...]  # the module paths, the most sensitive first
    loss: AnswerLoss
    reached: bool  # the goal that the user set, if any


@dataclass(frozen=True, slots=True)
class Sensitivity:
    model: ModelInfo
    images: tuple[str, ...]  # the keys of the images
    skipped: tuple[SkippedImage, ...]
    uncalled: tuple[Uncalled, ...]
    rows: tuple[SensitivityRow, ...]  # the most sensitive layer first
    rounded: AnswerLoss  # with all layers rounded
    kept: KeptList | None

    @property
    def exit_code(self) -> int:
        failed = self.kept is not None and not self.kept.reached
        return errors.choose_code(failed=failed, skipped=bool(self.skipped))


def measure_sensitivity(
    model: EagerModel,
    style: RoundingStyle,
    planned: Callable[[int, int], None],
    pass_done: Callable[[], None],
    *,
    all_weights: bool,
) -> Sensitivity:
    """Measure each layer of the model's runner; ``planned`` gets the numbers of layers and passes.

    With ``all_weights``, the layers are those that own a weight, or that use a weight of a module
    inside them without calling it, such as the attention of torchvision's Swin.
    """
    images = _Images(model, style.batch_size)
    images.prepare()
    trial = _Trial.of(model, images.pixels[0])
    _check_memory(2 * trial.output_bytes * len(images.pixels))
    layers, uncalled = _choose_layers(model, style, trial, all_weights=all_weights)
    if len(layers) == 1 and (style.keep, style.reach) != (None, None):
        raise RequestError(f"{layers[0].label} is the only layer to round, so no list is needed")
    planned(len(layers), len(layers) + 2 + _count_trials(style, len(layers)))
    chosen = {layer.module_path for layer in layers}
    norms = {p: norm for p, norm in trial.norms.items() if norm.module_path not in chosen}
    passes = _Passes(model, style, images, layers, pass_done, norms)
    passes.run_plain()
    rows = _rank([passes.measure(layer) for layer in layers], style.reach)
    rounded = passes.run_rounded(layers)
    if not any(value != 0 for value in (rounded.rel_l2, *(row.rel_l2 for row in rows))):
        raise RequestError(
            f"rounding to {style.to} changes no output: there is nothing to rank",
            "is the model in this format already, or its output always the same?",
        )
    kept = _Search(passes, [row.layer for row in rows], rounded).find()
    return Sensitivity(
        model.loaded.info,
        tuple(images.keys),
        (*model.skipped, *images.skipped),
        tuple(uncalled),
        rows,
        rounded,
        kept,
    )


def open_nodes(file: Path) -> Callable[[str], tuple[str, ...]]:
    """Return a function that names the nodes of an ONNX file for a module path."""
    if file.suffix != GRAPH_FILES["onnx"]:
        raise RequestError(f"`nodes_of` takes an ONNX file, not {str(file)!r}", "export the model")
    from hookcli.passes.onnx_file import OnnxRunner

    return OnnxRunner.of(file, CLASSIFICATION.arguments, None).name_nodes_of


@dataclass(slots=True)
class _Images:
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
                    _call(model, image.pixels[None])
                self.keys.append(image.key)
                self.pixels.append(image.pixels[None])
            total += image.pixels.nbytes
            _check_memory(total)
        require_image(self.keys, (*model.skipped, *self.skipped))

    def batches(self) -> Iterator[Tensor]:
        size = 1 if self.model.runner.alone else self.batch_size
        for _, same in itertools.groupby(self.pixels, lambda each: each.shape):
            alike = [*same]
            yield from (torch.cat(alike[i : i + size]) for i in range(0, len(alike), size))


class _Reads(TorchFunctionMode):
    """Counts, by the ``id`` of each tensor, the functions that compute with it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[int]()

    def __torch_function__(
        self, function: Any, _types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if tensors_in(result):
            self.counts.update({id(each) for each in tensors_in((args, kwargs or {}))})
        return result


def _check_memory(taken: int) -> None:
    if taken > _MOST_BYTES:
        most = f"{_MOST_BYTES >> 30} GB of memory"
        hint = "some hundred images rank layers well; or use a smaller `size`"
        raise RequestError(f"so many images, or their outputs, take more than {most}", hint)


def _call(model: EagerModel, pixels: Tensor) -> object:
    with torch.inference_mode():
        return model.runner.call(model.runner.to_device(pixels.clone()))


@dataclass(slots=True)
class _Trial:
    """What the first image shows: the layers that run, and the BatchNorms that follow others."""

    called: dict[str, str] = field(default_factory=dict)  # as in ``observe``
    reads: _Reads = field(default_factory=lambda: _Reads())  # noqa: PLW0108  is defined below
    speaking: set[str] = field(default_factory=set)  # layers that return floating-point numbers
    norms: dict[str, LayerInfo] = field(default_factory=dict)  # by the path of the layer before
    output_bytes: int = 0

    @classmethod
    def of(cls, model: EagerModel, pixels: Tensor) -> _Trial:
        trial, made, module = cls(), dict[int, tuple[str, Tensor]](), model.runner.module
        modules, calls, pairs = find_modules(module), Counter[str](), dict[int, LayerInfo]()

        def see(call: Call, tensor: Tensor) -> None:
            path = call.layer.module_path
            if call.side == "output" and tensor.is_floating_point():
                trial.speaking.add(path)
                calls[path] += 1
                if call.layer.is_leaf and id(tensor) not in made:  # an Identity passes one on
                    made[id(tensor)] = (path, tensor)
                    del trial.reads.counts[id(tensor)]  # of a tensor that had this id before
            elif id(tensor) in made and _is_fixed_norm(modules.get(path)):
                pairs[id(tensor)] = call.layer

        every = (*list_watchable(module), *model.runner.layers)
        layers = [*{each.module_path: each for each in every}.values()]
        with observe(module, layers, see, "both", called=trial.called), trial.reads:
            output = _call(model, pixels)
        for tensor, norm in pairs.items():
            path = made[tensor][0]
            is_grouped = _is_grouped_transpose(modules[path])
            # Nothing else reads or overwrites the tensor, and neither runs a second time.
            is_alone = trial.reads.counts[tensor] == calls[path] == calls[norm.module_path] == 1
            if is_alone and not is_grouped:
                trial.norms[path] = norm
        again = zip(tensors_in(output), tensors_in(_call(model, pixels)), strict=False)
        if not all(is_equal(*pair) for pair in again):
            raise RequestError(
                "the model returns something else each time, which would be ranked with the layers",
                "`hookcli.compare` with `against=['repeat']` finds where it begins",
            )
        trial.output_bytes = sum(each.nbytes for each in tensors_in(output))
        return trial


def _choose_layers(
    model: EagerModel, style: RoundingStyle, trial: _Trial, *, all_weights: bool
) -> tuple[list[LayerInfo], list[Uncalled]]:
    modules, called = find_modules(model.runner.module), trial.called
    known = {each.module_path: each for each in model.runner.layers}
    wanted = [*known]
    if all_weights:
        owners = [path for path in wanted if path and _owns_weight(modules[path])]
        unread = [path for path in owners if not _reads_weight(modules[path], trial)]
        owners = [path for path in owners if path not in unread]
        wanted = [*dict.fromkeys(_find_caller(path, called) for path in owners)]
        inside = {path for path in wanted if any(path.startswith(f"{o}.") for o in wanted if o)}
        wanted = [path for path in known if path and path in wanted and path not in inside]
        wanted += unread + [path for path in owners if not _find_caller(path, called)]
    reasons = {path: _find_reason(model, known[path], style, trial) for path in wanted}
    chosen = [known[path] for path in wanted if not reasons[path]]
    if not chosen:
        why = next(iter(reasons.values()), _NO_WEIGHT)
        raise RequestError(
            f"there is nothing to round: {why}", "`hookcli.layers(MODEL)` shows what runs"
        )
    _refuse_nested([layer.module_path for layer in chosen])
    return chosen, [Uncalled(known[path], why) for path, why in reasons.items() if why]


def _is_fixed_norm(module: nn.Module | None) -> bool:
    if type(module).__name__ == "FrozenBatchNorm2d":  # of torchvision's detectors
        return True
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    if not isinstance(module, kinds):
        return False
    return not module.training and module.running_var is not None


def _is_grouped_transpose(module: nn.Module) -> bool:
    return bool(ask(module, "transposed")) and ask(module, "groups") != 1


def _owns_weight(module: nn.Module) -> bool:
    owned = (module._parameters.get(name) for name in _OWN_WEIGHTS)
    return any(each is not None and each.dim() > 1 for each in owned)


def _reads_weight(module: nn.Module, trial: _Trial) -> bool:
    return any(trial.reads.counts[id(each)] for each in module.parameters(recurse=False))


def _find_caller(path: str, called: dict[str, str]) -> str:
    while path and path not in called:
        path = path.rpartition(".")[0]
    return path


def _find_reason(model: EagerModel, layer: LayerInfo, style: RoundingStyle, trial: _Trial) -> str:
    """Return why a layer cannot be rounded; "" if it can."""
    module = find_modules(model.runner.module).get(layer.module_path)
    if layer.module_path not in trial.called:
        return model.runner.explain_uncalled(layer)
    if module and any(not isinstance(e, Hook) for e in module._forward_hooks.values()):
        return "it has forward hooks of its own, which could change what is measured"
    if layer.module_path not in trial.speaking:
        return "it ran, but returned no floating-point numbers to round"
    has_weights = module is not None and bool(list_weights(module, layer.label))
    return _NO_WEIGHT if style.what == "weights" and not has_weights else ""


def _refuse_nested(paths: Sequence[str]) -> None:
    for path in paths:
        around = next((each for each in paths if path.startswith(f"{each}.") or not each), path)
        if around != path:
            raise RequestError(
                f"{path} is inside {around or 'the model'}: a layer would be rounded twice",
                "choose one of them with `layers` and `exclude`",
            )


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
class _Passes:
    model: EagerModel
    style: RoundingStyle
    images: _Images
    layers: Sequence[LayerInfo]
    pass_done: Callable[[], None]
    norms: Mapping[str, LayerInfo]  # the BatchNorm into whose output a layer is merged, by path
    outputs: list[object] = field(default_factory=list)  # of the model as it is, by image
    ranges: dict[_Key, Range] = field(default_factory=dict)

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.style.to, self.style.per_tensor)

    @property
    def has_scale(self) -> bool:
        return self.style.to in SCALED

    def run_plain(self) -> None:
        def see(call: Call, tensor: Tensor) -> None:
            if self._rounds("outputs") and self.has_scale and tensor.is_floating_point():
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
        measure, same = _name_measure(self.style.reach), self._compare(iter(self.outputs))
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
        module, norm = modules.get(layer.module_path), self.norms.get(layer.module_path)
        if module is None or not self._rounds("weights") or not list_weights(module, layer.label):
            return None
        merged = None if norm is None else modules[norm.module_path]
        return RoundedWeights(module, layer.label, self.rounding, merged)

    @contextmanager
    def _rounding_alone(
        self, layer: LayerInfo, weights: RoundedWeights | None, error: _OwnError
    ) -> Iterator[None]:
        end, modules = self._end_of(layer), find_modules(self.model.runner.module)
        given, unrounded = list[object](), list[object]()

        def start(call: Call, inputs: object) -> None:
            if weights is not None and call.layer is layer:  # the module may overwrite them
                given.append(map_tensors(inputs, lambda _, tensor: tensor.clone()))

        def finish(call: Call, output: object) -> object:
            if output is None:  # the call raised
                return None
            exact = rounded = output
            if call.layer is not layer:
                exact = run_again(modules[end.module_path], unrounded.pop())
            elif weights is not None:
                with weights.used():
                    rounded = run_again(weights.module, given.pop())
            if call.layer is not end:
                unrounded.append(exact)
                return rounded
            rounded = map_tensors(rounded, partial(self._round_output, call))
            pairs = zip(named_tensors(exact), named_tensors(rounded), strict=False)
            for key, one, two in ((key, one, two) for (key, one), (_, two) in pairs):
                if one.is_floating_point():
                    own = replace(call, side="output", output_key=key)
                    error.add(one, two, own.layout_of(tuple(one.shape), self._size).channel_axis)
            return rounded

        with watch(self.model.runner.module, [*dict.fromkeys((layer, end))], start, finish):
            yield

    @contextmanager
    def _rounding_all(self, layers: Sequence[LayerInfo]) -> Iterator[None]:
        with ExitStack() as stack:
            for weights in filter(None, map(self._weights_of, layers)):
                stack.enter_context(weights.used())

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
        if self.has_scale and not known:
            return tensor
        return self.rounding.round(tensor, torch.tensor(max([0.0, *(e.limit for e in known)])))

    def _rounds(self, what: str) -> bool:
        return self.style.what in (what, "both")

    @property
    def _size(self) -> tuple[int, int]:
        return self.model.runner.size_of(self.images.pixels[0])

    def _run(self, around: Callable[[], AbstractContextManager[None]]) -> Iterator[object]:
        for batch in self.images.batches():
            rows = len(batch)
            try:
                with around():  # for each batch, since it counts the calls
                    output = _call(self.model, batch)
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
            _mean([each.agreement for each in losses if each.agreement is not None]),  # or no boxes
            _mean([loss.divergence for loss in losses]),
            _mean([loss.rel_l2 for loss in losses]),
            all(loss.is_finite for loss in losses),
        )

    def _compare_one(self, exact: object, rounded: object) -> AnswerLoss:
        answer = compare_answers(self.model.loaded, exact, rounded)
        share = None if answer is None or answer.kind == "output" else answer.share
        divergence = answer.distance if answer and answer.kind == "top class" else None
        ones, twos = (tensors_in(each) for each in (exact, rounded))
        worst, is_finite = None, not list_not_finite(rounded)
        if is_finite and [each.shape for each in ones] == [
            each.shape for each in twos
        ]:  # not other boxes
            pairs = zip(map(to_array, ones), map(to_array, twos), strict=True)
            worst = max((measure_arrays(*pair).rel_l2 for pair in pairs), default=None)
        return AnswerLoss(share, divergence, worst, is_finite)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and value < math.inf]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _name_measure(goal: str | None) -> str:
    return "rel_l2" if goal is None else split_goal(goal)[0].replace("-", "_")


def _key_of(call: Call) -> _Key:
    return call.layer.module_path, call.call_index, call.output_key


def _rank(rows: Sequence[SensitivityRow], goal: str | None) -> tuple[SensitivityRow, ...]:
    measures = ["divergence", "rel_l2", "agreement"][goal is not None and "rel" in goal :]
    known = [each for each in rows if each.is_finite]
    by = [name for name in measures if all(getattr(each, name) is not None for each in known)]

    def loss_of(row: SensitivityRow) -> list[float]:
        losses = (_rate(name, getattr(row, name)) for name in by)
        return [float(row.is_finite), *losses]  # what is not finite comes first

    return tuple(replace(row, rank=i) for i, row in enumerate(sorted(rows, key=loss_of), 1))


def _rate(measure: str, value: float | None) -> float:
    """Return how good a value is; more is better."""
    if value is None:
        return -math.inf
    return value if measure == "agreement" else -value


def _count_trials(style: RoundingStyle, layers: int) -> int:
    return int(style.keep is not None) if style.reach is None else 1 + layers.bit_length()


@dataclass(slots=True)
class _Search:
    """Finds how many of the most sensitive layers to leave alone; each trial is a pass."""

    passes: _Passes
    order: Sequence[str]  # labels, the most sensitive first
    rounded: AnswerLoss  # with all layers rounded
    tried: dict[int, AnswerLoss] = field(default_factory=dict)

    def find(self) -> KeptList | None:
        style, most = self.passes.style, len(self.order) - 1
        self.tried[0] = self.rounded
        if style.keep is not None:
            count = min(most, max(1, math.ceil(len(self.order) * style.keep / 100)))
            return self._list(count, reached=True)
        if style.reach is None:
            return None
        if not self._reaches(0) and not self._reaches(most):
            return self._list(max(self.tried, key=self._rate), reached=False)
        low, high = -1, 0 if self._reaches(0) else most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._reaches(middle) else (middle, high)
        return self._list(high, reached=True)

    def _reaches(self, count: int) -> bool:
        assert self.passes.style.reach is not None  # noqa: S101  the caller has checked this
        return self._rate(count) >= _rate(*split_goal(self.passes.style.reach))

    def _rate(self, count: int) -> float:
        measure = _name_measure(self.passes.style.reach)
        return _rate(measure, getattr(self._try(count), measure))

    def _try(self, count: int) -> AnswerLoss:
        if count not in self.tried:
            kept = {*self.order[:count]}
            rest = [layer for layer in self.passes.layers if layer.label not in kept]
            self.tried[count] = self.passes.run_rounded(rest)
        return self.tried[count]

    def _list(self, count: int, *, reached: bool) -> KeptList:
        return KeptList(tuple(self.order[:count]), self._try(count), reached)
