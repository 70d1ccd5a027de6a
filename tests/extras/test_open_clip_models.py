"""Models named ``open_clip:``, against what open_clip itself does with the same files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hookcli.config import ModelRequest
from hookcli.errors import UnknownModelError, WeightsError
from hookcli.networks.load import load_model
from tests.conftest import PHOTOS
from tests.extras.conftest import VISION
from tests.extras.plain_hooks import clone_leaves, count_equal, forward, observe_leaves, opaque
from tests.passes.test_features import find_in

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.libraries

CAT = PHOTOS / "cat.png"
LOOK = ("--layers", "leaf", "--grids", "none", "-q", "-o", "out", "--device", "cpu")


def own_model(open_clip, folder):
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    return model.eval(), transform


@pytest.mark.parametrize("name", VISION)
def test_every_leaf_is_what_an_independent_hook_clones(open_clip, clips, photos, tmp_path, name):
    model, transform = own_model(open_clip, clips / name)
    expected, _ = clone_leaves(model.visual, transform(opaque(photos[0]))[None])
    run = observe_leaves(f"open_clip:{clips / name}", photos[0], tmp_path / "run")
    assert count_equal(run, expected) > 10


@pytest.mark.parametrize("name", VISION)
def test_pixels_are_those_of_open_clips_own_transform_bit_by_bit(open_clip, clips, photos, name):
    prepare = load_model(ModelRequest(f"open_clip:{clips / name}")).prepare
    _, transform = own_model(open_clip, clips / name)
    for file in photos[:2]:
        mine = prepare.to_pixels([opaque(file)])
        assert torch.equal(mine, transform(opaque(file))), file.name


def test_requested_changes_of_the_preprocessing_are_made(open_clip, clips, photos):
    changes: Any = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "interpolation": "bilinear"}
    request = ModelRequest(f"open_clip:{clips / 'vit'}", size=40, **changes)
    config = open_clip.transform.PreprocessCfg(size=40, **changes)
    transform = open_clip.transform.image_transform_v2(config, is_train=False)
    picture, prepare = opaque(photos[-1]), load_model(request).prepare
    assert torch.equal(prepare.to_pixels([picture]), transform(picture))
    assert prepare.nominal_shape == (1, 3, 40, 40)


@pytest.mark.parametrize("name", VISION)
def test_the_output_is_the_embedding_of_the_picture(open_clip, clips, photos, name):
    loaded = load_model(ModelRequest(f"open_clip:{clips / name}"))
    model, transform = own_model(open_clip, clips / name)
    for file in photos[:3]:
        with torch.no_grad():
            expected = model.encode_image(transform(opaque(file))[None])
        output = forward(loaded, opaque(file))
        assert torch.equal(output, expected)
        ((said,),) = loaded.read(output)
        assert said.category == "16 features, no classes"


def test_attention_and_gradients_of_the_vision_part_are_found(run, clips):
    name = f"open_clip:{clips / 'vit'}"
    words = ("--layers", "attention", "--attention", "all", "--format", "json")
    ended = run("inspect", name, CAT, *words, "--grids", "none", "-q", "-o", "out")
    assert ended.code == 0, ended.err
    assert [each["heads"] for each in json.loads(ended.out)["attention"]] == [4, 4]
    ended = run("gradients", name, CAT, *LOOK, "--overwrite", "--target", "3")
    assert ended.code == 0, ended.err


def test_a_model_by_name_has_random_weights_and_says_which_there_are(open_clip):
    loaded = load_model(ModelRequest("open_clip:RN50"))
    assert not loaded.info.trained
    assert "names no weights, such as open_clip:RN50/openai" in loaded.info.warning
    with pytest.raises(WeightsError, match="names no weights"):
        load_model(ModelRequest("open_clip:RN50", weights="pretrained"))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("open_clip:ViT-B-33", "open_clip:ViT-B-32"),
        ("open_clip:RN50/opena", "open_clip:RN50/openai"),
    ],
)
def test_an_unknown_name_or_tag_is_refused_with_near_ones(open_clip, name, near):
    with pytest.raises(UnknownModelError) as refused:
        load_model(ModelRequest(name))
    assert near in refused.value.hint


def refused(ended, code):
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    lines = [line for line in ended.err.splitlines() if line.startswith(("error: ", "hint: "))]
    return " ".join(lines)


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("model_cfg", {"embed_dim": 16, "vision_cfg": {"patch_size": 0}, "text_cfg": {}}),
        ("preprocess_cfg", {"mean": "x"}),
    ],
)
def test_a_configuration_that_describes_no_model_is_refused(run, clips, section, content):
    shutil.copytree(clips / "vit", "own")
    file = Path("own/open_clip_config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {section: content}))
    said = refused(run("layers", "open_clip:own"), 4)
    assert "open_clip:own" in said
    assert "its configuration may be damaged" in said


@pytest.mark.parametrize("name", VISION)
def test_the_features_for_a_map_are_the_embedding(clips, name):
    assert find_in(load_model(ModelRequest(f"open_clip:{clips / name}"))) == "(model)"


def test_the_file_that_is_hashed_is_the_one_that_is_loaded(run, clips, connections):
    shutil.copytree(clips / "vit", "own")
    file = Path("own/open_clip_model.safetensors").rename("own/open_clip_pytorch_model.safetensors")
    shutil.copy(clips / "timm/open_clip_model.safetensors", "own/open_clip_pytorch_model.bin")
    ended = run("inspect", "open_clip:own", CAT, *LOOK, "--weights", "pretrained")
    assert ended.code == 0, ended.err
    assert hashlib.sha256(file.read_bytes()).hexdigest() in Path("out/manifest.json").read_text()
    assert connections == []
