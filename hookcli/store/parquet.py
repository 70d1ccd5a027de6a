"""Convert records to rows of ``records.parquet``, and write a Parquet file for each chunk."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from hookcli.outside import escape
from hookcli.outside.documents import SCHEMA_VERSION, describe_types, value_types
from hookcli.records.layer_records import RecordRow
from hookcli.records.statistics import figures_of
from hookcli.store.locations.names import records_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hookcli.records.layer_records import LayerRecord

_ARROW = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.binary(),
    tuple: pa.list_(pa.int64()),
}
_SMALL = ("call_index", "order")  # positions in a forward pass: 32 bits are enough
_ORDER = (
    "by image, then in the order in which hooks saw the tensors: "
    "a module comes after those that it calls"
)


def _make_schema() -> pa.Schema:
    fields = describe_types([RecordRow])[RecordRow.__name__]["properties"]
    columns = []
    for name, kind in value_types(RecordRow).items():
        text = fields[name]["description"].removesuffix(".")
        description = {"description": text[:1].lower() + text[1:]}
        arrow = pa.int32() if name in _SMALL else _ARROW[kind]
        columns.append(pa.field(name, arrow, metadata=description))
    return pa.schema(columns, {"schema_version": str(SCHEMA_VERSION), "row_order": _ORDER})


SCHEMA = _make_schema()


def write_records(
    write: Callable[[str, bytes], str],
    number: int,
    records: Sequence[LayerRecord],
    pictures: Mapping[tuple[str, str], str],
) -> str:
    # ``pictures`` has the files of the tensors' pictures, by image and call id.
    rows = [to_row(each, pictures.get((each.image, each.call.id), "")) for each in records]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return write(records_file(number), stream.getvalue())


def to_row(record: LayerRecord, picture: str = "") -> dict[str, object]:
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
        "grid": picture,
        "sketch": record.sketch or None,
        "target": call.target,
    }
