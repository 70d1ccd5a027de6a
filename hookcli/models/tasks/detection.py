"""Detection: one picture of any size, which the model resizes by itself; boxes with scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeGuard, cast

import torch
from torch import Tensor

from hookcli.errors import NoBoxError, RequestError
from hookcli.models.tasks.outputs import find_top, finite, is_floats, name_class
from hookcli.models.tasks.task import Preprocessing, Task
from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.models.tasks.outputs import Predictions, Scored
    from hookcli.models.tasks.presets import MakePreset


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


class _ImageList(Protocol):
    tensors: Tensor


class _Transform(Protocol):
    """The transform of a torchvision detection model: it normalises, resizes and pads."""

    image_mean: Sequence[float]
    image_std: Sequence[float]
    fixed_size: tuple[int, int] | None
    min_size: tuple[int, ...]
    max_size: int

    def __call__(self, images: list[Tensor], /) -> tuple[_ImageList, object]:
        """Return the batch that the network is given, and its targets."""


class Detection(Task):
    """Models that find objects, or the keypoints of people."""

    word = "detection"
    nominal = (480, 640)
    takes_any_size = True
    shares_forward = False
    keeps_pictures = True
    needs_values = True

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        """Return the preset, and change the transform inside the model, which does the rest."""
        inside = _transform_of(module)
        if request.resize is not None or request.interpolation is not None:
            raise RequestError(
                "a detection model resizes by itself", "--size N, --mean and --std can be changed"
            )
        if request.size is not None and inside.fixed_size is not None:
            inside.fixed_size = (request.size, request.size)
        elif request.size is not None:
            inside.max_size = round(inside.max_size * request.size / inside.min_size[-1])
            inside.min_size = (request.size,)
        inside.image_mean = list(request.mean or inside.image_mean)
        inside.image_std = list(request.std or inside.image_std)
        return Preprocessing(self, make(), size=request.size)

    def arguments(self, pixels: Tensor) -> tuple[object, ...]:
        return (list(pixels),)

    def check_mode(self, name: str, module: nn.Module) -> None:
        """Refuse the training mode, in which a model computes its losses."""
        if module.training:
            raise RequestError(
                f"{name} needs labelled boxes in training mode, to compute its losses",
                "--mode eval",
            )

    def seen(self, module: nn.Module, pixels: Tensor) -> Tensor:
        """Return the batch that the model makes: normalised, resized and padded.

        A picture of it shows the padding, so that feature maps align with it.
        """
        device = next(module.parameters()).device
        with torch.inference_mode():
            batch, _ = _transform_of(module)([image.to(device) for image in pixels])
        return batch.tensors

    def normalisation(
        self, module: nn.Module, transform: object
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Return what the transform inside the model does."""
        inside = _transform_of(module)
        return inside.image_mean, inside.image_std

    def read(self, output: object, categories: Sequence[str]) -> Predictions | None:
        """Return the boxes with the highest scores."""
        if not (isinstance(output, list) and output and all(map(_is_boxes, output))):
            return None
        return [_read_boxes(boxes, categories) for boxes in output]

    def score(self, output: object, kind: str, target: int | None) -> Scored | None:
        """Return the score of the best box, or of the best box of the target's class."""
        if not (isinstance(output, list) and len(output) == 1 and _is_boxes(output[0])):
            return None
        if kind != "logit":
            raise RequestError(f"--score {kind}: boxes have only a score", "leave --score as it is")
        best = _find_best(output[0]["labels"], output[0]["scores"], target)
        return output[0]["scores"][best], int(output[0]["labels"][best]), "score of the best box"


def _transform_of(module: nn.Module) -> _Transform:
    return cast("_Transform", module.transform)


def _is_boxes(value: object) -> TypeGuard[Boxes]:
    """Return whether ``value`` is the output of a detection model for one image."""
    if not isinstance(value, dict):
        return False
    boxes, scores, labels = (value.get(name) for name in ("boxes", "scores", "labels"))
    if not (isinstance(labels, Tensor) and is_floats(boxes, 2) and is_floats(scores, 1)):
        return False
    return scores.shape == labels.shape == boxes.shape[:1]


def _find_best(labels: Tensor, scores: Tensor, target: int | None) -> int:
    eligible = (
        torch.arange(len(labels)) if target is None else (labels == target).nonzero().flatten()
    )
    if not len(eligible):
        what = "no box" if target is None else f"no box of class {target}"
        raise NoBoxError(
            f"the model found {what} in an image", "choose a different --target, or --score sum"
        )
    return int(eligible[int(scores[eligible].argmax())])


def _read_boxes(found: Boxes, categories: Sequence[str]) -> tuple[Prediction, ...]:
    scores, boxes = found["scores"].detach().float().cpu(), found["boxes"].detach().float().cpu()
    labels = found["labels"].long().cpu().tolist()
    return tuple(
        Prediction(
            "score",
            name_class(labels[index], categories),
            labels[index],
            finite(float(scores[index])),
            _finite_box(boxes[index].tolist()),
        )
        for index in find_top(scores)
    )


def _finite_box(sides: Sequence[float]) -> tuple[float, ...] | None:
    return tuple(round(side, 1) for side in sides) if all(map(math.isfinite, sides)) else None
