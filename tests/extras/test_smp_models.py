"""Models named ``smp:``, against what segmentation_models_pytorch does with the same files."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL.Image import Resampling

from hookcli.config import ModelRequest
from hookcli.errors import RequestError, UnknownModelError
from hookcli.networks.load import load_model
from tests.conftest import PHOTOS
from tests.extras.conftest import ENCODERS
from tests.extras.plain_hooks import clone_leaves, count_equal, forward, observe_leaves, opaque
from tests.extras.test_open_clip_models import refused
from tests.hub_server import Hub, as_the_hub, serving
from tests.passes.test_features import find_in

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.libraries

CAT = PHOTOS / "cat.png"
LOOK = ("--layers", "conv", "--grids", "none", "-q", "-o", "out", "--size", "64")
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def own_pixels(smp, picture, settings=IMAGENET, short=512):
    """The pixels by the library's own function, after the resizing that hookcli's docs tell."""
    scale = short / min(picture.size)
    size = [max(1, math.floor(side * scale / 32 + 0.5)) * 32 for side in picture.size]
    resized = np.asarray(picture.resize(size, Resampling.BILINEAR))
    prepared = smp.encoders.preprocess_input(resized, input_range=[0, 1], **settings)
    return torch.from_numpy(prepared.transpose(2, 0, 1)).float()


@pytest.mark.parametrize("arch", ENCODERS)
def test_every_leaf_is_what_an_independent_hook_clones(smp, smp_folders, photos, tmp_path, arch):
    model = smp.from_pretrained(smp_folders / arch).eval()
    pixels = own_pixels(smp, opaque(photos[0]))
    expected, _ = clone_leaves(model, pixels[None])
    run = observe_leaves(f"smp:{smp_folders / arch}", photos[0], tmp_path / "run")
    assert count_equal(run, expected) > 10


@pytest.mark.parametrize("arch", ENCODERS)
def test_pixels_are_those_of_the_encoders_own_function_bit_by_bit(smp, smp_folders, photos, arch):
    prepare = load_model(ModelRequest(f"smp:{smp_folders / arch}")).prepare
    for file in photos:
        mine = prepare.to_pixels([opaque(file)])
        assert torch.equal(mine, own_pixels(smp, opaque(file))), file.name


@pytest.mark.parametrize("arch", ENCODERS)
def test_shares_of_the_classes_are_those_of_the_models_own_labels(smp, smp_folders, photos, arch):
    loaded = load_model(ModelRequest(f"smp:{smp_folders / arch}"))
    model = smp.from_pretrained(smp_folders / arch).eval()
    for file in photos[:3]:
        with torch.no_grad():
            logits = model(own_pixels(smp, opaque(file))[None])
        shares = logits[0].argmax(0).flatten().bincount(minlength=3).double() / logits[0, 0].numel()
        (said,) = loaded.read(forward(loaded, opaque(file)))
        assert {each.category: each.value for each in said} == pytest.approx(
            {f"class {index}": float(share) for index, share in enumerate(shares) if share}
        )


def test_settings_of_the_encoder_are_those_that_the_library_downloads(smp, photos, tmp_path):
    settings = {"mean": [0.5, 0.4, 0.3], "std": [0.3, 0.4, 0.5]}
    origin = smp.encoders.encoders["resnet18"]["pretrained_settings"]["imagenet"]
    (tmp_path / "settings").mkdir()
    content = {"input_space": "RGB", "input_range": [0, 1], **settings}
    (tmp_path / "settings" / "config.json").write_text(json.dumps(content))
    hub = Hub()
    hub.add(origin["repo_id"], tmp_path / "settings", origin["revision"])
    with serving(hub), as_the_hub(hub.url, tmp_path / "hub"):
        prepare = load_model(ModelRequest("smp:unet/resnet18", weights="random")).prepare
    picture = opaque(photos[0])
    assert torch.equal(prepare.to_pixels([picture]), own_pixels(smp, picture, settings))


def test_settings_that_cannot_be_reached_are_imagenets_and_said_so(smp):
    words = load_model(ModelRequest("smp:unet/resnet18", weights="random")).info.preprocessing
    assert words.endswith("(ImageNet's: the encoder's own cannot be reached)")


def test_an_unknown_architecture_or_encoder_is_refused_with_near_ones(smp):
    with pytest.raises(UnknownModelError) as refused:
        load_model(ModelRequest("smp:unett/resnet18"))
    assert "smp:unet/resnet18" in refused.value.hint
    with pytest.raises(RequestError, match="has no encoder 'resnet19'") as refused:
        load_model(ModelRequest("smp:unet/resnet19"))
    assert "resnet18" in refused.value.hint


@pytest.mark.parametrize("text", ["{", '{"_model_class": []}'])
def test_a_damaged_configuration_is_refused(run, smp_folders, text):
    shutil.copytree(smp_folders / "unet", "own")
    Path("own/config.json").write_text(text)
    said = refused(run("inspect", "smp:own", CAT, *LOOK), 4)
    assert (
        "is no model of segmentation_models_pytorch" in said or "config.json cannot be read" in said
    )


def test_a_size_is_that_of_both_sides(smp, photos):
    prepare = load_model(ModelRequest("smp:unet/resnet18", weights="random", size=100)).prepare
    resized = opaque(photos[0]).resize((100, 100), Resampling.BILINEAR)
    prepared = smp.encoders.preprocess_input(np.asarray(resized), input_range=[0, 1], **IMAGENET)
    expected = torch.from_numpy(prepared.transpose(2, 0, 1)).float()
    assert torch.equal(prepare.to_pixels([opaque(photos[0])]), expected)


@pytest.mark.parametrize(
    ("changes", "hint"), [({"size": 100}, "`size=96`"), ({"size": 96, "resize": 128}, "give one")]
)
def test_a_size_that_the_network_cannot_take_is_refused(smp, changes, hint):
    with pytest.raises(RequestError) as refused:
        load_model(ModelRequest("smp:fpn/resnet18", weights="random", **changes))
    assert hint in refused.value.hint


def test_the_features_for_a_map_are_those_of_the_decoder():
    loaded = load_model(ModelRequest("smp:unet/resnet18", weights="random", size=64))
    assert find_in(loaded) == "decoder"


@pytest.mark.parametrize(("encoder", "code"), [("tu-nosuch", 2), ("tu-test_vit", 4)])
def test_an_encoder_that_timm_lacks_or_cannot_divide_is_refused(run, smp, encoder, code):
    words = ("--weights", "random")
    said = refused(run("inspect", f"smp:unet/{encoder}", CAT, *LOOK, *words), code)
    assert encoder in said
