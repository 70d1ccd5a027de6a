"""Rows as CSV, JSON and Markdown text. Each ``render_`` is pure: the same rows, the same text."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from hookcli import escape
from hookcli.documents import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from _typeshed import DataclassInstance


def column_names(kind: type[DataclassInstance]) -> list[str]:
    """Return the column names of a row type, in order."""
    return [field.name for field in dataclasses.fields(kind)]


def render_csv(kind: type[DataclassInstance], rows: Iterable[DataclassInstance]) -> str:
    """Return a header and one line per row; shapes as ``1x64x56x56``, None as an empty cell."""
    names = column_names(kind)
    lines = ([_cell(getattr(row, name)) for name in names] for row in rows)
    return _render_lines(chain([names], lines))


def render_fields(*texts: str) -> str:
    """Return texts as cells of a line of CSV, joined by commas and without the end of the line."""
    return _render_lines([[_cell(text) for text in texts]])[:-1]


def _render_lines(lines: Iterable[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()


def render_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; the cells are given as plain text."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [
        [escape.for_markdown(cell) if i != 1 else cell for cell in line]
        for i, line in enumerate(lines)
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def render_json(document: Mapping[str, object]) -> str:
    """Return a document as JSON, ``schema_version`` first; NaN and Inf become null."""
    return "".join(render_pieces(document))


def encode_json(document: Mapping[str, object]) -> bytes:
    """Return what ``render_json`` does as bytes, in little more memory than they take."""
    stream = io.BytesIO()
    stream.writelines(piece.encode() for piece in render_pieces(document))
    return stream.getvalue()


def render_pieces(document: Mapping[str, object]) -> Iterator[str]:
    """Yield what ``render_json`` returns; a list row by row, for a run may have 100,000 images."""
    whole = {"schema_version": SCHEMA_VERSION, **document}
    for place, (name, value) in enumerate(whole.items()):
        yield f"{',' if place else '{'}\n {json.dumps(name)}: "
        if isinstance(value, (list, tuple)) and value:
            for index, row in enumerate(value):
                yield f"{',' if index else '['}\n  {_render_value(row, depth=2)}"
            yield "\n ]"
        else:
            yield _render_value(value, depth=1)
    yield "\n}\n"


def _render_value(value: object, depth: int) -> str:
    text = json.dumps(to_plain(value), indent=1, allow_nan=False, ensure_ascii=True)
    return text.replace("\n", "\n" + " " * depth)


def render_line(row: DataclassInstance) -> str:
    """Return a row as a line of JSON, ``schema_version`` first; NaN and Inf become null."""
    whole = {"schema_version": SCHEMA_VERSION, **_plain_fields(row)}
    return json.dumps(whole, allow_nan=False, ensure_ascii=True) + "\n"


def plain_object(document: Mapping[str, object]) -> dict[str, object]:
    """Return a document in terms of JSON, see ``to_plain``."""
    return {escape.reversible(str(name)): to_plain(value) for name, value in document.items()}


def to_plain(value: object) -> object:
    """Return ``value`` in terms of JSON.

    Dataclasses become objects, tuples lists, NaN and Inf None; text is reversibly escaped.
    """
    if isinstance(value, str):
        return escape.reversible(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    if isinstance(value, dict):
        return plain_object(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value)
    return value


def _plain_fields(row: DataclassInstance) -> dict[str, object]:
    return {name: to_plain(getattr(row, name)) for name in _list_names(type(row))}


@cache
def _list_names(kind: type[DataclassInstance]) -> list[str]:
    return column_names(kind)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        is_shape = all(isinstance(part, int) for part in value)
        parts = ("" if part is None else str(part) for part in value)
        return ("x" if is_shape else "; ").join(parts)
    return escape.for_csv(value) if isinstance(value, str) else repr(value)
