"""The tokens and layouts of the vision models of transformers, made small."""

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
HEADS = {"depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2]}


@pytest.fixture(scope="module")
def hf():
    """The package, imported only where these tests run."""
    import transformers

    return transformers


@pytest.mark.parametrize(
    ("build", "before"),
    [
        (lambda hf: hf.ViTForImageClassification(hf.ViTConfig(**VIT)), 1),
        (lambda hf: hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**VIT)), 2),
        (lambda hf: hf.Dinov2ForImageClassification(hf.Dinov2Config(**VIT)), 1),
        (
            lambda hf: hf.Dinov2WithRegistersModel(
                hf.Dinov2WithRegistersConfig(**VIT, num_register_tokens=4)
            ),
            5,
        ),
        (lambda hf: hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**VIT, num_register_tokens=4)), 5),
        (lambda hf: hf.BeitForImageClassification(hf.BeitConfig(**VIT)), 1),
        (lambda hf: hf.CLIPVisionModel(hf.CLIPVisionConfig(**VIT)), 1),
        (lambda hf: hf.SiglipVisionModel(hf.SiglipVisionConfig(**VIT)), 0),
    ],
    ids=["vit", "deit", "dinov2", "dinov2 with registers", "dinov3", "beit", "clip", "siglip"],
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


def test_the_heads_of_yolos_see_no_picture(hf):
    walked = walk_layouts(yolos(hf), 64)
    heads = {i: layout for i, (shape, layout) in walked.items() if shape[:2] == (1, 10)}
    assert len(heads) == 10
    assert not any(layout.is_spatial for layout in heads.values())


@pytest.mark.parametrize(
    "build",
    [
        lambda hf: hf.SegformerForSemanticSegmentation(
            hf.SegformerConfig(
                **HEADS, hidden_sizes=[8, 12, 20, 24], decoder_hidden_size=20, image_size=64
            )
        ),
        lambda hf: hf.SwinForImageClassification(
            hf.SwinConfig(
                image_size=64,
                patch_size=4,
                embed_dim=12,
                depths=[1, 1, 1, 1],
                num_heads=[1, 2, 2, 2],
                window_size=2,
            )
        ),
        lambda hf: hf.MobileViTForImageClassification(
            hf.MobileViTConfig(
                image_size=64,
                expand_ratio=3.0,
                hidden_sizes=[12, 16, 20],
                neck_hidden_sizes=[8, 8, 12, 12, 12, 16, 20],
                num_attention_heads=2,
            )
        ),
        lambda hf: hf.ConvNextForImageClassification(
            hf.ConvNextConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 12, 20, 24], image_size=64)
        ),
    ],
    ids=["segformer", "swin", "mobilevit", "convnext"],
)
def test_all_layouts_of_a_model_of_stages_are_known(hf, build):
    walked = walk_layouts(build(hf).eval(), 64)
    unknown = [i for i, (_, layout) in walked.items() if not layout.channels_first]
    assert all(i.endswith(".attention.dropout") for i in unknown), unknown  # weights of attention
