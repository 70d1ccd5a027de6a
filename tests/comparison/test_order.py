"""Pairing calls of torch with nodes of ONNX by their kinds and shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hookcli.comparison.order import find_norm, pair_by_order
from hookcli.distance.judge import CallTensor
from hookcli.records.calls import FOLDED


def tensors(*calls):
    return {name: CallTensor(name, kind, shape, "float32") for name, kind, shape in calls}


SMALL, LARGE = (1, 2, 4, 4), (1, 8, 4, 4)


def test_modules_of_torch_match_operators_of_onnx():
    a = tensors(("c", "Conv2d", SMALL), ("r", "ReLU", SMALL), ("f", "Linear", (1, 3)))
    b = tensors(("n0", "Conv", SMALL), ("n1", "Relu", SMALL), ("n2", "Gemm", (1, 3)))
    assert pair_by_order(a, b) == {"n0": "c", "n1": "r", "n2": "f"}


def test_other_shapes_do_not_match():
    a = tensors(("c", "Conv2d", SMALL), ("r", "ReLU", SMALL))
    b = tensors(("n0", "Conv", LARGE), ("n1", "Relu", SMALL))
    assert pair_by_order(a, b) == {"n1": "r"}


def test_a_merged_convolution_is_paired_with_its_batch_norm():
    a = tensors(("c", "Conv2d", SMALL), ("n", "BatchNorm2d", SMALL), ("r", "ReLU", SMALL))
    b = tensors(("n0", "Conv", SMALL), ("n1", "Relu", SMALL))
    assert pair_by_order(a, b) == {"n0": "n", "n1": "r"}


def test_a_convolution_that_is_not_merged_is_paired_with_itself():
    a = tensors(("c", "Conv2d", SMALL), ("n", "BatchNorm2d", SMALL))
    b = tensors(("n0", "Conv", SMALL), ("n1", "BatchNormalization", SMALL))
    assert pair_by_order(a, b) == {"n0": "c", "n1": "n"}


def test_calls_between_matching_stretches_are_left_out():
    a = tensors(("c", "Conv2d", SMALL), ("d", "Dropout", SMALL), ("r", "ReLU", SMALL))
    b = tensors(("n0", "Conv", SMALL), ("n1", "Reshape", (32,)), ("n2", "Relu", SMALL))
    assert pair_by_order(a, b) == {"n0": "c", "n2": "r"}


def test_quantized_values_are_paired_with_no_others():
    a = tensors(("op:interpolate", "interpolate", SMALL))
    b = {"n0": CallTensor("n0", "Resize", SMALL, "int8")}
    assert pair_by_order(a, b) == {}


def arrays(**values):
    return {name: np.full(SMALL, value, "f4") for name, value in values.items()}


def test_equal_values_are_paired_whatever_computes_them():
    """B computes ``c1`` and ``r`` in one node; by the types, its ``n1`` would be ``c1``."""
    a = tensors(("c1", "Conv2d", SMALL), ("r", "ReLU", SMALL), ("c2", "Conv2d", SMALL))
    b = tensors(("n0", "FusedConv", SMALL), ("n1", "Conv", SMALL))
    values = arrays(c1=-1, r=2, c2=5), arrays(n0=2, n1=5.001)
    assert pair_by_order(a, b, values) == {"n0": "r", "n1": "c2"}


def test_a_node_takes_the_closest_values():
    a = tensors(("one", "Own", SMALL), ("two", "Own", SMALL))
    b = tensors(("n0", "Mul", SMALL))
    assert pair_by_order(a, b, (arrays(one=1, two=1.04), arrays(n0=1.05))) == {"n0": "two"}


@pytest.mark.parametrize("index", [0, 1])
def test_of_two_nodes_with_equal_values_the_one_that_computes_is_taken(index):
    """A tool reshapes the output of a layer, before a product or after it."""
    a = tensors(("n", "LayerNorm", SMALL))
    value = np.arange(32, dtype="f4").reshape(SMALL)
    shapes = [(2, 16), SMALL] if index else [SMALL, (2, 16)]
    b = tensors(("move", "Reshape", shapes[0]), ("norm", "LayerNormalization", shapes[1]))
    values = {"n": value}, {key: value.reshape(each.shape) for key, each in b.items()}
    assert pair_by_order(a, b, values) == {"norm": "n"}


def test_the_last_node_before_a_pair_replaces_the_last_layer_before_it():
    """A tool computes ``c`` with three nodes, and wrongly."""
    a = tensors(("c", "Conv2d", SMALL), ("d", "Dropout", SMALL), ("r", "ReLU", SMALL))
    b = tensors(
        ("n0", "ConvInteger", SMALL),
        ("n1", "Cast", SMALL),
        ("n2", "Mul", SMALL),
        ("n3", "Relu", SMALL),
    )
    assert pair_by_order(a, b) == {"n2": "c", "n3": "r"}


def test_branches_that_b_swaps_are_paired_by_their_values():
    """A tool may run the shortcut of a block first."""
    a = tensors(("x", "Own", SMALL), ("y", "Own", SMALL), ("sum", "Own", SMALL))
    b = tensors(("n0", "Conv", SMALL), ("n1", "Conv", SMALL), ("n2", "Add", SMALL))
    values = arrays(x=1, y=5, sum=9), arrays(n0=5, n1=1, n2=9)
    assert pair_by_order(a, b, values) == {"n0": "y", "n1": "x", "n2": "sum"}


def test_a_wrong_call_of_a_swapped_branch_is_paired_by_its_type():
    a = tensors(("c", "Conv2d", SMALL), ("p", "MaxPool2d", SMALL), ("sum", "add", SMALL))
    b = tensors(("n0", "MaxPool", SMALL), ("n1", "Conv", SMALL), ("n2", "Add", SMALL))
    values = arrays(c=1, p=5, sum=9), arrays(n0=5, n1=70, n2=9)
    assert pair_by_order(a, b, values) == {"n0": "p", "n1": "c", "n2": "sum"}


def test_no_pair_crosses_a_pair_with_equal_values():
    """The longest stretch of equal kinds would pair ``m`` with ``n0``, before ``r0``."""
    kinds = {"n0": "BatchNorm2d", "a0": "Add", "r0": "ReLU"}
    kinds |= {"n1": "BatchNorm2d", "r1": "ReLU", "a1": "Add"}
    a = tensors(*((name, kind, SMALL) for name, kind in kinds.items()))
    b = tensors(("q", "Fused", SMALL), ("m", "BatchNormalization", SMALL), ("p", "Add", SMALL))
    values = arrays(n0=1, a0=2, r0=3, n1=4, r1=5, a1=6), arrays(q=3, m=50, p=70)
    assert pair_by_order(a, b, values) == {"q": "r0", "m": "n1", "p": "a1"}


def test_a_wrong_fused_convolution_is_paired_with_the_relu():
    a = tensors(
        *(("c1", "Conv2d", SMALL), ("n1", "BatchNorm2d", SMALL), ("r", "ReLU", SMALL)),
        *(("c2", "Conv2d", SMALL), ("n2", "BatchNorm2d", SMALL)),
    )
    b = tensors(("f", "FusedConv", SMALL), ("g", "Conv", SMALL))
    assert pair_by_order(a, b) == {"f": "r", "g": "n2"}


def test_a_node_that_only_passes_on_values_takes_no_layer():
    a = tensors(("x", "Own", SMALL), ("y", "Own", SMALL), ("z", "Own", SMALL))
    b = tensors(("n0", "Conv", SMALL), ("n1", "Cast", SMALL), ("n2", "Own", SMALL))
    values = arrays(x=1, y=5, z=9), arrays(n0=1, n1=1.001, n2=9)
    assert pair_by_order(a, b, values) == {"n0": "x", "n2": "z"}


@pytest.mark.parametrize(
    ("module", "operator"),
    [
        ("Linear", "Gemm"),
        ("Linear", "MatMul"),
        ("matmul", "MatMul"),
        ("cat", "Concat"),
        ("AvgPool2d", "AveragePool"),
        ("AdaptiveAvgPool2d", "GlobalAveragePool"),
        ("AdaptiveAvgPool2d", "ReduceMean"),
        ("mean", "ReduceMean"),
        ("LayerNorm", "LayerNormalization"),
        ("GroupNorm", "GroupNormalization"),
        ("InstanceNorm2d", "InstanceNormalization"),
        ("MultiheadAttention", "Attention"),
        ("ReLU", "FusedConv"),
    ],
)
def test_a_module_and_the_operator_that_computes_it_are_of_one_kind(module, operator):
    """The last calls of a gap are paired whatever their kinds are, so others follow."""
    a = tensors(("m", module, SMALL), ("other", "Own", LARGE))
    b = tensors(("n0", operator, SMALL), ("n1", "Another", LARGE))
    assert pair_by_order(a, b) == {"n0": "m", "n1": "other"}


def swapped(distance):
    """A convolution that A runs after so many other calls, and B before them."""
    others = [(f"x{n}", f"Own{n}", SMALL) for n in range(distance)]
    a = tensors(*others, ("c", "Conv2d", LARGE))
    b = tensors(("n", "Conv", LARGE), *((f"y{n}", *each[1:]) for n, each in enumerate(others)))
    return pair_by_order(a, b)


def test_only_calls_nearby_are_paired_across_others():
    assert swapped(19)["n"] == "c"
    assert "n" not in swapped(20)


def test_of_two_equal_calls_that_b_swapped_the_nearer_one_is_taken():
    a = tensors(
        ("far", "Conv2d", SMALL),
        *((f"x{n}", f"Own{n}", SMALL) for n in range(3)),
        ("s", "Sum", SMALL),
        ("near", "Conv2d", SMALL),
    )
    b = tensors(
        *((f"y{n}", f"Own{n}", SMALL) for n in range(3)),
        ("n", "Conv", SMALL),
        ("t", "Sum", SMALL),
    )
    assert pair_by_order(a, b)["n"] == "near"


def test_zeros_show_no_counterpart():
    a = tensors(("x", "Own", SMALL), ("c", "Conv2d", SMALL), ("d", "Own", LARGE))
    b = tensors(("n", "Conv", SMALL), ("m", "Another", LARGE))
    assert pair_by_order(a, b, (arrays(x=0, c=0), arrays(n=0)))["n"] == "c"


def test_whole_numbers_are_no_last_node_of_a_layer():
    """They are quantized values."""
    a = tensors(("c", "Conv2d", SMALL), ("r", "ReLU", SMALL))
    b = tensors(("n0", "ConvInteger", SMALL), ("n1", "Relu", SMALL))
    b["n0"] = replace(b["n0"], dtype="int32")
    assert pair_by_order(a, b) == {"n1": "r"}


def test_a_convolution_with_the_values_of_one_is_not_paired_with_the_norm_after_it():
    """A tool replaced the norm by other operators."""
    kinds = ("c1", "Conv2d"), ("n1", "BatchNorm2d"), ("c2", "Conv2d"), ("n2", "BatchNorm2d")
    a = tensors(*((*each, SMALL) for each in kinds))
    b = tensors(
        *(("m0", "Conv", SMALL), ("m1", "Unsqueeze", LARGE)),
        *(("m2", "Conv", SMALL), ("m3", "BatchNormalization", SMALL)),
    )
    values = arrays(c1=1, n1=3, c2=5, n2=7), arrays(m0=1, m2=5, m3=7)
    assert pair_by_order(a, b, values)["m0"] == "c1"


def test_two_calls_with_equal_values_have_two_counterparts():
    a = tensors(("x", "Own", SMALL), ("y", "Own", SMALL))
    b = tensors(("n0", "Mul", SMALL), ("n1", "Mul", SMALL))
    values = arrays(x=1, y=1), arrays(n0=1, n1=1)
    assert pair_by_order(a, b, values) == {"n0": "x", "n1": "y"}


def test_the_last_node_of_a_gap_keeps_the_counterpart_of_its_kind():
    kinds = ("c", "Conv2d"), ("p", "MaxPool2d"), ("q", "Own"), ("sum", "add")
    a = tensors(*((*each, SMALL) for each in kinds))
    b = tensors(("n0", "MaxPool", SMALL), ("n1", "Conv", SMALL), ("n2", "Add", SMALL))
    values = arrays(c=1, p=5, q=7, sum=9), arrays(n0=5, n1=70, n2=9)
    assert pair_by_order(a, b, values) == {"n0": "p", "n1": "c", "n2": "sum"}


def test_a_convolution_that_lost_its_norm_is_a_convolution():
    a = tensors(("c", "Conv2d", SMALL), ("n", "BatchNorm2d", SMALL), ("d", "Own", LARGE))
    b = tensors(("m", FOLDED, SMALL), ("other", "Another", LARGE))
    assert pair_by_order(a, b) == {"m": "n", "other": "d"}


def test_a_transposed_convolution_may_have_its_norm_merged():
    a = tensors(("c", "ConvTranspose2d", SMALL), ("n", "BatchNorm2d", SMALL))
    assert pair_by_order(a, tensors(("m", "ConvTranspose", SMALL))) == {"m": "n"}


def test_the_norm_of_a_convolution_is_the_one_directly_after_it():
    a = tensors(
        *(("c1", "Conv2d", SMALL), ("n1", "BatchNorm2d", SMALL)),
        *(("c2", "Conv2d", SMALL), ("n2", "BatchNorm2d", SMALL)),
        *(("c3", "Conv2d", SMALL), ("r", "ReLU", SMALL)),
    )
    found = [find_norm([*a.values()], each) for each in ("c1", "c2", "c3")]
    assert found == ["n1", "n2", ""]
