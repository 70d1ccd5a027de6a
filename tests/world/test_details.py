"""Details of findings, pictures and pages: what is left out, what is put together, what is
refused."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layer_records import ChannelRange, LayerRecord, TensorStats
from hookcli.records.layouts import Layout
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import list_findings
from tests.summary.test_findings import told

MAP = Layout("NCHW", 1, 2, 2)
STATS: Any = {"shape": (1, 1, 2, 2), "dtype": "float32", "mean": 0.0, "min": -1.0, "max": 1.0}


def record(path, kind="Conv2d", *, image="cat", std=1.0, values=(-1.0, 1.0), layout=MAP, **call):
    """One layer with one channel, whose smallest and largest values are ``values``."""
    stats = TensorStats(std=std, zero_fraction=0.0, **STATS)
    channels = ChannelRange(values[:1], values[1:])
    return LayerRecord(image, Call(LayerInfo(path, kind), **call), layout, stats, channels)


def found(*records, **evidence):
    return [(f.rule, f.number) for f in list_findings(Evidence(told(records), **evidence))]


@pytest.mark.parametrize(
    "other", [Layout("NHWC", 3, 2, 2), Layout("NCHW", 1)], ids=["layout", "no longer spatial"]
)
def test_spreads_are_compared_in_one_form_only(other):
    before = record("a", std=1.0, order=1)
    assert found(before, record("b", std=50.0, order=2)) == [("exploding", 50.0)]
    assert found(before, record("b", std=50.0, order=2, layout=other)) == []


@pytest.mark.parametrize("kind", ["Identity", "Dropout2d", "StochasticDepth"])
def test_the_spread_of_a_layer_that_passes_on_what_it_gets_is_not_its_own(kind):
    assert found(record("a", kind, order=1), record("b", kind, order=2, std=50.0)) == []


@pytest.mark.parametrize(("side", "rules"), [(216, []), (215, [("small", 215 / 224)])])
def test_up_to_8_pixels_may_be_added_by_the_network_itself(side, rules):
    assert found(sizes={"cat": ((side, 400), (224, 224))}) == rules


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


@pytest.mark.parametrize(("rule", "code"), [("nan", 7), ("inf", 0)])
def test_a_rule_of_fail_on_looks_into_layers_that_were_not_selected(run, pixels, rule, code):
    words = ("--layers", "conv", "--grids", "none", "--fail-on", rule)
    ended = run("inspect", "tests.world.test_details:Swallowed", pixels, *words)
    assert ended.code == code
    assert ("nan: NaN is made by 1 (Masked)" in ended.out + ended.err) == (rule == "nan")


@pytest.fixture
def pixels():
    """A file of 1 x 16 x 32 pixels: one in the upper left quarter, else zero."""
    values = np.zeros((1, 16, 32), np.float32)
    values[:, :8, :16] = 1
    np.save("my pixels.npy", values)
    return "my pixels.npy"


def inspect(run, file, *words):
    return run("inspect", "tests.toy_models:InplaceRelu", file, "-o", "out", *words)


@pytest.fixture
def ran(run, pixels):
    assert inspect(run, pixels, "--layers", "conv").code == 0
    return Path("out")


def test_a_page_of_one_file_takes_nothing_through_a_link_out_of_the_run(run, ran):
    Path("secret.png").write_bytes(b"secret" * 3)
    (grid,) = ran.rglob("grids/**/*.png")
    grid.unlink()
    grid.symlink_to(Path("secret.png").absolute())
    assert run("report", ran, "--single-file").code == 0
    page = (ran / "report.html").read_text()
    assert base64.b64encode(b"secret" * 3).decode() not in page
    assert page.count("data:image/") >= 1  # the other picture
