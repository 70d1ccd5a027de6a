"""Read ``records.parquet``, and refuse a file that is damaged or would fill the memory."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from hookcli.records.layer_records import RecordRow
from hookcli.records.statistics import IN_EVERY_VERSION
from hookcli.store.parquet import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

_WITHOUT_NULLS = [each.name for each in fields(RecordRow) if each.default is MISSING]
_NEEDED = [*_WITHOUT_NULLS, *IN_EVERY_VERSION]
_MOST_ROWS = 1000  # any file may have this many rows
_LEAST_BYTES = 4  # bytes of the file that each further row must take
_MOST_UNPACKED, _RATIO = 1 << 24, 64  # uncompressed bytes: allowed in any file, and per byte of it
_LONGEST_TEXT = 1 << 14
_TEXTS = tuple(field.name for field in SCHEMA if types.is_string(field.type))


def read_records(files: Iterable[BinaryIO]) -> pa.Table:
    tables = []
    for file in files:
        with file as stream:
            tables.append(_read_table(stream))
    return pa.concat_tables(tables, promote_options="default")


def _read_table(stream: BinaryIO) -> pa.Table:
    metadata = pq.read_metadata(stream)
    paths = {metadata.schema.column(index).path for index in range(metadata.num_columns)}
    texts = [name for name in _TEXTS if name in paths]  # a nested column has a different path
    opened = pq.ParquetFile(stream, metadata=metadata, read_dictionary=texts)
    size, rows = stream.seek(0, 2), metadata.num_rows
    _expect(rows <= _MOST_ROWS + size // _LEAST_BYTES, f"{rows} rows in {size} bytes")
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    unpacked = sum(group.total_byte_size for group in groups)
    _expect(unpacked <= _MOST_UNPACKED + _RATIO * size, f"{unpacked} bytes in {size}")
    table = _expand_texts(opened.read())
    _check_columns(table.schema)
    for name in _WITHOUT_NULLS:
        _expect(not table[name].null_count, f"an empty cell in the column {name!r}")
    _expect(not table["shape"].combine_chunks().flatten().null_count, "an empty length in a shape")
    return table


def _expand_texts(table: pa.Table) -> pa.Table:
    """Turn dictionary-encoded columns into texts; raise a ValueError if a text is too long."""
    for index, field in enumerate(table.schema):
        if types.is_dictionary(field.type):
            column = table.column(index)
            texts = [text for chunk in column.chunks for text in chunk.dictionary.to_pylist()]
            longest = max((len(text) for text in texts if text is not None), default=0)
            _expect(longest <= _LONGEST_TEXT, f"a text of {longest} letters")
            table = table.set_column(index, field.name, column.cast(field.type.value_type))
    return table


def _check_columns(schema: pa.Schema) -> None:
    """Raise a ValueError for missing, repeated or mistyped columns; unknown columns are allowed."""
    names = schema.names
    for name in _NEEDED:
        _expect(name in names, f"no column {name!r}")
    for field in SCHEMA:
        _expect(names.count(field.name) < 2, f"two columns {field.name!r}")
        if field.name in names:
            kind = schema.field(field.name).type
            _expect(_is_alike(kind, field.type), f"{kind} in the column {field.name!r}")


def _is_alike(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if types.is_list(wanted):
        return bool(types.is_list(kind) and types.is_integer(kind.value_type))
    numbers = (types.is_integer, types.is_floating)
    fits = kind == wanted or any(is_it(kind) and is_it(wanted) for is_it in numbers)
    return bool(fits or types.is_null(kind))


def _expect(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(f"it is not the table of a run: {what}")
