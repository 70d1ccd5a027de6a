"""Write the table of ``hookcli places`` to a Parquet file, part by part, with floats as float32."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_ROWS = 50_000  # of a row group


class TableWriter:  # the first part decides the columns
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._writer: pq.ParquetWriter | None = None
        self._parts: list[pa.Table] = []
        self._rows = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def add(self, texts: Mapping[str, str], columns: Mapping[str, NDArray[np.generic]]) -> None:
        (length,) = {len(column) for column in columns.values()}
        arrays: dict[str, Any] = {
            name: pa.array([text] * length).dictionary_encode() for name, text in texts.items()
        }
        for name, column in columns.items():
            is_float = np.issubdtype(column.dtype, np.floating)
            arrays[name] = pa.array(column.astype(np.float32) if is_float else column)
        self._parts.append(pa.table(arrays))
        self._rows += length
        if self._rows >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._parts:
            return
        table = pa.concat_tables(self._parts).unify_dictionaries()
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._parts, self._rows = [], 0
