"""Pairing calls of torch with nodes of ONNX by their kinds, shapes and values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hookcli.comparison.pair_by_order import find_norm, pair_by_order
from hookcli.distance.judge import CallTensor
from hookcli.records.calls import FOLDED

SMALL, LARGE = (1, 2, 4, 4), (1, 8, 4, 4)


def tensors(text):
    """Calls by name, such as ``conv:Conv2d``; those that end in ``!`` are large."""
    found = {}
    for each in text.split():
        name, kind = each.split(":")
        shape = LARGE if kind.endswith("!") else SMALL
        found[name] = CallTensor(name, kind.removesuffix("!"), shape, "float32")
    return found


def arrays(**values):
    return {name: np.full(SMALL, value, "f4") for name, value in values.items()}


NORMS = "c1:Conv2d n1:BatchNorm2d c2:Conv2d n2:BatchNorm2d"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("c:Conv2d r:ReLU f:Linear!", "n0:Conv n1:Relu n2:Gemm!", "n0=c n1=r n2=f"),
        ("c:Conv2d r:ReLU", "n0:Conv! n1:Relu", "n1=r"),
        # a merged convolution is paired with its norm, and one that is not with itself
        ("c:Conv2d n:BatchNorm2d r:ReLU", "n0:Conv n1:Relu", "n0=n n1=r"),
        ("c:Conv2d n:BatchNorm2d", "n0:Conv n1:BatchNormalization", "n0=c n1=n"),
        ("c:ConvTranspose2d n:BatchNorm2d", "m:ConvTranspose", "m=n"),
        (f"{NORMS} d:Own!", f"m:{FOLDED} o:{FOLDED} d:Another!", "m=n1 o=n2 d=d"),
        ("c:Conv2d n:BatchNorm2d r:ReLU d:Own!", "f:FusedConv d:Own!", "f=r d=d"),
        # what is between matching stretches is left out
        ("c:Conv2d d:Dropout r:ReLU", "n0:Conv n1:Reshape! n2:Relu", "n0=c n2=r"),
        # a tool computes ``c`` with three nodes
        (
            "c:Conv2d d:Dropout r:ReLU",
            "n0:ConvInteger n1:Cast n2:Mul n3:Relu",
            "n2=c n3=r",
        ),
    ],
)
def test_calls_are_paired_by_kind_and_shape(a, b, expected):
    found = pair_by_order(tensors(a), tensors(b))
    assert found == dict(each.split("=") for each in expected.split())


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # B computes ``x`` and ``y`` in one node; by the kinds, its ``n1`` would be ``x``
        ("x:Conv2d=-1 y:ReLU=2 z:Conv2d=5", "n0:FusedConv=2 n1:Conv=5.001", "n0=y n1=z"),
        ("x:Own=1 y:Own=1.04", "n0:Mul=1.05", "n0=y"),  # the closest
        # a tool may run the shortcut of a block first
        ("x:Own=1 y:Own=5 z:Own=9", "n0:Conv=5 n1:Conv=1 n2:Add=9", "n0=y n1=x n2=z"),
        # the wrong call of a swapped branch is paired by its kind, and the last of a gap keeps it
        (
            "c:Conv2d=1 p:MaxPool2d=5 q:Own=7 s:add=9",
            "n0:MaxPool=5 n1:Conv=70 n2:Add=9",
            "n0=p n1=c n2=s",
        ),
        # no pair crosses one with equal values: by the kinds, ``m`` would be ``n0``
        (
            "n0:BatchNorm2d=1 a0:Add=2 r0:ReLU=3 n1:BatchNorm2d=4 r1:ReLU=5 a1:Add=6",
            "q:Fused=3 m:BatchNormalization=50 p:Add=70",
            "q=r0 m=n1 p=a1",
        ),
        # a node that only passes on values takes no layer
        ("x:Own=1 y:Own=5 z:Own=9", "n0:Conv=1 n1:Cast=1.001 n2:Own=9", "n0=x n2=z"),
        ("x:Own=1 y:Own=1", "n0:Mul=1 n1:Mul=1", "n0=x n1=y"),
        ("x:Own=0 c:Conv2d=0 d:Own!=9", "n:Conv=0 m:Another!=8", "n=c m=d"),  # zeros show nothing
        # a tool replaced a norm by other operators
        (
            "c1:Conv2d=1 n1:BatchNorm2d=3 c2:Conv2d=5 n2:BatchNorm2d=7",
            "m0:Conv=1 m2:Conv=5 m3:BatchNormalization=7",
            "m0=c1 m2=c2 m3=n2",
        ),
    ],
)
def test_equal_values_are_paired_whatever_computes_them(a, b, expected):
    sides, values = [], []
    for text in (a, b):
        pairs = [each.split("=") for each in text.split()]
        sides.append(tensors(" ".join(call for call, _ in pairs)))
        values.append(arrays(**{call.split(":")[0]: float(value) for call, value in pairs}))
    found = pair_by_order(sides[0], sides[1], (values[0], values[1]))
    assert found == dict(each.split("=") for each in expected.split())


@pytest.mark.parametrize("index", [0, 1])
def test_of_two_nodes_with_equal_values_the_one_that_computes_is_taken(index):
    """A tool reshapes the output of a layer, before a product or after it."""
    value = np.arange(32, dtype="f4").reshape(SMALL)
    b = tensors("move:Reshape norm:LayerNormalization")
    moved = "norm" if index else "move"
    b[moved] = replace(b[moved], shape=(2, 16))
    values = {"n": value}, {key: value.reshape(each.shape) for key, each in b.items()}
    assert pair_by_order(tensors("n:LayerNorm"), b, values) == {"norm": "n"}


@pytest.mark.parametrize(
    ("module", "operator"),
    [
        ("Linear", "Gemm"),
        ("Linear", "MatMul"),
        ("matmul", "MatMul"),
        ("cat", "Concat"),
        ("AvgPool2d", "AveragePool"),
        ("AdaptiveAvgPool2d", "ReduceMean"),
        ("mean", "ReduceMean"),
        ("GroupNorm", "GroupNormalization"),
        ("InstanceNorm2d", "InstanceNormalization"),
        ("MultiheadAttention", "Attention"),
        ("ReLU", "FusedConv"),
    ],
)
def test_a_module_and_the_operator_that_computes_it_are_of_one_kind(module, operator):
    """The last calls of a gap are paired whatever their kinds are, so others follow."""
    a, b = tensors(f"m:{module} other:Own!"), tensors(f"n0:{operator} n1:Another!")
    assert pair_by_order(a, b) == {"n0": "m", "n1": "other"}


@pytest.mark.parametrize(("distance", "is_paired"), [(19, True), (20, False)])
def test_only_calls_nearby_are_paired_across_others(distance, is_paired):
    """A runs a convolution after so many other calls, and B before them."""
    others = [f"Own{n}" for n in range(distance)]
    a = tensors(" ".join([*(f"x{kind}:{kind}" for kind in others), "c:Conv2d!"]))
    b = tensors(" ".join(["n:Conv!", *(f"y{kind}:{kind}" for kind in others)]))
    assert (pair_by_order(a, b).get("n") == "c") is is_paired


def test_of_two_equal_calls_that_b_swapped_the_nearer_one_is_taken():
    a = tensors("far:Conv2d x0:Own0 x1:Own1 x2:Own2 s:Sum near:Conv2d")
    b = tensors("y0:Own0 y1:Own1 y2:Own2 n:Conv t:Sum")
    assert pair_by_order(a, b)["n"] == "near"


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_whole_numbers_are_quantized_values_and_no_counterparts(dtype):
    b = tensors("n0:Resize n1:Relu")
    b["n0"] = replace(b["n0"], dtype=dtype)
    assert pair_by_order(tensors("c:interpolate r:ReLU"), b) == {"n1": "r"}


def test_the_norm_of_a_convolution_is_the_one_directly_after_it():
    a = tensors(f"{NORMS} c3:Conv2d r:ReLU")
    assert [find_norm([*a.values()], each) for each in ("c1", "c2", "c3")] == ["n1", "n2", ""]
