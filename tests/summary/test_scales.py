"""Which calls explode or vanish: in rows of spreads written by hand, and in small networks."""

from __future__ import annotations

import itertools
import operator

import pytest
import torch
from torch import nn

from hookcli import capture, gradients
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layer_records import LayerRecord, TensorStats
from hookcli.records.layouts import Layout
from hookcli.records.rules import RULES
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import list_findings
from hookcli.summary.scales import Role, find_scale_hits, order_by_end, role_of
from hookcli.summary.tally import add_records
from tests.small_models import build_small


def record(path, std, order, kind=""):
    """One output of a layer whose type is the last name of its path, unless it is given."""
    call = Call(LayerInfo(path, kind or path.rpartition(".")[2]), order=order)
    stats = TensorStats((1, 4, 2, 2), "float32", 0.0, std, -1.0, 1.0, 0.0)
    return LayerRecord("cat", call, Layout("NCHW", 1, 2, 2), stats)


def found(spreads, kind=""):
    """The rule, the layer, how many times, and against which layer, of calls in their order."""
    row = [record(path, std, order, kind) for order, (path, std) in enumerate(spreads.items(), 1)]
    return [
        (hit.rule, hit.record.call.id, round(hit.number, 6), hit.against.call.id)
        for hit in find_scale_hits(row, 20, 20)
    ]


def blocks(*spreads, names=("norm", "conv", "act")):
    """A layer before, then blocks whose layers have these spreads."""
    return {"stem": 1.0} | {
        f"blocks.{number}.{name}": std
        for number, block in enumerate(spreads)
        for name, std in zip(names, block, strict=True)
    }


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("layer2.3.conv1", Role("layer*.*.conv1", ("2.3",))),
        ("stages.2.blocks.11.attn.qkv", Role("stages.*.blocks.*.attn.qkv", ("2", "11"))),
        ("features.4.1.block.3.0", Role("features.*.*.block.3.0", ("4.1",))),
        ("trunk.block2.block2-0.f.a.0", Role("trunk.block*.block*-*.f.a.0", ("2", "2-0"))),
        ("inception3a.branch2.1.conv", Role("inception*.branch*.*.conv", ("3a", "2.1"))),
        ("features.28", Role("features.*", ("28",))),
        ("layer1.0/op:add", Role("layer*.*/op:add", ("1.0",))),
        ("op:add#12", Role("op:add#12", ())),
        ("features.3/op:conv2d", Role("features.*/op:conv2d", ("3",))),
        ("classifier", Role("classifier", ())),
    ],
)
def test_a_role_is_the_path_without_the_numbers_of_its_blocks(path, role):
    assert role_of(path) == role


def test_another_kind_of_layer_in_each_block_is_no_finding():
    assert found(blocks((1, 0.001, 50), (1, 0.001, 50), (1, 0.001, 50))) == []


