"""Compare the answers of two models for an image: classes, masks, boxes, or other numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from hookcli.comparison.side import to_array
from hookcli.distance.answer import Answer
from hookcli.distance.metrics import measure_arrays
from hookcli.hooks.nested import map_tensors, named_tensors
from hookcli.networks.tasks import BoxTask, find_form, find_probabilities
from hookcli.networks.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hookcli.networks.description import ModelDescription
    from hookcli.networks.tasks import Boxes

_LEAST_SCORE = 0.5  # of the boxes that are compared; half of A's best score if that is less
_LEAST_OVERLAP = 0.5  # of two boxes that are the same: intersection over union


def compare_answers(model: ModelDescription, a: object, b: object) -> Answer | None:
    """Compare the outputs of models A and B for one image, and return how far they agree.

    Return None if the outputs cannot be compared, for example because their shapes differ.
    ``model`` describes A. ``b`` may come from an export, whose outputs are not nested.
    """
    ones, twos = ([each for _, each in named_tensors(output)] for output in (a, b))
    if len(ones) == len(twos):
        left = iter(twos)
        b = map_tensors(a, lambda _key, _tensor: next(left))
    read = model.read(a)
    compare = _COMPARED.get(read[0][0].measure) if read and read[0] else None
    if read == [()]:
        with model.guard():
            form = find_form(model.pick(a), model.task)
        compare = _compare_boxes if form is not None and isinstance(form[0], BoxTask) else None
    if compare is not None:
        with model.guard():
            form = find_form(model.pick(a), model.task)
            other = None if form is None else form[0].find(model.pick(b))
        if form is None or other is None:
            return None
        is_alike = getattr(other, "shape", 0) == getattr(form[1], "shape", 0)
        return compare(*form, other) if is_alike else None
    if not ones or [each.shape for each in ones] != [each.shape for each in twos]:
        return None
    pairs = ((to_array(one), to_array(two)) for one, two in zip(ones, twos, strict=True))
    apart = [measure_arrays(*pair) for pair in pairs]
    worst = max(math.inf if each.misplaced else each.rel_l2 for each in apart)
    return Answer("output", float(worst == 0), worst if worst < math.inf else None)


def _compare_classes(task: Any, a: Tensor, b: Tensor) -> Answer:
    one, two = (find_probabilities(each.detach().double().cpu(), task.reading) for each in (a, b))
    if task.reading == "labels":
        return Answer("labels", float(((one > 0.5) == (two > 0.5)).double().mean()))
    logs = [each.clamp(min=torch.finfo(each.dtype).tiny).log() for each in (one, two)]
    divergence = float((one * (logs[0] - logs[1])).sum())
    if not math.isfinite(divergence):
        return Answer("top class", 0.0)
    return Answer("top class", float(one.argmax() == two.argmax()), max(0.0, round(divergence, 12)))


def _compare_masks(task: Any, a: Tensor, b: Tensor) -> Answer:
    (one,), (two,) = (task.list_labels(each.detach(), ()) for each in (a, b))
    return Answer("masks", float((one.cpu() == two.cpu()).double().mean()))


def _compare_boxes(_task: Any, a: list[Boxes], b: list[Boxes]) -> Answer:
    least = min(_LEAST_SCORE, max(a[0]["scores"].tolist(), default=1.0) / 2)
    kept = [(each[0], each[0]["scores"] >= least) for each in (a, b)]
    boxes, labels = ([each[name][i].cpu() for each, i in kept] for name in ("boxes", "labels"))
    overlap = torchvision.ops.box_iou(*(each.float() for each in boxes))
    overlap[labels[0][:, None] != labels[1]] = 0
    matched = 0
    for row in overlap if overlap.numel() else ():
        if row.max() >= _LEAST_OVERLAP:
            matched += 1
            overlap[:, row.argmax()] = 0
    both = sum(overlap.shape)
    return Answer("boxes", 2 * matched / both if both else 1.0)


_COMPARED: dict[str, Callable[..., Answer]] = {
    "probability": _compare_classes,
    "share of the image": _compare_masks,
    "score": _compare_boxes,
}
