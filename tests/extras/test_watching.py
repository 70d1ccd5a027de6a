"""Watching changes nothing: a model computes the same bits before, under and after every command,
and holds what it held. Tiny models of transformers and timm, most of which change themselves at
their first forward, or return what others do not."""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hookcli
from tests.extras import tiny_transformers
from tests.passes.test_unchanged import state

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.transformers

PLAIN = tiny_transformers.PLAIN | {"num_hidden_layers": 4}
SWIN = {
    "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4],
    "window_size": 4,
}  # fmt: skip


def swin(hf, stages):
    words = {**SWIN, "depths": [1] * stages, "num_heads": [2] * stages}
    names = [f"stage{stage + 1}" for stage in range(stages)]
    return hf.SwinConfig(**words, out_features=names)


TRANSFORMERS: dict[str, Any] = {
    "beit segmentation": lambda hf: hf.BeitForSemanticSegmentation(
        hf.BeitConfig(
            **PLAIN, out_indices=[1, 2, 3, 4], use_relative_position_bias=True,
            reshape_hidden_states=True,
        )
    ),
    "vit with attentions": lambda hf: hf.ViTModel._from_config(
        hf.ViTConfig(**PLAIN, output_attentions=True), attn_implementation="eager"
    ),
    "mask2former": lambda hf: hf.Mask2FormerForUniversalSegmentation(
        hf.Mask2FormerConfig(
            backbone_config=swin(hf, 4), feature_size=32, mask_feature_size=32, hidden_dim=32,
            encoder_feedforward_dim=16, encoder_layers=1, decoder_layers=2,
            num_attention_heads=2, dim_feedforward=16, num_queries=5,
        )
    ),
    "sam": lambda hf: hf.SamVisionModel(
        hf.SamVisionConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32,
            patch_size=8, window_size=2, global_attn_indexes=[1], output_channels=16, mlp_dim=32,
        )
    ),
}  # fmt: skip
TIMM = {
    "convit": ("convit_tiny", {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 3}),
    "levit": ("levit_128s", {}),
}
SIDES = {"levit": 224}


def build(name):
    torch.manual_seed(0)
    if name in TIMM:
        timm = pytest.importorskip("timm")
        kind, words = TIMM[name]
        return timm.create_model(kind, **words).eval()
    return TRANSFORMERS[name](pytest.importorskip("transformers")).eval()


def tensors(output: object) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return [each for part in output for each in tensors(part)]
    return []


def forward(model: nn.Module, pixels: torch.Tensor) -> list[torch.Tensor]:
    with torch.no_grad():
        return [tensor.clone() for tensor in tensors(model(pixels.clone()))]


def assert_equal(one, two):
    assert len(one) == len(two) > 0
    for first, second in zip(one, two, strict=True):
        assert torch.equal(first.nan_to_num(), second.nan_to_num())


# Gradients first: afterwards such a cache may hold a tensor of an inference.
COMMANDS = (
    ("gradients", "--layers", "leaf"),
    ("inspect", "--layers", "(model)"),
    ("inspect", "--layers", "all"),
    ("inspect", "--layers", "(model)", "--attention", "all"),
    ("inspect", "--layers", "op:*"),
)


@pytest.fixture
def no_caches():
    """Empty the caches of functions of transformers, which are no part of a model.

    One of BEiT keeps a tensor, through which nothing can be differentiated if a test before this
    one made it in inference mode.
    """
    for each in gc.get_objects():
        is_cache = isinstance(each, functools._lru_cache_wrapper)
        if is_cache and str(each.__module__).startswith("transformers.models."):
            each.cache_clear()


@pytest.mark.usefixtures("no_caches")
@pytest.mark.parametrize("name", [*TRANSFORMERS, *TIMM])
def test_a_model_is_the_same_before_under_and_after(name, run, monkeypatch):
    side = SIDES.get(name, 32)
    pixels = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    np.save("pixels.npy", pixels[0].numpy())
    bare = build(name)
    expected = forward(bare, pixels)  # a model that hookcli never sees
    watched = build(name)
    module: Any = types.ModuleType("watched")
    module.make = lambda: watched
    monkeypatch.setitem(sys.modules, "watched", module)
    before = held_by(watched)
    for command, *words in COMMANDS:
        ended = run(
            *(command, "watched:make", "pixels.npy", *words, "--device", "cpu"),
            *("--grids", "none", "--overwrite", "-o", "out", "--save", "tensors"),
        )
        refused = command == "gradients" or "--attention" in words  # there may be none of it
        assert ended.code in ((0, 2) if refused else (0,)), ended.err
        if words == ["--layers", "(model)"]:
            under = hookcli.load_run("out")
            kept = [torch.from_numpy(np.asarray(under[call])) for call in under.calls]
            outputs = [tensor for tensor in expected if tensor.dtype == torch.float32]
            assert_equal([each.flatten() for each in kept], [each.flatten() for each in outputs])
        assert held_by(watched) == before, words
    assert_equal(forward(watched, pixels), expected)
    assert hooks_of(watched) == hooks_of(bare)


def held_by(model: nn.Module) -> str:
    """All that a model holds; loading one may put another empty cache in the place of its own."""
    return re.sub(r"\(\d+, \[\]\)", "()", repr(state(model)))


def hooks_of(model: nn.Module) -> dict[str, int]:
    return {
        f"{path}.{name}": len(hooks)
        for path, module in model.named_modules()
        for name, hooks in vars(module).items()
        if "hooks" in name and isinstance(hooks, dict)
    }
