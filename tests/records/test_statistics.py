"""A statistic that is declared is computed, merged, and a column of everything that is written."""

from __future__ import annotations

import math

import pytest
import torch

from hookcli.activations.observation import Observation, read_records
from hookcli.activations.stats import reduce_rows
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layouts import Layout
from hookcli.records.statistics import STATISTICS, figures_of
from hookcli.store.parquet import SCHEMA, to_row
from hookcli.summary.tally import add_records, list_rows

NAMES = ["mean", "std", "min", "max", "zero_fraction", "nan_count", "inf_count"]
VALUES = [0.0, -2.0, 2.0, 4.0, 0.0, 1.5, math.nan, math.inf, 3.0, -7.0, 0.25, 0.0]


def record(values, image="a"):
    """The record of one image with these values."""
    tensor = torch.tensor([values], dtype=torch.float64)
    call = Call(LayerInfo("conv", "Conv2d"))
    reduced = reduce_rows(tensor, None)
    observed = Observation(call, Layout(), tuple(tensor.shape), tensor.dtype, reduced)
    return read_records([observed], [image])[0]


def between(names, before, after):
    """The names between two others; None for the end."""
    return names[names.index(before) + 1 : names.index(after) if after else None]


def test_the_statistics_and_their_order():
    assert list(STATISTICS) == NAMES


def test_the_parquet_table_has_a_column_for_each_statistic_with_its_type_and_text():
    assert between(SCHEMA.names, "layout", "change") == list(STATISTICS)
    for name, each in STATISTICS.items():
        field = SCHEMA.field(name)
        assert field.metadata == {b"description": each.text.encode()}
        assert str(field.type) == ("int64" if each.unit == "count" else "double")


def test_a_row_of_the_parquet_table_holds_each_statistic():
    one = record(VALUES)
    row = to_row(one)
    assert {name: row[name] for name in STATISTICS} == figures_of(one.stats)


@pytest.mark.parametrize("cuts", [(1,), (7, 8), (3, 6, 8, 9)])
def test_a_statistic_over_images_is_that_of_all_their_values(cuts):
    """The images differ in size, and one holds nothing that is finite."""
    parts = [VALUES[start:end] for start, end in zip((0, *cuts), (*cuts, None), strict=True)]
    calls = {}
    add_records(calls, (record(part, str(index)) for index, part in enumerate(parts)), {})
    (row,) = list_rows(calls, {}, lambda _call: None)
    assert figures_of(row) == pytest.approx(figures_of(record(VALUES).stats), rel=1e-12)


def test_statistics_computed_exactly_are_those_computed_fast():
    rows = torch.randn(1, 8, 30, 30, generator=torch.Generator().manual_seed(0)).relu() + 1
    rows[0, 0] = 0
    poison = torch.full_like(rows, math.nan)  # a NaN anywhere sends the whole batch the exact way
    fast, both = reduce_rows(rows, 1), reduce_rows(torch.cat([rows, poison]), 1)
    assert not isinstance(fast.table, torch.Tensor)
    assert fast.table[0] == pytest.approx([float(each) for each in both.table[0]], rel=1e-5)
