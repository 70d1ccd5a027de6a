"""Run images forward or backward, in batches or alone; collect records, Grad-CAM and saliency.

With a backward pass, images run one at a time, because the gradient of a parameter is a sum over
the batch.
"""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import interpolate

from hookcli.activations.collector import (
    BatchResult,
    Collector,
    Heat,
    LeadingAxisError,
    keep_tensor,
)
from hookcli.activations.feature_maps import take_cam
from hookcli.activations.pooling import saved_shape
from hookcli.errors import ForwardError, ModelError, NoBoxError, RequestError
from hookcli.hooks.change import change_input_gradients
from hookcli.hooks.gradients import NOT_NEEDED, need_gradients, observe_gradients
from hookcli.hooks.observe import observe, reading
from hookcli.passes.call import call_backward
from hookcli.passes.eager import EagerRunner
from hookcli.passes.judge_cams import Judge, randomise_top
from hookcli.passes.runner import Batch
from hookcli.passes.second_pass import find_unsteady
from hookcli.records.calls import OPERATION, Call, LayerInfo
from hookcli.records.edit_effects import EditEffects
from hookcli.records.layer_records import LayerRecord, TensorStats
from hookcli.records.layouts import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence

    from torch import Tensor

    from hookcli.config import BackwardStyle, CamMethod, GridStyle, HeatOf, SaveStyle
    from hookcli.hooks.change import Change
    from hookcli.hooks.gradients import MissingGradient
    from hookcli.networks.scores import Scorer
    from hookcli.networks.task import Aim
    from hookcli.passes.runner import Runner
    from hookcli.records.images import Score

_MOST_NAMED = 3  # layers in the name of a mean of Grad-CAMs
IMAGE_NOT_NEEDED = "the gradient of the image was not requested: use `input_grad`"


class BrokenForwardError(ForwardError):
    def __init__(self, message: str, hint: str, partial: BatchResult) -> None:
        super().__init__(message, hint)
        self.partial = partial  # the observations before the exception
        self.alone = False  # whether hookcli noticed that images cannot share a forward pass


@contextmanager
def broken_forwards() -> Iterator[None]:
    try:
        yield
    except BrokenForwardError:
        raise
    except ModelError as error:
        raise BrokenForwardError(error.message, error.hint, BatchResult()) from error


@contextmanager
def observed_until(collector: Collector) -> Iterator[None]:
    # A ForwardError without ``__cause__`` comes from hookcli itself, for example because the model
    # removed hooks, and passes through unchanged.
    try:
        yield
    except ForwardError as error:
        if error.__cause__ is None:
            raise
        raise BrokenForwardError(error.message, error.hint, collector.result()) from error.__cause__


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    runner: Runner  # runs the model; with edits or pruning, every batch also runs without them
    style: GridStyle
    # (2, H, W): the share of each pixel inside the box of ``--focus``, and the share outside
    focus: Tensor | None = None
    save: SaveStyle | None = None  # which parts of the tensors are saved; None saves nothing
    sketch: bool = False  # see ``hookcli.distance.sketch``
    heat: HeatOf | None = None  # which maps over the image are made of each tensor with places


def run_forward(
    settings: ForwardSettings, keys: Sequence[str], pixels: Tensor, *, first_image: bool = False
) -> list[BatchResult]:
    # The first call of a run should have a single image, which shows whether the leading axis of
    # every tensor is the batch. If not, ``alone`` of the results is True. With ``first_image``,
    # hookcli also keeps samples for histograms, finds the modules that overwrite outputs of others,
    # and runs a PyTorch model a second time, to find calls that then return other values.
    # ``pixels`` (N, …) are as ``Runner.to_device`` returns them.
    if len(keys) == 1:
        return [_run_batch(settings, Batch(keys, pixels, first_image))]
    alone = False
    if not settings.runner.alone:
        try:
            # cloned: a model may overwrite its input, and the images may have to run again
            return [_run_batch(settings, Batch(keys, pixels.clone(), first_image))]
        except LeadingAxisError:
            alone = True
    results = []
    for i, key in enumerate(keys):
        try:
            result = _run_batch(settings, Batch([key], pixels[i : i + 1], first_image and i == 0))
        except BrokenForwardError as error:
            error.alone |= alone
            raise
        results.append(replace(result, alone=result.alone or alone))
    return results


