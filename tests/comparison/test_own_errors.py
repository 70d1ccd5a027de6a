"""``hookcli compare --blame``: own errors by hand, in toy models with one planted fault each."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hookcli
from hookcli.comparison import own_errors
from hookcli.comparison.own_errors import Blamer, _Measured, _Mover
from hookcli.comparison.quantizing import quantizing_error
from hookcli.comparison.seen_calls import SeenCalls
from hookcli.distance.culprits import OwnError
from hookcli.distance.culprits import find_culprits as decide
from hookcli.records.calls import ROOT_LABEL, Call, LayerInfo
from hookcli.records.layouts import Channels

POINT = """
import torch
from torch import nn


def point(weight):
    conv = nn.Conv2d(3, 3, 1, bias=False)
    with torch.no_grad():
        conv.weight.copy_(weight * torch.eye(3).view(3, 3, 1, 1))
    return conv


"""

# The pixels 1, -1 and 2 become 2, -2 and 4 in ``a``, 6, -6 and 12 in ``b``; relu, c and the sum
# of both follow with half and with three halves of it; ``d`` gives four times the sum.
NETS = (
    POINT
    + """
class Net(nn.Module):
    def __init__(self, a=2.0, b=3.0, c=0.5, d=4.0):
        super().__init__()
        self.a, self.b, self.c, self.d = map(point, map(float, (a, b, c, d)))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.b(self.a(x)))
        out = self.c(x)
        out += x
        return self.d(out)


class Less(Net):
    def forward(self, x):
        x = self.relu(self.b(self.a(x)))
        return self.d(self.c(x) - x)


class Linear(Net):
    def forward(self, x):
        x = self.b(self.a(x))
        return self.d(self.c(x) + x)


class Pools(Net):
    def forward(self, x):
        return self.d(nn.functional.adaptive_avg_pool2d(self.a(x), 1))


class Means(Net):
    def forward(self, x):
        return self.d(self.a(x).mean((2, 3), keepdim=True))


class Swapped(nn.Module):
    def forward(self, x):
        return x.permute(0, 1, 3, 2)


def turns():
    return nn.Sequential(Net(), nn.Identity())


def turned():
    return nn.Sequential(Net(), Swapped())


class Broken(Net):
    def forward(self, x):
        x = self.relu(self.b(self.a(x)))
        return self.d(x / 0)


def rounded():
    '''Weights that bfloat16 rounds.'''
    return Net(0.1, 0.3, 0.7, 1.1)


class Drops(Net):
    '''A dropout before the last layer, whose weights may be wrong.'''

    def __init__(self, kind=None, d=4.0):
        super().__init__(d=d)
        self.extra = kind

    def forward(self, x):
        x = self.relu(self.b(self.a(x)))
        return self.d(x if self.extra is None else self.extra(x))


def dropped():
    return Drops(nn.Dropout(0.5), d=5)


def training():
    model = Drops(nn.Dropout(0.5)).eval()
    model.extra.train()
    return model


def uneven():
    '''The second channel of ``b`` is a hundredth of the first.'''
    model = Net()
    model.b.weight.data[1] *= 0.01
    return model


class Energy(nn.Module):
    '''The sum of the squares of the picture, times 4096, is too large for float16.'''

    def forward(self, x):
        return (x * 64).square().sum((2, 3)).sqrt()


