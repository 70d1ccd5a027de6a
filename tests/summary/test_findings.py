"""Every rule of the findings: one case that breaks it, one that almost does."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

from hookcli.networks.inputs import PLAIN
from hookcli.passes.nan_origin import find_forward_origin
from hookcli.records.calls import Call, LayerInfo, Uncalled
from hookcli.records.images import SkippedImage
from hookcli.records.layer_records import ChannelRange, LayerRecord, TensorStats
from hookcli.records.layouts import Layout
from hookcli.records.rules import RULES
from hookcli.records.runs import ModelInfo
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import list_findings
from hookcli.summary.tally import add_records

FIGURES: Any = {"mean": 0.0, "std": 1.0, "min": -2.0, "max": 2.0, "zero_fraction": 0.0}
STATS = TensorStats((1, 4, 2, 2), "float32", **FIGURES)
LIVE = ChannelRange((-2.0, -1.0, -1.0, -1.0), (2.0, 1.0, 1.0, 1.0))
TRAINED = ModelInfo("toy", "classification", "TRAINED", trained=True, dtype="float32")


def record(path="conv", kind="Conv2d", order=1, image="cat", channels=LIVE, **figures):
    call = Call(LayerInfo(path, kind), order=order)
    layout = Layout("NCHW", 1, 2, 2)
    return LayerRecord(image, call, layout, replace(STATS, **figures), channels)


def told(records, thresholds=RULES):
    """What a run over these records would keep of them."""
    calls = {}
    add_records(calls, records, {**RULES, **thresholds})
    return calls


def rules_of(*records, thresholds=RULES, **evidence):
    return [
        finding.rule
        for finding in list_findings(Evidence(told(records, thresholds), **evidence), thresholds)
    ]


def sentence(*records, **evidence):
    (finding,) = list_findings(Evidence(told(records), **evidence))
    return finding.sentence


def ranged(*pairs):
    return ChannelRange(tuple(low for low, _ in pairs), tuple(high for _, high in pairs))


def test_nan_and_inf_are_counted_over_layers():
    records = (record("a", nan_count=3), record("b", order=2, nan_count=1, inf_count=2))
    found = list_findings(
        Evidence(
            told(records), producers={"NaN": "NaN is made by a (Conv2d): its inputs were finite"}
        )
    )
    assert [(f.rule, f.layer, f.number) for f in found] == [("nan", "a", 4.0), ("inf", "b", 2.0)]
    assert found[0].sentence == (
        "NaN is made by a (Conv2d): its inputs were finite; 4 NaN values in 2 layers, first in a"
    )


def test_the_first_layer_with_nan_is_a_part_and_not_the_block_that_starts_before_it():
    records = (
        record("block", nan_count=1),
        record("block.0", order=2),
        record("block.1", order=3, nan_count=1),
        record("blocks", order=4, nan_count=1),
    )
    (found,) = list_findings(Evidence(told(records)))
    assert found.layer == "block.1"
    assert found.sentence == "3 NaN values in 3 layers, first in block.1"


def test_a_nan_that_no_selected_layer_holds_is_found_by_its_producer():
    made = "NaN is made by late (Log): its inputs were finite"
    (finding,) = list_findings(Evidence(told([record()]), producers={"NaN": made}))
    assert (finding.rule, finding.sentence, finding.images) == ("nan", made, ())
    assert (finding.number, finding.threshold) == (None, 0)


@pytest.mark.parametrize(("dead", "found"), [(1, ["dead"]), (0, [])])
def test_dead_channels_count_from_a_fifth(dead, found):
    channels = ranged(*[(0.0, 0.0)] * dead, *[(-1.0, 1.0)] * (5 - dead))
    assert rules_of(record(channels=channels, shape=(1, 5, 2, 2))) == found


def test_a_dead_channel_is_dead_in_every_image_of_the_run():
    dead, alive = ranged((0.0, 0.0), (0.0, 1.0)), ranged((0.0, 0.5), (0.0, 1.0))
    assert rules_of(record(channels=dead), record(channels=alive, image="dog")) == []
    both = (record(channels=dead), record(channels=dead, image="dog"))
    assert sentence(*both) == "1 of 2 channels of conv are zero everywhere in every image"


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_one_value_a_channel_is_constant_by_chance_until_four_images_say_so(value):
    """Such as logits."""
    channels, rule = ranged((value, value), (0.0, 1.0)), "constant" if value else "dead"
    assert rules_of(record(channels=channels)) == [rule]
    assert rules_of(record(channels=channels, shape=(1, 2))) == []
    many = [record(channels=channels, shape=(1, 2), image=str(n)) for n in range(4)]
    assert rules_of(*many) == [rule]


@pytest.mark.parametrize(
    ("kind", "pair", "found"),
    [
        ("ReLU6", (6.0, 6.0), ["constant", "saturated"]),
        ("ReLU6", (5.9, 6.0), []),
        ("Sigmoid", (0.995, 1.0), ["saturated"]),
        ("Hardswish", (3.0, 5.0), ["saturated"]),
        ("Hardswish", (2.9, 5.0), []),
        ("Sigmoid", (0.0, 0.005), ["saturated"]),
        ("Sigmoid", (0.005, 0.5), []),
        ("ReLU", (6.0, 7.0), []),
    ],
)
def test_an_activation_that_stays_at_its_end_is_saturated(kind, pair, found):
    assert rules_of(record(kind=kind, channels=ranged(pair))) == found


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(1.0, 20.0, ["exploding"]), (1.0, 19.0, []), (20.0, 1.0, ["vanishing"]), (19.0, 1.0, [])],
)
def test_spreads_are_compared_with_the_layer_of_the_same_type_before(first, second, found):
    before, after = record("a", std=first), record("b", order=3, std=second)
    larger = 0.9 if first < second else 1.1  # 21 and more from the norm on, and no finding at 19
    between = record("norm", "BatchNorm2d", order=2, std=first * larger)
    assert rules_of(after, between, before) == found


@pytest.mark.parametrize(
    ("rule", "how", "spread"),
    [("exploding", "as large as", 50.0), ("vanishing", "smaller than", 0.02)],
)
def test_calls_of_one_layer_are_one_finding_with_their_counterpart(rule, how, spread):
    """The second call is the farthest off, and only in the second image."""
    spreads = {"stem": 1.0, "layer1.0.conv": 1.0, "layer1.1.conv": spread}
    records = []
    for image, index, factor in (("cat", 0, 1.0), ("dog", 0, 1.0), ("dog", 1, 2.0)):
        for order, (path, std) in enumerate(spreads.items(), 1):
            exponent = factor if path == "layer1.1.conv" else 1
            one = record(path, order=order + 3 * index, image=image, std=std**exponent)
            records.append(replace(one, call=replace(one.call, call_index=index)))
    (finding,) = list_findings(Evidence(told(records)))
    assert (finding.rule, finding.layer, finding.images) == (rule, "layer1.1.conv#1", ("dog",))
    assert finding.sentence == (
        f"the std of layer1.1.conv#1 is 2.5e+03 times {how} expected from layer1.0.conv#1, "
        "the Conv2d in the same place of the block before (and 1 more call like it)"
    )


def test_float16_is_near_its_limit_from_half_of_it():
    near = record(dtype="float16", max=32752.0)
    assert sentence(near) == "conv reaches 32752, 50% of what float16 can hold"
    assert rules_of(record(dtype="float16", max=32000.0)) == []
    assert rules_of(record(dtype="float32", max=1e6)) == []


def test_what_did_not_run_was_skipped_or_is_not_trained_is_said():
    found = list_findings(
        Evidence(
            {},
            uncalled=[Uncalled(LayerInfo(path, "Linear"), "unused") for path in ("a", "b")],
            skipped=[SkippedImage("x.png", "is empty")],
            model=replace(TRAINED, trained=False, weights="random (seed 0)"),
        )
    )
    assert [(f.rule, f.sentence) for f in found] == [
        ("uncalled", "a did not run: unused (and 1 more like it)"),
        ("skipped", "1 image skipped, see skipped.csv: 'x.png' is empty"),
        (
            "untrained",
            "the weights are not trained (random (seed 0)): figures say nothing about the model",
        ),
    ]


@pytest.mark.parametrize(("takes_any_size", "rules"), [(False, ["small"]), (True, [])])
def test_exact_pixels_smaller_than_what_the_network_was_made_for_are_said_to_be(
    takes_any_size, rules
):
    sizes = {"cat": ((32, 48), (32, 48)), "dog": ((224, 224), (224, 224))}
    model = replace(TRAINED, input_shape=(1, 3, 224, 224))
    evidence = Evidence({}, model=model, sizes=sizes, takes_any_size=takes_any_size)
    found = list_findings(evidence)
    assert [each.rule for each in found] == rules
    text = "'cat' is 48 by 32 pixels, and the network was made for at least 224"
    assert all((each.images, each.sentence) == (("cat",), text) for each in found)


@pytest.mark.parametrize(("count", "more"), [(1, ""), (4, " (and 3 more images)")])
def test_the_smallest_image_is_named_by_its_file_and_the_others_are_counted(count, more):
    sizes = {f"i{n}": ((100 + n, 300), (224, 224)) for n in range(count)}
    assert sentence(sizes=sizes, files={"i0": "my photos/i.png"}) == (
        "'my photos/i.png' is 300 by 100 pixels and was resized to the 224 by 224 that the "
        f"network sees{more}"
    )


def test_what_is_written_over_in_place_is_said_with_the_module_that_does_it():
    records = (record("a"), record("b", order=2), record("c", order=3))
    written = {"a": "by relu (ReLU)", "c": "inside block (Block)", "elsewhere": "by relu (ReLU)"}
    found = list_findings(Evidence(told(records), written=written))
    assert [(f.rule, f.layer, f.number) for f in found] == [("overwritten", "a", 2.0)]
    assert found[0].sentence == (
        "the output of a is overwritten in place by relu (ReLU), as with 1 more layer; "
        "the figures are those of the original output"
    )
    assert rules_of(*records, written={"elsewhere": "by relu (ReLU)"}) == []


@pytest.mark.parametrize(
    ("rule", "figures"),
    [("nan", {"nan_count": 1}), ("float16", {"dtype": "float16", "max": 6e4})],
)
def test_a_finding_names_the_images_that_show_it(rule, figures):
    records = [record(image="cat"), record(image="dog", **figures), record(image="elk", **figures)]
    (finding,) = list_findings(Evidence(told(records)))
    assert (finding.rule, finding.images) == (rule, ("dog", "elk"))


# Who made it


class Log(nn.Module):
    def forward(self, x):
        return x.log()


class Divides(nn.Module):
    """A division between two modules makes Inf (x - x is 0)."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)

    def forward(self, x):
        x = self.first(x)
        return self.second(1 / (x - x))


