"""What hookcli says of torchvision's models against what others say, or another way of computing
it.

Shapes, order and parameter counts: tables that torchinfo's authors made (``oracles/README.md``).
Values: a copy of the model without hooks whose leaves keep a clone of what they return, and for two
models the first layers by hand. Cost: published figures.
"""

from __future__ import annotations

import copy
import csv
import functools
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as fn
from torchvision import models as zoo

from hookcli.config import GridStyle, ModelRequest
from hookcli.hooks.filter import select_layers
from hookcli.hooks.layers import list_layers
from hookcli.networks.load import build_skeleton
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import ForwardSettings, run_forward
from hookcli.passes.survey import survey
from tests.small_models import SMALL_MODELS, build_small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.rows import SurveyRow

ORACLES = Path(__file__).parents[1] / "oracles"
TABLES = [
    pytest.param(name, marks=[pytest.mark.slow] * name.startswith("resnet152"))
    for name in sorted(file.stem for file in ORACLES.glob("*.csv"))
]
FAMILIES = {  # a model of each family, and a side of the square that it is quick with
    "resnet18": 64,
    "mobilenet_v3_small": 64,
    "efficientnet_b0": 64,
    "shufflenet_v2_x0_5": 64,
    "googlenet": 64,
    "inception_v3": 75,
    **dict.fromkeys(SMALL_MODELS, 64),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Test workers side by side, each with all cores, wait for each other: 30 times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Order, types, shapes and parameters


class TableRow(NamedTuple):
    depth: int
    module_type: str
    shape: tuple[int, ...]
    params: int


@pytest.mark.parametrize("name", TABLES)
def test_calls_come_in_the_order_with_the_types_and_shapes_that_torchinfo_says(name):
    table = read_table(name)
    rows = survey_of_table(name)
    ours = [(depth_of(row), row.module_type, row.shape[1:]) for row in rows]
    assert ours == [(row.depth, row.module_type, row.shape[1:]) for row in table]


@pytest.mark.parametrize("name", TABLES)
def test_parameter_counts_are_those_of_torchinfo(name):
    """Ours are of a module and all below it, the table's less what the rows below it show."""
    table = read_table(name)
    rows = survey_of_table(name)
    shown_below = Counter()
    for row in rows:
        if row.module_path and row.calls and not row.call_id.partition("#")[2]:
            shown_below[row.module_path.rpartition(".")[0]] += row.params
    rest = [row.params - shown_below[row.module_path] for row in rows]
    assert rest == [row.params for row in table]


def test_the_uncalled_heads_of_googlenet_hold_its_remaining_parameters():
    model = build_skeleton(ModelRequest("googlenet")).module
    rows = survey(model, select_layers(model, ["aux1", "aux2"]), (1, 3, 112, 112)).rows
    assert [row.calls for row in rows] == [0, 0]
    assert sum(row.params for row in rows) == read_table("googlenet_1x3x112x112")[0].params


# Values


class Figures(NamedTuple):
    mean: float
    std: float
    min: float
    max: float
    zero_fraction: float
    shape: tuple[int, ...]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_leaf_call_has_the_figures_of_its_clone(name):
    model, pixels = seeded(name), noise(1, FAMILIES[name])
    layers = select_layers(model, ["leaf"])
    with torch.inference_mode():
        figures = run_with_clones(copy.deepcopy(model), pixels)
    settings = ForwardSettings(EagerRunner(model, layers, "both"), GridStyle("none"))
    (result,) = run_forward(settings, ["one"], pixels)
    records = {key_of(record): record.stats for record in result.records}
    for key, expected in figures.items():
        stats = records[key]
        slack = 1e-5 * max(abs(expected.mean), expected.std) + 1e-30
        assert (stats.mean, stats.std) == pytest.approx(expected[:2], abs=slack, rel=0), key
        assert (stats.min, stats.max, stats.zero_fraction, stats.shape) == expected[2:], key
    ran, recorded = ({path for path, *_ in found} for found in (figures, records))
    leaves = {layer.module_path for layer in layers}
    assert leaves - recorded == leaves - ran
    assert records.keys() == figures.keys()


@pytest.fixture(scope="module")
def vgg11() -> nn.Module:
    """Its features alone: to draw 120 million weights of its classifier takes a second."""
    with torch.device("meta"):
        model = zoo.vgg11(weights=None)
    torch.manual_seed(0)
    model.features, model.classifier = zoo.vgg.make_layers(zoo.vgg.cfgs["A"]), nn.Identity()
    return model.eval()


def test_a_tutorial_s_hook_loses_the_minimum_of_a_convolution_and_ours_keeps_it(
    vgg11,
):
    model, pixels = vgg11, noise(1, 64)
    first, kept = model.features[0], []
    handle = first.register_forward_hook(lambda _m, _i, out: kept.append(out.detach()))
    with torch.no_grad():
        model(pixels)
        truth = float(fn.conv2d(pixels, first.weight, first.bias, padding=1).min())
    handle.remove()
    assert truth < -0.1
    assert float(kept[0].min()) == 0.0
    assert observed(model, ["features.0"], pixels)["features.0"].stats.min == pytest.approx(truth)


# Several images


@pytest.mark.parametrize("name", ["resnet18", "swin_v2"])
def test_two_images_in_one_batch_give_the_records_of_the_two_alone(name):
    model, pixels = seeded(name), noise(2, FAMILIES[name])
    forward = ForwardSettings(EagerRunner(model, select_layers(model, ["leaf"])), GridStyle("none"))
    (result,) = run_forward(forward, ["a", "b"], pixels)
    together = {(record.image, record.call.id): record.stats for record in result.records}
    expected = {
        (record.image, record.call.id): record.stats
        for i, key in enumerate("ab")
        for record in run_forward(forward, [key], pixels[i : i + 1])[0].records
    }
    assert together.keys() == expected.keys()
    for key, stats in expected.items():
        slack = 1e-4 * max(abs(stats.mean), stats.std)
        got = together[key]
        assert got.shape == stats.shape, key
        assert (got.mean, got.std, got.min, got.max) == pytest.approx(
            (stats.mean, stats.std, stats.min, stats.max), abs=slack, rel=0
        ), key


# Cost


def test_resnet34_costs_twice_its_published_3_664_billion_multiply_adds():
    assert root_flops("resnet34") == pytest.approx(2 * 3.664e9, rel=0.01)


# Traps


def test_17_of_20_batch_norms_of_resnet18_are_overwritten_but_no_shortcut_s():
    rows = surveyed("resnet18", ["BatchNorm2d"], 64)
    intact = [row.module_path for row in rows if not row.traps]
    assert len(rows) == 20
    assert intact == [f"layer{number}.0.downsample.1" for number in (2, 3, 4)]


# The other ways


def read_table(name: str) -> list[TableRow]:
    with (ORACLES / f"{name}.csv").open(encoding="utf-8") as stream:
        return [
            TableRow(
                int(row["depth"]),
                row["module_type"],
                tuple(int(length) for length in row["shape"].split("x")),
                int(row["params"] or 0),
            )
            for row in csv.DictReader(stream)
        ]


@functools.cache
def survey_of_table(table: str) -> list[SurveyRow]:
    """The called rows of a table's model, as deep as the table goes; a table made with a batch of
    two is run with one image.
    """
    name, pixels = table.split("_")[:2]
    depth = max(row.depth for row in read_table(table))
    model = build_skeleton(ModelRequest(name)).module
    layers = [layer for layer in list_layers(model) if layer.depth <= depth]
    shape = (1, *(int(length) for length in pixels.split("x")[1:]))
    return [row for row in survey(model, layers, shape).rows if row.calls]


def surveyed(name: str, forms: list[str], side: int) -> tuple[SurveyRow, ...]:
    model = build_skeleton(ModelRequest(name)).module
    return survey(model, select_layers(model, forms), (1, 3, side, side)).rows


def root_flops(name: str) -> int | None:
    loaded = build_skeleton(ModelRequest(name))
    model, info = loaded.module, loaded.info
    assert info.input_shape == (1, 3, 224, 224)
    (row,) = survey(model, list_layers(model)[:1], info.input_shape).rows
    return row.flops


def depth_of(row: SurveyRow) -> int:
    return len(row.module_path.split(".")) if row.module_path else 0


def seeded(name: str) -> nn.Module:
    if name in SMALL_MODELS:
        return build_small(name)
    torch.manual_seed(0)
    return zoo.get_model(name, weights=None).eval()


def noise(images: int, side: int) -> Tensor:
    return torch.randn((images, 3, side, side), generator=torch.Generator().manual_seed(1))


def observed(model: nn.Module, forms: list[str], pixels: Tensor) -> dict[str, LayerRecord]:
    forward = ForwardSettings(EagerRunner(model, select_layers(model, forms)), GridStyle("none"))
    return {record.call.id: record for record in run_forward(forward, ["one"], pixels)[0].records}


def key_of(record: LayerRecord) -> tuple[str, int, str, str]:
    call = record.call
    return call.layer.module_path, call.call_index, call.side, call.output_key


def run_with_clones(model: nn.Module, pixels: Tensor) -> dict[tuple[str, int, str, str], Figures]:
    """The figures of what every leaf received and returned, from clones; no hook is involved."""
    calls: Counter[str] = Counter()
    seen: dict[tuple[str, int, str, str], Figures] = {}

    def wrapper(path: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        index = calls[path]
        calls[path] += 1
        given = {str(number): value for number, value in enumerate(args)} | kwargs
        given = next(iter(given.values())) if len(given) == 1 else given
        for key, tensor in tensors_in(given):
            seen[path, index, "input", key] = figures_of(tensor.clone())
        result = original(*args, **kwargs)
        for key, tensor in tensors_in(result):
            seen[path, index, "output", key] = figures_of(tensor.clone())
        return result

    for path, module in model.named_modules():
        if not list(module.children()) or isinstance(module, torch.nn.MultiheadAttention):
            module.forward = partial(wrapper, path, module.forward)
    model(pixels)
    return seen


def tensors_in(value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, torch.Tensor):
        yield "", value
    elif isinstance(value, dict):
        yield from ((key, part) for key, part in value.items() if torch.is_tensor(part))
    elif isinstance(value, (tuple, list)):
        yield from ((str(i), part) for i, part in enumerate(value) if torch.is_tensor(part))


def figures_of(tensor: Tensor) -> Figures:
    values = tensor.numpy().astype(np.float64)
    mean = values.mean()
    return Figures(
        mean=float(mean),
        std=math.sqrt(np.square(values - mean).mean()),
        min=float(values.min()),
        max=float(values.max()),
        zero_fraction=int((values == 0).sum()) / values.size,
        shape=tuple(values.shape),
    )
