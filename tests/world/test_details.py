"""Details of findings, pictures and pages: what is left out, what is put together, what is
refused."""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hookcli.activations.feature_maps import Picture, take_tiles
from hookcli.activations.observation import Observation, read_records, take_sample
from hookcli.activations.stats import reduce_rows
from hookcli.config import GridStyle
from hookcli.networks.inputs import PLAIN
from hookcli.outside.documents import decode
from hookcli.passes.nan_origin import find_forward_origin
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layer_records import ChannelRange, LayerRecord, TensorStats
from hookcli.records.layouts import Layout
from hookcli.records.report import ReportDocument
from hookcli.render.draw.grid_writer import GridWriter
from hookcli.render.report.page import render_report
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import list_findings
from tests.summary.test_findings import told
from tests.toy_runs import write_into

MAP = Layout("NCHW", 1, 2, 2)
STATS: Any = {"shape": (1, 1, 2, 2), "dtype": "float32", "mean": 0.0, "min": -1.0, "max": 1.0}


def record(path, kind="Conv2d", *, image="cat", std=1.0, values=(-1.0, 1.0), layout=MAP, **call):
    """One layer with one channel, whose smallest and largest values are ``values``."""
    stats = TensorStats(std=std, zero_fraction=0.0, **STATS)
    channels = ChannelRange(values[:1], values[1:])
    return LayerRecord(image, Call(LayerInfo(path, kind), **call), layout, stats, channels)


def found(*records, **evidence):
    return [(f.rule, f.number) for f in list_findings(Evidence(told(records), **evidence))]


# Findings


@pytest.mark.parametrize(
    "other", [Layout("NHWC", 3, 2, 2), Layout("NCHW", 1)], ids=["layout", "no longer spatial"]
)
def test_spreads_are_compared_in_one_form_only(other):
    before = record("a", std=1.0, order=1)
    assert found(before, record("b", std=50.0, order=2)) == [("exploding", 50.0)]
    assert found(before, record("b", std=50.0, order=2, layout=other)) == []


@pytest.mark.parametrize(
    "kind", ["Identity", "Dropout", "Dropout2d", "Dropout3d", "StochasticDepth"]
)
def test_the_spread_of_a_layer_that_passes_on_what_it_gets_is_not_its_own(kind):
    assert found(record("a", kind, order=1), record("b", kind, order=2, std=50.0)) == []


@pytest.mark.parametrize(("side", "rules"), [(216, []), (215, [("small", 215 / 224)])])
def test_up_to_8_pixels_may_be_added_by_the_network_itself(side, rules):
    assert found(sizes={"cat": ((side, 400), (224, 224))}) == rules


# Who made a NaN


class Root(nn.Module):
    """The square root of a negative number; its part, all NaN, is never called."""

    def __init__(self):
        super().__init__()
        self.part = nn.BatchNorm2d(1)
        for values in (self.part.weight.data, self.part.running_mean):
            values.fill_(math.nan)

    def forward(self, x):
        return (-1 - x.abs()).sqrt()


class Masked(nn.Module):
    """A leaf that holds minus infinity, and makes NaN of finite values."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor(-math.inf))

    def forward(self, x):
        return (-1 - x.abs()).sqrt()


class Swallowed(nn.Sequential):
    """NaN between a convolution and an end that are both finite."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 1, 1), Masked())

    def forward(self, x):
        return super().forward(x).nan_to_num(0)


@pytest.mark.parametrize("maker", [Root, Masked])
def test_values_that_made_no_nan_are_not_blamed_for_it(maker):
    assert find_forward_origin(nn.Sequential(maker()), PLAIN, torch.ones(1, 1, 2, 2)) == {
        "NaN": f"NaN is made by 0 ({maker.__name__}): its inputs were finite"
    }


@pytest.mark.parametrize(("rule", "code"), [("nan", 7), ("inf", 0)])
def test_a_rule_of_fail_on_looks_into_layers_that_were_not_selected(run, pixels, rule, code):
    words = ("--layers", "conv", "--grids", "none", "--fail-on", rule)
    ended = run("inspect", "tests.world.test_details:Swallowed", pixels, *words)
    assert ended.code == code
    assert ("nan: NaN is made by 1 (Masked)" in ended.out + ended.err) == (rule == "nan")


# Tiles, sheets and samples


RAMP = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


def test_the_figures_of_a_tile_are_smallest_largest_mean_and_spread():
    # squares of the distances from 2.5: 2 * (2.5^2 + 1.5^2 + 0.5^2) = 17.5, a sixth of it 35 / 12
    maps, style = torch.stack([RAMP, -2 * RAMP]), GridStyle(rank="index")
    figures = take_tiles(maps.unsqueeze(0), Layout("NCHW", 1, 2, 3), style).figures.T.tolist()
    spread = (35 / 12) ** 0.5
    assert figures[0] == pytest.approx([0.0, 5.0, 2.5, spread])
    assert figures[1] == pytest.approx([-10.0, 0.0, -5.0, 2 * spread])


