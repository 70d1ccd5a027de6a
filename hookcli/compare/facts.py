"""Read and check the facts about a run that a comparison needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from hookcli.outside.documents import MOST_VALUES
from hookcli.records.statistics import COUNTS, IN_EVERY_VERSION, figures_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hookcli.records.golden import GoldenCall
    from hookcli.records.layer_records import RecordRow

CallRow: TypeAlias = "RecordRow | GoldenCall"
_DTYPE = "--tensor-dtype"
SAVED_IN_PART = ("--pool", _DTYPE, "--tensor-channels")  # options that change tensors before saving


def list_saved_options(command: Sequence[str]) -> tuple[str, ...]:
    """Return the options of a command that change tensors before saving, each with its value.

    Raises:
        ValueError: the last word is such an option and has no value.
    """
    found = []
    for place, word in enumerate(command):
        if word in SAVED_IN_PART:
            if place + 1 == len(command):
                raise ValueError(f"its command ends in {word}, without a value")
            found.append(f"{word} {command[place + 1]}")
    return tuple(found)


def split_saved(saved: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the result of ``list_saved_options`` into two tuples.

    The first has the options that reduce tensors, each with its value. The second has the dtypes
    to which tensors are converted.
    """
    left_out = tuple(words for words in saved if not words.startswith(_DTYPE))
    return left_out, tuple(words.partition(" ")[2] for words in saved if words not in left_out)


def check_call(row: CallRow, images: Collection[str]) -> None:
    """Check that a row is about an image of the run, and that its shape and figures are possible.

    ``images`` has the keys of the run's images.

    Raises:
        ValueError: the image is not in the run, or the shape or the figures are impossible.
    """
    call_id, shape = row.call_id, row.shape
    stranger = f"{call_id!r} belongs to the image {row.image!r}, which is not in the run"
    _expect(row.image in images, stranger)
    is_shape = all(length >= 0 for length in shape) and math.prod(shape) < MOST_VALUES
    _expect(is_shape, f"{call_id!r} has an impossible shape: {[*shape]!r:.80}")
    figures = figures_of(row)
    numbers = [figures[name] for name in IN_EVERY_VERSION if name not in COUNTS]
    known = [number is not None and math.isfinite(number) for number in numbers]
    has_figures = all(known) or numbers == [None] * len(numbers)
    counts = [row.nan_count, row.inf_count]
    _expect(
        has_figures and min(counts) >= 0 and sum(counts) <= math.prod(shape),
        f"{call_id!r} has impossible figures",
    )


def _expect(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(what)