@pytest.mark.parametrize("last", [100, 1], ids=["all after it are larger", "a norm comes after it"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_layer_that_is_scaled_is_found_and_nothing_that_follows_from_it(number, last):
    after = (1 if last == 1 else 100, last, last)
    spreads = [(1, 1, 1)] * number + [(1, 100, last)] + [after] * (3 - number)
    faulty, before = f"blocks.{number}.conv", f"blocks.{number - 1}.conv"
    assert found(blocks(*spreads)) == [("exploding", faulty, 100, before)]


@pytest.mark.parametrize("last", [100, 1], ids=["all after it are larger", "a norm comes after it"])
def test_a_layer_of_the_first_block_is_compared_with_the_block_after(last):
    spreads = blocks((1, 100, last), (last, last, last), (last, last, last))
    assert found(spreads) == [("exploding", "blocks.0.conv", 100, "blocks.1.conv")]


def test_the_second_block_is_not_compared_with_a_first_block_of_other_layers():
    """MobileNetV2's first block has no expansion: its first convolution is a depthwise one."""
    first = {"blocks.0.0": 1.0, "blocks.0.conv": 0.3, "blocks.0.norm": 1.0}
    others = {f"blocks.{n}.{k}": std for n in (1, 2) for k, std in (("conv", 7.0), ("norm", 1.0))}
    assert found(first | others) == []


def test_a_branch_that_runs_after_the_faulty_one_is_not_small():
    """ResNet's downsample is given what the block is given, and runs when conv2 has run."""
    names = ("conv1", "conv2", "downsample")
    spreads = blocks((1, 100, 1), (100, 100, 100), (100, 100, 100), names=names)
    assert found(spreads, kind="Conv2d") == [
        ("exploding", "blocks.0.conv2", 100, "blocks.1.conv2"),
    ]


def test_a_fall_that_all_layers_of_a_block_share_is_none_of_theirs():
    assert found(blocks((1, 0.3, 0.1), (0.03, 0.01, 0.003), (0.001, 0.0003, 0.0001))) == []


def test_a_fault_where_all_fall_is_measured_by_what_the_layer_makes_of_its_input():
    spreads = blocks((1, 1, 1), (0.1, 0.1, 0.1), (0.01, 1, 1), (0.1, 0.1, 0.1))
    assert found(spreads) == [("exploding", "blocks.2.conv", 100, "blocks.1.conv")]


def test_no_call_is_compared_with_the_very_first_call():
    """Of gradients the last block comes first, and nothing tells what it was given."""
    spreads = {"blocks.0.conv": 0.001, "blocks.0.act": 0.001, "blocks.1.conv": 1.0}
    assert found(spreads | {"blocks.2.down": 1.0, "blocks.2.conv": 1.0}) == []


def test_a_fall_that_one_layer_of_each_block_takes_is_one_finding():
    """The first two blocks could also be told apart by the first being the one that is unlike."""
    spreads = [(100.0**-n, 100.0 ** -(n + 1), 100.0 ** -(n + 1)) for n in range(4)]
    assert found(blocks(*spreads)) == [("vanishing", "blocks.2.conv", 100, "blocks.1.conv")]


def over_depth(*steps, limits=RULES, **evidence):
    """The findings about layers that are alike and whose spreads change by these factors."""
    spreads = itertools.accumulate(steps, operator.mul)
    row = [record(f"blocks.{n}.conv", std, n, "Conv2d") for n, std in enumerate(spreads)]
    calls = {}
    add_records(calls, row, limits)
    found = list_findings(Evidence(calls, **evidence))
    return [(each.rule, each.layer, each.threshold, each.sentence) for each in found]


def test_small_changes_that_add_up_are_one_finding_that_names_the_stretch():
    (up,), (down,) = (over_depth(1, 1 / step, *[step] * 7, 1 / step) for step in (4.0, 0.25))
    how = "from 0.25 at blocks.1.conv to 4.1e+03 at blocks.8.conv, gradually over 8 Conv2d layers"
    assert up == ("exploding", "blocks.8.conv", 10000, f"the std grows {how}")
    how = "from 4 at blocks.1.conv to 0.000244 at blocks.8.conv, gradually over 8 Conv2d layers"
    assert down == ("vanishing", "blocks.8.conv", 10000, f"the std falls {how}")


def test_a_change_over_depth_that_is_small_or_sudden_or_explained_is_no_finding():
    assert over_depth(*[4] * 7) == []  # 4096 in all
    assert over_depth(4, 4, 4, 1000, 4, 4, limits={}) == []
    assert over_depth(*[4] * 8, idle_norms={"blocks.3.conv": True}) == []
    assert [each[1:3] for each in over_depth(*[4] * 8, 1000, 4)] == [("blocks.8.conv", 20)]


def test_a_layer_without_a_counterpart_is_not_judged():
    assert found({"stem": 1.0, "body": 1000.0, "head.fc": 1e-6}) == []
    assert found({"features.0.0": 1.0, "body": 1.0, "features.9.0": 1e-6}, kind="Conv2d") == []


def test_layers_in_a_row_are_compared_with_that_of_their_type_before():
    spreads = {"features.0": 1.0, "features.3": 1.0, "features.6": 100.0, "features.9": 100.0}
    assert found(spreads, kind="Conv2d") == [("exploding", "features.6", 100, "features.3")]


def test_the_counterpart_of_a_nested_block_is_in_another_outermost_block():
    """``branch2`` is 30 times ``branch1`` in both blocks."""
    names = ("branch1.conv", "branch2.conv")
    assert found(blocks((1, 30), (1, 30), names=names)) == []


def test_operations_are_compared_with_those_of_the_same_number():
    names = ("0/op:add", "0/op:add#1", "1/op:add", "1/op:add#1", "2/op:add", "2/op:add#1")
    small, large = {}, {}
    for name in names:
        small[f"layer1.{name}"] = large[f"layer1.{name}"] = 30.0 if name.endswith("#1") else 1.0
    large["layer1.1/op:add"] = 3000.0
    assert found(small, kind="add") == []
    assert found(large, kind="add") == [
        ("exploding", "layer1.1/op:add", 3000, "layer1.0/op:add"),
    ]


def test_operations_of_different_modules_are_not_compared():
    """The detection models of torchvision normalize the image inside ``transform``."""
    assert found({"body.stem": 1.0, "transform/op:sub": 1.0, "op:sub": 1000.0}, kind="sub") == []
    within = {"stem": 1.0, "head.a": 1.0, "head/op:sub": 100.0}
    assert found(within, kind="sub") == [("exploding", "head/op:sub", 100, "head.a")]


def test_a_block_ends_after_its_parts():
    paths = ["", "layer1", "layer1.0", "layer1.0.conv", "layer1.0/op:add", "layer10.0", "fc"]
    row = [record(path, 1.0, order, "Conv2d") for order, path in enumerate(paths)]
    row.insert(1, record("", 2.0, 0, "Conv2d"))  # the model gives two tensors
    assert [one.call.layer.module_path for one in order_by_end(row)] == [
        *("layer1.0.conv", "layer1.0/op:add", "layer1.0", "layer1", "layer10.0", "fc", "", "")
    ]


# Small networks, freshly initialized and with a fault


def scale_findings(model, *, gradients=False):
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with capture(model, layers="all", gradients=gradients) as captured:
        logits = model(pixels)
        if gradients:
            logits[0, 0].backward()
    calls = {}
    add_records(calls, captured.records, RULES)
    found = list_findings(Evidence(calls))
    return [each for each in found if each.rule in ("exploding", "vanishing")]


@pytest.mark.parametrize("name", ["vgg", "densenet", "vit", "swin_v2", "convnext"])
def test_a_fresh_network_has_no_finding_about_spreads(name):
    assert scale_findings(build_small(name), gradients=True) == []


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("vgg", "classifier.3"),
        ("densenet", "features.denseblock2.denselayer2.conv1"),
        ("swin_v2", "features.3.1.mlp.3"),
        ("convnext", "features.1.0.block.3"),
    ],
)
def test_a_fault_in_a_network_is_one_finding_at_its_layer(name, layer):
    model = build_small(name)
    handle = model.get_submodule(layer).register_forward_hook(lambda _m, _i, out: out * 100)
    (finding,) = scale_findings(model)
    assert (finding.rule, finding.layer) == ("exploding", layer)
    handle.remove()

    def divide(_module, _inputs, out):
        divided = out * 1
        divided.register_hook(lambda gradient: gradient / 1000)
        return divided

    model.get_submodule(layer).register_forward_hook(divide)
    (finding,) = scale_findings(model, gradients=True)
    assert (finding.rule, finding.layer) == ("vanishing", f"grad_output:{layer}")


@pytest.mark.parametrize(("block", "layers"), [(0, ["grad_output:0.2"]), (4, [])])
def test_the_gradient_of_nine_sigmoid_blocks_vanishes_unless_idle_norms_explain_it(block, layers):
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Sigmoid()) for _ in range(9)]
    blocks[block].insert(0, nn.BatchNorm2d(3))
    head = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    head[1].weight.data *= 0.002  # a finding of its own
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).eval()
    run = gradients(model, torch.rand(1, 3, 9, 9), layers=("act", "linear"), grids="none")
    assert [f.layer for f in run.findings if f.rule == "vanishing"] == [*layers, "grad_output:11.0"]
