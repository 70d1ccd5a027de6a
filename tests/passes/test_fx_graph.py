"""Graphs of torch.fx, made by hand."""

from __future__ import annotations

import torch
from torch import fx, nn

from hookcli.passes.fx_graph import expose_values


def test_the_values_of_a_graph_without_inputs_are_returned_and_replaced():
    graph = fx.Graph()
    made = graph.call_function(torch.ones, (2,))
    graph.output((made,))
    module = fx.GraphModule(nn.Module(), graph)
    assert [each.tolist() for each in expose_values(module, [made.name], [])()] == [[1, 1], [1, 1]]
    (given,) = expose_values(module, [], [made.name])(torch.zeros(2))
    assert given.tolist() == [0, 0]
