"""Segmentation: one picture of any size, logits for each of its pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.models.tasks.outputs import (
    find_top,
    is_floats,
    name_class,
    names_that_fit,
    no_prediction,
    score_logits,
)
from hookcli.models.tasks.presets import colour_changes
from hookcli.models.tasks.task import Preprocessing, Task
from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.models.tasks.outputs import Predictions, Scored
    from hookcli.models.tasks.presets import MakePreset

_MEASURE = "share of the image"


class Segmentation(Task):
    """Models that name what each pixel belongs to."""

    word = "segmentation"
    nominal = (520, 520)
    takes_any_size = True
    is_faster_channels_last = True

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        """Return the preset, which resizes the short side and keeps the whole picture."""
        side = request.size or request.resize or make().resize_size[0]
        return Preprocessing(self, make(resize_size=side, **colour_changes(request)), size=side)

    def read(self, output: object, categories: Sequence[str]) -> Predictions | None:
        """Return the classes that cover most of each image."""
        logits = _find_logits(output)
        if logits is None:
            return None
        return [_read_shares(image, categories) for image in logits.detach()]

    def score(self, output: object, kind: str, target: int | None) -> Scored | None:
        """Return the mean of the target's score over all pixels.

        The predicted target covers most pixels.
        """
        logits = _find_logits(output)
        if logits is None:
            return None
        covered = logits[0].argmax(0).flatten().bincount(minlength=logits.shape[1])
        index = int(covered.argmax()) if target is None else target
        return score_logits(logits[0].flatten(1).T, kind, index), index, f"mean {kind}"


def _find_logits(output: object) -> Tensor | None:
    """Return the logits (N, classes, H, W) under ``out``; None if the output has another form."""
    logits = output.get("out") if isinstance(output, dict) else None
    return logits if is_floats(logits, 4) else None


def _read_shares(logits: Tensor, categories: Sequence[str]) -> tuple[Prediction, ...]:
    """Return the classes that win most pixels, for the logits (classes, H, W) of one image.

    A class's share is the fraction of the pixels whose highest logit is that class's.
    """
    if not logits.isfinite().all():
        return no_prediction(_MEASURE)
    named = names_that_fit(categories, len(logits))
    classes = logits.argmax(0).flatten().cpu()
    shares = classes.bincount(minlength=len(logits)).double() / classes.numel()
    return tuple(
        Prediction(_MEASURE, name_class(index, named), index, float(shares[index]))
        for index in find_top(shares)
        if shares[index] > 0
    )
