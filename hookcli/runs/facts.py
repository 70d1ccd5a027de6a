"""What must stand in a manifest or golden file, and in each row of figures, before two runs are held against each other."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_FIGURES = ("mean", "std", "min", "max")
_COUNTS = ("nan_count", "inf_count")
_MOST = 2**62  # values; what is larger is no tensor's shape


def check_facts(document: Mapping[str, Any]) -> None:
    """See that a document says what was run, of which model, on which images.

    Raises:
        ValueError: it does not, or names an image twice; KeyError where something is not there.
    """
    _expect(_has_text(document["model"], "name", "dtype"), "its model has no name or no dtype")
    _expect(isinstance(document["versions"], dict), "its versions are no object")
    command = document["command"]
    _expect(isinstance(command, list) and _all_text(command), "its command is no list of words")
    images = document["images"]
    is_list = isinstance(images, list)
    _expect(
        is_list and all(_has_text(image, "key", "file", "sha256") for image in images),
        "an image has no key, no file or no sha256",
    )
    for image in images:
        size = image.get("pixels_shape", [])
        _expect(_is_shape(size) and 0 not in size, f"the pixels of {image['key']!r} have no shape")
    _refuse_twice("image", [image["key"] for image in images])


def check_call(row: Mapping[str, Any], images: Collection[str]) -> None:
    """See that a row says which call it is of, for which of the ``images``, and has figures.

    Raises:
        ValueError: it does not; KeyError where something is not there.
    """
    _expect(_has_text(row, "image", "call_id", "module_type", "dtype"), "a call has no id")
    call_id, image, shape = row["call_id"], row["image"], row["shape"]
    _expect(image in images, f"{call_id!r} is of {image!r}, and no image is called so")
    _expect(_is_shape(shape), f"{call_id!r} has no shape, but {shape!r:.80}")
    numbers = [row[name] for name in _FIGURES]
    known = [isinstance(each, (int, float)) and math.isfinite(each) for each in numbers]
    has_figures = all(known) or numbers == [None] * len(numbers)
    counts = [row[name] or 0 for name in _COUNTS]
    has_counts = all(type(each) is int and each >= 0 for each in counts)
    values = math.prod(shape) * 2  # of complex numbers both parts count
    _expect(
        has_figures and has_counts and sum(counts) <= values,
        f"{call_id!r} has figures that are none of a tensor",
    )


def check_calls(ids: Mapping[str, Sequence[str]]) -> None:
    """See that no call stands there twice; the ids of calls are by image.

    Raises:
        ValueError: one does.
    """
    for image, calls in ids.items():
        _refuse_twice(f"call of {image!r}", calls)


def _refuse_twice(noun: str, names: Sequence[str]) -> None:
    for name, times in Counter(names).items():
        _expect(times == 1, f"the {noun} {name!r} stands there {times} times")


def _is_shape(value: object) -> bool:
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        return False
    return math.prod(value) < _MOST


def _has_text(value: object, *names: str) -> bool:
    return isinstance(value, dict) and _all_text([value.get(name) for name in names])


def _all_text(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _expect(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(what)
