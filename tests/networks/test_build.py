"""Builders of models: their arguments, their limits, and what they raise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hookcli.config import ModelRequest
from hookcli.errors import ModelError, RequestError
from hookcli.networks.build import (
    build_model,
    build_random,
    build_shapes,
    read_arguments,
    read_literal,
)

REQUEST = ModelRequest("net")
WIDTH = ModelRequest("net", arguments=(("width", "5"),))


def source(builder, most_values=None, **sizes):
    return SimpleNamespace(
        builder=builder,
        most_values=most_values,
        reserved=frozenset({"weights"}),
        sizes=lambda _request: sizes,
    )


def test_an_argument_of_the_user_is_preferred_to_that_of_the_size():
    assert read_arguments(source(None, width=7, size=64), WIDTH) == {"width": 5, "size": 64}


@pytest.mark.parametrize("make", [torch.empty, torch.randn])
def test_a_builder_makes_at_most_so_many_values(make):
    def builder():
        make(12)
        return make(8)

    build_model(source(builder, most_values=20), REQUEST)
    with pytest.raises(ModelError, match=r"^net would be larger than its"):
        build_model(source(builder, most_values=19), REQUEST)


def test_a_builder_that_never_ends_is_stopped():
    def endless():
        while True:
            torch.eye(1)

    with pytest.raises(ModelError, match=r"^net would be larger than its"):
        build_model(source(endless, most_values=10), REQUEST)


def refusing(message):
    def builder(**_arguments):
        raise ValueError(message)

    return source(builder)


def test_only_an_error_about_arguments_of_the_user_is_a_refusal():
    with pytest.raises(RequestError) as refused:
        build_model(refusing("width is too large"), WIDTH)
    assert refused.value.message == "net cannot be built with width=5: width is too large"
    assert refused.value.hint == "`arguments`: the model's builder takes these arguments"
    for request, message in ((REQUEST, "width is too large"), (WIDTH, "no copy from meta")):
        with pytest.raises(ValueError, match=message):
            build_model(refusing(message), request)


def test_trained_weights_fix_the_arguments_of_a_builder():
    with pytest.raises(RequestError) as refused:
        build_model(refusing("width is too large"), WIDTH, weights="trained")
    assert refused.value.hint.startswith("the trained weights fix these arguments: ")


@pytest.mark.parametrize(("most", "devices"), [(100, ["meta", "cpu"]), (None, ["cpu"])])
def test_a_model_whose_size_a_file_says_is_built_without_memory_first(most, devices):
    built = []

    def builder():
        built.append(nn.Linear(4, 4).weight.device.type)
        return nn.Linear(4, 4)

    build_random(source(builder, most), REQUEST)
    assert built == devices


def test_a_builder_that_reads_its_tensors_is_built_on_the_cpu():
    """Regnet computes its widths with tensors."""

    def builder():
        return nn.Linear(4, int(torch.ones(3).sum()))

    module = build_shapes(source(builder), REQUEST)
    assert (module.weight.device.type, module.weight.shape) == ("cpu", (3, 4))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("(1, 2)", (1, 2)),
        ("relu", "relu"),
        ("-" * 9999 + "1", "-" * 9999 + "1"),
    ],
)
def test_an_argument_is_a_value_of_python_or_a_text(text, value):
    assert read_literal(text) == value
