"""Parsers for texts of the command line that are more than a number or a choice."""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.outside.urls import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHANNELS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_HIGHEST_CHANNEL = 1_000_000
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")  # in a URL
_ALL = {"--channels": ", or all", "--tensor-channels": "; without the option all are saved"}


def read_channels(text: str, option: str = "--channels") -> tuple[int, ...] | None:
    """Parse ``3,7,10-20`` into channel numbers, and ``all`` of ``--channels`` into None.

    Raises:
        RequestError: the text cannot be parsed.
    """
    if text == "all" and option == "--channels":
        return None
    channels: list[int] = []
    for part in text.split(","):
        numbers = _CHANNELS.fullmatch(part.strip())
        first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, -1)
        if last < first:
            raise RequestError(
                f"{option} cannot read {part.strip()!r}",
                f"channels are counted from 0: '3,7,10-20'{_ALL[option]}",
            )
        if last > _HIGHEST_CHANNEL:
            raise RequestError(f"{option} cannot read {part.strip()!r}: no layer has so many")
        channels.extend(range(first, last + 1))
    return tuple(dict.fromkeys(channels))


def read_saved_channels(text: str) -> tuple[int, ...] | None:
    """Parse the channels of ``--tensor-channels``."""
    return read_channels(text, "--tensor-channels")


def read_colours(text: str, option: str = "--mean") -> tuple[float, ...]:
    """Parse ``0.485,0.456,0.406`` into numbers.

    Raises:
        RequestError: the text cannot be parsed.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(
            f"{option} cannot read {text!r}",
            "write three numbers: 0.485,0.456,0.406; or one for a grey model",
        ) from error


def read_divisors(text: str) -> tuple[float, ...]:
    """Parse the numbers of ``--std``."""
    return read_colours(text, "--std")


def read_box(text: str) -> tuple[int, int, int, int]:
    """Parse ``X,Y,W,H`` into numbers.

    Raises:
        RequestError: the text cannot be parsed.
    """
    try:
        left, top, width, height = (int(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(
            f"--focus cannot read {text!r}", "write X,Y,W,H in pixels: 120,80,60,40"
        ) from error
    return left, top, width, height


def read_pixel(text: str) -> tuple[int, int]:
    """Parse ``X,Y`` into numbers.

    Raises:
        RequestError: the text cannot be parsed.
    """
    try:
        across, down = (int(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(
            f"--patch cannot read {text!r}", "write X,Y in pixels of the image: 120,80"
        ) from error
    return across, down


def read_names(text: str) -> tuple[str, ...]:
    """Parse ``nan,inf`` into names in small letters."""
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


def read_rule(word: str) -> tuple[str, float]:
    """Parse ``NAME=VALUE`` into the name of a rule and its threshold.

    Raises:
        RequestError: the word cannot be parsed.
    """
    name, _, value = word.partition("=")
    with contextlib.suppress(ValueError):
        if math.isfinite(threshold := float(value)):
            return name, threshold
    raise RequestError(f"--rule cannot read {word!r}", "write NAME=VALUE, for example dead=0.5")


def write_rule(rule: tuple[str, float]) -> str:
    """Return ``NAME=VALUE``."""
    return f"{rule[0]}={rule[1]:g}"


def read_model_argument(word: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE`` into a pair.

    Raises:
        RequestError: the word has no ``=`` or no key.
    """
    name, sign, value = word.partition("=")
    if not name.isidentifier() or not sign:
        raise RequestError(
            f"--model-arg cannot read {word!r}", "write KEY=VALUE, for example num_classes=50"
        )
    return name, value


def read_storage_option(word: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE`` into a pair.

    Raises:
        RequestError: the word has no ``=`` or no key, or holds a credential.
    """
    name, sign, value = word.partition("=")
    if not name.isidentifier() or not sign:
        raise RequestError(
            f"--storage-option cannot read {name!r}",
            "write KEY=VALUE, for example endpoint_url=http://localhost:9000",
        )
    if any(map(is_secret, (name, *_list_keys(value)))) or _PASSWORD.search(value):
        raise RequestError(
            f"--storage-option takes no credentials, such as {name!r}",
            "set them in the environment, where the package of the storage finds them",
        )
    return name, value


def _list_keys(text: str) -> Iterator[str]:
    """Yield the keys of a JSON object, and of those inside it; none for other text."""
    found: list[str] = []
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=lambda pairs: found.extend(key for key, _ in pairs))
    yield from found


def read_saved(text: str) -> frozenset[str]:
    """Parse ``tensors,attention`` into the words for what is saved.

    Raises:
        RequestError: a word is neither.
    """
    saved = frozenset(text.split(","))
    for word in sorted(saved - {"tensors", "attention"}):
        raise RequestError(f"--save cannot be {word!r}", "one of: tensors, attention")
    return saved


def read_layer_tolerance(word: str) -> tuple[str, float]:
    """Parse ``GLOB=RTOL`` into a pair.

    Raises:
        RequestError: the word cannot be parsed.
    """
    glob, _, value = word.rpartition("=")
    with contextlib.suppress(ValueError):
        rtol = float(value)
        if glob and math.isfinite(rtol) and rtol >= 0:
            return glob, rtol
    raise RequestError(
        f"--layer-tolerance cannot read {word!r}", "write GLOB=RTOL: 'layer4.*=1e-2'"
    )
