"""Floating point operations are counted as torch counts them, also of tensors of another class and
of operators of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode, flop_registry
from torchvision.models import get_model

from hookcli.passes.flops import FlopCounter

CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "ssdlite320_mobilenet_v3_large"])
def test_operations_are_counted_as_torch_counts_them(name):
    """On a CPU torch 2.14 has no formula for attention, so it is given the one for a GPU."""
    model = get_model(
        name, weights=None, **({"weights_backbone": None} if "ssd" in name else {})
    ).eval()
    with torch.device("meta"):
        pixels = torch.zeros(1, 3, 224, 224)
    if "ssd" in name:
        pixels = [torch.zeros(3, 320, 320)]
    else:
        model = model.to("meta")
    own, theirs = FlopCounter(), FlopCounterMode(display=False)
    attention = torch.ops.aten._scaled_dot_product_flash_attention
    theirs.flop_registry[CPU_ATTENTION] = flop_registry[attention]
    with torch.no_grad():
        for counter in (own, theirs):
            with counter:
                model(pixels)
    assert own.total == theirs.get_total_flops() > 1e7


def test_attention_on_a_cpu_is_counted():
    """Of 5 places, 7 other places and 3 values, in 2 heads: the weights and their sums."""
    query, others = torch.ones(1, 2, 5, 3), torch.ones(1, 2, 7, 3)
    with FlopCounter() as counter:
        torch.nn.functional.scaled_dot_product_attention(query, others, others)
    assert counter.total == 2 * (2 * 5 * 7 * 3) + 2 * (2 * 5 * 7 * 3)


def test_operators_that_the_model_registers_a_formula_for_are_counted(run):
    Path("net.py").write_text(OWN_OPERATOR)
    code, out, err = run("layers", "net.py:Net", "--format", "json")
    assert code == 0, err
    assert {row["flops"] for row in json.loads(out)["layers"]} == {1234}


OWN_OPERATOR = """
import torch
from torch.utils.flop_counter import register_flop_formula

@torch.library.custom_op("test_start::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

@register_flop_formula(torch.ops.test_start.twice)
def _(*_args, **_words):
    return 1234

class Net(torch.nn.Module):
    def forward(self, x):
        return twice(x)
"""


def test_a_model_with_ragged_tensors_inside_can_be_surveyed(run):
    Path("net.py").write_text(RAGGED)
    code, out, err = run("layers", "net.py:Net", "--layers", "Linear", "--format", "csv")
    assert (code, err) == (0, "")
    assert "fc,fc,Linear" in out


RAGGED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)
    def forward(self, x):
        rows = [x[0, :, 0, :2].T, x[0, :, 0, :3].T]
        parts = torch.nested.nested_tensor(rows, layout=torch.jagged)
        return self.fc((parts * 2).to_padded_tensor(0.0))
"""


class Wrapped(torch.Tensor):
    """Holds another tensor, and is asked for its own shape, strides and layout."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            dtype=inner.dtype,
            dispatch_sizes_strides_policy="sizes",
            dispatch_layout=True,
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        args, kwargs = tree_map(
            lambda each: each.inner if isinstance(each, cls) else each, (args, kwargs or {})
        )
        return tree_map(
            lambda each: cls(each) if isinstance(each, torch.Tensor) else each,
            func(*args, **kwargs),
        )


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda x: x.shape, (2, 3, 4, 5)),
        (lambda x: x.size(1), 3),
        (lambda x: x.dim(), 4),
        (lambda x: x.numel(), 120),
        (lambda x: x.stride(), (60, 20, 5, 1)),
        (lambda x: x.storage_offset(), 0),
        (lambda x: x.is_contiguous(), True),
        (lambda x: x.is_contiguous(memory_format=torch.channels_last), False),
        (lambda x: x.layout, torch.strided),
    ],
    ids=[
        *("shape", "size", "dim", "numel", "stride", "storage_offset", "is_contiguous"),
        *("channels last", "layout"),
    ],
)
def test_a_tensor_of_another_class_answers_for_itself(ask, answer):
    with FlopCounter() as counter:
        assert ask(Wrapped(torch.ones(2, 3, 4, 5))) == answer
    assert counter.total == 0


def test_operations_on_a_tensor_of_another_class_are_counted():
    with FlopCounter() as counter:
        out = torch.nn.functional.conv2d(Wrapped(torch.ones(1, 3, 4, 5)), torch.ones(2, 3, 1, 1))
    assert vars(out)["inner"].tolist() == [[[[3.0] * 5] * 4] * 2]
    assert counter.total == 2 * 3 * 2 * 4 * 5  # a multiply-add of each input for each output
