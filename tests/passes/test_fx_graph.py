"""Graphs of torch.fx: the calls that their nodes belong to, and replaced values."""

from __future__ import annotations

import torch
from torch import fx, nn

from hookcli.networks.modules import find_modules
from hookcli.passes.fx_graph import expose_values, list_nodes
from hookcli.passes.graph import Graph


def test_the_values_of_a_graph_without_inputs_are_returned_and_replaced():
    graph = fx.Graph()
    made = graph.call_function(torch.ones, (2,))
    graph.output((made,))
    module = fx.GraphModule(nn.Module(), graph)
    assert [each.tolist() for each in expose_values(module, [made.name], [])()] == [[1, 1], [1, 1]]
    (given,) = expose_values(module, [], [made.name])(torch.zeros(2))
    assert given.tolist() == [0, 0]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.conv(x) + x


class Renamed(nn.Module):
    """One block that is called by two names, with the same input."""

    def __init__(self):
        super().__init__()
        self.a = Block()
        self.b = self.a

    def forward(self, x):
        return self.a(x) * self.b(x)


def test_the_calls_of_a_compiled_module_under_two_names_are_told_apart():
    module, graphs = Renamed(), []

    def collect(graph, _examples):
        paths = {str(id(each)): path for path, each in find_modules(module).items()}
        graphs.append(Graph.of(node.within("") for node in list_nodes(graph, paths)))
        return graph.forward

    torch.compile(module, backend=collect)(torch.rand(1, 3, 2, 2))
    torch._dynamo.reset()
    calls = [(call.layer.module_path, call.call_index) for call in graphs[0].calls]
    assert [call for call in calls if call[0] in ("a", "a.conv")] == [
        ("a.conv", 0),
        ("a", 0),
        ("a.conv", 1),
        ("a", 1),
    ]