def _run_batch(settings: ForwardSettings, batch: Batch) -> BatchResult:
    runner = settings.runner
    plain = runner.plain
    unedited_output: object = None
    unedited: dict[str, Tensor] = {}
    again = replace(batch, pixels=batch.pixels.clone()) if batch.is_first else batch
    collector = Collector(
        keys=tuple(batch.keys),
        pixels=runner.size_of(batch.pixels),
        style=settings.style,
        sample=batch.is_first,
        focus=settings.focus,
        save=settings.save,
        unedited=None if plain is None else unedited,
        sketch=settings.sketch,
        heat=settings.heat,
    )
    with observed_until(collector):
        if plain is not None:
            same = Batch(batch.keys, batch.pixels.clone())
            unedited_output = plain.run(same, partial(keep_tensor, unedited)).output
        outcome = runner.run(batch, collector)
    result = collector.result()
    unsteady: list[str] = []
    if batch.is_first and isinstance(runner, EagerRunner):
        unsteady = find_unsteady(runner, again, collector, result.records, outcome.output)
    return replace(
        result,
        called=outcome.called,
        output=outcome.output,
        unedited=unedited_output,
        attention=outcome.attention,
        effects=outcome.effects,
        overwritten=outcome.overwritten,
        unsteady=unsteady,
    )


@dataclass(frozen=True, slots=True)
class BackwardSettings:
    runner: EagerRunner
    style: GridStyle
    scorers: Mapping[str, Scorer]  # by ``Call.target``
    wanted: BackwardStyle  # what to record and draw besides the gradients of layers
    cams: Sequence[LayerInfo] = ()  # the layers for which to compute a Grad-CAM
    save: SaveStyle | None = None
    sketch: bool = False
    judges: bool = False  # whether to test Grad-CAMs
    randomised: dict[str, EagerRunner] = field(default_factory=dict)  # made so far, by layer


def run_backward(
    settings: BackwardSettings, keys: Sequence[str], pixels: Tensor, *, first_image: bool = False
) -> list[BatchResult]:
    results = []
    for i, key in enumerate(keys):
        found = [
            _observe_image(settings, key, pixels[i : i + 1], each, sample=first_image and i == 0)
            for each in settings.scorers
        ]
        names = ("records", "pictures", "kept", "scores", "unedited_scores", "heats")
        chain = itertools.chain.from_iterable
        joined: dict[str, Any] = {n: (*chain(getattr(r, n) for r in found),) for n in names}
        results.append(replace(found[0], **joined))
    return results


