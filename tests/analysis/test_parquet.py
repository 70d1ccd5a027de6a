"""Tables of numbers, written part by part."""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq

from hookcli.analysis import parquet
from hookcli.analysis.parquet import TableWriter


def write(parts):
    stream = io.BytesIO()
    with TableWriter(stream) as table:
        for image, values in parts:
            table.add({"image": image}, {"value": np.array(values), "row": np.arange(len(values))})
    return stream.getvalue()


def test_parts_become_one_table(monkeypatch):
    monkeypatch.setattr(parquet, "_ROWS", 3)
    data = write([("a", [0.5, 1]), ("b", [2, np.nan]), ("a", [3.0])])
    table = pq.read_table(io.BytesIO(data))
    assert table["image"].to_pylist() == ["a", "a", "b", "b", "a"]
    assert str(table.schema.field("value").type) == "float"
    assert table["value"].to_pylist()[:3] == [0.5, 1, 2]
    assert data == write([("a", [0.5, 1]), ("b", [2, np.nan]), ("a", [3.0])])
