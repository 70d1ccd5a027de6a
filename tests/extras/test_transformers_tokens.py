"""The tokens and layouts of vision models of transformers, made small."""

from __future__ import annotations

import pytest

from tests.layout_walk import check_tokens, walk_layouts

pytestmark = pytest.mark.transformers

VIT = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "image_size": 64,
    "patch_size": 16,
}


@pytest.mark.parametrize(
    ("build", "before"),
    [
        (lambda hf: hf.ViTForImageClassification(hf.ViTConfig(**VIT)), 1),
        (
            lambda hf: hf.Dinov2WithRegistersModel(
                hf.Dinov2WithRegistersConfig(**VIT, num_register_tokens=4)
            ),
            5,
        ),
        (lambda hf: hf.SiglipVisionModel(hf.SiglipVisionConfig(**VIT)), 0),
    ],
    ids=["vit", "dinov2 with registers", "siglip"],
)
def test_all_tokens_of_a_transformer_are_known(hf, build, before):
    check_tokens(build(hf).eval(), 64, 4, before)


def yolos(hf):
    config = hf.YolosConfig(**VIT | {"image_size": [64, 64]}, num_detection_tokens=10)
    return hf.YolosForObjectDetection(config).eval()


def test_the_detection_tokens_of_yolos_come_after_the_patches(hf):
    walked = walk_layouts(yolos(hf), 64)
    full = {call_id: layout for call_id, (shape, layout) in walked.items() if shape[1] == 27}
    assert {(each.height, each.width, each.prefix) for each in full.values()} == {(4, 4, 1)}
    assert {"vit.embeddings.dropout", "vit.encoder.layer.1", "vit.layernorm"} <= full.keys()
    heads = [layout for shape, layout in walked.values() if shape[:2] == (1, 10)]
    assert len(heads) == 10
    assert not any(layout.is_spatial for layout in heads)
