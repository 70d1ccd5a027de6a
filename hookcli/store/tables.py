"""Rows as CSV, JSON and Markdown text. Every ``render_`` is pure: the same rows, the same bytes."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from typing import TYPE_CHECKING, Any

from hookcli import escape
from hookcli.documents import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import DataclassInstance


def column_names(kind: type[DataclassInstance]) -> list[str]:
    """The columns of a row type, in order."""
    return [field.name for field in dataclasses.fields(kind)]


def render_csv(kind: type[DataclassInstance], rows: Iterable[DataclassInstance]) -> str:
    """A header and a line a row; shapes as ``1x64x56x56``, missing values empty."""
    names = column_names(kind)
    lines = ([_cell(getattr(row, name)) for name in names] for row in rows)
    return _render_lines([names, *lines])


def render_fields(*texts: str) -> str:
    """Texts as they stand in a line of CSV, with commas between them."""
    return _render_lines([[_cell(text) for text in texts]])[:-1]


def _render_lines(lines: Iterable[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()


def render_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; cells are plain text."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [
        [escape.for_markdown(cell) if i != 1 else cell for cell in line]
        for i, line in enumerate(lines)
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def render_json(document: dict[str, Any]) -> str:
    """One document, ``schema_version`` first; numbers that are not finite become null."""
    whole = {"schema_version": SCHEMA_VERSION} | document
    return json.dumps(to_plain(whole), indent=1, allow_nan=False, ensure_ascii=True) + "\n"


def render_line(row: DataclassInstance) -> str:
    """A row as a line of JSON, ``schema_version`` first; numbers that are not finite become null."""
    whole = {"schema_version": SCHEMA_VERSION} | to_plain(row)
    return json.dumps(whole, allow_nan=False, ensure_ascii=True) + "\n"


def to_plain(value: Any) -> Any:
    """``value`` in terms of JSON: dataclasses as objects, tuples as lists, text reversibly escaped."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return escape.reversible(value) if isinstance(value, str) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "x".join(str(part) for part in value) if _numbers(value) else "; ".join(value)
    return escape.for_csv(value) if isinstance(value, str) else repr(value)


def _numbers(value: tuple[Any, ...]) -> bool:
    return all(isinstance(part, int) for part in value)
