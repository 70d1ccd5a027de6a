"""All 121 models of torchvision against hooks of the test's own: minutes, so run by ``make test-
slow``.

The other side knows nothing of hookcli: plain forward hooks that clone, its own walk through nested
outputs, figures in float64.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import models as zoo

from hookcli.config import GridStyle, ModelRequest
from hookcli.hooks.filter import select_layers
from hookcli.hooks.layers import explain_uncalled
from hookcli.networks.load import load_model
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import ForwardSettings, run_forward

if TYPE_CHECKING:
    from hookcli.networks.load import LoadedModel
    from hookcli.records.layer_records import LayerRecord

pytestmark = pytest.mark.slow

NAMES = zoo.list_models()
NOTHING = GridStyle(mode="none")
SIZES = {"segmentation": 256, "detection": 320, "optical_flow": 128}
CLOSE = 1e-5  # of max(|mean|, spread)
BATCHED = 1e-3  # a batch of two takes other paths through the convolutions


class Ran(NamedTuple):
    name: str
    loaded: LoadedModel
    pixels: torch.Tensor  # (2, …)
    alone: tuple[tuple[LayerRecord, ...], tuple[LayerRecord, ...]]
    called: frozenset[str]


@pytest.fixture(scope="module", params=NAMES)
def ran(request: pytest.FixtureRequest) -> Ran:
    name = request.param
    task = load_task(name)
    loaded = load_model(ModelRequest(name, weights="random", size=SIZES.get(task)))
    pixels = torch.stack([loaded.prepare.to_pixels([picture(seed)] * 2) for seed in (1, 2)])
    forward = hooked(loaded)
    results = [run_forward(forward, [str(i)], pixels[i : i + 1].clone())[0] for i in (0, 1)]
    called = results[0].called | results[1].called
    return Ran(name, loaded, pixels, (results[0].records, results[1].records), called)


def test_every_leaf_agrees_with_a_clone_taken_in_an_independent_hook(ran):
    expected = independent(ran.loaded, ran.pixels[:1].clone())
    got = {
        (r.call.layer.module_path, r.call.call_index, r.call.output_key): r for r in ran.alone[0]
    }
    assert set(got) == set(expected)
    for where, record in got.items():
        shape, figures = expected[where]
        stats = record.stats
        assert stats.shape == shape, where
        assert (stats.min, stats.max) == figures[:2], where
        if figures[2] is not None:
            scale = max(abs(figures[2]), figures[3])
            assert abs(stats.mean - figures[2]) <= CLOSE * scale, where
            assert abs(stats.std - figures[3]) <= CLOSE * scale, where


def test_every_leaf_is_recorded_or_uncalled_with_a_reason(ran):
    module = ran.loaded.module
    recorded = {record.call.layer.module_path for record in ran.alone[0]}
    for layer in select_layers(module, ["leaf"]):
        if layer.module_path not in recorded and layer.module_path not in ran.called:
            assert len(explain_uncalled(module, layer)) > 10
    own = {path for path, m in module.named_modules() if is_leaf(m)}
    assert own == {layer.module_path for layer in select_layers(module, ["leaf"])}


def test_two_images_in_one_batch_give_the_records_of_the_two_alone(ran):
    results = run_forward(hooked(ran.loaded), ["0", "1"], ran.pixels.clone())
    together = {(r.image, r.call.id): r.stats for result in results for r in result.records}
    alone = {(r.image, r.call.id): r.stats for records in ran.alone for r in records}
    assert set(together) == set(alone)
    for where, stats in together.items():
        other = alone[where]
        assert stats.shape == other.shape, where
        for figure in ("mean", "std", "min", "max"):
            one, two = getattr(stats, figure), getattr(other, figure)
            if two is None or not math.isfinite(two):
                assert one == two or (one != one) == (two != two), where
                continue
            scale = max(abs(other.mean), other.std, abs(two), 1e-6)
            assert abs(one - two) <= BATCHED * scale, (where, figure)


def load_task(name: str) -> str:
    parts = zoo.get_model_builder(name).__module__.split(".")
    return next((part for part in parts if part in SIZES), "")


def picture(seed: int) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (15, 20, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((200, 150), Image.Resampling.BICUBIC)


def hooked(loaded: LoadedModel) -> ForwardSettings:
    layers = select_layers(loaded.module, ["leaf"])
    return ForwardSettings(EagerRunner.of(loaded, layers), NOTHING)


def is_leaf(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) or not list(module.children())


def independent(loaded: LoadedModel, pixels: torch.Tensor) -> dict:
    """Shape and figures by module path, call and output key, from hooks that clone."""
    found: dict = {}
    calls: Counter = Counter()

    def remember(path, _module, _inputs, output):
        index = calls[path]
        calls[path] += 1
        for key, tensor in walk(output):
            found[path, index, key] = (tuple(tensor.shape), figures(tensor.clone()))

    handles = [
        module.register_forward_hook(lambda m, i, o, path=path: remember(path, m, i, o))
        for path, module in loaded.module.named_modules()
        if is_leaf(module)
    ]
    with torch.inference_mode():
        loaded.module(*loaded.inputs.arguments_of(pixels))
    for handle in handles:
        handle.remove()
    return found


def walk(value, key=()):
    if isinstance(value, torch.Tensor):
        yield ".".join(key), value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from walk(part, (*key, str(name)))
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from walk(part, (*key, str(index)))
    elif type(value).__name__ == "ImageList":
        yield from walk(value.tensors, (*key, "tensors"))


def figures(tensor: torch.Tensor) -> tuple:
    """Smallest, largest, mean and spread of the finite values, in float64."""
    values = tensor.double().numpy().ravel()
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None, None, None, None
    return finite.min(), finite.max(), finite.mean(), finite.std()
