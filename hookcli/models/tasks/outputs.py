"""What the tasks share in reading outputs: tensors of known axes, the best classes, their names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hookcli.errors import RequestError
from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    Predictions: TypeAlias = list[tuple[Prediction, ...]]  # of each image of a batch
    Scored: TypeAlias = tuple[Tensor, int | None, str]  # a score, its class, and its name

TOP = 5


def is_floats(value: object, axes: int) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a dense tensor of floats with values and this many axes.

    Sparse, quantized and complex tensors have no form that is known here.
    """
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta:
        return False
    return value.is_floating_point() and value.dim() == axes


def find_top(values: Tensor) -> list[int]:
    """Return the indices of the largest values in descending order; of equal ones the first."""
    order: list[int] = values.argsort(descending=True, stable=True)[:TOP].tolist()
    return order


def names_that_fit(categories: Sequence[str], count: int) -> Sequence[str]:
    """Return the class names if there are ``count`` of them, and otherwise none."""
    return categories if len(categories) == count else ()


def name_class(index: int, categories: Sequence[str]) -> str:
    """Return the class's name, or for example ``class 7`` if it has none."""
    return categories[index] if 0 <= index < len(categories) else f"class {index}"


def no_prediction(measure: str) -> tuple[Prediction, ...]:
    """Return what is said of logits that are not finite."""
    return (Prediction(measure, "no prediction: the logits are not finite", None, None),)


def finite(value: float) -> float | None:
    """Return a finite number, and None in place of any other."""
    return value if math.isfinite(value) else None


def score_logits(rows: Tensor, kind: str, index: int) -> Tensor:
    """Return the mean score of a class over rows of logits (n, K).

    Raises:
        RequestError: there is no such class.
    """
    if index >= rows.shape[1]:
        known = f"classes are 0 to {rows.shape[1] - 1}"
        raise RequestError(f"--target: there is no class {index}", known)
    if kind == "logit":
        return rows[:, index].mean()
    if kind == "probability":
        return rows.softmax(1)[:, index].mean()
    return cross_entropy(rows, torch.full((len(rows),), index, device=rows.device))
