"""The scalar that a backward starts at, told from the form of a model's output."""

from __future__ import annotations

import difflib
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hookcli.errors import ModelError, NoBoxError, RequestError
from hookcli.foreign import ForeignCode
from hookcli.models.predictions import is_boxes, is_floats, is_flow, name_class
from hookcli.models.zoo.origin import import_code
from hookcli.records.images import Score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.config import ScoreRequest

_OWN_SUM = "--score sum, or a function of your own: --score FILE.py:FUNCTION"


@dataclass(frozen=True, slots=True)
class ScoreTensor:
    """A score with its way back, and what it is.

    Attributes:
        value: a scalar that needs a gradient.
        score: the same as a fact.
    """

    value: Tensor
    score: Score


def find_target(text: str, categories: Sequence[str]) -> int | None:
    """The index of the class that ``--target`` names; None for the predicted one.

    Args:
        text: ``predicted``, an index from 0, or a category's name, whatever its case.
        categories: names by index; empty when they are not known.

    Raises:
        RequestError: there is no such class, or several are called so.
    """
    if text == "predicted":
        return None
    if text.removeprefix("-").isdecimal():
        index = int(text)
        if index < 0 or (categories and index >= len(categories)):
            known = f"0 to {len(categories) - 1}" if categories else "counted from 0"
            raise RequestError(f"--target: there is no class {index}", f"classes are {known}")
        return index
    named = [i for i, name in enumerate(categories) if name.lower() == text.lower()]
    if len(named) == 1:
        return named[0]
    if named:
        raise RequestError(
            f"--target: {len(named)} classes are called {text!r}",
            f"give the index: {' or '.join(map(str, named))}",
        )
    raise RequestError(f"--target: no category is called {text!r}", _near(text, categories))


def _near(text: str, categories: Sequence[str]) -> str:
    if not categories:
        return "the names of this model's classes are not known: give an index"
    lowered = {name.lower(): name for name in reversed(categories)}
    close = difflib.get_close_matches(text.lower(), lowered, n=3, cutoff=0.6)
    close += [low for low in lowered if text.lower() in low and low not in close]
    names = ", ".join(repr(lowered[low]) for low in close[:4])
    return f"did you mean {names}?" if names else "give an index, counted from 0, or predicted"


def score_output(
    output: Any,
    style: ScoreRequest,
    target: int | None,
    categories: Sequence[str],
    *,
    needs_gradient: bool = True,
) -> ScoreTensor:
    """The score of one image's output.

    ==============  =======================================================================
    output          score
    ==============  =======================================================================
    logits (1, K)   ``logit`` of the target; ``probability``, its softmax; ``cross-entropy``
                    of the target as the truth
    ``out`` (1, K,  the mean over all pixels of the target's logit, probability or
    H, W)           cross-entropy; the predicted target covers most pixels
    boxes           the score of the best box, or of the best one of the target's class
    flows           the mean length of the last flow, in pixels
    ==============  =======================================================================

    ``sum`` adds up all floating numbers of any output; ``FILE.py:FUNCTION`` is called with the output
    and the target (None for the predicted one) and returns a scalar.

    Args:
        output: what the model returned for one image.
        style: which score.
        target: class index; None for the predicted one.
        categories: names by index; where they do not fit, classes go by number.
        needs_gradient: a backward starts at it.

    Raises:
        RequestError: the output has no score of this kind, or the target does not exist.
        ModelError: no gradient leads back from the score, or a function of the user's failed.
    """
    if ":" in style.score:
        value, index, kind = load_score(style.score)(output, target), target, style.score
    elif style.score == "sum":
        value, index, kind = _add_up(output), None, "sum"
    else:
        value, index, kind = _score_of_form(output, style.score, target)
    value = _check_value(value, style, needs_gradient=needs_gradient)
    name = "" if index is None else name_class(index, categories)
    figure = float(value.detach())
    score = Score(kind, figure if math.isfinite(figure) else None, index, name)
    return ScoreTensor(value.reshape(()), score)


def _check_value(value: Any, style: ScoreRequest, *, needs_gradient: bool) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise ModelError(f"--score {style.score}: it must be one number, as a tensor")
    if needs_gradient and not value.requires_grad:
        raise ModelError(
            "no gradient leads back from the score: the model runs without gradients",
            "does its forward use torch.no_grad, detach, or integers?",
        )
    return value


def _score_of_form(output: Any, kind: str, target: int | None) -> tuple[Tensor, int | None, str]:
    """The score, whose it is, and what it is called."""
    if is_floats(output, 2) and len(output) == 1:
        index = int(output[0].argmax()) if target is None else target
        return _of_logits(output, kind, _inside(index, output.shape[1])), index, kind
    if isinstance(output, dict) and is_floats(output.get("out"), 4):
        logits = output["out"]
        covered = logits[0].argmax(0).flatten().bincount(minlength=logits.shape[1])
        index = int(covered.argmax()) if target is None else target
        pixels = logits[0].flatten(1).T
        return _of_logits(pixels, kind, _inside(index, logits.shape[1])), index, f"mean {kind}"
    if isinstance(output, list) and len(output) == 1 and is_boxes(output[0]):
        return *_of_boxes(output[0], kind, target), "score of the best box"
    if isinstance(output, list) and output and all(map(is_flow, output)):
        if target is not None or kind != "logit":
            raise RequestError(
                "an optical flow has no classes", "leave --target and --score as they are"
            )
        return output[-1].norm(dim=1).mean(), None, "mean flow in pixels"
    raise RequestError("the model's output has no form whose score is known", _OWN_SUM)


def _of_logits(rows: Tensor, kind: str, index: int) -> Tensor:
    """The mean over rows (n, K)."""
    if kind == "logit":
        return rows[:, index].mean()
    if kind == "probability":
        return rows.softmax(1)[:, index].mean()
    return cross_entropy(rows, torch.full((len(rows),), index, device=rows.device))


def _of_boxes(part: dict[str, Tensor], kind: str, target: int | None) -> tuple[Tensor, int]:
    if kind != "logit":
        raise RequestError(f"--score {kind}: boxes have a score only", "leave --score as it is")
    scores, labels = part["scores"], part["labels"]
    mine = torch.arange(len(labels)) if target is None else (labels == target).nonzero().flatten()
    if not len(mine):
        what = "no box" if target is None else f"no box of class {target}"
        raise NoBoxError(f"the model found {what} in an image", "another --target, or --score sum")
    best = mine[int(scores[mine].argmax())]
    return scores[best], int(labels[best])


def _inside(index: int, count: int) -> int:
    if index >= count:
        raise RequestError(f"--target: there is no class {index}", f"classes are 0 to {count - 1}")
    return index


def _add_up(value: Any) -> Tensor | None:
    """The sum of all floating numbers, wherever they are in the output."""
    if isinstance(value, Tensor):
        return value.sum() if value.is_floating_point() else None
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list, tuple)):
        return None
    sums = [found for found in map(_add_up, parts) if found is not None]
    return sum(sums[1:], sums[0]) if sums else None


@functools.cache
def load_score(text: str) -> Callable[[Any, int | None], Any]:
    """The user's function, imported once, whose errors are theirs.

    Raises:
        RequestError: there is none of this name.
    """
    place, _, name = text.rpartition(":")
    code = ForeignCode(f"--score {text}", hint="try the function in Python first")
    with code:
        function = getattr(import_code(place), name, None)
    if not callable(function):
        raise RequestError(f"--score {text}: {place} has no function {name!r}")

    def call(output: Any, target: int | None) -> Any:
        with code:
            return function(output, target)

    return call
