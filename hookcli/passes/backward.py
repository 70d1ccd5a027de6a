"""Run images through a model, forward and backward, and collect records and pictures of gradients.

Images run one at a time, because the gradient of a parameter is a sum over the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from hookcli.activations.collector import BatchResult, Collector, Heat, keep_tensor
from hookcli.activations.feature_maps import take_cam
from hookcli.hooks.change import change_input_gradients
from hookcli.hooks.gradients import NOT_NEEDED, need_gradients, observe_gradients
from hookcli.hooks.observe import observe
from hookcli.passes.call import call_backward
from hookcli.passes.forward import broken_forwards, observed_until
from hookcli.records.edit_effects import EditEffects
from hookcli.records.layer_records import LayerRecord, TensorStats
from hookcli.records.layouts import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterator, Sequence

    from torch import Tensor

    from hookcli.config import BackwardStyle, GridStyle, SaveStyle
    from hookcli.hooks.change import Change
    from hookcli.hooks.gradients import MissingGradient
    from hookcli.networks.scores import ScoreTensor
    from hookcli.passes.eager import EagerRunner
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.images import Score

IMAGE_NOT_NEEDED = "the gradient of the image was not requested: use `input_grad`"


@dataclass(frozen=True, slots=True)
class BackwardSettings:
    """What hookcli collects in all forward and backward passes of a run with gradients.

    ``save`` and ``sketch`` mean the same as in ``ForwardSettings``.

    Attributes:
        score: computes a score from the model's output; the backward pass starts from this score.
        wanted: what to record and draw besides the gradients of layers.
        cams: the layers for which to compute a Grad-CAM.
    """

    runner: EagerRunner
    style: GridStyle
    score: Callable[..., ScoreTensor]
    wanted: BackwardStyle
    cams: Sequence[LayerInfo] = ()
    save: SaveStyle | None = None
    sketch: bool = False


def run_backward(
    settings: BackwardSettings, keys: Sequence[str], pixels: Tensor, *, first_image: bool = False
) -> list[BatchResult]:
    """Run images, forward and backward, under hooks, one at a time; see ``run_forward``."""
    return [
        _observe_image(settings, key, pixels[i : i + 1], sample=first_image and i == 0)
        for i, key in enumerate(keys)
    ]


@broken_forwards()
def _observe_image(
    settings: BackwardSettings, key: str, pixels: Tensor, *, sample: bool
) -> BatchResult:
    unedited: dict[str, Tensor] = {}
    activations: dict[str, Tensor] = {}
    plain: _Outcome | None = None
    runner = settings.runner
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
    observer = _Observer(collector, selected, activations)
    effects = EditEffects()
    changes = runner.edits.changes(effects, size, 1)
    with observed_until(collector):
        if runner.plain is not None:
            keeper = _Observer(partial(keep_tensor, unedited))
            plain = _run_pass(replace(settings, runner=runner.plain), pixels, keeper, changes=())
        target = None if plain is None else plain.score.target  # edits may change the prediction
        passed = _run_pass(settings, pixels, observer, changes, target)
    result = collector.result()
    missing = [each for each in passed.missing if each.call.layer.module_path in selected]
    heats = list(_find_cams(key, observer, size, {layer.module_path for layer in settings.cams}))
    if settings.wanted.saliency and passed.pixels.grad is not None:
        heats.append(Heat(key, "saliency", None, _saliency(passed.pixels.grad)))
    return replace(
        result,
        records=(*result.records, *(_record_missing(key, size, each) for each in missing)),
        called=dict.fromkeys(passed.called, ""),
        output=passed.output,
        unedited=None if plain is None else plain.output,
        score=passed.score,
        unedited_score=None if plain is None else plain.score,
        heats=tuple(heats),
        effects=effects,
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    output: object
    score: Score
    called: Collection[str]  # module paths
    missing: tuple[MissingGradient, ...]
    pixels: Tensor  # (1, …); has a ``grad`` only if the request needs the gradient of the pixels


def _run_pass(
    settings: BackwardSettings,
    pixels: Tensor,
    observer: _Observer,
    changes: Sequence[Change],
    target: int | None = None,
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
    ):
        output = runner.call(leaf.clone())
        score = settings.score
        scored = score(output) if target is None else score(output, target=target)
        call_backward(scored.value)
    return _Outcome(output, scored.score, gradients.called, gradients.missing, leaf)


@dataclass(slots=True)
class _Observer:
    collector: Callable[[Call, Tensor], None]
    selected: Container[str] | None = None  # module paths; None for all layers
    activations: dict[str, Tensor] = field(default_factory=dict)  # copies by call id
    # copies by the activation's call id
    gradients: dict[str, tuple[Call, Tensor]] = field(default_factory=dict)

    def keep(self, call: Call, tensor: Tensor) -> None:
        self.activations[call.id] = tensor.detach().clone()

    def __call__(self, call: Call, gradient: Tensor) -> None:
        output = replace(call, side="output").id
        if call.side == "grad_output" and output in self.activations:
            self.gradients[output] = (call, gradient.detach().clone())
        if self.selected is None or call.layer.module_path in self.selected:
            self.collector(call, gradient)


def _find_cams(
    key: str, observer: _Observer, size: tuple[int, int], wanted: Container[str]
) -> Iterator[Heat]:
    for output, (call, gradient) in observer.gradients.items():
        if call.layer.module_path in wanted:
            layout = call.layout_of(tuple(gradient.shape), size)
            if layout.is_spatial:
                cam = take_cam(observer.activations[output], gradient, layout)
                yield Heat(key, "cam", replace(call, side="output"), cam.cpu())


def _saliency(gradient: Tensor) -> Tensor:
    """Return each pixel's largest magnitude, (h, w), over all other axes of (1, …, h, w)."""
    plane = gradient[0].abs()
    while plane.dim() > 3:
        plane = plane.amax(0)
    return plane.amax(0).float().cpu()


def _record_missing(key: str, size: tuple[int, int], missing: MissingGradient) -> LayerRecord:
    layout = UNKNOWN
    if missing.call.side != "param":
        layout = missing.call.layout_of(missing.shape, size)
    dtype = str(missing.dtype).removeprefix("torch.")
    stats = TensorStats(missing.shape, dtype)
    first = missing.call.side == "grad_input" and missing.reason == NOT_NEEDED
    return LayerRecord(
        key, missing.call, layout, stats, reason=IMAGE_NOT_NEEDED if first else missing.reason
    )
