"""Find the class that ``--target`` names, and compute the score at which a backward pass starts."""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from hookcli.errors import ModelError, NoBoxError, RequestError
from hookcli.networks.code_files import split_name
from hookcli.networks.own_code import import_code
from hookcli.networks.task import Aim, Part
from hookcli.networks.tasks import find_form, finite, name_class
from hookcli.outside.foreign import ForeignCode
from hookcli.records.images import Score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.config import ScoreRequest
    from hookcli.networks.task import Task
    from hookcli.records.calls import Call

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ScoreTensor:
    value: Tensor
    score: Score
    # what other outputs for the same image are scored by: the class, or the box or pixels found
    aim: int | Aim | None = None


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores the output of a model for one image, or the tensor that ``call`` makes meanwhile."""

    score: Callable[..., ScoreTensor]  # of the output or tensor, and ``aim`` as in ScoreTensor
    # the same without a gradient, as tests of Grad-CAMs compare it: the first that the output has
    judged: tuple[Callable[..., ScoreTensor], ...] = ()
    call: Call | None = None

    def aimed(self, aim: int | Aim | None) -> Scorer:
        """Return a scorer of other outputs for the same image, by the same class, box or pixels."""
        judged = (*(partial(each, aim=aim) for each in self.judged),)
        return Scorer(partial(self.score, aim=aim), judged, self.call)

    def judge(self, values: object) -> float:
        """Return the number that tests of Grad-CAMs compare; 0 if the box is gone."""
        for each in self.judged:
            with suppress(RequestError, NoBoxError):
                return float(each(values).value)
        return 0.0


def read_aim(text: str, categories: Sequence[str], *, several: bool = False) -> int | Aim | None:
    """Return what ``--target`` names: a class, ``box:N``, ``pixels:CLASS``; None if predicted."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "pixels":
        return Aim("pixels", find_target(rest, categories))
    if colon and kind == "box":
        if not re.fullmatch(r"\d{1,18}", rest):
            hint = "`target='box:0'` is the best: boxes are counted from 0"
            raise RequestError(f"`target={text!r}` names no box", hint)
        return Aim("box", int(rest))
    return find_target(text, categories, several=several)


def find_target(text: str, categories: Sequence[str], *, several: bool = False) -> int | None:
    if text == "predicted":
        return None
    if re.fullmatch(r"-?\d{1,18}", text):
        index = int(text)
        if index < 0 or (categories and index >= len(categories)):
            known = f"0 to {len(categories) - 1}" if categories else "counted from 0"
            one = f"the model returns one value: `target=0`, {''.join(categories)!r}"
            hint = one if len(categories) == 1 else f"classes are {known}"
            raise RequestError(f"`target`: there is no class {index}", hint)
        return index
    given, names = text.lower(), [name.lower() for name in categories]
    named = [index for index, name in enumerate(names) if name == given]
    if not named:  # such as ``tabby, tabby cat``
        named = [index for index, name in enumerate(names) if given in name.split(", ")]
    if len(named) == 1:
        return named[0]
    if named:
        hint = f"give the index: {' or '.join(map(str, named))}"
        raise RequestError(f"`target`: {len(named)} classes are called {text!r}", hint)
    near = _near(text, categories, several)
    raise RequestError(f"`target`: no category is called {text!r}", near)


def _near(text: str, categories: Sequence[str], several: bool) -> str:  # noqa: FBT001
    parts = [part.strip() for part in text.split(",")]
    one = " or ".join(f"`target={part!r}`" for part in parts)
    listed = f"name each class: `targets={parts}`" if several else f"one class at a time: {one}"
    if not categories:
        unknown = "the names of this model's classes are not known: give an index"
        return listed if parts[1:] else unknown
    lowered = {name.lower(): name for name in reversed(categories)}
    wanted = text.lower()
    close = [low for low in lowered if wanted in low]
    close.sort(key=lambda low: wanted not in low.replace(",", " ").split())  # cat: tiger cat
    close = close or difflib.get_close_matches(wanted, lowered, n=3)
    if "," in text and not any(wanted in low for low in close):
        return listed
    names = ", ".join(repr(lowered[low]) for low in close[:4])
    return f"did you mean {names}?" if names else "give an index, counted from 0, or predicted"


def score_output(
    output: object,
    style: ScoreRequest,
    aim: int | Aim | None,
    categories: Sequence[str],
    *,
    needs_gradient: bool = True,
    own: Task | None = None,
) -> ScoreTensor:
    computed: object
    index: int | None
    part: Part | None = None
    if isinstance(aim, Aim):
        part = _read_form(output, own, lambda task, found: task.score_part(found, style.score, aim))
        computed, index, kind = part.scored
    elif ":" in style.score:
        computed, index, kind = load_score(style.score)(output, aim), aim, style.score
    elif style.score == "sum":
        computed, index, kind = _add_up(output), None, "sum"
    else:
        computed, index, kind = _read_form(
            output, own, lambda task, found: task.score(found, style.score, aim)
        )
    if not isinstance(computed, Tensor) or computed.numel() != 1:
        raise ModelError(f"`score={style.score!r}`: the score must be one number, as a tensor")
    word = "output" if kind == "value" else "class"
    name = "" if index is None else name_class(index, categories, word)
    box = None if part is None or part.box is None else (*part.box.tolist(),)
    score = Score(kind, finite(float(computed.detach())), index, name, box)
    scored = ScoreTensor(computed.reshape(()), score, index if part is None else part.aim)
    return require_gradient(scored) if needs_gradient else scored


def require_gradient(scored: ScoreTensor) -> ScoreTensor:
    if not scored.value.requires_grad:
        hint = "does the model or the score use torch.no_grad, detach, or integers?"
        raise ModelError("no gradient leads back from the score", hint)
    return scored


def _read_form(output: object, own: Task | None, score: Callable[[Task, Any], S]) -> S:
    form = find_form(output, own)
    if form is not None and len(form[1]) == 1:
        return score(*form)
    part = "" if isinstance(output, Tensor) else "choose one of its tensors with `output_key`, "
    hint = f"{part}use `score='sum'`, or a function of your own: `score='FILE.py:FUNCTION'`"
    raise RequestError("there is no score for an output of this form", hint)


def _add_up(value: object) -> Tensor | None:
    if isinstance(value, Tensor):
        return value.sum() if value.is_floating_point() else None
    if not isinstance(value, (dict, list, tuple)):
        return None
    inside = value.values() if isinstance(value, dict) else value
    sums = [found for found in map(_add_up, inside) if found is not None]
    return sum(sums[1:], sums[0]) if sums else None


@cache
def load_score(text: str) -> Callable[[object, int | None], object]:
    origin, name = split_name(text)
    code = ForeignCode(f"`score={text!r}`", hint="try the function in Python first")
    with code:
        function = getattr(import_code(origin), name, None)
    if not callable(function):
        raise RequestError(f"`score={text!r}`: {origin} has no function {name!r}")

    def call(output: object, target: int | None) -> object:
        with code:
            return function(output, target)

    return call
