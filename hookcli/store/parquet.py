"""Write ``records.parquet``: one row per image, call and output.

The table consists of several files of bounded size, which are written while the run goes on.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from hookcli.outside import escape
from hookcli.outside.documents import SCHEMA_VERSION
from hookcli.records.statistics import STATISTICS, figures_of
from hookcli.store.places.names import records_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.records.layer_records import LayerRecord

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
