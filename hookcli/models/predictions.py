"""What a model says about an image, told from the form of its output: classes, shares, boxes, flow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookcli.results import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

TOP = 5


def read_predictions(output: object, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    """The predictions of each image of a batch; [] for an output of a form that is not known.

    Args:
        output: rows of logits (N, classes) give the most probable classes; a mapping with ``out``
            (N, classes, H, W) the classes that cover most of the image; a list of mappings with
            ``boxes`` the boxes with the highest score; a list of flows (N, 2, H, W) how far pixels move.
        categories: names by index; where they do not fit, classes go by number.
    """
    if isinstance(output, Tensor) and output.dim() == 2:
        return _read_classes(output, categories)
    if (
        isinstance(output, dict)
        and isinstance(output.get("out"), Tensor)
        and output["out"].dim() == 4
    ):
        return _read_shares(output["out"], categories)
    if isinstance(output, list) and output and all(_is_boxes(part) for part in output):
        return [_read_boxes(part, categories) for part in output]
    if isinstance(output, list) and output and all(_is_flow(part) for part in output):
        return _read_flow(output[-1])
    return []


def _read_classes(logits: Tensor, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    if not logits.isfinite().all():
        nothing = Prediction("probability", "nothing: the logits are not finite", None, None)
        return [(nothing,)] * len(logits)
    best = logits.detach().float().cpu().softmax(1).topk(min(TOP, logits.shape[1]))
    named = categories if len(categories) == logits.shape[1] else ()
    return [
        tuple(
            Prediction("probability", _name(index, named), index, _finite(value))
            for index, value in zip(indices, values, strict=True)
        )
        for indices, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _read_shares(logits: Tensor, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    """The share of the image's pixels whose highest logit is a class's."""
    count = logits.shape[1]
    named = categories if len(categories) == count else ()
    found = []
    for image in logits.detach().argmax(1).flatten(1).cpu():
        shares = image.bincount(minlength=count).double() / image.numel()
        order = shares.argsort(descending=True, stable=True)[:TOP].tolist()
        found.append(
            tuple(
                Prediction("share of the image", _name(index, named), index, float(shares[index]))
                for index in order
                if shares[index] > 0
            )
        )
    return found


def _read_boxes(part: dict[str, Tensor], categories: Sequence[str]) -> tuple[Prediction, ...]:
    scores = part["scores"].detach().float().cpu()
    order = scores.argsort(descending=True, stable=True)[:TOP].tolist()
    boxes, labels = part["boxes"].detach().float().cpu(), part["labels"].cpu().tolist()
    return tuple(
        Prediction(
            "score",
            _name(labels[index], categories),
            labels[index],
            _finite(float(scores[index])),
            tuple(round(value, 1) for value in boxes[index].tolist()),
        )
        for index in order
    )


def _read_flow(flow: Tensor) -> list[tuple[Prediction, ...]]:
    lengths = flow.detach().float().norm(dim=1).flatten(1).cpu()
    return [
        (
            Prediction("pixels", "mean flow", None, _finite(float(image.mean()))),
            Prediction("pixels", "greatest flow", None, _finite(float(image.max()))),
        )
        for image in lengths
    ]


def _is_boxes(part: Any) -> bool:
    return isinstance(part, dict) and {"boxes", "labels", "scores"} <= part.keys()


def _is_flow(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dim() == 4 and part.shape[1] == 2


def _name(index: int, categories: Sequence[str]) -> str:
    return categories[index] if index < len(categories) else f"class {index}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
