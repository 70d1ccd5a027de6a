"""The channel axis of every output of 101 models, against an oracle that follows the channels."""

from __future__ import annotations

import os

import pytest

from hookcli.config import ModelRequest
from tests.extras.channel_oracle import compare
from tests.extras.tiny_transformers import make

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.channels

SMALL = """
    alexnet:64 convnext_tiny:64 convnext_small:64 deeplabv3_mobilenet_v3_large:64
    deeplabv3_resnet50:64 densenet121:64 densenet169:64 efficientnet_b0:64 efficientnet_b1:64
    efficientnet_b2:64 efficientnet_v2_s:64 fasterrcnn_mobilenet_v3_large_320_fpn:64
    fasterrcnn_mobilenet_v3_large_fpn:64 fcn_resnet50:64 fcos_resnet50_fpn:64 googlenet:64
    inception_v3:96 lraspp_mobilenet_v3_large:64 maskrcnn_resnet50_fpn:64 maxvit_t:224 mc3_18:32
    mnasnet0_5:64 mnasnet1_0:64 mobilenet_v2:64 mobilenet_v3_large:64 mobilenet_v3_small:64
    mvit_v1_b:224 mvit_v2_s:224 quantized_googlenet:64 quantized_inception_v3:96
    quantized_mobilenet_v2:64 quantized_mobilenet_v3_large:64 quantized_resnet18:64
    quantized_resnet50:64 quantized_shufflenet_v2_x0_5:64 quantized_shufflenet_v2_x1_0:64
    r2plus1d_18:32 r3d_18:32 raft_small:128 regnet_x_400mf:64 regnet_x_800mf:64 regnet_y_400mf:64
    regnet_y_800mf:64 resnet18:64 resnet34:64 resnet50:64 resnext50_32x4d:64
    retinanet_resnet50_fpn:64 s3d:224 shufflenet_v2_x0_5:64 shufflenet_v2_x1_0:64
    squeezenet1_0:64 squeezenet1_1:64 ssdlite320_mobilenet_v3_large:64 swin3d_t:64 swin_t:64
    swin_v2_t:64 vgg11:64 vgg11_bn:64 vit_b_32:224
""".split()
TIMM = """
    caformer_s18 cait_xxs24_224 coat_tiny convit_tiny crossvit_tiny_240 davit_tiny
    edgenext_xx_small efficientformerv2_s0 efficientvim_m1 efficientvit_b0 focalnet_tiny_srf
    gcvit_xxtiny levit_128s maxvit_rmlp_pico_rw_256 mixer_s16_224 mobilevitv2_050 mvitv2_tiny
    poolformerv2_s12 rdnet_tiny resnest14d swiftformer_xs swin_tiny_patch4_window7_224
    test_coatnet test_convnext test_vit test_vit_relpos tiny_vit_5m_224 twins_svt_small
    vitamin_small_224 xcit_nano_12_p8_224
""".split()
HF = "convnext mobilevit dinov2_with_registers segformer siglip swin vit sam".split()
SMP = "unet/resnet18 segformer/mit_b0 deeplabv3plus/mobilenet_v2".split()


def check(name: str, size: int | None = None) -> None:
    """Require that hookcli states no wrong axis, and that most outputs have one."""
    verdict = compare(ModelRequest(name, weights="random", device="cpu", size=size))
    assert not verdict.wrong, "\n" + "\n".join(map(str, verdict.wrong))
    assert not verdict.unseen
    assert verdict.right > 8 * (verdict.unstated + verdict.undecided)


@pytest.mark.parametrize("model", SMALL)
def test_no_output_of_torchvision_has_a_wrong_channel_axis(model):
    name, _, size = model.partition(":")
    check(name, int(size))


@pytest.mark.parametrize("model", TIMM)
def test_no_output_of_timm_has_a_wrong_channel_axis(model):
    pytest.importorskip("timm")
    check(f"timm:{model}")


@pytest.mark.parametrize("model", HF)
def test_no_output_of_transformers_has_a_wrong_channel_axis(model, hf, tmp_path):
    module, processor = make(hf, model)
    module.save_pretrained(tmp_path / model)
    processor.save_pretrained(tmp_path / model)
    check(f"hf:{tmp_path / model}")


@pytest.mark.parametrize("model", SMP)
def test_no_output_of_smp_has_a_wrong_channel_axis(model):
    pytest.importorskip("segmentation_models_pytorch")
    check(f"smp:{model}", 64)