def _observe_image(
    settings: BackwardSettings, key: str, pixels: Tensor, of: str, *, sample: bool
) -> BatchResult:
    unedited: dict[str, Tensor] = {}
    activations: dict[str, Tensor] = {}
    plain: _Outcome | None = None
    runner, scorer = settings.runner, settings.scorers[of]
    size = runner.size_of(pixels)
    collector = Collector(
        keys=(key,),
        pixels=size,
        style=settings.style,
        sample=sample,
        save=settings.save,
        unedited=None if runner.plain is None else unedited,
        drawn=("grad_output",),
        sketch=settings.sketch,
        activations=activations if settings.wanted.times_activation else None,
    )
    selected = {layer.module_path for layer in runner.layers}
    observer = _Observer(collector, selected, activations, of)
    effects = EditEffects()
    changes = runner.edits.changes(effects, size, 1)
    with observed_until(collector):
        if runner.plain is not None:
            keeper = _Observer(partial(keep_tensor, unedited), target=of)
            unchanged = replace(settings, runner=runner.plain)
            plain = _run_pass(unchanged, pixels, keeper, scorer, changes=())
        # Edits may change the prediction.
        aimed = scorer if plain is None else scorer.aimed(plain.aim)
        passed = _run_pass(settings, pixels, observer, aimed, changes)
    result = collector.result()
    missing = [each for each in passed.missing if each.call.layer.module_path in selected]
    heats = _find_cams(key, observer, size, settings.cams, passed.score, settings.wanted)
    heats = [_judge(settings, heat, pixels, scorer.aimed(passed.aim)) for heat in heats]
    if settings.wanted.saliency and passed.pixels.grad is not None:
        gradient = passed.pixels.grad[0].abs().flatten(0, -3).amax(0).float().cpu()  # (H, W)
        heats.append(Heat(key, "saliency", None, gradient, score=passed.score, target=of))
    return replace(
        result,
        records=(*result.records, *(_record_missing(key, size, each, of) for each in missing)),
        called=dict.fromkeys(passed.called, ""),
        output=passed.output,
        unedited=None if plain is None else plain.output,
        scores=(passed.score,),
        unedited_scores=() if plain is None else (plain.score,),
        heats=tuple(heats),
        effects=effects,
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    output: object
    score: Score
    aim: int | Aim | None
    called: Collection[str]  # module paths
    missing: tuple[MissingGradient, ...]
    pixels: Tensor  # (1, …); has a ``grad`` only if the request needs the gradient of the pixels


def _run_pass(
    settings: BackwardSettings,
    pixels: Tensor,
    observer: _Observer,
    scorer: Scorer,
    changes: Sequence[Change],
) -> _Outcome:
    runner = settings.runner
    model = runner.module
    observed = [*runner.layers, *(each for each in settings.cams if each not in runner.layers)]
    kept = runner.layers if settings.wanted.times_activation else ()
    leaf = pixels.clone().requires_grad_(settings.wanted.needs_pixels)
    with (
        need_gradients(model),
        torch.enable_grad(),
        runner.changed(changes),
        observe(model, [*dict.fromkeys((*kept, *settings.cams))], observer.keep),
        observe_gradients(model, observed, observer) as gradients,
        change_input_gradients(model, changes),
        reading(model, scorer.call) as read,
    ):
        output = runner.call(leaf.clone())
        scored = scorer.score(read(output))
        call_backward(scored.value)
    return _Outcome(output, scored.score, scored.aim, gradients.called, gradients.missing, leaf)


@dataclass(slots=True)
class _Observer:
    collector: Callable[[Call, Tensor], None]
    selected: Container[str] | None = None  # module paths; None for all layers
    activations: dict[str, Tensor] = field(default_factory=dict)  # copies by call id
    target: str = ""
    # copies by the activation's call id
    gradients: dict[str, tuple[Call, Tensor]] = field(default_factory=dict)

    def keep(self, call: Call, tensor: Tensor) -> None:
        self.activations[call.id] = tensor.detach().clone()

    def __call__(self, call: Call, gradient: Tensor) -> None:
        output = replace(call, side="output").id
        if call.side == "grad_output" and output in self.activations:
            self.gradients[output] = (call, gradient.detach().clone())
        if self.selected is None or call.layer.module_path in self.selected:
            self.collector(replace(call, target=self.target), gradient)


def _find_cams(
    key: str,
    observer: _Observer,
    size: tuple[int, int],
    layers: Sequence[LayerInfo],
    score: Score,
    wanted: BackwardStyle,
) -> list[Heat]:
    heats = [*_list_cams(key, observer, size, layers, score, wanted.cam_method)]
    drawn = [heat for heat in heats if _is_drawn(heat.values)]
    if not (wanted.cam_mean and drawn):
        return heats
    names = [heat.call.id.partition("@")[0] for heat in drawn if heat.call]
    label = "+".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} layers"
    call = Call(LayerInfo(label, "mean"), target=observer.target)
    maps = [each.values[None, None] / each.values.max() for each in drawn]
    large = [interpolate(each.clamp(0).float(), size, mode="bilinear") for each in maps]
    mean = torch.stack(large).mean(0)[0, 0]
    return [*(h for h in heats if h not in drawn), replace(drawn[0], call=call, values=mean)]


