"""Write documents and rows as JSON text; NaN and Inf become null, odd file names are escaped."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import operator
from typing import TYPE_CHECKING, Any

from hookcli.outside import escape
from hookcli.outside.documents import Document, to_fields
from hookcli.outside.tables import column_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import DataclassInstance


def render_json(document: Document) -> str:
    return "".join(render_pieces(plain(document)))


def encode_json(document: Document) -> bytes:
    """Encode a document that ``plain`` has returned, using hardly more memory than the result."""
    stream = io.BytesIO()
    stream.writelines(piece.encode() for piece in render_pieces(document))
    return stream.getvalue()


def render_pieces(document: Document) -> Iterator[str]:
    for number, (name, value) in enumerate(to_fields(document).items()):
        yield f"{',' if number else '{'}\n {json.dumps(name)}: "
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
    whole = {**to_fields(Document()), **to_fields(plain(row))}
    return json.dumps(whole, allow_nan=False, default=to_fields) + "\n"


def plain(value: Any) -> Any:
    """Return a value, such as a document, a list or a text, in a form that JSON can hold.

    Text is reversibly escaped, and NaN and Inf become None. Parts that need no change are not
    copied. Never call the function on its own result, because it would escape the text again.
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
