"""Read recipes for preparing images, such as ``resize:bicubic,library=opencv,order=bgr``.

This module imports no torch, so that a wrong recipe is refused at once. ``networks/recipe_steps``
applies recipes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hookcli.config import LARGEST_SIDE
from hookcli.errors import RequestError, hint_near

How: TypeAlias = Literal["nearest", "bilinear", "bicubic", "area", "lanczos"]
Library: TypeAlias = Literal["pillow", "opencv", "torch"]

_CHOICES = {
    "resize": ("nearest", "bilinear", "bicubic", "area", "lanczos"),
    "fit": ("crop", "letterbox", "stretch"),
    "antialias": ("off",),
    "order": ("bgr",),
    "scale": ("255", "1"),
    "library": ("pillow", "opencv", "torch"),
}
_EXAMPLES = {"crop": "224", "mean": "0.5/0.5/0.5", "std": "0.5/0.5/0.5"}
_WORDS = (*_CHOICES, *_EXAMPLES)
_LARGEST = 1e30  # float32 holds this number and its inverse


@dataclass(frozen=True, slots=True)
class Recipe:
    """The words of a recipe; None keeps what the model's own preprocessing does."""

    resize: How | None = None
    fit: Literal["crop", "letterbox", "stretch"] | None = None
    antialias: Literal["off"] | None = None
    order: Literal["bgr"] | None = None
    scale: Literal["255", "1"] | None = None  # what pixels from 0 to 255 are divided by
    library: Library | None = None
    crop: int | None = None
    mean: tuple[float, ...] | None = None  # one number, or one per channel
    std: tuple[float, ...] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether hookcli can prepare images without knowing the model's own preprocessing."""
        return None not in (self.resize, self.fit, self.crop, self.mean, self.std)


def read_recipe(text: str) -> Recipe:
    read: dict[str, Any] = {}
    for word in map(str.strip, text.split(",")):
        name, sign, value = re.split(r"([=:])", f"{word}=", maxsplit=1)
        name, value = name.strip(), value.removesuffix("=").strip()
        if name not in _WORDS:
            raise RequestError(f"`preprocess` cannot read {word!r}", _guess(name.lower()))
        if not value:
            hint = _write(name, "|".join(_CHOICES.get(name, ())) or _EXAMPLES[name])
            raise RequestError(f"`preprocess`: {name} needs a value", hint)
        if not _write(name, value).startswith(name + sign):
            hint = f"did you mean {_write(name, value)}?"
            raise RequestError(f"`preprocess` cannot read {word!r}", hint)
        if name in read:
            raise RequestError(f"`preprocess` has {name} twice", f"give one {name}")
        read[name] = _READERS.get(name, _read_choice)(name, value)
    return Recipe(**read)


def _write(name: str, value: str) -> str:
    return f"{name}{':' if name == 'resize' else '='}{value}"


def _guess(name: str) -> str:
    if re.fullmatch(r"[-+\d.e]+", name):
        return f"numbers are separated by /: mean={_EXAMPLES['mean']}"
    for owner, values in _CHOICES.items():
        if name in values:
            return f"did you mean {_write(owner, name)}?"
    forms = (_write(each, _EXAMPLES.get(each, "…")) for each in _WORDS)
    return hint_near(name, _WORDS, f"words, separated by commas: {' '.join(forms)}")


def _read_choice(name: str, value: str) -> str:
    if value in _CHOICES[name]:
        return value
    known = f"one of: {', '.join(_write(name, each) for each in _CHOICES[name])}"
    what = f"`preprocess` cannot read {_write(name, value)!r}"
    raise RequestError(what, hint_near(value.lower(), _CHOICES[name], known))


def _read_side(name: str, value: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", value) and 1 <= int(value) <= LARGEST_SIDE:
        return int(value)
    what = f"`preprocess` {name}={value}: not a number of pixels from 1 to {LARGEST_SIDE}"
    raise RequestError(what, f"{name}={_EXAMPLES[name]}")


def _read_colours(name: str, value: str) -> tuple[float, ...]:
    least = 1 / _LARGEST if name == "std" else -_LARGEST
    with suppress(ValueError):
        numbers = tuple(map(float, value.split("/")))
        if all(least <= each <= _LARGEST for each in numbers):  # also rejects NaN
            return numbers
    kind = "numbers above 0" if name == "std" else "numbers"
    hint = f"{name}={_EXAMPLES[name]}, or one number for all channels"
    raise RequestError(f"`preprocess` {name}={value}: not {kind}, separated by /", hint)


_READERS: dict[str, Any] = {"crop": _read_side, "mean": _read_colours, "std": _read_colours}
