"""Images through a model forwards and backwards under hooks: records of gradients, and what is drawn of them.

One image at a time: the gradients of parameters are sums over a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from hookcli.activations.collector import BatchResult, Collector, Heat, keep_tensor
from hookcli.activations.feature_maps import take_cam
from hookcli.errors import ForwardError
from hookcli.hooks.change import change, change_input_gradients
from hookcli.hooks.gradients import NOT_NEEDED, need_gradients, observe_gradients
from hookcli.hooks.observe import observe
from hookcli.passes.call import call_backward
from hookcli.passes.forward import BrokenForwardError, HookedForward, broken_forwards
from hookcli.records.layer_records import LayerRecord, TensorStats
from hookcli.records.layouts import UNKNOWN, resolve_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from torch import Tensor

    from hookcli.config import BackwardStyle
    from hookcli.hooks.change import Change
    from hookcli.hooks.gradients import MissingGradient
    from hookcli.models.scores import ScoreTensor
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.images import Score

IMAGE_NOT_NEEDED = "the image needs no gradient: --input-grad asks for it"


@dataclass(slots=True, kw_only=True)
class HookedBackward(HookedForward):
    """A model whose chosen layers are observed in a forward and the backward through it.

    Attributes:
        score: what the backward starts at, from the model's output.
        wanted: what is taken from it.
        cams: layers of which a Grad-CAM is made.
    """

    score: Callable[..., ScoreTensor]
    wanted: BackwardStyle
    cams: Sequence[LayerInfo] = ()

    def run(self, keys: Sequence[str], pixels: Tensor) -> list[BatchResult]:
        """Run the images ``keys`` with pixels (N, …), one at a time.

        Raises:
            BrokenForwardError: the model raised.
            HookcliError: there is no such score.
        """
        return [self._run_one(key, pixels[i : i + 1]) for i, key in enumerate(keys)]

    def _run_one(self, key: str, pixels: Tensor) -> BatchResult:
        with broken_forwards(), self.edits.forgotten_on_error():
            return self._observe_one(key, pixels)

    def _observe_one(self, key: str, pixels: Tensor) -> BatchResult:
        unedited: dict[str, Tensor] = {}
        plain: _Pass | None = None
        size = self.feed.size_of(pixels)
        if self.edits:
            keeper = _Observer(partial(keep_tensor, unedited))
            with self.edits.without_pruning():
                plain = self._pass(pixels, keeper, Collector((key,), size, self.style), ())
        collector = Collector(
            (key,), size, self.style, self.sample, None, self.save,
            unedited if self.edits else None, drawn=("grad_output",), sketch=self.sketch,
        )  # fmt: skip
        observer = _Observer(collector, {layer.module_path for layer in self.layers})
        if self.wanted.times_activation:
            collector.activations = observer.activations
        self.edits.size, self.edits.images = size, 1
        target = None if plain is None else plain.score.target  # edits may change the prediction
        passed = self._pass(pixels, observer, collector, self.edits.changes, target)
        result = collector.result(passed.output)
        selected = {layer.module_path for layer in self.layers}
        missing = [a for a in passed.absent if a.call.layer.module_path in selected]
        heats = list(_find_cams(key, observer, size, {layer.module_path for layer in self.cams}))
        if self.wanted.saliency and passed.pixels.grad is not None:
            heats.append(Heat(key, "saliency", None, _saliency(passed.pixels.grad)))
        return replace(
            result,
            records=(*result.records, *(_describe_absent(key, size, each) for each in missing)),
            unedited=None if plain is None else plain.output,
            score=passed.score,
            unedited_score=None if plain is None else plain.score,
            heats=tuple(heats),
        )

    def _pass(
        self,
        pixels: Tensor,
        observer: _Observer,
        collector: Collector,
        changes: Sequence[Change],
        target: int | None = None,
    ) -> _Pass:
        """One forward and backward; what the model raises becomes BrokenForwardError."""
        extra = [layer for layer in self.cams if layer not in self.layers]
        kept = self.layers if self.wanted.times_activation else ()
        leaf = pixels.clone().requires_grad_(self.wanted.needs_pixels)
        with (
            need_gradients(self.model),
            torch.enable_grad(),
            change(self.model, changes),
            observe(self.model, [*dict.fromkeys((*kept, *self.cams))], observer.keep),
            observe_gradients(self.model, [*self.layers, *extra], observer) as gradients,
            change_input_gradients(self.model, changes),
        ):
            output = self._call(leaf.clone(), collector)
            collector.called |= gradients.called
            scored = self.score(output) if target is None else self.score(output, target=target)
            try:
                call_backward(scored.value)
            except ForwardError as error:
                partial = collector.result(None)
                raise BrokenForwardError(error.message, error.hint, partial) from error.__cause__
        return _Pass(output, scored.score, gradients.absent, leaf)


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one forward and backward gave beside what was observed."""

    output: object
    score: Score
    absent: tuple[MissingGradient, ...]
    pixels: Tensor


@dataclass(slots=True)
class _Observer:
    """Gives a collector the gradients of the layers that were selected, and keeps what maps are made of."""

    collector: Callable[[Call, Tensor], None]
    selected: Container[str] | None = None
    activations: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, tuple[Call, Tensor]] = field(default_factory=dict)

    def keep(self, call: Call, tensor: Tensor) -> None:
        """Copy an activation."""
        self.activations[call.id] = tensor.detach().clone()

    def __call__(self, call: Call, gradient: Tensor) -> None:
        """Observe a gradient."""
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
            layout = resolve_layout(tuple(gradient.shape), call.layer.channels, size)
            if layout.is_spatial:
                cam = take_cam(observer.activations[output], gradient, layout)
                yield Heat(key, "cam", replace(call, side="output"), cam.cpu())


def _saliency(gradient: Tensor) -> Tensor:
    """(h, w) largest magnitude over colours, of a clip's middle frame, of a pair's first picture."""
    plane = gradient[0].abs()
    while plane.dim() > 3:
        plane = plane.amax(0)
    return plane.amax(0).float().cpu()


def _describe_absent(key: str, size: tuple[int, int], absent: MissingGradient) -> LayerRecord:
    """A record without figures, and the reason."""
    layout = UNKNOWN
    if absent.call.side != "param":
        layout = resolve_layout(absent.shape, absent.call.layer.channels, size)
    dtype = str(absent.dtype).removeprefix("torch.")
    stats = TensorStats(absent.shape, dtype, None, None, None, None, None)
    first = absent.call.side == "grad_input" and absent.reason == NOT_NEEDED
    return LayerRecord(
        key, absent.call, layout, stats, reason=IMAGE_NOT_NEEDED if first else absent.reason
    )
