"""Parsers for values of the command line that are more than a number or a choice."""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import TYPE_CHECKING

from hookcli.config import SaveStyle
from hookcli.errors import RequestError
from hookcli.urls import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHANNELS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_HIGHEST_CHANNEL = 1_000_000
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")  # in a URL
_ALL = {"--channels": ", or all", "--tensor-channels": "; without the option all are saved"}


def read_channels(text: str | None, option: str = "--channels") -> tuple[int, ...] | None:
    """Parse ``3,7,10-20`` into channel numbers; None stays None.

    Raises:
        RequestError: the text cannot be parsed.
    """
    if text is None:
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


def read_numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """Parse ``0.485,0.456,0.406`` into numbers; None stays None.

    Raises:
        RequestError: the text cannot be parsed.
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(
            f"{name} cannot read {text!r}",
            "write three numbers: 0.485,0.456,0.406; or one for a grey model",
        ) from error


def read_box(text: str | None) -> tuple[int, int, int, int] | None:
    """Parse ``X,Y,W,H`` into numbers; None stays None.

    Raises:
        RequestError: the text cannot be parsed.
    """
    if text is None:
        return None
    try:
        left, top, width, height = (int(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(
            f"--focus cannot read {text!r}", "write X,Y,W,H in pixels: 120,80,60,40"
        ) from error
    return left, top, width, height


def read_pixel(text: str | None) -> tuple[int, int] | None:
    """Parse ``X,Y`` into numbers; None stays None.

    Raises:
        RequestError: the text cannot be parsed.
    """
    if text is None:
        return None
    try:
        across, down = (int(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(
            f"--patch cannot read {text!r}", "write X,Y in pixels of the image: 120,80"
        ) from error
    return across, down


def read_rules(words: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Parse ``NAME=VALUE`` words into names of rules with thresholds.

    Raises:
        RequestError: a word cannot be parsed.
    """
    rules = []
    for word in words:
        name, _, value = word.partition("=")
        try:
            threshold = float(value)
            if not math.isfinite(threshold):
                raise ValueError
            rules.append((name, threshold))
        except ValueError as error:
            raise RequestError(
                f"--rule cannot read {word!r}", "write NAME=VALUE, for example dead=0.5"
            ) from error
    return tuple(rules)


def read_model_arguments(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse ``KEY=VALUE`` words into pairs.

    Raises:
        RequestError: a word has no ``=`` or no key.
    """
    for word in words:
        if not word.partition("=")[0].isidentifier() or "=" not in word:
            raise RequestError(
                f"--model-arg cannot read {word!r}", "write KEY=VALUE, for example num_classes=50"
            )
    return tuple((word.partition("=")[0], word.partition("=")[2]) for word in words)


def read_storage_options(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse ``KEY=VALUE`` words into pairs.

    Raises:
        RequestError: a word has no ``=`` or no key, or holds a credential.
    """
    pairs = [word.partition("=") for word in words]
    for name, sign, value in pairs:
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
    return tuple((name, value) for name, _, value in pairs)


def _list_keys(text: str) -> Iterator[str]:
    """Yield the keys of a JSON object, and of those inside it; none for other text."""
    found: list[str] = []
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=lambda pairs: found.extend(key for key, _ in pairs))
    yield from found


def read_saved(words: Sequence[str]) -> frozenset[str]:
    """Return which of ``tensors`` and ``attention`` are saved, given the words of ``--save``.

    Raises:
        RequestError: a word is neither.
    """
    saved = frozenset(part for word in words for part in word.split(","))
    for word in sorted(saved - {"tensors", "attention"}):
        raise RequestError(f"--save cannot be {word!r}", "one of: tensors, attention")
    return saved


def read_save(style: SaveStyle, *, saves: bool) -> SaveStyle | None:
    """Return which tensors are kept on disk; None for none.

    Args:
        style: how tensors would be saved.
        saves: whether they are saved.

    Raises:
        RequestError: there are options for saved tensors, and no tensors are saved.
    """
    if not saves and style != SaveStyle():
        raise RequestError(
            "--pool, --tensor-dtype and --tensor-channels are for --save tensors",
            "add --save tensors",
        )
    return style if saves else None


def read_layer_tolerances(words: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Parse ``GLOB=RTOL`` words into pairs.

    Raises:
        RequestError: a word cannot be parsed.
    """
    pairs = []
    for word in words:
        glob, _, value = word.rpartition("=")
        try:
            rtol = float(value)
            if not glob or not math.isfinite(rtol) or rtol < 0:
                raise ValueError
        except ValueError as error:
            raise RequestError(
                f"--layer-tolerance cannot read {word!r}", "write GLOB=RTOL: 'layer4.*=1e-2'"
            ) from error
        pairs.append((glob, rtol))
    return tuple(pairs)