"""
)


@pytest.fixture(autouse=True)
def nets():
    Path("nets.py").write_text(NETS)
    pixels = np.array([[[1, -1, 2]], [[2, 3, -1]], [[-2, 1, 1]]], "f4")
    np.save("a.npy", pixels)
    np.save("b.npy", 2 * pixels)
    np.save("large.npy", np.full((3, 2, 16), 1, "f4"))


@pytest.fixture
def blame(run):
    """Run ``compare --blame``, and return its document."""

    def command(model, *words, images=("a.npy",), code=7):
        words = (model, *images, *words, "--layers", "leaf", "--device", "cpu", "--format", "json")
        ended = run("compare", *words, "--blame")
        assert ended.code == code, ended.err
        return json.loads(ended.out)

    return command


def own_of(document):
    return {row["call_id"]: round(row["own_rel_l2"], 6) for row in document["layers"]}


def test_one_wrong_layer_is_the_only_one_with_an_own_error(blame):
    """b gives 1.5 times as much for both images, and so do all layers after it."""
    words = ("--against", "edit=b:scale=1.5")
    document = blame("nets.py:Net", *words, images=("a.npy", "b.npy"))
    assert (document["culprits"], document["keep"]) == (["b"], None)
    assert {row["own_rel_l2"] for row in document["calls"] if row["call_id"] == "b"} == {0.5}
    assert own_of(document) == {"a": 0, "b": 0.5, "relu": 0, "c": 0, "d": 0}
    inherited = {row["call_id"]: round(row["rel_l2"], 6) for row in document["layers"]}
    assert inherited == {"a": 0, "b": 0.5, "relu": 0.5, "c": 0.5, "d": 0.5}
    assert document["blame"].startswith("1 culprit: b (Conv2d), own error 0.5, ")


@pytest.mark.parametrize(
    ("net", "words", "culprits", "said"),
    [
        ("Net", "edit=c:scale=1.01", ["c"], "c (Conv2d), own error 0.01"),
        (
            "Net",
            "model=nets.py:Less",
            ["op:sub"],
            "op:sub (sub) is only in B, which has no op:add; d after it",
        ),
        # the sum also gets what the ReLU should have changed
        ("Net", "model=nets.py:Linear", ["relu", "op:add"], "relu (ReLU) is only in A; c after it"),
        ("Pools", "model=nets.py:Means edit=d:scale=1.25", ["d"], "d (Conv2d), own error 0.25"),
        ("Net", "model=nets.py:Broken", ["op:div"], ""),
        ("Energy", "dtype=float16 image=large.npy", ["op:sum"], ""),
        ("Net", "threads=1", [], "no culprit: no call differs by itself"),
        ("rounded", "dtype=bfloat16", [], ", within the rounding of bfloat16"),
    ],
)
def test_a_call_is_to_blame_for_what_it_does_itself(blame, net, words, culprits, said):
    words, _, image = words.partition(" image=")
    against = [each for word in words.split() for each in ("--against", word)]
    code = 7 if culprits else 0
    document = blame(f"nets.py:{net}", *against, images=(image or "a.npy",), code=code)
    assert document["culprits"] == culprits
    assert said in document["blame"]


def test_the_same_error_in_all_layers_of_a_type_is_spread(blame):
    document = blame("nets.py:Net", "--against", "edit=re:[abcd]:scale=1.5")
    assert document["culprits"] == []
    assert document["blame"].startswith("no culprit: the error is spread evenly over 4 Conv2d; ")
    assert own_of(document) == {"a": 0.5, "b": 0.5, "relu": 0, "c": 0.5, "d": 0.5}


def test_an_output_of_another_shape_is_a_culprit(blame):
    document = blame("nets.py:turns", "--against", "model=nets.py:turned")
    assert document["culprits"] == ["1"]
    assert "1 (Identity), which differs in shape" in document["blame"]
    (row,) = (row for row in document["layers"] if row["call_id"] == "1")
    assert row["reason"] == "shapes differ: 1x3x1x3 and 1x3x3x1: axes 2 and 3 are swapped"


def test_a_culprit_is_listed_even_if_only_other_layers_were_chosen(run):
    words = ("nets.py:Net", "a.npy", "--against", "edit=b:scale=1.5", "--device", "cpu")
    document = json.loads(run("compare", *words, "--layers", "d", "--blame", *JSON).out)
    assert document["culprits"] == ["b"]
    assert list(own_of(document)) == ["b", "d"]


def test_the_requested_tolerance_decides_about_own_errors(blame):
    words = ("--against", "edit=b:scale=1.5", "--rtol", "0.6")
    assert blame("nets.py:Net", *words, code=0)["culprits"] == []


@pytest.mark.parametrize(("one", "two"), [("Drops", "dropped"), ("dropped", "Drops")])
def test_a_layer_that_changes_nothing_is_no_culprit(blame, one, two):
    """Only one of the two models has the layer before ``d``, whose weights are wrong."""
    document = blame(f"nets.py:{one}", "--against", f"model=nets.py:{two}")
    assert document["culprits"] == ["d"]


def test_a_dropout_that_drops_is_a_culprit(blame):
    words = ("--against", "model=nets.py:training", "--mode", "as-made")
    assert blame("nets.py:Drops", *words)["culprits"] == ["extra"]


def test_a_ruined_channel_is_told_though_the_whole_is_hardly_off(blame):
    """B has zeros where A has 0.01 times 2, 3, -1; the other channels are a hundred times that."""
    document = blame("nets.py:uneven", "--against", "edit=b{1}:zero")
    assert document["culprits"] == ["b"]
    (row,) = (row for row in document["layers"] if row["call_id"] == "b")
    assert row["own_rel_l2"] < 0.013
    assert (row["own_channel_median"], row["own_channel_worst"]) == (0, pytest.approx(0.153, 0.01))
    assert (row["channel_median"], row["channel_worst"]) == (0, row["own_channel_worst"])
    assert document["blame"].endswith("; its median channel is 0 off, and its worst 15 %")


def test_the_error_of_8_bits_is_that_of_rounded_numbers():
    values = np.random.default_rng(0).normal(size=10_000).astype("f4")
    step = np.abs(values).max() / 127
    error = np.linalg.norm(np.round(values / step) * step - values) / np.linalg.norm(values)
    assert quantizing_error(values) == pytest.approx(error, rel=0.03)
    assert quantizing_error(np.array([np.nan, 1])) < 0.01  # which no limit may become


class Stubbed(nn.Module):
    """A network between the stubs that torch.ao puts around what it quantizes."""

    def __init__(self):
        super().__init__()
        self.quant = torch.ao.quantization.QuantStub()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.last = nn.Conv2d(8, 8, 3)
        self.dequant = torch.ao.quantization.DeQuantStub()

    def forward(self, x):
        return self.dequant(self.last(self.relu(self.norm(self.conv(self.quant(x))))))


@pytest.mark.filterwarnings("ignore")  # torch deprecates its quantization
@pytest.mark.parametrize(("fuses", "wrong"), [(True, ""), (True, "conv"), (False, "last")])
def test_one_layer_of_a_statically_quantized_model_is_to_blame(fuses, wrong):
    """Its calls return quantized tensors, and a fused one ends at the ReLU."""
    torch.manual_seed(0)
    net, x = Stubbed().eval(), torch.rand(1, 3, 16, 16)
    other = copy.deepcopy(net)
    if wrong:
        getattr(other, wrong).weight.data *= -1
    if fuses:
        torch.ao.quantization.fuse_modules(other, ["conv", "norm", "relu"], inplace=True)
    other.qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    torch.ao.quantization.prepare(other, inplace=True)(x)
    torch.ao.quantization.convert(other, inplace=True)
    document = hookcli.compare(net, x, layers="leaf", against=other, blame=True).document()
    named = "relu" if fuses and wrong == "conv" else wrong
    assert document.culprits[:1] == ((named,) if wrong else ())
    quantized = {each.call_id: each.own_rel_l2 for each in document.layers}
    assert quantized["last"] > (1 if wrong == "last" else 1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrong", ["", "last"])
def test_quantizing_inside_a_traced_model_is_no_culprit(wrong):
    """FX leaves out what it fused, and puts functions that quantize between float layers."""
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    torch.manual_seed(0)
    net, x = Stubbed().eval(), torch.rand(1, 3, 16, 16)
    other = copy.deepcopy(net)
    if wrong:
        other.last.bias.data += 3
    mapping = get_default_qconfig_mapping("fbgemm").set_module_name("conv", None)
    ready = quantize_fx.prepare_fx(other, mapping, (x,))
    ready(x)
    quantized = quantize_fx.convert_fx(ready)
    document = hookcli.compare(net, x, layers="leaf", against=quantized, blame=True).document()
    assert document.culprits[:1] == ((wrong,) if wrong else ())


@pytest.mark.filterwarnings("ignore")  # torch deprecates its quantization
@pytest.mark.parametrize(("factor", "culprits"), [(1, ()), (1.5, ("1",))])
def test_quantizing_explains_what_rounding_input_and_weight_to_8_bits_does(
    monkeypatch, factor, culprits
):
    torch.manual_seed(0)
    layer, pixels = nn.Linear(48, 32), torch.rand(1, 3, 4, 4)
    net = nn.Sequential(nn.Flatten(), layer).eval()
    found = []
    monkeypatch.setattr(
        own_errors,
        "find_culprits",
        lambda errors, *words, **more: found.extend(errors) or decide(errors, *words, **more),
    )
    other = copy.deepcopy(net)
    other[1].weight.data *= factor
    quantized = torch.ao.quantization.quantize_dynamic(other, {nn.Linear})
    outcome = hookcli.compare(net, pixels, size=4, layers="leaf", against=quantized, blame=True)
    assert outcome.document().culprits == culprits

    def rounded(values):
        step = values.abs().max() / 127
        return (values / step).round() * step

    plain = net(pixels)
    linear = nn.functional.linear(rounded(pixels.flatten(1)), rounded(layer.weight), layer.bias)
    error = float((linear - plain).norm() / plain.norm())
    (noise,) = (each.noise for each in found if each.call_id == "1")
    assert noise == pytest.approx(error, rel=0.2)


def test_the_rounding_of_a_mean_grows_with_the_root_of_the_number_of_summands():
    seen = SeenCalls(keeps_values=True)
    calls = [Call(LayerInfo(name, kind), 0, 0) for name, kind in (("a", "ReLU"), ("b", "mean"))]
    for call, width in zip(calls, (128, 1), strict=True):
        seen.keep(call, torch.ones(1, 2, width, width))
    measured = _Measured(seen, {"a": "a", "b": "b"})
    for call, width in zip(calls, (128, 1), strict=True):
        measured(call, torch.full((1, 2, width, width), 1 + 7e-7))
    errors = [*measured.list_errors({}, {}, "float32")]
    assert [each.rounding for each in errors] == pytest.approx([2**-24, 128 * 2**-24 / 8])


@pytest.mark.parametrize(("kind", "lone"), [("Split", []), ("Cos", ["node"])])
def test_a_node_that_returns_a_part_of_a_value_is_not_to_blame(kind, lone):
    """Other nodes that only B has are named for an error of the call after them."""
    seen = SeenCalls(keeps_values=True)
    seen.keep(Call(LayerInfo("a", "cat"), 0, 0), torch.ones(1, 4))
    measured = _Measured(seen, {"a": "a"}, reshapes=True, tools=("node",))
    measured(Call(LayerInfo("node", kind), 0, 0), torch.ones(1, 2))
    assert [*measured.errors] == lone


@pytest.mark.parametrize(
    ("factor", "params", "named"), [(1, 0, ["a"]), (1.5, 0, ["a", "b"]), (1, 4, ["a", "b"])]
)
def test_a_call_that_passes_on_an_error_does_not_have_it(factor, params, named):
    """A file computes a layer and the dropout after it in one node; two layers may be equal."""
    seen = SeenCalls(keeps_values=True)
    calls = [Call(LayerInfo(name, "Own", params=params), 0, 0) for name in ("a", "b")]
    measured = _Measured(seen, {"a": "a", "b": "b"}, reshapes=True)
    for call in calls:
        seen.keep(call, torch.ones(1, 2, 4))
    for call, times in zip(calls, (1, factor), strict=True):
        measured(call, torch.full((1, 2, 4), 1 + 3e-6 * times))
    assert [each for each, error in measured.errors.items() if error.own] == named


def test_zeros_stay_zeros_when_values_move_to_their_neighbours():
    """Otherwise, after a ReLU, rounding would seem to explain any error of small values."""
    moved = _Mover(2**-10)(np.array([0, 1, -1e-6], "f4"))
    assert moved[0] == 0
    assert float(_Mover(2**-10)(np.array(4, "f4"))) == pytest.approx(4, rel=2**-9)
    assert abs(moved[1:] - [1, -1e-6]).tolist() == pytest.approx([2**-10, 2**-10 * 1e-6], rel=0.5)


JSON = ("--format", "json")


def test_the_culprit_is_shown_even_if_others_are_worse(run):
    words = ("nets.py:Net", "a.npy", "--against", "edit=b:scale=1.5", "--device", "cpu")
    words = (*words, "--against", "edit=d:scale=3", "--layers", "leaf", "--blame", "--top", "1")
    lines = run("compare", *words).out.splitlines()
    rows = [line.split() for line in lines[lines.index(next(x for x in lines if "───" in x)) + 1 :]]
    assert [row[1] for row in rows[:2]] == ["b", "d"]
    assert [row[-1] for row in rows[:2]] == ["first", "worst"]
    assert "2 of 5 calls: the worst, and the culprits; all of them: --format csv" in lines


def test_inputs_are_not_judged(run):
    words = ("nets.py:Net", "a.npy", "--against", "threads=1", "--at", "input", "--blame")
    assert run("compare", *words).err.startswith("error: --blame judges the outputs of layers\n")


FLOAT32, FLOAT16 = 2**-23, 2**-10


def list_errors(calls, moved, own=1e-3, dtypes=(), dtype="float32"):
    """Return the errors of calls such as ``a:Own``; B lacks those that begin with a minus."""
    seen, errors, partners = SeenCalls(), {}, {}
    for order, (call, error) in enumerate(zip(calls.split(), moved, strict=True)):
        path, kind = call.removeprefix("-").split(":", 1)
        path, kind = (f"{path}:{kind}", kind) if path.endswith("op") else (path, kind)
        seen.keep(Call(LayerInfo(path, kind), 0, order), torch.ones(2) * (order + 1))
        errors[path] = OwnError(path, kind, error, 0.0)
        if not call.startswith("-"):
            partners[path] = path
    found = _Measured(seen, partners)
    found.errors = {path: OwnError(path, errors[path].module_type, own, 0.0) for path in partners}
    return [*found.list_errors(errors, dict(dtypes), dtype)]


@pytest.mark.parametrize(
    ("calls", "moved", "own", "rounding", "kind"),
    [
        ("a:Own", [1e-6], 1e-3, 1e-6, "Own"),  # what moved inputs change
        ("a:Own", [0.0], 1e-3, FLOAT32 / 2, "Own"),  # at least half a digit
        ("-conv:Conv2d norm:BatchNorm2d", [3e-6, 1e-6], 1e-3, 3e-6, "Conv2d"),  # merged
        # an operation may use the output of a layer that B does not show, as after a block
        ("-a:Linear n:LayerNorm s/op:add", [1e-7] * 3, 1e-2, 1e-7, "Linear"),
        ("-a:Linear n:LayerNorm s/op:add", [1e-7] * 3, 0.0, 1e-7, "add"),
    ],
)
def test_rounding_and_the_kind_of_a_call_include_those_that_are_merged(
    calls, moved, own, rounding, kind
):
    *_, last = list_errors(calls, moved, own)
    assert (last.rounding, last.kind) == (rounding, kind)


def test_the_error_of_rounding_is_that_of_the_dtype_of_the_call():
    """All inputs move by a digit of float16; ``a`` is computed in float32."""
    dtypes = {"a": "float32", "b": "float16"}
    a, b = list_errors("a:Own b:Own", [0.5, 0.5], dtypes=dtypes, dtype="float16")
    assert (a.rounding, b.rounding) == (pytest.approx(0.5 * FLOAT32 / FLOAT16), 0.5)


def seen_of(**tensors):
    """A's calls, by the path and the type of their layers, such as ``a__ReLU``."""
    seen = SeenCalls(keeps_values=True)
    for name, tensor in tensors.items():
        seen.keep(call_of(*name.split("__")), tensor)
    return seen


