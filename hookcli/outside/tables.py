"""Write rows as CSV (a shape as ``1x64x56``, None as an empty cell) and as Markdown text."""

from __future__ import annotations

import csv
import dataclasses
import io
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from hookcli.outside import escape
from hookcli.outside.documents import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import DataclassInstance


@cache
def column_names(kind: type[DataclassInstance]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def render_csv(kind: type[DataclassInstance], rows: Iterable[DataclassInstance]) -> str:
    """Return rows as CSV with a header, without ``LEFT_OUT`` columns whose cells are all empty."""
    rows = rows if isinstance(rows, (list, tuple)) else [*rows]
    optional = {each.name for each in dataclasses.fields(kind) if each.metadata == LEFT_OUT}
    names = [
        name
        for name in column_names(kind)
        if name not in optional or any(getattr(row, name) not in (None, "") for row in rows)
    ]
    lines = ([_cell(getattr(row, name)) for name in names] for row in rows)
    return render_lines(chain([names], lines))


def render_lines(lines: Iterable[Sequence[object]]) -> str:
    """Return lines of cells as CSV; the caller must have escaped texts by ``escape.for_csv``."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()


def render_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [
        [escape.for_markdown(cell) if i != 1 else cell for cell in line]
        for i, line in enumerate([header, ["---"] * len(header), *rows])
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        is_shape = all(isinstance(part, int) for part in value)
        parts = ("" if part is None else str(part) for part in value)
        return ("x" if is_shape else "; ").join(parts)
    return escape.for_csv(value) if isinstance(value, str) else repr(value)
