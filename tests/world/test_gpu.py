"""Whole commands and `capture` on a GPU, beside the same on the CPU and plain hooks on the GPU.

HOOKCLI_TEST_DEVICE=cpu rehearses them where there is no GPU (`tools/gpu.py --device cpu`).
"""

from __future__ import annotations

import json
import os
import warnings
from contextlib import ExitStack

import pytest
import torch
from PIL import Image
from torch import nn

import hookcli
from hookcli.config import ModelRequest
from hookcli.networks.load import load_model
from tests.conftest import PHOTOS

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("HOOKCLI_TEST_DEVICE", "cuda")
CLOSE = 1e-4  # of the spread of a layer, without TF32


class Overwritten(nn.Module):
    """A network that writes over the outputs of its layers, as torchvision's do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.conv(x)
        x = self.norm(x).add_(x)
        return self.head(self.relu(x).mean((2, 3)))


@pytest.fixture(autouse=True)
def exact():
    """Compute convolutions in float32, not in TF32; products of matrices are so by default."""
    with ExitStack() as stack:
        with warnings.catch_warnings():  # some versions of torch say that this has a new name
            warnings.simplefilter("ignore")
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, allow_tf32=False))
        yield


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Overwritten().eval()


@pytest.fixture
def pixels():
    return torch.randn(4, 3, 16, 12, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def inspect(run):
    def command(verb, device, *words):
        common = ("squeezenet1_1", PHOTOS / "cat.png", "--size", "64", "--weights", "random")
        words = ("--device", device, "--format", "json", "--overwrite", "--grids", "none", *words)
        ended = run(verb, *common, *words)
        assert ended.code == 0, ended.err
        return {row["call_id"]: row for row in json.loads(ended.out)["layers"]}

    return command


def agree(rows, others, names=("mean", "std", "min", "max")):
    assert rows.keys() == others.keys()
    for call, row in rows.items():
        spread = max(others[call]["std"], abs(others[call]["mean"]))
        for name in names:
            assert row[name] == pytest.approx(others[call][name], abs=CLOSE * spread, rel=CLOSE)
        assert row["dead_channels"] == others[call]["dead_channels"], call


def test_figures_of_all_layers_are_those_of_the_cpu(inspect):
    here = inspect("inspect", DEVICE, "--layers", "all", "-o", "gpu")
    agree(here, inspect("inspect", "cpu", "--layers", "all", "-o", "cpu"))


def test_saved_tensors_are_those_that_a_plain_hook_clones(inspect):
    words = ("--layers", "conv", "--save", "tensors", "-o", "gpu")
    calls = inspect("inspect", DEVICE, *words)
    loaded = load_model(ModelRequest("squeezenet1_1", "random", device=DEVICE, size=64))
    with Image.open(PHOTOS / "cat.png") as image:
        photo = loaded.convert(loaded.prepare.to_pixels([image.convert("RGB")])[None])
    seen = {}
    for path, module in loaded.module.named_modules():
        module.register_forward_hook(
            lambda _m, _i, out, path=path: seen.update({path: out.clone()})
        )
    with torch.no_grad():
        loaded.module(photo)
    saved = hookcli.load_run("gpu")
    for call in calls:
        expected = seen[call].float().cpu()
        torch.testing.assert_close(
            torch.as_tensor(saved[call]), expected, rtol=CLOSE, atol=CLOSE * float(expected.std())
        )


def test_captured_values_are_those_before_they_are_overwritten(model, pixels):
    expected = model.conv(pixels).detach()
    model = model.to(DEVICE)
    with hookcli.capture(model, "all", keep=True) as captured, torch.no_grad():
        model(pixels.to(DEVICE))
    kept = captured.tensors
    assert kept["conv"].min() < 0
    torch.testing.assert_close(kept["conv"].cpu(), expected, rtol=CLOSE, atol=CLOSE)
    means = {record.call.id: record.stats.mean for record in captured.records}
    assert means["conv"] == pytest.approx(float(expected.double().mean()), abs=CLOSE)


@pytest.mark.parametrize("training", [False, True])
def test_captured_gradients_are_those_of_autograd(model, pixels, training):
    model = model.to(DEVICE).train(training)
    pixels = pixels.to(DEVICE).requires_grad_()
    model(pixels).square().sum().backward()
    expected = {
        f"param:{name}": p.grad.double().norm().item() for name, p in model.named_parameters()
    }
    model.zero_grad()
    with hookcli.capture(model, "leaf", gradients=True) as captured:
        model(pixels).square().sum().backward()
    norms = {r.call.id: r.stats.norm for r in captured.records if r.call.side == "param"}
    assert norms == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_gradients_of_a_command_are_those_of_the_cpu(inspect):
    pytest.importorskip("matplotlib")  # it draws the chart of the gradients
    words = ("--layers", "conv", "--target", "3")
    here = inspect("gradients", DEVICE, *words, "-o", "gpu")
    there = inspect("gradients", "cpu", *words, "-o", "cpu")
    assert here.keys() == there.keys()
    computed = {call: row["std"] for call, row in there.items() if row["std"] is not None}
    assert len(computed) > 50
    assert {call: here[call]["std"] for call in computed} == pytest.approx(computed, rel=1e-3)


def test_attention_of_a_transformer_is_that_of_the_cpu(run):
    pytest.importorskip("matplotlib")  # it has the colours of the maps

    def entropies(device):
        words = ("--size", "224", "--weights", "random", "--attention", "all", "--grids", "none")
        common = ("vit_b_32", PHOTOS / "cat.png", "--layers", "conv", "--device", device, *words)
        ended = run("inspect", *common, "--format", "json", "-o", device, "--overwrite")
        assert ended.code == 0, ended.err
        rows = json.loads(ended.out)["attention"]
        return [entropy for row in rows for entropy in row["entropy"]]

    there = entropies("cpu")
    assert there
    assert entropies(DEVICE) == pytest.approx(there, rel=1e-3)


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU has nothing to wait for")
def test_captured_figures_wait_for_the_gpu_once_for_all_layers():
    model = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(40))).to(DEVICE).eval()
    pixels = torch.randn(2, 3, 32, 32, device=DEVICE)
    model(pixels)
    torch.cuda.synchronize()
    with hookcli.capture(model, "conv") as captured, torch.no_grad():
        torch.cuda.set_sync_debug_mode("error")
        try:
            model(pixels)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(captured.records) == 40
