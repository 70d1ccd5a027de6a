"""Trained weights on nodes that lack the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from hookcli.cluster.weights import read_model, read_weights
from hookcli.config import ModelRequest
from hookcli.networks.sources import choose_source

CACHED = "torch/hub/checkpoints/squeezenet1_1-b8a52dc0.pth"
MEMBER = ModelRequest("squeezenet1_1", "IMAGENET1K_V1")


def source_of(request):
    return choose_source(request.name)(request.name, nn.Identity)


def write(name, data=b"weights"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(data)
    return name


def test_what_torchvision_publishes_goes_into_the_cache_of_the_node():
    sent = read_weights_of(MEMBER, write(CACHED))
    assert sent.store(MEMBER) == MEMBER
    assert Path(CACHED).read_bytes() == b"weights"


def test_a_file_of_the_user_goes_into_the_cache_too():
    request = ModelRequest("squeezenet1_1", "mine/net.pth")
    there = read_weights_of(request, write("mine/net.pth")).store(request)
    assert Path(there.weights).name.endswith("-net.pth")
    assert Path(there.weights).read_bytes() == b"weights"


def read_weights_of(request, file):
    """The weights of a driver that has the file; the node, here the same folder, does not."""
    sent = read_weights(source_of(request), request)
    Path(file).unlink()
    return sent


def test_the_file_of_a_whole_model_goes_into_the_cache_too():
    request = ModelRequest("mine/net.onnx")
    sent = read_model(ModelRequest(write("mine/net.onnx")))
    assert sent.store(request) == request
    Path("mine/net.onnx").unlink()
    there = sent.store(request)
    assert there.is_file
    assert Path(there.name).name.endswith("-net.onnx")
    assert Path(there.name).read_bytes() == b"weights"


@pytest.mark.parametrize("file", [CACHED, "net.pth"])
def test_a_file_that_the_node_has_is_left_as_it_is(file):
    request = MEMBER if file == CACHED else ModelRequest("squeezenet1_1", "net.pth")
    sent = read_weights_of(request, write(file))
    write(file, b"of the node")
    assert sent.store(request) == request
    assert Path(file).read_bytes() == b"of the node"


@pytest.mark.parametrize(
    "request_",
    [
        ModelRequest("squeezenet1_1", "random"),
        ModelRequest("timm:resnet18", "pretrained"),
        ModelRequest("net.py:make", "auto"),
    ],
)
def test_weights_without_a_file_are_not_sent(request_):
    assert read_weights(source_of(request_), request_) is None
