"""The channel axis of every output of 101 models, against an oracle that follows the channels."""

from __future__ import annotations

import json
import os

import pytest
import torch
from PIL import Image

import hookcli
from hookcli.config import ModelRequest
from hookcli.networks.load import load_model
from tests.conftest import PHOTOS
from tests.extras.channel_oracle import compare, words
from tests.extras.tiny_transformers import make

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.channels

SMALL = words("""
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
""")
TIMM = words("""
    caformer_s18 cait_xxs24_224 coat_tiny convit_tiny crossvit_tiny_240 davit_tiny
    edgenext_xx_small efficientformerv2_s0 efficientvim_m1 efficientvit_b0 focalnet_tiny_srf
    gcvit_xxtiny levit_128s maxvit_rmlp_pico_rw_256 mixer_s16_224 mobilevitv2_050 mvitv2_tiny
    poolformerv2_s12 rdnet_tiny resnest14d swiftformer_xs swin_tiny_patch4_window7_224
    test_coatnet test_convnext test_vit test_vit_relpos tiny_vit_5m_224 twins_svt_small
    vitamin_small_224 xcit_nano_12_p8_224
""")
HF = words("convnext mobilevit dinov2_with_registers segformer siglip swin vit sam")
# Norms on (N, C, H, W): subclasses of LayerNorm, and a BatchNorm in a module called Embedding.
NORMS = {
    "convnext_tiny": ("features.0.1", "features.0.1"),
    "timm:test_convnext": ("stages.1.downsample.0", "stages.1.downsample.0"),
    "timm:swiftformer_xs": ("stages.1.downsample", "stages.1.downsample.norm"),
}
CAT = PHOTOS / "cat.png"
SMP = words("unet/resnet18 segformer/mit_b0 deeplabv3plus/mobilenet_v2")


def check(name: str, size: int | None = None) -> None:
    """Require that hookcli states no wrong axis, and that most outputs have one."""
    verdict = compare(ModelRequest(name, weights="random", device="cpu", size=size))
    assert not verdict.wrong, "\n" + "\n".join(map(str, verdict.wrong))
    assert not verdict.unseen
    assert verdict.right > 8 * (verdict.unstated + verdict.undecided)


@pytest.mark.parametrize("model", sorted(SMALL))
def test_no_output_of_torchvision_has_a_wrong_channel_axis(model):
    name, _, size = model.partition(":")
    check(name, int(size))


@pytest.mark.parametrize("model", sorted(TIMM))
def test_no_output_of_timm_has_a_wrong_channel_axis(model):
    pytest.importorskip("timm")
    check(f"timm:{model}")


@pytest.mark.parametrize("model", sorted(HF))
def test_no_output_of_transformers_has_a_wrong_channel_axis(model, hf, tmp_path):
    module, processor = make(hf, model)
    module.save_pretrained(tmp_path / model)
    processor.save_pretrained(tmp_path / model)
    check(f"hf:{tmp_path / model}")


@pytest.mark.parametrize("model", sorted(SMP))
def test_no_output_of_smp_has_a_wrong_channel_axis(model):
    pytest.importorskip("segmentation_models_pytorch")
    check(f"smp:{model}", 64)


@pytest.fixture(params=NORMS)
def norm(request, run):
    """A norm, and a function that inspects it and returns the row of its output."""
    name = request.param
    layer, weights = NORMS[name]
    loaded = load_model(ModelRequest(name, weights="random", device="cpu", size=64))

    def inspect(*words):
        common = ("--layers", layer, "--size", "64", "--device", "cpu", "--grids", "none")
        ended = run("inspect", name, CAT, *common, "--format", "json", "-o", "out", *words)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)["layers"][0]

    return loaded, layer, loaded.module.get_submodule(weights), inspect


def output_of(loaded, layer):
    """What the layer returns for the photo, (1, C, H, W), by the plainest hook."""
    seen = []
    module = loaded.module.get_submodule(layer)
    handle = module.register_forward_hook(lambda *call: seen.append(call[2].clone()))
    with Image.open(CAT) as image, torch.no_grad():
        loaded.module(loaded.prepare.to_pixels([image.convert("RGB")])[None])
    handle.remove()
    return seen[0]


def test_channels_that_a_norm_of_maps_makes_zero_are_counted_as_dead(norm, tmp_path):
    loaded, layer, weights, inspect = norm
    with torch.no_grad():
        weights.weight[:5] = 0
        weights.bias[:5] = 0
    torch.save(loaded.module.state_dict(), tmp_path / "five.pth")
    channels = output_of(loaded, layer)[0]
    assert [not bool(each.any()) for each in channels] == [True] * 5 + [False] * (len(channels) - 5)
    row = inspect("--weights", tmp_path / "five.pth")
    assert (row["dead_channels"], row["channels"]) == (5, len(channels))


def test_an_edit_of_one_channel_of_a_norm_of_maps_changes_that_channel(norm):
    loaded, layer, _, inspect = norm
    inspect("--weights", "random", "--save", "tensors", "--edit", layer + "{3}:zero")
    expected = output_of(loaded, layer)
    expected[:, 3] = 0
    torch.testing.assert_close(torch.as_tensor(hookcli.load_run("out")[layer]), expected)


def test_pooled_features_of_a_norm_of_maps_are_the_means_of_its_channels(norm):
    loaded, layer, _, inspect = norm
    inspect("--weights", "random", "--save", "tensors", "--pool", "mean")
    pooled = torch.as_tensor(hookcli.load_run("out")[layer])
    torch.testing.assert_close(pooled.flatten(1), output_of(loaded, layer).mean((2, 3)))