def call_of(path, kind="Own", index=0):
    return Call(LayerInfo(path, kind, channels=Channels.FIRST), index, 0)


@pytest.mark.parametrize(
    ("reshapes", "off", "own"), [(True, 0, 0.0), (False, 0, np.inf), (True, 1, np.inf)]
)
def test_only_a_file_may_return_the_values_of_a_call_in_another_shape(reshapes, off, own):
    measured = _Measured(seen_of(a__Own=torch.ones(1, 6)), {"a": "a"}, reshapes=reshapes)
    measured(call_of("a"), torch.ones(1, 2, 3) + off)
    assert measured.errors["a"].own == own


@pytest.mark.parametrize(("has_floor", "is_off"), [(True, False), (False, True)])
def test_an_error_within_the_floor_of_a_sigmoid_is_none(has_floor, is_off):
    seen = seen_of(a__Sigmoid=torch.full((1, 3), 1e-8))
    measured = _Measured(seen, {"a": "a"}, has_floor=has_floor)
    measured(call_of("a", "Sigmoid"), torch.full((1, 3), 1e-7))
    assert bool(measured.errors["a"].own) is is_off


@pytest.mark.parametrize(("side", "number"), [(1, 0), (2, 2)])
def test_a_channel_of_one_number_has_no_error_of_its_own(side, number):
    measured = _Measured(seen_of(a__Conv2d=torch.ones(1, 3, side, side)), {"a": "a"})
    measured(call_of("a", "Conv2d"), torch.full((1, 3, side, side), 2.0))
    assert len(measured.errors["a"].channels) == number


