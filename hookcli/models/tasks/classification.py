"""Classification: one picture, rows of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.models.tasks.outputs import (
    TOP,
    is_floats,
    name_class,
    names_that_fit,
    no_prediction,
    score_logits,
)
from hookcli.models.tasks.task import Task
from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.models.tasks.outputs import Predictions, Scored


class Classification(Task):
    """Models that name what is on a picture."""

    word = "classification"
    is_faster_channels_last = True

    def read(self, output: object, categories: Sequence[str]) -> Predictions | None:
        """Return the most probable classes of each image."""
        logits = _find_logits(output)
        if logits is None:
            return None
        rows = logits.detach().float().cpu()
        best = rows.softmax(1).topk(min(TOP, rows.shape[1]))
        named = names_that_fit(categories, rows.shape[1])
        return [
            tuple(
                Prediction("probability", name_class(index, named), index, value)
                for index, value in zip(indices, values, strict=True)
            )
            if row.isfinite().all()
            else no_prediction("probability")
            for row, indices, values in zip(
                rows, best.indices.tolist(), best.values.tolist(), strict=True
            )
        ]

    def score(self, output: object, kind: str, target: int | None) -> Scored | None:
        """Return the target's logit, its softmax, or the cross-entropy with it as the truth."""
        rows = _find_logits(output)
        if rows is None or len(rows) != 1:
            return None
        index = int(rows[0].argmax()) if target is None else target
        return score_logits(rows, kind, index), index, kind


class Quantized(Classification):
    """Classifiers that compute with integers."""

    word = "quantization"
    is_faster_channels_last = False


def _find_logits(output: object) -> Tensor | None:
    """Return the logits (N, classes) in the output of a classifier.

    They are the output, or are named so in a tuple, as Inception returns one in training mode. None
    if the output is not of this form.
    """
    if isinstance(output, tuple) and "logits" in getattr(output, "_fields", ()):
        output = getattr(output, "logits", None)
    return output if is_floats(output, 2) else None
