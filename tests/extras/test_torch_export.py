"""``hookcli compare --against torch-export``: programs of torch.export, module by module."""

from __future__ import annotations

import copy
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hookcli
from tests.extras.exports import make

pytestmark = [pytest.mark.exports, pytest.mark.usefixtures("nets")]


def test_every_call_and_every_output_is_the_same(compare):
    document = compare("nets.py:Net", "--against", "torch-export")
    blocks = [f"blocks.{n}.{name}" for n in range(3) for name in ("conv", "norm", "relu", "relu#1")]
    assert {row["call_id"]: row["rel_l2"] for row in document["layers"]} == dict.fromkeys(
        ("stem", *blocks, "drop", "fc", "(model)"), 0.0
    )
    assert document["left_out"] == []
    assert {"name": "runner", "a": "PyTorch", "b": "torch-export"} in document["changed"]


def test_a_program_that_was_kept_is_read_again(compare):
    compare("nets.py:Net", "--against", "torch-export", "--keep-export", "net.pt2")
    document = compare("nets.py:Net", "--against", "torch-export=net.pt2", "--blame")
    assert document["equal"]
    assert document["culprits"] == []
    assert document["b"] == "nets.py:Net with torch-export=net.pt2"
    program = torch.export.load("net.pt2")
    pixels = torch.from_numpy(np.load("a.npy"))[None]
    assert torch.equal(program.module()(pixels), make()(pixels))


def test_a_layer_named_quantize_need_not_be_quantized(tmp_path):
    net = nn.Sequential(OrderedDict(stem=nn.Conv2d(3, 8, 3), quantize=nn.Conv2d(8, 4, 3))).eval()
    wrong, x = copy.deepcopy(net), torch.rand(1, 3, 8, 8)
    wrong.get_parameter("quantize.weight").data *= 1.05
    torch.export.save(torch.export.export(wrong, (x,)), tmp_path / "net.pt2")
    found = hookcli.compare(net, x, against=f"torch-export={tmp_path / 'net.pt2'}", blame=True)
    assert found.document().culprits == ("quantize",)


def test_a_damaged_file_is_refused(refused):
    Path("net.pt2").write_bytes(b"PK nothing")
    code, message, hint = refused("nets.py:Net", "a.npy", "--against", "torch-export=net.pt2")
    assert code == 4
    assert message.startswith("error: 'net.pt2' is damaged, or no exported program: ")
    assert hint == "hint: make it with torch.export.save"