@pytest.mark.parametrize(
    ("path", "index", "tensor", "lone"),
    [
        ("node", 0, torch.ones(2), ["node"]),
        ("node", 0, torch.ones(2, dtype=torch.int8), []),  # quantized values
        ("a", 0, torch.full((2,), 5.0), []),  # the call of A with this id is another one
        ("a", 1, torch.full((2,), 5.0), []),
    ],
)
def test_a_call_that_only_b_has_is_lone_if_a_lacks_its_layer(path, index, tensor, lone):
    measured = _Measured(seen_of(a__Own=torch.zeros(2)), {})
    measured(call_of(path, index=index), tensor)
    assert [*measured.errors] == lone


@pytest.mark.parametrize(
    ("kind", "reshapes", "shape", "is_idle"),
    [
        ("ReLU", False, (1, 2), False),
        ("ReLU", True, (1, 2), True),
        ("Dropout", False, (1, 2), True),
        ("Dropout", False, (2, 1), False),
    ],
)
def test_a_call_of_a_file_or_a_dropout_may_only_pass_on_values(kind, reshapes, shape, is_idle):
    seen = SeenCalls(keeps_values=True)
    seen.keep(call_of("a"), torch.ones(1, 2))
    measured = _Measured(seen, {}, reshapes=reshapes, types={"b": kind})
    assert measured.is_idle("b", np.ones(shape, "f4")) is is_idle


