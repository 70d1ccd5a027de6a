"""Read recipes for preparing images, such as ``resize:bicubic,library=opencv,order=bgr``.

``networks/recipe_steps`` applies them. This module imports no torch, to refuse a recipe at once.
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

CHOICES = {
    "resize": ("nearest", "bilinear", "bicubic", "area", "lanczos"),
    "fit": ("crop", "letterbox", "stretch"),
    "antialias": ("off",),
    "order": ("bgr",),
    "scale": ("255", "1"),
    "library": ("pillow", "opencv", "torch"),
}
_EXAMPLES = {"crop": "224", "mean": "0.5/0.5/0.5", "std": "0.5/0.5/0.5"}
_WORDS = (*CHOICES, *_EXAMPLES)
_LIMITS = {"crop": (1, LARGEST_SIDE), "mean": (-1e30, 1e30), "std": (1e-30, 1e30)}  # of float32


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


def read_recipe(text: str | None) -> Recipe:
    read: dict[str, Any] = {}
    for word in [] if text is None else map(str.strip, text.split(",")):
        name, _, value = word.replace(":", "=", 1).partition("=")
        if name in read:
            raise RequestError(f"`preprocess` has {name} twice", f"give one {name}")
        read[name] = _read_value(name, value) if word == _write(name, value) else None
        if read[name] is None:
            raise RequestError(f"`preprocess` cannot read {word!r}", _guess(name, value))
    return Recipe(**read)


def _write(name: str, value: str) -> str:
    return f"{name}{':' if name == 'resize' else '='}{value}"


def _read_value(name: str, value: str) -> str | int | tuple[float, ...] | None:
    if name not in _LIMITS:
        return value if value in CHOICES.get(name, ()) else None
    least, most = _LIMITS[name]
    with suppress(ValueError):
        numbers = tuple(map(float, value.split("/")))
        if all(least <= each <= most for each in numbers):  # also rejects NaN
            return numbers if name != "crop" else int(value)
    return None


def _guess(name: str, value: str) -> str:
    if name in CHOICES:
        forms = f"one of: {', '.join(_write(name, each) for each in CHOICES[name])}"
        return hint_near(value.lower(), [_write(name, e) for e in CHOICES[name]], forms)
    if name in _LIMITS:
        return f"{name}={_EXAMPLES[name]}; numbers from {{:g}} to {{:g}}".format(*_LIMITS[name])
    if re.fullmatch(r"[-+\d.e]+", name):
        return f"numbers are separated by /: {_write('mean', _EXAMPLES['mean'])}"
    near = [_write(word, name.lower()) for word in CHOICES if name.lower() in CHOICES[word]]
    forms = " ".join(_write(each, _EXAMPLES.get(each, "…")) for each in _WORDS)
    return hint_near(name.lower(), near or _WORDS, f"words, separated by commas: {forms}")
