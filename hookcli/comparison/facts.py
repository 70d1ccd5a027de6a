"""Read and check the facts about a run that a comparison needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from hookcli.outside.documents import MOST_VALUES
from hookcli.records.statistics import COUNTS, IN_EVERY_VERSION, figures_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from hookcli.records.golden import GoldenCall
    from hookcli.records.layer_records import RecordRow

CallRow: TypeAlias = "RecordRow | GoldenCall"


def check_call(row: CallRow, images: Collection[str]) -> None:
    """Raise ValueError unless a row is about one of the ``images``, with possible figures."""
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