def _list_cams(
    key: str,
    observer: _Observer,
    size: tuple[int, int],
    layers: Sequence[LayerInfo],
    score: Score,
    method: CamMethod,
) -> Iterator[Heat]:
    found = itertools.product(layers, observer.gradients.items())
    # Of several maps, such as those of a detector's backbone, the score may depend on one.
    used = {c.layer.module_path for c, gradient in observer.gradients.values() if gradient.any()}
    for layer, (output, (call, gradient)) in found:
        path = call.layer.module_path
        is_unused = call.output_key and path in used and not gradient.any()
        if path == layer.module_path and not is_unused:
            layout, cam = call.layout_of(tuple(gradient.shape), size), gradient.new_zeros(1, 1)
            if layout.is_spatial:
                cam = take_cam(observer.activations[output], gradient, layout, method)
            of = replace(call, side="output", target=observer.target)
            yield Heat(key, "cam", of, cam.cpu(), layout, score=score)


def _judge(settings: BackwardSettings, heat: Heat, pixels: Tensor, scorer: Scorer) -> Heat:
    """Test a Grad-CAM, beside that of the model with its layer and the later ones randomised."""
    call = heat.call
    if call is None or not settings.judges or heat.score is None or not _is_drawn(heat.values):
        return heat
    label, runner, wanted = call.layer.label, settings.runner, settings.wanted
    cams = settings.cams if wanted.cam_mean else (call.layer,)
    if label not in settings.randomised:
        paths = {each.module_path.partition(f"/{OPERATION}")[0] for each in cams}
        settings.randomised[label] = replace(runner, module=randomise_top(runner.module, paths))
    again = replace(settings, runner=settings.randomised[label], cams=cams)
    observer = _Observer(lambda *_: None, (), target=call.target)
    with suppress(ForwardError, NoBoxError):
        _run_pass(again, pixels, observer, scorer, changes=())
    others = _find_cams(heat.image, observer, runner.size_of(pixels), cams, heat.score, wanted)
    maps = (h.values for h in others if h.call and (wanted.cam_mean or h.call.id == call.id))
    other = next(filter(_is_drawn, maps), None)
    test = Judge.of(runner, scorer, pixels).test(heat.values, other)
    scores = (*test.deletion, *test.insertion, *test.random, *test.randomised)
    return replace(heat, test=test) if all(map(math.isfinite, scores)) else heat


def _is_drawn(cam: Tensor) -> bool:
    return bool(cam.isfinite().all() and cam.max() > 0)


def _record_missing(key: str, size: tuple[int, int], lost: MissingGradient, of: str) -> LayerRecord:
    call, shape, reason = replace(lost.call, target=of), lost.shape, lost.reason
    layout = UNKNOWN if call.side == "param" else call.layout_of(shape, size)
    stats = TensorStats(shape, str(lost.dtype).removeprefix("torch."))
    if call.side == "grad_input" and reason == NOT_NEEDED:
        reason = IMAGE_NOT_NEEDED
    return LayerRecord(key, call, layout, stats, reason=reason)


def measure_saved(runner: Runner, pixels: Tensor, style: SaveStyle) -> int:
    """Run the model on one image, and return how many bytes the saved tensors will take.

    ``style`` says how hookcli reduces and converts a tensor before saving. No edits are applied.
    """
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
        runner.run(Batch([""], runner.to_device(pixels)), measure)
    if style.channels is not None and not total:
        raise RequestError(
            "no selected layer has any of the channels that `save.channels` asks for",
            "channels are counted from 0; `hookcli.layers(MODEL)` shows how many there are",
        )
    return total
