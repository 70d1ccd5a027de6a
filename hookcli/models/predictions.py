"""A model's predictions about an image: classes, shares, boxes, flow, or none but features.

Which of them is derived from the form of the model's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from hookcli.models.tasks import TASKS, is_floats
from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_predictions(output: object, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    """Return the predictions for each image of a batch; [] for an output whose form is not known.

    The first task that knows the form reads it. Classes are numbered where ``categories``, their
    names by index, do not fit.
    """
    for task in TASKS:
        if (found := task.find(output)) is not None:
            return task.read(found, categories)
    return []


def read_features(features: Tensor) -> list[tuple[Prediction, ...]]:
    """Return, for each image of a batch, that the model returned features (``find_features``)."""
    count = features.shape[2 if features.dim() == 3 else 1]
    return [(Prediction("features", f"{count} features, no classes", None, None),)] * len(features)


def find_features(output: object) -> Tensor | None:
    """Return what can be the features of a model without a classifier.

    They are (N, F), and of a model of transformers also (N, tokens, F) or (N, F, H, W). None if the
    output is not of this form.
    """
    if not isinstance(output, Mapping):
        return output if is_floats(output, 2) else None
    if "logits" in output:
        return None
    for name, axes in (("pooler_output", (2,)), ("last_hidden_state", (2, 3, 4))):
        features = output.get(name)
        if isinstance(features, Tensor) and any(is_floats(features, count) for count in axes):
            return features
    return None
