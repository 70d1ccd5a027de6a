"""Sixteen tiny vision models of transformers with random weights, each with its image processor."""

from __future__ import annotations

from typing import Any

import torch

NAMES = ["cat", "dog", "cup", "car", "sky"]
LABELS = {"id2label": dict(enumerate(NAMES)), "label2id": {n: i for i, n in enumerate(NAMES)}}
PLAIN = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
    "max_position_embeddings": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
DETECTOR = {
    "d_model": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "num_queries": 6,
}
SQUARE = {"size": {"height": 32, "width": 32}}
ARCHITECTURES = [
    "vit", "dinov2_with_registers", "dinov3_vit", "clip", "siglip", "swin", "convnext", "segformer",
    "detr", "rt_detr", "yolos", "mask2former", "sam", "depth_anything", "beit", "mobilevit",
]  # fmt: skip


def make(hf: Any, name: str) -> tuple[Any, Any]:
    """A model, and its image processor; ``hf`` is the package transformers."""
    torch.manual_seed(0)
    model, processor = globals()[f"_{name}"](hf)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():  # uneven, so that predictions differ
            if parameter.dim() > 1:
                parameter += torch.randn_like(parameter) * (0.5 if name == "mobilevit" else 0.1)
    return model, processor


def _vit(hf):
    config = hf.ViTConfig(**PLAIN, **LABELS)
    return hf.ViTForImageClassification(config), hf.ViTImageProcessor(**SQUARE)


def _dinov2_with_registers(hf):
    config = hf.Dinov2WithRegistersConfig(**PLAIN, num_register_tokens=3, **LABELS)
    processor = hf.BitImageProcessor(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}
    )
    return hf.Dinov2WithRegistersForImageClassification(config), processor


def _dinov3_vit(hf):
    config = hf.DINOv3ViTConfig(**PLAIN, num_register_tokens=2)
    return hf.DINOv3ViTModel(config), hf.DINOv3ViTImageProcessor(**SQUARE)


def _clip(hf):
    config = hf.CLIPConfig(vision_config=dict(PLAIN), text_config=dict(TEXT), projection_dim=16)
    processor = hf.CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    return hf.CLIPModel(config), processor


def _siglip(hf):
    config = hf.SiglipConfig(vision_config=dict(PLAIN), text_config=dict(TEXT))
    return hf.SiglipModel(config), hf.SiglipImageProcessor(**SQUARE)


def _swin(hf):
    config = hf.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        **LABELS,
    )  # fmt: skip
    return hf.SwinForImageClassification(config), hf.ViTImageProcessor(**SQUARE)


def _convnext(hf):
    config = hf.ConvNextConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 12, 20, 24], image_size=32, **LABELS
    )
    processor = hf.ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=0.875)
    return hf.ConvNextForImageClassification(config), processor


def _segformer(hf):
    config = hf.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2], hidden_sizes=[16, 32],
        patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[2, 4], mlp_ratios=[2, 2],
        decoder_hidden_size=16, **LABELS,
    )  # fmt: skip
    processor = hf.SegformerImageProcessor(size={"height": 64, "width": 64})
    return hf.SegformerForSemanticSegmentation(config), processor


def _detr(hf):
    backbone = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
    )
    config = hf.DetrConfig(
        **DETECTOR, encoder_layers=1, decoder_layers=2, use_timm_backbone=False,
        use_pretrained_backbone=False, backbone_config=backbone, **LABELS,
    )  # fmt: skip
    processor = hf.DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    return hf.DetrForObjectDetection(config), processor


def _rt_detr(hf):
    backbone = hf.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = hf.RTDetrConfig(
        **DETECTOR, backbone_config=backbone, encoder_hidden_dim=32, decoder_layers=2,
        encoder_in_channels=[16, 16, 16], decoder_in_channels=[32, 32, 32], num_feature_levels=3,
        anchor_image_size=None, num_denoising=0, **LABELS,
    )  # fmt: skip
    processor = hf.RTDetrImageProcessor(size={"height": 64, "width": 64})
    return hf.RTDetrForObjectDetection(config), processor


def _yolos(hf):
    config = hf.YolosConfig(**{**PLAIN, "image_size": [32, 32]}, num_detection_tokens=5, **LABELS)
    processor = hf.YolosImageProcessor(size={"shortest_edge": 32, "longest_edge": 128})
    return hf.YolosForObjectDetection(config), processor


def _mask2former(hf):
    backbone = hf.SwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2],
        window_size=4, out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = hf.Mask2FormerConfig(
        backbone_config=backbone, feature_size=32, mask_feature_size=32, hidden_dim=32,
        encoder_feedforward_dim=16, encoder_layers=1, decoder_layers=2, num_attention_heads=2,
        dim_feedforward=16, num_queries=5, **LABELS,
    )  # fmt: skip
    model = hf.Mask2FormerForUniversalSegmentation(config)
    with torch.no_grad():
        model.class_predictor.weight *= 40  # certain enough for the pipeline's threshold
    processor = hf.Mask2FormerImageProcessor(size={"height": 64, "width": 64}, ignore_index=255)
    return model, processor


def _sam(hf):
    vision = hf.SamVisionConfig(
        hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4,
        image_size=64, patch_size=8, window_size=4, global_attn_indexes=[1], mlp_dim=48,
    )  # fmt: skip
    prompts = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4}
    masks = {"hidden_size": 16, "mlp_dim": 16, "num_attention_heads": 2, "iou_head_hidden_dim": 16}
    config = hf.SamConfig(
        vision_config=vision.to_dict(), prompt_encoder_config=prompts, mask_decoder_config=masks
    )
    processor = hf.SamImageProcessor(
        size={"longest_edge": 64}, pad_size={"height": 64, "width": 64}
    )
    return hf.SamModel(config), processor


def _depth_anything(hf):
    backbone = hf.Dinov2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, image_size=56, patch_size=14,
        out_indices=[1, 2, 3, 4], reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    config = hf.DepthAnythingConfig(
        backbone_config=backbone, patch_size=14, reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8, head_hidden_size=8,
    )  # fmt: skip
    processor = hf.DPTImageProcessor(
        size={"height": 56, "width": 56}, ensure_multiple_of=14, keep_aspect_ratio=True
    )
    return hf.DepthAnythingForDepthEstimation(config), processor


def _beit(hf):
    config = hf.BeitConfig(**PLAIN, use_relative_position_bias=True, **LABELS)
    processor = hf.BeitImageProcessor(size={"height": 32, "width": 32}, do_center_crop=False)
    return hf.BeitForImageClassification(config), processor


def _mobilevit(hf):
    config = hf.MobileViTConfig(
        image_size=64, expand_ratio=3.0, hidden_sizes=[12, 16, 20], num_attention_heads=2,
        neck_hidden_sizes=[8, 8, 12, 12, 12, 16, 20], **LABELS,
    )  # fmt: skip
    processor = hf.MobileViTImageProcessor(
        size={"shortest_edge": 72}, crop_size={"height": 64, "width": 64}
    )
    return hf.MobileViTForImageClassification(config), processor
