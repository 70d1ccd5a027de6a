"""Words of the command line that are more than a number or a choice, read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.config import SaveStyle
from hookcli.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

_HIGHEST_CHANNEL = 1_000_000
_ALL = {"--channels": ", or all", "--tensor-channels": "; without the option all are saved"}


def read_channels(text: str | None, option: str = "--channels") -> tuple[int, ...] | None:
    """``3,7,10-20`` as channel numbers; None for no choice.

    Raises:
        RequestError: it cannot be read.
    """
    if text is None:
        return None
    channels: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or (dash and int(last) < int(first))
        ):
            raise RequestError(
                f"{option} cannot read {part.strip()!r}",
                f"channels are counted from 0: '3,7,10-20'{_ALL[option]}",
            )
        if int(last or first) > _HIGHEST_CHANNEL:
            raise RequestError(f"{option} cannot read {part.strip()!r}: no layer has so many")
        channels.extend(range(int(first), int(last if dash else first) + 1))
    return tuple(dict.fromkeys(channels))


def read_numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """``0.485,0.456,0.406`` as numbers; None for no choice.

    Raises:
        RequestError: it cannot be read.
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(
            f"{name} cannot read {text!r}", "write three numbers: 0.485,0.456,0.406"
        ) from error


def read_box(text: str | None) -> tuple[int, int, int, int] | None:
    """``X,Y,W,H`` as numbers; None for no choice.

    Raises:
        RequestError: it cannot be read.
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


def read_rules(words: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """``NAME=VALUE`` words as rules with thresholds.

    Raises:
        RequestError: one cannot be read.
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
    """``KEY=VALUE`` words as pairs.

    Raises:
        RequestError: one has no ``=`` or no key.
    """
    for word in words:
        if not word.partition("=")[0].isidentifier() or "=" not in word:
            raise RequestError(
                f"--model-arg cannot read {word!r}", "write KEY=VALUE, for example num_classes=50"
            )
    return tuple((word.partition("=")[0], word.partition("=")[2]) for word in words)


def read_save(save: str | None, style: SaveStyle) -> SaveStyle | None:
    """Return which tensors are kept on disk; None for none.

    Raises:
        RequestError: something is said of tensors that are not saved.
    """
    if save is None and style != SaveStyle():
        raise RequestError(
            "--pool, --tensor-dtype and --tensor-channels are for --save tensors",
            "add --save tensors",
        )
    return style if save else None


def read_layer_tolerances(words: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """``GLOB=RTOL`` words as pairs.

    Raises:
        RequestError: one cannot be read.
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