def made_by(model, pixels=None):
    pixels = torch.ones(1, 1, 2, 2) if pixels is None else pixels
    return find_forward_origin(model.eval(), PLAIN, pixels)


class Attends(nn.Module):
    """Uses weights of the attention without calling the part that has them."""

    def __init__(self):
        super().__init__()
        self.att = nn.MultiheadAttention(2, 1, batch_first=True)
        self.att.out_proj.weight.data.fill_(math.nan)

    def forward(self, x):
        return self.att(x[0], x[0], x[0])[0]


class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.scale = nn.Conv2d(1, 1, 1), nn.Parameter(torch.tensor(math.nan))

    def forward(self, x):
        return self.conv(x) * self.scale


def with_nan(layer):
    layer.weight.data.fill_(math.nan)
    return layer


LOG = nn.Sequential(nn.Sequential(nn.Identity(), Log()), nn.ReLU())


@pytest.mark.parametrize(
    ("model", "pixel", "expected"),
    [
        (LOG, -1.0, {"NaN": "NaN is made by 0.1 (Log): its inputs were finite"}),
        (
            nn.Sequential(with_nan(nn.Conv2d(1, 1, 1))),
            1.0,
            {"NaN": "0 (Conv2d) has NaN in its own weight"},
        ),
        (nn.Sequential(Scales()), 1.0, {"NaN": "0 (Scales) has NaN in its own scale"}),
        (
            Attends(),
            1.0,
            {"NaN": "att (MultiheadAttention) has NaN in its own out_proj.weight"},
        ),
        (nn.Sequential(nn.ReLU()), math.inf, {"Inf": "the input holds Inf"}),
    ],
    ids=["a leaf", "a weight", "a parameter of a block", "a part that is not called", "the input"],
)
def test_the_producer_is_named(model, pixel, expected):
    assert made_by(model, torch.full((1, 1, 2, 2), pixel)) == expected


