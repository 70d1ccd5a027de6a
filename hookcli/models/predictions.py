"""What a model says about an image, told from the form of its output: classes, shares, boxes, flow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

TOP = 5


def read_predictions(output: Any, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    """The predictions of each image of a batch; [] for an output of a form that is not known.

    Args:
        output: rows of logits (N, classes) give the most probable classes; a mapping with ``out``
            (N, classes, H, W) the classes that cover most of the image; a list of mappings with
            ``boxes`` the boxes with the highest score; a list of flows (N, 2, H, W) how far pixels move.
        categories: names by index; where they do not fit, classes go by number.
    """
    if is_floats(output, 2):
        return _read_classes(output, categories)
    if isinstance(output, dict) and is_floats(output.get("out"), 4):
        return _read_shares(output["out"], categories)
    if isinstance(output, list) and output and all(is_boxes(part) for part in output):
        return [_read_boxes(part, categories) for part in output]
    if isinstance(output, list) and output and all(is_flow(part) for part in output):
        return _read_flow(output[-1])
    return []


def _read_classes(logits: Tensor, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    rows = logits.detach().float().cpu()
    best = rows.softmax(1).topk(min(TOP, rows.shape[1]))
    named = categories if len(categories) == rows.shape[1] else ()
    return [
        tuple(
            Prediction("probability", name_class(index, named), index, value)
            for index, value in zip(indices, values, strict=True)
        )
        if row.isfinite().all()
        else _nothing("probability")
        for row, indices, values in zip(
            rows, best.indices.tolist(), best.values.tolist(), strict=True
        )
    ]


def _read_shares(logits: Tensor, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    """The share of the image's pixels whose highest logit is a class's."""
    count = logits.shape[1]
    named = categories if len(categories) == count else ()
    found = []
    for image in logits.detach():
        if not image.isfinite().all():
            found.append(_nothing("share of the image"))
            continue
        classes = image.argmax(0).flatten().cpu()
        shares = classes.bincount(minlength=count).double() / classes.numel()
        order = shares.argsort(descending=True, stable=True)[:TOP].tolist()
        found.append(
            tuple(
                Prediction(
                    "share of the image", name_class(index, named), index, float(shares[index])
                )
                for index in order
                if shares[index] > 0
            )
        )
    return found


def _read_boxes(part: dict[str, Tensor], categories: Sequence[str]) -> tuple[Prediction, ...]:
    scores = part["scores"].detach().float().cpu()
    order = scores.argsort(descending=True, stable=True)[:TOP].tolist()
    boxes, labels = part["boxes"].detach().float().cpu(), part["labels"].long().cpu().tolist()
    return tuple(
        Prediction(
            "score",
            name_class(labels[index], categories),
            labels[index],
            _finite(float(scores[index])),
            _finite_box(boxes[index].tolist()),
        )
        for index in order
    )


def _finite_box(sides: Sequence[float]) -> tuple[float, ...] | None:
    return tuple(round(side, 1) for side in sides) if all(map(math.isfinite, sides)) else None


def _read_flow(flow: Tensor) -> list[tuple[Prediction, ...]]:
    lengths = flow.detach().float().norm(dim=1).flatten(1).cpu()
    return [
        (
            Prediction("pixels", "mean flow", None, _finite(float(image.mean()))),
            Prediction("pixels", "greatest flow", None, _finite(float(image.max()))),
        )
        for image in lengths
    ]


def _nothing(measure: str) -> tuple[Prediction, ...]:
    return (Prediction(measure, "nothing: the logits are not finite", None, None),)


def is_floats(value: Any, axes: int) -> bool:
    """Whether ``value`` is a plain tensor of floats: what is sparse, quantized or complex is of no known form."""
    plain = isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta
    return plain and value.is_floating_point() and value.dim() == axes


def is_boxes(part: Any) -> bool:
    """Whether ``part`` is what a detection model says about one image."""
    if not isinstance(part, dict) or not isinstance(part.get("labels"), Tensor):
        return False
    count = part["labels"].shape
    known = is_floats(part.get("boxes"), 2) and is_floats(part.get("scores"), 1)
    return known and part["scores"].shape == count == part["boxes"].shape[:1]


def is_flow(part: Any) -> bool:
    """Whether ``part`` is a flow (N, 2, H, W)."""
    return is_floats(part, 4) and part.shape[1] == 2


def name_class(index: int, categories: Sequence[str]) -> str:
    """The category, or ``class 7`` where it has no name."""
    return categories[index] if 0 <= index < len(categories) else f"class {index}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
