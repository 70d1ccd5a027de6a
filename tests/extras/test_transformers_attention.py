"""Attention of transformers' vision models against what they say themselves, with
``output_attentions`` and eager attention; the models are tiny and have random weights."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from hookcli.activations.attention_maps import query_map, refuse_rollout
from hookcli.activations.token_places import NO_PLACE
from tests.attention_calls import attention_of
from tests.extras.tiny_transformers import PLAIN

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.transformers

STAGES = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
PYRAMID = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [4, 2],
    "hidden_sizes": [16, 32],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [2, 4],
    "mlp_ratios": [2, 2],
}
DETECTOR = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "num_queries": 5,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
}
DETECTION = {"image_size": [32, 32], "num_detection_tokens": 5}

# Each with its class, its configuration, and the tokens of its first call: those without a place,
# the grid of the queries, that of the keys.
FAMILIES: dict[str, tuple[Any, ...]] = {
    "beit": ("Beit", {**PLAIN, "use_relative_position_bias": True}, 1, (4, 4), (4, 4)),
    "dinov2 with registers": (
        "Dinov2WithRegisters", {**PLAIN, "num_register_tokens": 3}, 4, (4, 4), (4, 4),
    ),
    "segformer": ("Segformer", PYRAMID, 0, (8, 8), (2, 2)),
    "siglip": ("SiglipVision", {**PLAIN, "vision_use_head": False}, 0, (4, 4), (4, 4)),
    "swin": ("Swin", STAGES, 0, (16, 16), (16, 16)),
    "yolos": ("Yolos", {**PLAIN, **DETECTION}, 6, (4, 4), (4, 4)),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_the_probabilities_equal_those_of_output_attentions(family):
    name, options, prefix, query_grid, key_grid = FAMILIES[family]
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    fused, eager = (build(name, options, way) for way in ("sdpa", "eager"))
    calls = attention_of(fused, pixels)
    with torch.no_grad():
        expected = eager(pixels, output_attentions=True).attentions
    # Swin gives the attention of the last of the two blocks of a stage alone
    named = calls[1::2] if name.startswith("Swin") else calls
    assert len(expected) > 1
    for call, weights in zip(named, expected, strict=True):
        assert (torch.cat(call.raw) - weights).abs().max() < 1e-5
    places = calls[0].places
    assert int((places.queries == NO_PLACE).sum()) == prefix
    assert (places.query_grid, places.key_grid) == (query_grid, key_grid)


def test_object_queries_look_at_the_image_and_at_each_other():
    """DETR: an encoder over 2 by 2 cells, then in each decoder layer 5 queries among themselves,
    and on the cells."""
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
    )
    options = {**DETECTOR, "backbone_config": backbone}
    pixels = torch.rand(1, 3, 32, 32)
    fused, eager = (build("Detr", options, way) for way in ("sdpa", "eager"))
    calls = attention_of(fused, pixels)
    with torch.no_grad():
        said = eager(pixels, output_attentions=True)
    expected = [*said.encoder_attentions]
    for among, over in zip(said.decoder_attentions, said.cross_attentions, strict=True):
        expected += [among, over]
    for call, weights in zip(calls, expected, strict=True):
        assert (call.raw[0] - weights).abs().max() < 1e-5
    grids = [(call.places.query_grid, call.places.key_grid) for call in calls]
    assert grids == [((4, 4), (4, 4)), ((), ()), ((), (4, 4)), ((), ()), ((), (4, 4))]
    assert refuse_rollout([call.places for call in calls]) == (
        "the number of tokens changes from 16 to 5"
    )


def test_a_shifted_window_of_swin_is_in_its_place():
    """In the second block of 16 by 16 cells, windows of 4 by 4 begin at 2: the cell (2, 3) sees
    rows and columns 2 to 5."""
    _, shifted, *_ = attention_of(build("Swin", STAGES, "sdpa"), torch.rand(1, 3, 32, 32))
    seen = query_map(shifted.ordered[0], shifted.places, 2 * 16 + 3)
    rows, columns = (seen.amin(0) > 1e-6).nonzero(as_tuple=True)
    assert (set(rows.tolist()), set(columns.tolist())) == ({2, 3, 4, 5}, {2, 3, 4, 5})


def build(name: str, options: dict[str, object], way: str) -> torch.nn.Module:
    import transformers  # not at the top: that takes a second wherever tests are listed

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**options)
    made = getattr(transformers, f"{name}Model")
    ways = {"": way if made._supports_sdpa else "eager", "backbone_config": "eager"}
    model = made._from_config(config, attn_implementation=ways).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter += torch.randn_like(parameter) * 0.1
    return model
