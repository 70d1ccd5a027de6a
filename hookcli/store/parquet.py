"""Write and read ``records.parquet``: one row per image, call and output.

The table consists of several files of bounded size, which are written while the run goes on. Files
that are not the table that a run writes are refused.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, NotRequired, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from hookcli.outside import escape
from hookcli.outside.documents import SCHEMA_VERSION, RecordRow
from hookcli.outside.files import open_regular
from hookcli.records.statistics import STATISTICS, figures_of
from hookcli.store.places.names import records_file
from hookcli.store.run_files import cannot_read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hookcli.records.layer_records import LayerRecord
    from hookcli.store.folder import RunFolder

COLUMNS = (
    ("image", pa.string(), "key of the image"),
    ("call_id", pa.string(), "which call of which layer, as tables show it"),
    ("module_path", pa.string(), "dotted name; empty for the model itself"),
    ("module_type", pa.string(), "class name"),
    ("call_index", pa.int32(), "0 for the module's first call in a forward"),
    (
        "side",
        pa.string(),
        "output, input, grad_output, grad_input, or param for the gradient of a parameter",
    ),
    (
        "output_key",
        pa.string(),
        "which of several tensors; empty for a single one; a parameter's name",
    ),
    ("order", pa.int32(), "position among the observed calls, counted from 1 by their start"),
    ("shape", pa.list_(pa.int64()), "the shape of this image's part, with leading axis 1"),
    ("dtype", pa.string(), "the name of the type in torch"),
    ("layout", pa.string(), "what the axes mean"),
    *(
        (name, pa.int64() if each.unit == "count" else pa.float64(), each.text)
        for name, each in STATISTICS.items()
    ),
    (
        "change",
        pa.float64(),
        "distance from the run without edits, relative to its norm; null without edits",
    ),
    ("reason", pa.string(), "why there is no gradient; empty when there is one"),
    ("grid", pa.string(), "the picture, relative to the run folder; empty if none was drawn"),
    (
        "sketch",
        pa.binary(),
        "67 float32, little-endian, see hookcli/distance/sketch.py; null if none was kept",
    ),
)
_ORDER = (
    "by image, then in the order in which hooks saw the tensors: "
    "a module comes after those that it calls"
)
SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={"description": text}) for name, kind, text in COLUMNS],
    metadata={"schema_version": str(SCHEMA_VERSION), "row_order": _ORDER},
)

# Not RecordRow.__required_keys__: annotations that are kept as text hide NotRequired from it.
_HINTS = get_type_hints(RecordRow, include_extras=True)
_NEEDED = [name for name, hint in _HINTS.items() if get_origin(hint) is not NotRequired]
_WITHOUT_NULLS = ("image", "call_id", "module_type", "shape", "dtype")
_MOST_ROWS = 1000  # of a small file; in larger ones each row takes some bytes
_LEAST_BYTES = 4  # of each row
_MOST_UNPACKED, _RATIO = 1 << 24, 64  # bytes of a small file, and per byte of a larger one
_LONGEST_TEXT = 1 << 14
_TEXTS = tuple(field.name for field in SCHEMA if types.is_string(field.type))


def write_records(
    write: Callable[[str, bytes], str], number: int, records: Sequence[LayerRecord]
) -> str:
    """Write the records of one chunk and return the name of the file.

    Raises:
        OutputError: the file cannot be written.
    """
    table = pa.Table.from_pylist([to_row(record) for record in records], schema=SCHEMA)
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return write(records_file(number), stream.getvalue())


def to_row(record: LayerRecord) -> dict[str, object]:
    """Return a record as a row of the table."""
    call, stats = record.call, record.stats
    return {
        "image": record.image,
        "call_id": escape.reversible(call.id),
        "module_path": escape.reversible(call.layer.module_path),
        "module_type": call.layer.module_type,
        "call_index": call.call_index,
        "side": call.side,
        "output_key": escape.reversible(call.output_key),
        "order": call.order,
        "shape": stats.shape,
        "dtype": stats.dtype,
        "layout": record.layout.name,
        **figures_of(stats),
        "change": record.change,
        "reason": record.reason,
        "grid": record.grid,
        "sketch": record.sketch or None,
    }


def read_records(files: Sequence[Path]) -> pa.Table:
    """Return the rows of all files of ``records.parquet`` as one table, in the order of the files.

    Raises:
        ValueError: a file lacks columns, or has other types, nulls where there can be none, or more
            rows than its bytes can hold.
        pyarrow.ArrowException: a file is not Parquet, or is damaged.
        OSError: a file cannot be read, or is no regular file.
    """
    tables = []
    for file in files:
        with open_regular(file) as stream:
            tables.append(_read_table(stream))
    return pa.concat_tables(tables, promote_options="default")


def read_rows(folder: RunFolder, number: int) -> list[RecordRow]:
    """Return the records of a chunk of an unfinished run.

    Raises:
        RequestError: they are missing or damaged.
        OutputError: they may not be read.
    """
    name = records_file(number)
    try:
        rows: list[RecordRow] = _read_table(io.BytesIO(folder.read(name) or b"")).to_pylist()
        return rows
    except (OSError, ValueError, pa.ArrowException) as error:
        unread = cannot_read(folder.path / name, error)
        unread.hint = "start again with --overwrite"
        raise unread from error


def _read_table(stream: BinaryIO) -> pa.Table:
    metadata = pq.read_metadata(stream)
    paths = {metadata.schema.column(place).path for place in range(metadata.num_columns)}
    texts = [name for name in _TEXTS if name in paths]  # a nested column has no such path
    opened = pq.ParquetFile(stream, metadata=metadata, read_dictionary=texts)
    size, rows = stream.seek(0, 2), opened.metadata.num_rows
    _expect(rows <= _MOST_ROWS + size // _LEAST_BYTES, f"{rows} rows in {size} bytes")
    groups = [opened.metadata.row_group(index) for index in range(opened.metadata.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    _expect(unpacked <= _MOST_UNPACKED + _RATIO * size, f"{unpacked} bytes in {size}")
    table = _expand_texts(opened.read())
    _check_columns(table.schema)
    for name in _WITHOUT_NULLS:
        _expect(not table[name].null_count, f"an empty cell in the column {name!r}")
    _expect(not table["shape"].combine_chunks().flatten().null_count, "an empty length in a shape")
    return table


def _expand_texts(table: pa.Table) -> pa.Table:
    """Return the table with its dictionary-encoded columns as plain text.

    Raises:
        ValueError: a text is so long that many rows of it would fill the memory.
    """
    for place, field in enumerate(table.schema):
        if types.is_dictionary(field.type):
            column = table.column(place)
            texts = [text for chunk in column.chunks for text in chunk.dictionary.to_pylist()]
            longest = max((len(text) for text in texts if text is not None), default=0)
            _expect(longest <= _LONGEST_TEXT, f"a text of {longest} letters")
            table = table.set_column(place, field.name, column.cast(field.type.value_type))
    return table


def _check_columns(schema: pa.Schema) -> None:
    """Raise if the columns are not those that a run writes; later versions may add some.

    Raises:
        ValueError: a column is missing, appears twice, or has a different type.
    """
    names = schema.names
    for name in _NEEDED:
        _expect(name in names, f"no column {name!r}")
    for field in SCHEMA:
        _expect(names.count(field.name) < 2, f"two columns {field.name!r}")
        if field.name in names:
            kind = schema.field(field.name).type
            _expect(_is_alike(kind, field.type), f"{kind} in the column {field.name!r}")


def _is_alike(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column has the wanted type; one of nulls alone has no type of its own."""
    if types.is_list(wanted):
        return bool(types.is_list(kind) and types.is_integer(kind.value_type))
    is_kind = next(
        (is_it for is_it in (types.is_integer, types.is_floating) if is_it(wanted)), None
    )
    fits = kind == wanted if is_kind is None else is_kind(kind)
    return bool(fits or types.is_null(kind))


def _expect(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(f"it is not the table of a run: {what}")
