"""Round a model's layers one at a time, measure what its answers lose, and choose what to keep.

A pass runs all images once. One pass runs the model as it is and finds the ranges of outputs, one
pass for each layer rounds it alone, and one rounds all layers; each list of layers to leave alone
takes a pass. Before, the first image goes through the model twice, to find what is called, and
whether the model returns the same each time. ``on_error=skip`` tries each image before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli import errors
from hookcli.comparison.rounded_layers import Trial, choose_layers
from hookcli.comparison.rounded_passes import Passes, PreparedImages, check_memory, name_measure
from hookcli.config import GRAPH_FILES
from hookcli.errors import RequestError
from hookcli.networks.tasks import CLASSIFICATION
from hookcli.outside.parse import split_goal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hookcli.config import RoundingStyle
    from hookcli.plan.prepared import EagerModel
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import SkippedImage
    from hookcli.records.rows import AnswerLoss, SensitivityRow
    from hookcli.records.runs import ModelInfo


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

    With a goal, it gets the most passes that may be needed.

    With ``all_weights``, the layers are those that own a weight, or that use a weight of a module
    inside them without calling it, such as the attention of torchvision's Swin.
    """
    images = PreparedImages(model, style.batch_size)
    images.prepare()
    trial = Trial.of(model, images.pixels[0])
    check_memory(2 * trial.output_bytes * len(images.pixels))
    layers, uncalled = choose_layers(model, style, trial, all_weights=all_weights)
    if len(layers) == 1 and (style.keep, style.reach) != (None, None):
        what = f"{layers[0].label} is the only layer to round, so no list is needed"
        raise RequestError(what, "leave out `keep` and `reach`")
    planned(len(layers), len(layers) + 2 + _count_trials(style, len(layers)))
    chosen = {layer.module_path for layer in layers}
    norms = {p: norm for p, norm in trial.norms.items() if norm.module_path not in chosen}
    passes = Passes(model, style, images, layers, pass_done, norms, trial.weights)
    passes.run_plain()
    rows = _rank([passes.measure(layer) for layer in layers], style.reach)
    rounded = passes.run_rounded(layers)
    if not any(value != 0 for value in (rounded.rel_l2, *(row.rel_l2 for row in rows))):
        what = f"rounding to {style.to} changes no output: there is nothing to rank"
        raise RequestError(what, "is the model in this format already, or its output constant?")
    kept = _Search(passes, tuple(row.layer for row in rows), {(): rounded}).find()
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


def _rank(rows: Sequence[SensitivityRow], goal: str | None) -> tuple[SensitivityRow, ...]:
    measures = ["divergence", "rel_l2", "agreement"][goal is not None and "rel" in goal :]
    known = [each for each in rows if each.is_finite]
    by = [name for name in measures if all(getattr(each, name) is not None for each in known)]
    if not by:
        what = "the outputs have other shapes when a layer is rounded, so no layer can be ranked"
        raise RequestError(what, "`hookcli.compare` shows which outputs")

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
    return int(style.keep is not None) if style.reach is None else layers + layers.bit_length()


@dataclass(slots=True)
class _Search:
    """Finds the layers to leave alone; each list that is tried takes a pass.

    A list begins with the most sensitive layers. Halving finds one that reaches the goal; then each
    of its layers, the least sensitive first, leaves it if the others still reach the goal.
    """

    passes: Passes
    order: tuple[str, ...]  # labels, the most sensitive first
    tried: dict[tuple[str, ...], AnswerLoss]  # by list

    def find(self) -> KeptList | None:
        style, most = self.passes.style, len(self.order) - 1
        if style.keep is not None:
            count = min(most, max(1, math.ceil(len(self.order) * style.keep / 100)))
            return self._list(self.order[:count], reached=True)
        if style.reach is None:
            return None
        if self._reaches(()):
            return self._list((), reached=True)
        if not self._reaches(self.order[:most]):
            return self._list(max(self.tried, key=self._rate), reached=False)
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._reaches(self.order[:middle]) else (middle, high)
        kept = self.order[:high]
        for label in reversed(kept):
            shorter = tuple(each for each in kept if each != label)
            kept = shorter if self._reaches(shorter) else kept
        return self._list(kept, reached=True)

    def _reaches(self, kept: tuple[str, ...]) -> bool:
        assert self.passes.style.reach is not None  # noqa: S101  the caller has checked this
        return self._rate(kept) >= _rate(*split_goal(self.passes.style.reach))

    def _rate(self, kept: tuple[str, ...]) -> float:
        measure = name_measure(self.passes.style.reach)
        loss = self._try(kept)
        return _rate(measure, getattr(loss, measure) if loss.is_finite else None)

    def _try(self, kept: tuple[str, ...]) -> AnswerLoss:
        if kept not in self.tried:
            rest = [layer for layer in self.passes.layers if layer.label not in kept]
            self.tried[kept] = self.passes.run_rounded(rest)
        return self.tried[kept]

    def _list(self, kept: tuple[str, ...], *, reached: bool) -> KeptList:
        return KeptList(kept, self._try(kept), reached)
