"""What a classifier says: the classes with the highest probability."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from hookcli.results import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

TOP_CLASSES = 5


def top_classes(output: object, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    """The top classes of each image of a batch, the most probable first.

    Args:
        output: the model's output; anything but rows of logits (N, classes) has no classes: [].
        categories: names by index; where they do not fit the logits, classes go by number.
    """
    if not isinstance(output, Tensor) or output.dim() != 2:
        return []
    logits = output.detach().float().cpu()
    best = logits.softmax(1).topk(min(TOP_CLASSES, logits.shape[1]))
    named = len(categories) == logits.shape[1]
    return [
        tuple(
            Prediction(
                index,
                categories[index] if named else f"class {index}",
                probability if math.isfinite(probability) else None,
            )
            for index, probability in zip(indices, probabilities, strict=True)
        )
        for indices, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
