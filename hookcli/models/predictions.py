"""A model's predictions about an image: classes, shares, boxes, flow, or none but features.

Which of them is derived from the form of the model's output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, TypeGuard

import torch
from torch import Tensor

from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

TOP = 5


class Boxes(TypedDict):
    """The output of a detection model for one image.

    Attributes:
        boxes: the corners (n, 4) of the boxes.
        scores: the score (n,) of each box.
        labels: the class index (n,) of each box.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor


def read_predictions(output: object, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    """Return the predictions for each image of a batch; [] for an output whose form is not known.

    Args:
        output: rows of logits (N, classes) produce the most probable classes, and so do those of a
            named tuple, as Inception returns one in training mode; a mapping with
            ``out`` (N, classes, H, W), the classes that cover most of the image; a list of mappings
            with ``boxes``, the boxes with the highest scores; a list of flows (N, 2, H, W), how far
            pixels move.
        categories: the class names by index; classes are numbered where the names do not fit.
    """
    logits = find_class_logits(output)
    if logits is not None:
        return _read_classes(logits, categories)
    pixel_logits = find_pixel_logits(output)
    if pixel_logits is not None:
        return [_read_shares(image, categories) for image in pixel_logits.detach()]
    if isinstance(output, list) and output and all(map(is_boxes, output)):
        return [_read_boxes(boxes, categories) for boxes in output]
    flow = find_last_flow(output)
    return [] if flow is None else _read_flow(flow)


def read_features(features: Tensor) -> list[tuple[Prediction, ...]]:
    """Return, for each image of a batch, that the model returned features (``find_features``)."""
    count = features.shape[2 if features.dim() == 3 else 1]
    return [(Prediction("features", f"{count} features, no classes", None, None),)] * len(features)


def _read_classes(logits: Tensor, categories: Sequence[str]) -> list[tuple[Prediction, ...]]:
    rows = logits.detach().float().cpu()
    best = rows.softmax(1).topk(min(TOP, rows.shape[1]))
    named = _names_that_fit(categories, rows.shape[1])
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


def _read_shares(logits: Tensor, categories: Sequence[str]) -> tuple[Prediction, ...]:
    """Return the classes that win most pixels, for the logits (classes, H, W) of one image.

    A class's share is the fraction of the pixels whose highest logit is that class's.
    """
    measure = "share of the image"
    if not logits.isfinite().all():
        return _nothing(measure)
    named = _names_that_fit(categories, len(logits))
    classes = logits.argmax(0).flatten().cpu()
    shares = classes.bincount(minlength=len(logits)).double() / classes.numel()
    return tuple(
        Prediction(measure, name_class(index, named), index, float(shares[index]))
        for index in _find_top(shares)
        if shares[index] > 0
    )


def _read_boxes(found: Boxes, categories: Sequence[str]) -> tuple[Prediction, ...]:
    scores, boxes = found["scores"].detach().float().cpu(), found["boxes"].detach().float().cpu()
    labels = found["labels"].long().cpu().tolist()
    return tuple(
        Prediction(
            "score",
            name_class(labels[index], categories),
            labels[index],
            _finite(float(scores[index])),
            _finite_box(boxes[index].tolist()),
        )
        for index in _find_top(scores)
    )


def _find_top(values: Tensor) -> list[int]:
    """Return the indices of the largest values in descending order; of equal ones the first."""
    order: list[int] = values.argsort(descending=True, stable=True)[:TOP].tolist()
    return order


def _names_that_fit(categories: Sequence[str], count: int) -> Sequence[str]:
    return categories if len(categories) == count else ()


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
    return (Prediction(measure, "no prediction: the logits are not finite", None, None),)


def find_class_logits(output: object) -> Tensor | None:
    """Return the logits (N, classes) in the output of a classifier.

    They are the output, or are named so in a tuple. None if the output is not of this form.
    """
    if isinstance(output, tuple) and "logits" in getattr(output, "_fields", ()):
        output = getattr(output, "logits", None)
    return output if is_floats(output, 2) else None


def find_pixel_logits(output: object) -> Tensor | None:
    """Return the logits (N, classes, H, W) in the output of a segmentation model.

    None if the output is not of this form.
    """
    logits = output.get("out") if isinstance(output, dict) else None
    return logits if is_floats(logits, 4) else None


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


def find_last_flow(output: object) -> Tensor | None:
    """Return the last of the flows (N, 2, H, W) that an optical flow model refines.

    None if the output is not a list of flows.
    """
    if isinstance(output, list) and output and all(map(_is_flow, output)):
        last: Tensor = output[-1]
        return last
    return None


def is_floats(value: object, axes: int) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a dense tensor of floats with values and this many axes.

    Sparse, quantized and complex tensors have no form that is known here.
    """
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta:
        return False
    return value.is_floating_point() and value.dim() == axes


def is_boxes(value: object) -> TypeGuard[Boxes]:
    """Return whether ``value`` is the output of a detection model for one image."""
    if not isinstance(value, dict):
        return False
    boxes, scores, labels = (value.get(name) for name in ("boxes", "scores", "labels"))
    if not (isinstance(labels, Tensor) and is_floats(boxes, 2) and is_floats(scores, 1)):
        return False
    return scores.shape == labels.shape == boxes.shape[:1]


def _is_flow(value: object) -> bool:
    return is_floats(value, 4) and value.shape[1] == 2


def name_class(index: int, categories: Sequence[str]) -> str:
    """Return the class's name, or for example ``class 7`` if it has none."""
    return categories[index] if 0 <= index < len(categories) else f"class {index}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
