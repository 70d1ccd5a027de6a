"""Parse texts of options (channels, bands, ranges, NAME=VALUE), and refuse malformed ones."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.outside.urls import is_secret, to_location

if TYPE_CHECKING:
    from hookcli.outside.urls import Location

_CHANNELS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_HIGHEST_CHANNEL = 1_000_000
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")  # in a URL
# For options that share a parser: the hints of error messages, and the number of values.
_ALL = {"--channels": ", or all", "--tensor-channels": "; without the option all are saved"}
_COLOURS = "write three numbers: 0.485,0.456,0.406; or one for a grey model"
_PIXELS = {
    "--focus": (4, "write X,Y,W,H in pixels: 120,80,60,40"),
    "--patch": (2, "write X,Y in pixels of the image: 120,80"),
    "--similar": (2, "write X,Y in pixels of the image: 220,180"),
    "--at": (2, "write X,Y in pixels of the image: 220,180"),
}
_THRESHOLDS = {
    "--rule": "write NAME=VALUE, for example dead=0.5",
    "--layer-tolerance": "write GLOB=RTOL: 'layer4.*=1e-2'",
}
_GOAL = re.compile(r"(agreement(?=>)|divergence(?=<)|rel-l2(?=<))[<>]=(.+)")
_PAIRS = {
    "--input": "write NAME=FILE.npy or NAME=VALUE, for example facts=facts.npy",
    "--model-arg": "write KEY=VALUE, for example num_classes=50",
    "--storage-option": "write KEY=VALUE, for example endpoint_url=http://localhost:9000",
}


def read_channels(text: str, option: str) -> tuple[int, ...] | None:
    if text == "all" and option == "--channels":
        return None
    channels: list[int] = []
    for part in map(str.strip, text.split(",")):
        numbers = _CHANNELS.fullmatch(part)
        first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, -1)
        if last < first:
            hint = f"channels are counted from 0: '3,7,10-20'{_ALL[option]}"
            raise RequestError(f"{option} cannot read {part!r}", hint)
        if last > _HIGHEST_CHANNEL:
            raise RequestError(f"{option} cannot read {part!r}: no layer has so many channels")
        channels.extend(range(first, last + 1))
    return tuple(dict.fromkeys(channels))


def read_rank(text: str, _option: str) -> str:
    return "std" if text == "spread" else text  # the name of an earlier version


def read_colours(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        raise RequestError(f"{option} cannot read {text!r}", _COLOURS) from error


def read_bands(text: str, option: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", text):
        raise RequestError(f"{option} cannot read {text!r}", "bands are counted from 0: 3,2,1")
    return tuple(map(int, text.split(",")))


def read_page(text: str, option: str) -> int | str:
    if text == "all" or re.fullmatch(r"\d{1,9}", text):
        return text if text == "all" else int(text)
    raise RequestError(f"{option} cannot read {text!r}", "a number, counted from 0, or all")


def read_range(text: str, option: str) -> str | tuple[float, float]:
    if text in ("full", "minmax"):
        return text
    with contextlib.suppress(ValueError):
        if text.startswith("percent:") and 0 <= float(text[8:]) < 50:
            return text
        low, high = map(float, text.split(","))
        if -math.inf < low < high < math.inf:
            return low, high
    hint = f"one of: full, LO,HI ({option}=-1024,3071), minmax, percent:P (0 to 50)"
    raise RequestError(f"{option} cannot read {text!r}", hint)


def write_range(value: str | tuple[float, float]) -> str:
    return value if isinstance(value, str) else ",".join(f"{v:.15g}" for v in value)


def read_pixels(text: str, option: str) -> tuple[int, ...]:
    many, hint = _PIXELS[option]
    with contextlib.suppress(ValueError):
        numbers = tuple(map(int, text.split(",")))
        if len(numbers) == many:
            return numbers
    raise RequestError(f"{option} cannot read {text!r}", hint)


def read_location(text: str, _option: str) -> Location:
    return to_location(text)


def read_names(text: str, _option: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


def read_threshold(word: str, option: str) -> tuple[str, float]:
    name, _, value = word.rpartition("=")
    with contextlib.suppress(ValueError):
        threshold = float(value)
        if name and math.isfinite(threshold) and (option == "--rule" or threshold >= 0):
            return name, threshold
    raise RequestError(f"{option} cannot read {word!r}", _THRESHOLDS[option])


def read_percent(text: str, option: str) -> float:
    with contextlib.suppress(ValueError):
        percent = float(text.removesuffix("%"))
        if 0 < percent < 100:
            return percent
    hint = "write a percentage above 0 and below 100: " + ("99.9" if "cent" in option else "10%")
    raise RequestError(f"{option} cannot read {text!r}", hint)


def read_goal(text: str, option: str) -> str:
    with contextlib.suppress(ValueError):
        measure, limit = split_goal(text)
        if measure and 0 <= limit <= (1 if measure == "agreement" else sys.float_info.max):
            return text
    hint = "write 'agreement>=0.99' (a share up to 1), 'divergence<=0.01' or 'rel-l2<=0.05'"
    raise RequestError(f"{option} cannot read {text!r}", hint)


def split_goal(text: str) -> tuple[str, float]:
    """Return the measure and the limit of a goal such as ``agreement>=0.99``."""
    match = _GOAL.fullmatch(text.replace(" ", ""))
    return (match[1], float(match[2])) if match else ("", 0.0)


def read_pair(word: str, option: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not name.isidentifier() or not sign:
        shown = name if option == "--storage-option" else word  # the value may be a credential
        raise RequestError(f"{option} cannot read {shown!r}", _PAIRS[option])
    return name, value


def read_storage_option(word: str, option: str) -> tuple[str, str]:
    name, value = read_pair(word, option)
    if any(map(is_secret, (name, *_list_keys(value)))) or _PASSWORD.search(value):
        hint = "set them in the environment, where the package of the storage finds them"
        raise RequestError(f"{option} takes no credentials, such as {name!r}", hint)
    return name, value


def _list_keys(text: str) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=lambda pairs: found.extend(key for key, _ in pairs))
    return found


def read_saved(text: str, option: str) -> frozenset[str]:
    saved = frozenset(text.split(","))
    for word in sorted(saved - {"tensors", "attention"}):
        raise RequestError(f"{option} cannot be {word!r}", "one of: tensors, attention")
    return saved
