"""The channel axis of every output of 36 models, against an oracle that moves single channels."""

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
from tests.extras.channel_oracle import compare
from tests.extras.tiny_transformers import make

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.channels

MODELS = [
    "alexnet@64", "convnext_tiny@64", "densenet121@64", "efficientnet_b0@64",
    "efficientnet_v2_s@64", "fasterrcnn_mobilenet_v3_large_320_fpn@64", "fcn_resnet50@64",
    "googlenet@64", "lraspp_mobilenet_v3_large@64", "mc3_18@32", "mnasnet0_5@64",
    "mobilenet_v2@64", "mobilenet_v3_small@64", "regnet_x_400mf@64", "resnet18@64",
    "shufflenet_v2_x0_5@64", "squeezenet1_1@64", "ssdlite320_mobilenet_v3_large@64", "swin_t@64",
    "vgg11_bn@64", "timm:efficientvit_b0", "timm:mobilevitv2_050", "timm:poolformerv2_s12",
    "timm:swiftformer_xs", "timm:test_coatnet", "timm:test_convnext", "timm:test_vit",
    "smp:unet/resnet18@64", "smp:segformer/mit_b0@64",
]  # fmt: skip
HF = ("convnext", "mobilevit", "dinov2_with_registers", "segformer", "siglip", "swin", "vit")
# Norms on (N, C, H, W): subclasses of LayerNorm, and a BatchNorm in a module called Embedding.
NORMS = {
    "convnext_tiny": ("features.0.1", "features.0.1"),
    "timm:swiftformer_xs": ("stages.1.downsample", "stages.1.downsample.norm"),
}
CAT = PHOTOS / "cat.png"


def check(name: str, size: int | None = None) -> None:
    """Require that hookcli states no wrong axis, and that the oracle knows most of them."""
    verdict = compare(ModelRequest(name, weights="random", device="cpu", size=size))
    assert verdict.wrong == []
    assert not verdict.unseen
    assert verdict.right > 4 * (verdict.unstated + verdict.undecided)


@pytest.mark.parametrize("model", MODELS)
def test_no_output_of_a_model_has_a_wrong_channel_axis(model):
    name, _, size = model.partition("@")
    check(name, int(size) if size else None)


@pytest.mark.parametrize("model", HF)
def test_no_output_of_transformers_has_a_wrong_channel_axis(model, hf, tmp_path):
    module, processor = make(hf, model)
    module.save_pretrained(tmp_path / model)
    processor.save_pretrained(tmp_path / model)
    check(f"hf:{tmp_path / model}")


@pytest.fixture(params=NORMS)
def norm(request, run):
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
