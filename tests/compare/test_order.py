"""Pairing calls of torch with nodes of ONNX by their kinds and shapes."""

from __future__ import annotations

from hookcli.compare.order import pair_by_order
from hookcli.distance.judge import CallTensor


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