def blamer(*errors, merges_calls=False, healthy=(), **known):
    side: Any = SimpleNamespace(
        dtype="float32",
        request=SimpleNamespace(repeats=False),
        runner=SimpleNamespace(merges_calls=merges_calls, list_quantized=dict),
    )
    found = {each: OwnError(each, "Own", 0.5, 1e-7) for each in errors}
    found |= {each: OwnError(each, "Own", 0.0, 1e-7) for each in healthy}
    return Blamer(side, side, _worst=found, **known)


def test_the_model_itself_is_to_blame_only_for_calls_that_one_side_lacks():
    assert blamer(ROOT_LABEL).blame(None).ids == ()
    lone = {"_lone": {ROOT_LABEL: (["x"], [])}, "_types": {"x": "Own"}}
    assert blamer(ROOT_LABEL, **lone).blame(None).ids == ("x",)
    assert blamer("a", ROOT_LABEL, healthy="uvw").blame(None).ids == ("a", ROOT_LABEL)


def test_a_lone_call_before_two_culprits_is_named_once():
    lone = {"c": ([], ["x"]), "d": ([], ["x"])}
    assert blamer("c", "d", healthy="uvw", _lone=lone, _types={"x": "Own"}).blame(None).ids == (
        "x",
    )


def test_the_last_node_of_a_tool_stands_for_those_before_it():
    seen = seen_of(c__Own=torch.ones(2))
    own = _Measured(seen, {}, untold={"one", "two"})
    own.errors = {"one": None, "two": None, "c": OwnError("c", "Own", 0.5, 0.0)}
    assert blamer()._find_lone(seen.values, own) == {"c": ([], ["two"])}


@pytest.mark.parametrize(("merges", "lone"), [(False, ["conv", "s/op:add"]), (True, ["s/op:add"])])
def test_a_file_may_lack_layers_that_it_merged_but_no_operation(merges, lone):
    seen = seen_of(conv__Conv2d=torch.ones(2), c__Own=torch.ones(2) * 3)
    seen.keep(call_of("s/op:add", "add"), torch.ones(2) * 2)
    values = {each: seen.values[each] for each in ("conv", "s/op:add", "c")}
    own = _Measured(seen, {})
    own.errors = {"c": OwnError("c", "Own", 0.5, 0.0)}
    assert blamer(merges_calls=merges)._find_lone(values, own) == {"c": (lone, [])}
