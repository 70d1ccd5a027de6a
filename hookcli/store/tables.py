"""Rows as CSV, JSON and Markdown text. Each ``render_`` is pure: the same rows, the same text."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import operator
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from hookcli.outside import escape
from hookcli.outside.documents import Document, to_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _typeshed import DataclassInstance


@cache
def column_names(kind: type[DataclassInstance]) -> list[str]:
    """Return the column names of a row type, in order."""
    return [field.name for field in dataclasses.fields(kind)]


def render_csv(kind: type[DataclassInstance], rows: Iterable[DataclassInstance]) -> str:
    """Return a header and one line per row; shapes as ``1x64x56x56``, None as an empty cell."""
    names = column_names(kind)
    lines = ([_cell(getattr(row, name)) for name in names] for row in rows)
    return _render_lines(chain([names], lines))


def render_fields(*texts: str) -> str:
    """Return texts as CSV cells joined by commas, without a line end."""
    return _render_lines([[_cell(text) for text in texts]])[:-1]


def _render_lines(lines: Iterable[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()


def render_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the cells are plain text, which is escaped here."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [
        [escape.for_markdown(cell) if i != 1 else cell for cell in line]
        for i, line in enumerate(lines)
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def render_json(document: Document) -> str:
    """Return a document as JSON, see ``plain``."""
    return "".join(render_pieces(plain(document)))


def encode_json(document: Document) -> bytes:
    """Return a document, already ``plain``, as JSON; it takes little more memory than the bytes."""
    stream = io.BytesIO()
    stream.writelines(piece.encode() for piece in render_pieces(document))
    return stream.getvalue()


def render_pieces(document: Document) -> Iterator[str]:
    """Yield the pieces of a document, already ``plain``, as JSON.

    Lists are yielded row by row, since a run may have 100,000 images.
    """
    for place, (name, value) in enumerate(to_fields(document).items()):
        yield f"{',' if place else '{'}\n {json.dumps(name)}: "
        if isinstance(value, (list, tuple)) and value:
            for index, row in enumerate(value):
                yield f"{',' if index else '['}\n  {_render_value(row, depth=2)}"
            yield "\n ]"
        else:
            yield _render_value(value, depth=1)
    yield "\n}\n"


def _render_value(value: object, depth: int) -> str:
    text = json.dumps(value, indent=1, allow_nan=False, default=to_fields)
    return text.replace("\n", "\n" + " " * depth)


def render_line(row: DataclassInstance) -> str:
    """Return a row as a line of JSON, ``schema_version`` first, see ``plain``."""
    whole = {**to_fields(Document()), **to_fields(plain(row))}
    return json.dumps(whole, allow_nan=False, default=to_fields) + "\n"


def plain(value: Any) -> Any:
    """Return a value of the same type that JSON can hold.

    Text is reversibly escaped, and NaN and Inf become None. Never call this twice: it would escape
    escaped text again. Unchanged parts are not copied.
    """
    if isinstance(value, str):
        return escape.reversible(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        parts = tuple(map(plain, value))
        return value if all(map(operator.is_, parts, value)) else parts
    if isinstance(value, dict):
        return {escape.reversible(str(name)): plain(part) for name, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        old = {name: getattr(value, name) for name in column_names(type(value))}
        new = {name: made for name in old if (made := plain(old[name])) is not old[name]}
        return dataclasses.replace(value, **new) if new else value
    return value


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        is_shape = all(isinstance(part, int) for part in value)
        parts = ("" if part is None else str(part) for part in value)
        return ("x" if is_shape else "; ").join(parts)
    return escape.for_csv(value) if isinstance(value, str) else repr(value)