def test_an_operation_between_modules_and_what_became_of_it_are_named():
    inside = (
        "Inf is made inside (model) (Divides), after first and before second, between modules, "
        "by op:div"
    )
    model = Divides()
    assert made_by(model)["Inf"] == inside
    model.second = nn.Softmax(1)  # of a single Inf: NaN
    assert made_by(model)["NaN"] == f"NaN is made by second (Softmax): Inf went in; {inside}"


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, FrozenBatchNorm2d])
def test_an_infinite_weight_of_a_normalization_that_makes_nan_is_named(kind):
    model = nn.Sequential(kind(1)).eval()
    model[0].weight.data.fill_(math.inf)  # its bias is 0 - 0 * Inf
    assert made_by(model)["NaN"] == (
        f"0 ({kind.__name__}) has Inf in its own weight; "
        f"NaN is made by 0 ({kind.__name__}): its inputs were finite"
    )


# Through the command


MASKED = """
import math
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.soft = nn.Conv2d(3, 2, 3), nn.Softmax(-1)

    def forward(self, x):
        seen = self.conv(x).mean((2, 3))
        return self.soft(seen + torch.tensor([0.0, -math.inf])){end}


def make():
    return Net()
"""


@pytest.mark.parametrize(
    ("end", "code", "rules"), [("", 0, []), (".log()", 7, ["inf"])], ids=["mask", "Inf comes out"]
)
def test_a_mask_of_minus_infinity_that_only_goes_into_modules_is_no_finding(
    run, cat, end, code, rules
):
    Path("masked.py").write_text(MASKED.replace("{end}", end))
    words = ("--grids", "none", "--layers", "conv", "-o", "run", "--format", "json")
    ended = run("inspect", "masked.py:make", cat, *words, "--fail-on", "inf")
    assert ended.code == code
    assert [f["rule"] for f in json.loads(ended.out)["findings"]] == rules
