"""The starts and ends of calls, as a pair of listeners receives them."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from hookcli.hooks.watch import watch
from hookcli.records.calls import LayerInfo


def test_a_call_whose_start_could_not_be_noted_does_not_end():
    model = nn.Sequential(nn.Sequential(nn.ReLU()))
    blocks = [LayerInfo(path, "Sequential") for path in ("", "0")]
    heard = []

    def start(call, _inputs):
        heard.append(f"start {call.id}")
        if call.layer.module_path == "0":
            raise RecursionError("maximum recursion depth exceeded")

    def end(call, output):
        heard.append(f"end {call.id} with {output}")

    caught = None
    with warnings.catch_warnings(), watch(model, blocks, start, end):
        warnings.simplefilter("ignore")
        try:
            model(torch.ones(1))
        except RecursionError as error:
            caught = error
    assert str(caught) == "maximum recursion depth exceeded"
    assert heard == ["start (model)", "start 0", "end (model) with None"]
