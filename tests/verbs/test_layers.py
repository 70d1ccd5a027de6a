"""``hookcli.layers``: what the layers of a model cost, from Python."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import hookcli
from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import to_fields
from hookcli.outside.tables import render_csv
from hookcli.passes import measure
from hookcli.records.rows import SurveyRow
from tests.toy_models import pointwise

MODEL = nn.Sequential(pointwise([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), nn.ReLU(), pointwise([1.0, 1.0]))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Test the machine with small matrices, and only once."""
    for name, value in {"_SIDE": 8, "_COPIED": 1 << 10, "_SECONDS": 0, "_REPEATS": 3}.items():
        monkeypatch.setattr(measure, name, value)


def test_layers_of_a_model_in_memory_are_rows_with_a_table():
    found = hookcli.layers(MODEL, size=4, layers="leaf", sort="flops")
    assert [(row.call_id, row.flops) for row in found.rows] == [("0", 192), ("2", 64), ("1", 0)]
    assert (found.total.params, found.input_shape) == (8, (1, 3, 4, 4))
    assert found.document().layers == found.rows
    assert " % of FLOPs " in str(found.table())
    assert (found.files, found.exit_code) == ({}, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_of_any_dtype_has_layers(dtype):
    found = hookcli.layers(copy.deepcopy(MODEL).to(dtype), size=4, layers="leaf", ops=True)
    assert [row.call_id for row in found.rows] == ["0", "1", "2"]


def test_a_long_table_is_the_upper_part_of_a_tree_and_sorting_takes_its_leaves():
    model = nn.Sequential(*(nn.Sequential(nn.Sequential(nn.ReLU())) for _ in range(20)))
    found = hookcli.layers(model, size=4)
    first, second, third, *_ = found.table().cells()["call"]
    assert (first, second, third) == ("(model)", "  0", "    0.0")
    assert (len(found.rows), len(found.table().rows)) == (61, 41)
    assert found.table().caption[0] == "left out: 20 rows below depth 2; `depth=3` shows all"
    assert len(hookcli.layers(model, size=4, depth=1).rows) == 21
    leaves = hookcli.layers(model, size=4, sort="name").rows
    assert [row.call_id for row in leaves] == [f"{number}.0.0" for number in range(20)]


def test_measured_layers_are_sorted_by_time_and_have_a_page():
    found = hookcli.layers(MODEL, size=64, measure=True, sort="time", backward=True)
    seconds = [row.seconds + row.backward_seconds for row in found.rows]
    assert seconds == sorted(seconds, reverse=True)
    assert " % of time " in str(found.table())
    assert "which runs out of memory first" in found.table().caption[1]
    assert found.document().measured.batch_size == 1
    assert found.files == {}
    assert found.page.html.count("<tr id=") == 3


def test_a_page_of_measured_layers_is_written_where_it_is_asked_for(tmp_path):
    found = hookcli.layers(MODEL, size=4, measure=True, layers="leaf", out=tmp_path / "costs")
    assert found.page.path == tmp_path / "costs/report.html"
    with pytest.raises(OutputError, match="already has an analysis"):
        hookcli.layers(MODEL, size=4, measure=True, out=tmp_path / "costs")


def test_rows_have_figures_of_a_measurement_only_with_one():
    plain, measured = (hookcli.layers(MODEL, size=4, measure=m) for m in (False, True))
    assert plain.page is None
    assert "seconds" not in to_fields(plain.rows[0])
    assert "measured" not in to_fields(plain.document())
    # both maps of two channels are there at once, and the map of one channel remains
    assert to_fields(measured.rows[0])["workspace_mb"] == (2 * 128 - 64) / 1e6
    heads = [render_csv(SurveyRow, each.rows).splitlines()[0] for each in (plain, measured)]
    assert heads[0].endswith("share,counted_flops")
    assert heads[1].startswith(f"{heads[0]},seconds,own_seconds,batch_output_mb")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"sort": "time"}, "`sort='time'` needs times, and no layer was run", "add `measure`"),
        ({"backward": True}, "`backward` has no effect without `measure`", "add `measure`"),
        ({"dtype": "float16"}, "`dtype` has no effect without `measure`", "add `measure`"),
    ],
)
def test_options_of_a_measurement_need_one(options, message, hint):
    with pytest.raises(RequestError) as error:
        hookcli.layers("resnet18", **options)
    assert (error.value.message, error.value.hint) == (message, hint)


def test_a_file_is_not_measured():
    with pytest.raises(RequestError, match=r"`measure` runs PyTorch models, and net\.onnx is"):
        hookcli.layers("net.onnx", measure=True)