def test_a_sheet_of_hundreds_of_layers_is_arranged_in_columns(tmp_path):
    layout, style = Layout("NCHW", 1, 8, 8), GridStyle(tile=8)
    tiles = take_tiles(torch.zeros(1, 1, 8, 8), layout, style)
    layer = Picture("cat", Call(LayerInfo("conv", "Conv2d")), layout, (1, 1, 8, 8), tiles)
    writer = GridWriter(write_into(tmp_path), style, "model")
    writer.write_sheet("cat", [layer] * 500)
    writer.take()()
    with Image.open(tmp_path / "sheets/cat.png") as sheet:
        assert sheet.height < 2000  # 500 layers of 8 + 2 * 13 + 4 pixels are 19,000


def test_a_sample_is_taken_at_even_distances_over_all_values():
    values = torch.arange(3 * 4096.0).view(1, -1)
    assert take_sample(values).tolist() == [list(range(0, 3 * 4096, 3))]


def test_a_histogram_spans_all_values_and_not_only_the_sample():
    whole, sample = torch.tensor([[0.0, 0.5, 12.5, 24.0]]), torch.tensor([[0.5, 12.5]])
    call, reduced = Call(LayerInfo("conv", "Conv2d")), reduce_rows(whole, None)
    seen = Observation(call, Layout(), (1, 4), torch.float32, reduced, sample)
    (one,) = read_records([seen], ["cat"])
    assert [index for index, count in enumerate(one.histogram) if count] == [0, 12]


# Boxes and pages of a run on a tensor file


@pytest.fixture
def pixels():
    """A file of 1 x 16 x 32 pixels: one in the upper left quarter, else zero."""
    values = np.zeros((1, 16, 32), np.float32)
    values[:, :8, :16] = 1
    np.save("my pixels.npy", values)
    return "my pixels.npy"


IDENTITY = ("torch.nn:Identity", "-o", "out", "--overwrite", "--layers", "*")


def inspect(run, file, *words):
    return run("inspect", "tests.toy_models:InplaceRelu", file, "-o", "out", *words)


@pytest.fixture
def ran(run, pixels):
    assert inspect(run, pixels, "--layers", "conv").code == 0
    return Path("out")


def test_a_channel_with_nan_has_no_score_and_comes_first(run):
    values = np.zeros((2, 16, 32), np.float32)
    values[0, :8, :16] = 1
    values[1, 15, 31] = math.nan
    np.save("broken.npy", values)
    assert run("inspect", *IDENTITY, "broken.npy", "--focus", "0,0,16,8").code == 0
    (grid,) = json.loads(Path("out/report.json").read_text())["grids"]
    assert (grid["channels"], grid["score"][0]) == ([1, 0], None)


def test_an_overview_of_inputs_alone_has_no_plot_over_depth_and_is_drawn(run, pixels):
    ended = inspect(run, pixels, "--at", "input", "--grids", "none", "--overview")
    assert ended.code == 0, ended.err
    with Image.open("out/overview.png") as picture:
        assert picture.convert("L").crop((0, 800, 1560, 936)).getextrema() == (255, 255)


@pytest.mark.parametrize("name", ["</script x", "</script/", "<!--<script>"])
def test_no_name_can_end_or_open_a_script_in_the_data_of_the_page(ran, name):
    text = (ran / "report.json").read_text().replace('"conv"', json.dumps(name))
    page = render_report(decode(text.encode(), ReportDocument))
    scripts = re.findall(r'<script type="application/json"[^>]*>(.*?)</script', page, re.DOTALL)
    assert not any("<" in data for data in scripts)
    assert any(name in str(json.loads(data)) for data in scripts)


def test_a_page_of_one_file_takes_nothing_through_a_link_out_of_the_run(run, ran):
    Path("secret.png").write_bytes(b"secret" * 3)
    (grid,) = ran.rglob("grids/**/*.png")
    grid.unlink()
    grid.symlink_to(Path("secret.png").absolute())
    assert run("report", ran, "--single-file").code == 0
    page = (ran / "report.html").read_text()
    assert base64.b64encode(b"secret" * 3).decode() not in page
    assert page.count("data:image/") >= 1  # the other picture


def test_pictures_that_are_missing_are_said_to_be_on_stderr_and_on_the_page(run, ran):
    (grid,) = (file.relative_to(ran) for file in ran.rglob("grids/**/*.png"))
    (ran / grid).unlink()
    ended = run("report", ran)
    assert ended.code == 0
    assert f"missing: {grid}\n" in ended.err
    assert "Pictures are missing" in (ran / "report.html").read_text()
