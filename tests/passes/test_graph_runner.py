"""What the runners of graphs share, with a graph that these tests compute by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hookcli.passes.graph import Graph, GraphNode, ModuleScope
from hookcli.passes.graph_runner import GraphRunner
from hookcli.passes.runner import Batch

BLOCK = ModuleScope("block", "own.Block")
CONV = ModuleScope("block.conv", "torch.nn.modules.conv.Conv2d")
RELU = ModuleScope("block.relu", "torch.nn.modules.activation.ReLU")
LINEAR = ModuleScope("fc", "torch.nn.modules.linear.Linear")
NODES = (
    GraphNode((BLOCK, CONV), "conv2d", "1", ("doubled",), (("weight", 3),)),
    GraphNode((BLOCK, RELU), "relu", "2", ("rectified",)),
    GraphNode((), "add", "3", ("sum",)),
    GraphNode((LINEAR,), "linear", "4", ("negated",), (("other", 2),)),
)


class Toy(GraphRunner):
    """Doubles the pixels, rectifies them, adds one, and negates the sum."""

    def compute(self, arguments, values, receive, fed):
        steps = {
            "doubled": lambda x: 2 * x,
            "rectified": torch.relu,
            "sum": lambda x: x + 1,
            "negated": torch.neg,
        }
        (x,) = arguments
        for name, step in steps.items():
            x = step(x)
            if name in values:
                receive(name, x)
            x = fed.get(name, x)
        return [x]


PIXELS = torch.tensor([[[[-1.0, 2.0]]]])


@pytest.fixture
def toy():
    return Toy(Graph.of(NODES), lambda pixels: (pixels,))


def run(runner, feed=None):
    seen = {}
    observer = lambda call, tensor: seen.update({call.id: tensor.flatten().tolist()})  # noqa: E731
    batch = Batch(["a"], PIXELS)
    if feed is None:
        output = runner.run(batch, observer).output
        seen["output"] = output.flatten().tolist()
    else:
        runner.run_fed(batch, feed, observer)
    return seen


def test_every_call_gets_its_value_and_the_model_comes_last(toy):
    assert run(toy) == {
        "block.conv": [-2, 4],
        "block.relu": [0, 4],
        "block": [0, 4],
        "op:add": [1, 5],
        "fc": [-1, -5],
        "(model)": [-1, -5],
        "output": [-1, -5],
    }


@pytest.mark.parametrize(
    ("forms", "paths"),
    [
        (("conv",), ["block.conv"]),
        (("leaf",), ["block.conv", "block.relu", "fc"]),
        (("all",), ["", "block", "block.conv", "block.relu", "fc"]),
        (("fc", "op:*", "(model)"), ["", "fc", "op:add"]),
        (("ReLU[1]", "block"), ["block", "block.relu"]),
    ],
)
def test_the_filter_language_chooses_layers_of_a_graph(toy, forms, paths):
    assert [layer.module_path for layer in toy.choosing(forms).layers] == paths


def test_only_chosen_layers_are_observed_numbered_by_their_start(toy):
    orders = {}
    chosen = toy.choosing(("block", "block.relu", "(model)"))
    chosen.run(Batch(["a"], PIXELS), lambda call, _: orders.update({call.id: call.order}))
    assert orders == {"block.relu": 3, "block": 2, "(model)": 1}


def test_a_fed_value_replaces_what_its_users_get(toy):
    run(toy)
    fed = {"block.conv": np.array([[[[-3, 7]]]], "f4")}
    assert run(toy, fed.get) == {
        "block.conv": [-2, 4],
        "block.relu": [0, 7],
        "block": [0, 7],
        "op:add": [1, 8],
        "fc": [-1, -8],
        "(model)": [-1, -8],
    }


def test_the_last_layer_shows_whether_the_model_is_a_classifier(toy):
    assert toy.reading == "logits"
    assert Toy(Graph.of(NODES[:3]), lambda pixels: (pixels,)).reading is None
