"""Parse the texts of ``--edit`` and ``--prune``, and say at which character an edit is wrong.

An edit is ``[SIDE:]LAYERS[{CHANNELS}]:WHAT``. LAYERS may contain colons, and so may WHAT
(``clamp=0:``). WHAT therefore begins at the last verb that follows a colon, SIDE is a leading
keyword, and LAYERS is everything in between.

A prune is ``LAYERS=AMOUNT[:METHOD]``. This module does not check whether a model has such layers.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias, cast, get_args

from hookcli.errors import EditSyntaxError, RequestError
from hookcli.records.calls import OPERATION

if TYPE_CHECKING:
    from collections.abc import Iterable

Side: TypeAlias = Literal["output", "input", "grad_output", "grad_input", "param"]
Verb: TypeAlias = Literal["zero", "scale", "clamp", "clip-norm", "mean", "set"]

_SIDES: tuple[Side, ...] = get_args(Side)
_USAGE: dict[Verb, str] = {
    "zero": "zero",
    "scale": "scale=V",
    "clamp": "clamp=LO:HI",
    "clip-norm": "clip-norm=V",
    "mean": "mean",
    "set": "set=V",
}
_ONE_OF = f"one of: {', '.join(_USAGE.values())}"
_CHANNEL_USAGE = "channels are counted from 0: {3,7,10-20}"

_METHODS = ("l1", "random", "ln")

_WHAT = re.compile(rf":({'|'.join(_USAGE)})(?![\w-])")
_WORD_AFTER_COLON = re.compile(r":([A-Za-z][\w-]*)")
_INDEX = re.compile(r"\[[^\]]*\]")  # conv[1:4]
_WITH_CHANNELS = re.compile(r"([^{}]*)(?:\{([^{}]*)\})?")
_CHANNEL_RANGE = re.compile(r" *(\d{1,6}) *(?:- *(\d{1,6}))? *")  # no layer has a million channels
_CHANNELS_AFTER_REGEX = re.compile(r"(\$\{|\{(?!\d*,?\d*\}))[\d, -]+\}$")  # {2,3} is a repetition


@dataclass(frozen=True, slots=True)
class Edit:
    side: Side
    layers: str  # a form of the filter language; for ``param`` a glob on full parameter names
    channels: tuple[int, ...] | None  # without duplicates; None for all channels
    verb: Verb
    value: float = 0.0  # of ``scale``, ``clip-norm`` and ``set``
    low: float | None = None  # of ``clamp``
    high: float | None = None
    text: str = ""  # as the user wrote it


def read_edit(text: str, default_side: Side) -> Edit:
    matches = list(_WHAT.finditer(text))
    if not matches:
        _refuse_without_verb(text)
    what = matches[-1]
    verb = cast("Verb", what[1])
    value, low, high = _read_values(text, verb, what.end())
    before = text[: what.start()]
    written = next((side for side in _SIDES if before.startswith(f"{side}:")), None)
    side = written or default_side
    if side == "param" and verb == "mean":
        fault = "parameters have no mean over an image"
        raise EditSyntaxError(text, what.start(1), fault, "write set=V or scale=V")
    start = len(f"{written}:") if written else 0
    layers, channels = _read_layers(text, start, what.start(), side)
    return Edit(side, layers, channels, verb=verb, value=value, low=low, high=high, text=text)


def _refuse_without_verb(text: str) -> NoReturn:
    words = list(_WORD_AFTER_COLON.finditer(text))
    if not words:
        what = "it does not say what to do" if text.strip() else "it is empty"
        raise EditSyntaxError(text, len(text), what, f"write LAYERS:WHAT, WHAT {_ONE_OF}")
    word = words[-1]
    hint = _did_you_mean(word[1], _USAGE) + _ONE_OF
    raise EditSyntaxError(text, word.start(1), f"{word[1]!r} is not an edit", hint)


def _read_values(text: str, verb: Verb, start: int) -> tuple[float, float | None, float | None]:
    usage = f"write {_USAGE[verb]}"
    rest = text[start:]
    if verb in ("zero", "mean"):
        if rest:
            raise EditSyntaxError(text, start, f"{verb} takes no value, not {rest!r}", usage)
        return 0.0, None, None
    if not rest.startswith("=") or rest == "=":
        raise EditSyntaxError(text, start, f"{verb} needs a value", usage)
    if verb == "clamp":
        return 0.0, *_read_ends(text, start + 1)
    value = _read_number(text, start + 1, len(text), verb)
    if verb == "clip-norm" and value <= 0:
        raise EditSyntaxError(text, start + 1, f"a norm of {rest[1:]} is not above 0", usage)
    return value, None, None


def _read_ends(text: str, start: int) -> tuple[float | None, float | None]:
    usage = f"write {_USAGE['clamp']}; one of the two may be left out"
    colon = text.find(":", start)
    if colon < 0 or text[start:] == ":":
        raise EditSyntaxError(text, start, f"{text[start:]!r} has no bounds", usage)
    low = _read_number(text, start, colon, "clamp") if colon > start else None
    high = _read_number(text, colon + 1, len(text), "clamp") if colon + 1 < len(text) else None
    if low is not None and high is not None and low > high:
        what = f"{text[start:]!r} has a lower bound above its upper bound"
        raise EditSyntaxError(text, start, what, usage)
    return low, high


def _read_number(text: str, start: int, end: int, verb: Verb) -> float:
    word = text[start:end]
    try:
        number = float(word)
    except ValueError as error:
        usage = f"write {_USAGE[verb]}"
        raise EditSyntaxError(text, start, f"{word!r} is not a number", usage) from error
    if verb != "set" and not math.isfinite(number):
        hint = "only set takes nan and infinities"
        raise EditSyntaxError(text, start, f"{word!r} is not finite", hint)
    return number


def _read_layers(text: str, start: int, end: int, side: Side) -> tuple[str, tuple[int, ...] | None]:
    form = text[start:end]
    if form.startswith("re:") and side != "param":
        if _CHANNELS_AFTER_REGEX.search(form):
            what = "a regular expression takes no channels"
            hint = "its braces belong to it; name the layers by an alias, a path or a glob"
            raise EditSyntaxError(text, start + form.rindex("{"), what, hint)
        return form, None
    match = _WITH_CHANNELS.fullmatch(form)
    if not match:
        brace = start + min(form.find(each) for each in "{}" if each in form)
        what = "write the channels once, in braces after the layers"
        raise EditSyntaxError(text, brace, what, _CHANNEL_USAGE)
    layers, channels = match[1], match[2]
    _check_form(text, start, layers, side)
    if channels is None:
        return layers, None
    brace = start + len(layers)
    if side == "param":
        hint = "edit the whole parameter"
        raise EditSyntaxError(text, brace, "parameters have no channels", hint)
    return layers, _read_channels(text, brace + 1, channels)


def _check_form(text: str, start: int, layers: str, side: Side) -> None:
    # In ``input:fc:zero`` (SIDE:LAYERS:WHAT), LAYERS may have a colon only in the name of an
    # operation (``op:add``). Another colon follows a misspelt SIDE or separates two edits.
    if not layers:
        raise EditSyntaxError(text, start, "no layers are named", "all convolutions: conv:zero")
    if side == "param":
        if ":" in layers:
            what = "a parameter's name has no colon"
            raise EditSyntaxError(text, start, what, "write a glob on full names: param:*.bias")
        return
    form = layers.removeprefix("path:")
    inside, is_operation, name = form.partition(OPERATION)
    if is_operation and (not inside or inside.endswith("/")):
        form = name
    head, colon, _ = _INDEX.sub("", form).partition(":")
    if not colon:
        return
    start += len(layers) - len(form)
    if second := _WHAT.search(form):
        what = "the text holds two edits"
        raise EditSyntaxError(text, start + second.start(1), what, "give `edits` once for each")
    if head in _SIDES:
        raise EditSyntaxError(text, start, f"{head!r} is a second side", "write one side")
    hint = f"{_did_you_mean(head, _SIDES)}one of: {', '.join(_SIDES)}"
    raise EditSyntaxError(text, start, f"{head!r} is not a side", hint)


def _read_channels(text: str, start: int, inside: str) -> tuple[int, ...]:
    channels: list[int] = []
    for word in inside.split(","):
        numbers = _CHANNEL_RANGE.fullmatch(word)
        if not numbers:
            what = f"{word!r} is not a channel" if word.strip() else "a channel is missing"
            raise EditSyntaxError(text, start, what, _CHANNEL_USAGE)
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if last < first:
            raise EditSyntaxError(text, start, f"{word!r} runs backwards", _CHANNEL_USAGE)
        channels += range(first, last + 1)
        start += len(word) + 1
    return tuple(dict.fromkeys(channels))


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"did you mean {close[0]}? " if close else ""


@dataclass(frozen=True, slots=True)
class Prune:
    layers: str
    amount: float  # the share to prune, above 0: with ``ln`` of the output channels, else weights
    method: str  # ``l1`` (the smallest weights), ``random``, or ``ln`` (the smallest L2 norms)
    text: str


def read_prune(text: str) -> Prune:
    layers, equals, what = text.rpartition("=")
    number, colon, method = what.partition(":")
    where = f"`prunes` {text!r}"
    if not equals or not layers:
        raise RequestError(f"{where}: it does not say how much", "write LAYERS=AMOUNT: conv=0.3")
    try:
        amount = float(number)
    except ValueError as error:
        hint = "a share from 0 to 1: conv=0.3"
        raise RequestError(f"{where}: {number!r} is not a number", hint) from error
    if not 0 < amount <= 1:
        raise RequestError(f"{where}: the amount is a share, more than 0 and at most 1")
    if colon and method not in _METHODS:
        hint = f"one of: {', '.join(_METHODS)}"
        raise RequestError(f"{where}: {method!r} is not a method", hint)
    return Prune(layers, amount, method or "l1", text)
