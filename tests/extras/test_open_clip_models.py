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
from safetensors.torch import save_file

from hookcli.config import ModelRequest
from hookcli.errors import UnknownModelError, WeightsError
from hookcli.networks.load import load_model
from tests.conftest import PHOTOS
from tests.extras.plain_hooks import clone_leaves, count_equal, forward, observe_leaves, opaque
from tests.hub_server import MAIN, Hub, as_the_hub, nowhere, serving
from tests.passes.test_features import find_in

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.libraries

CAT = PHOTOS / "cat.png"
LOOK = ("--layers", "leaf", "--grids", "none", "-q", "-o", "out", "--device", "cpu")
TEXT = {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1}
VISION = {
    "vit": {"image_size": 32, "layers": 2, "width": 32, "head_width": 8, "patch_size": 8},
    "resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8},
    "timm": {
        "image_size": 160,
        "timm_model_name": "test_resnet",
        "timm_model_pretrained": False,
        "timm_pool": "avg",
        "timm_proj": "linear",
    },
}
PREPARED = {
    "vit": {"mean": [0.5, 0.4, 0.3], "std": [0.5, 0.6, 0.7]},
    "resnet": {"interpolation": "bicubic", "resize_mode": "shortest"},
    "timm": {"interpolation": "bilinear", "resize_mode": "squash"},
}


@pytest.fixture(scope="module")
def library():
    """The package, imported only where these tests run."""
    return pytest.importorskip("open_clip")


@pytest.fixture(scope="module")
def models(library, tmp_path_factory):
    """A folder for each architecture, with the files that open_clip reads."""
    home = tmp_path_factory.mktemp("open_clip")
    for name, vision in VISION.items():
        folder = home / name
        folder.mkdir()
        config = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": TEXT}
        content = {"model_cfg": config, "preprocess_cfg": PREPARED[name]}
        (folder / "open_clip_config.json").write_text(json.dumps(content))
        torch.manual_seed(0)
        model = library.create_model(f"local-dir:{folder}", load_weights=False)
        save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return home


def own_model(library, folder):
    """The whole model and the transform, as open_clip's user makes them."""
    model, _, transform = library.create_model_and_transforms(f"local-dir:{folder}")
    return model.eval(), transform


@pytest.mark.parametrize("name", VISION)
def test_every_leaf_is_what_an_independent_hook_clones(library, models, photos, tmp_path, name):
    model, transform = own_model(library, models / name)
    expected, _ = clone_leaves(model.visual, transform(opaque(photos[0]))[None])
    run = observe_leaves(f"open_clip:{models / name}", photos[0], tmp_path / "run")
    assert count_equal(run, expected) > 10


@pytest.mark.parametrize("name", VISION)
def test_pixels_are_those_of_open_clips_own_transform_bit_by_bit(library, models, photos, name):
    prepare = load_model(ModelRequest(f"open_clip:{models / name}")).prepare
    _, transform = own_model(library, models / name)
    for file in photos:
        mine = prepare.to_pixels([opaque(file)])
        assert torch.equal(mine, transform(opaque(file))), file.name


def test_requested_changes_of_the_preprocessing_are_made(library, models, photos):
    changes: Any = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "interpolation": "bilinear"}
    request = ModelRequest(f"open_clip:{models / 'vit'}", size=40, **changes)
    config = library.transform.PreprocessCfg(size=40, **changes)
    transform = library.transform.image_transform_v2(config, is_train=False)
    picture = opaque(photos[-1])
    assert torch.equal(load_model(request).prepare.to_pixels([picture]), transform(picture))


@pytest.mark.parametrize("name", VISION)
def test_the_output_is_the_embedding_of_the_picture(library, models, photos, name):
    loaded = load_model(ModelRequest(f"open_clip:{models / name}"))
    model, transform = own_model(library, models / name)
    for file in photos[:3]:
        with torch.no_grad():
            expected = model.encode_image(transform(opaque(file))[None])
        output = forward(loaded, opaque(file))
        assert torch.equal(output, expected)
        ((said,),) = loaded.read(output)
        assert said.category == "16 features, no classes"


def test_attention_and_gradients_of_the_vision_part_are_found(run, models):
    name = f"open_clip:{models / 'vit'}"
    words = ("--layers", "attention", "--attention", "all", "--format", "json")
    ended = run("inspect", name, CAT, *words, "--grids", "none", "-q", "-o", "out")
    assert ended.code == 0, ended.err
    assert [each["heads"] for each in json.loads(ended.out)["attention"]] == [4, 4]
    ended = run("gradients", name, CAT, *LOOK, "--overwrite", "--target", "3")
    assert ended.code == 0, ended.err


def test_another_size_is_built_for_pictures_of_that_size(run, models):
    ended = run("layers", f"open_clip:{models / 'vit'}", "--size", "64", "--format", "json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["input_shape"] == [1, 3, 64, 64]


def test_a_model_by_name_has_random_weights_and_says_which_there_are(library):
    loaded = load_model(ModelRequest("open_clip:RN50"))
    assert not loaded.info.trained
    assert "names no weights, such as open_clip:RN50/openai" in loaded.info.warning
    with pytest.raises(WeightsError, match="names no weights"):
        load_model(ModelRequest("open_clip:RN50", weights="pretrained"))


def test_a_model_of_the_hub_is_downloaded(run, models, tmp_path):
    hub = Hub()
    hub.add("zoo/clip", models / "vit")
    with serving(hub), as_the_hub(hub.url, tmp_path / "hub"):
        ended = run("inspect", "open_clip:hf-hub:zoo/clip", CAT, *LOOK, "--weights", "pretrained")
        assert ended.code == 0, ended.err
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["model"]["weights"] == f"zoo/clip@{MAIN[:12]}"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("open_clip:ViT-B-33", "open_clip:ViT-B-32"),
        ("open_clip:RN50/opena", "open_clip:RN50/openai"),
    ],
)
def test_an_unknown_name_or_tag_is_refused_with_near_ones(library, name, near):
    with pytest.raises(UnknownModelError) as refused:
        load_model(ModelRequest(name))
    assert near in refused.value.hint


def refused(ended, code):
    """The error and the hint of a command that failed."""
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    lines = [line for line in ended.err.splitlines() if line.startswith(("error: ", "hint: "))]
    return " ".join(lines)


def test_a_library_that_is_not_installed_is_named_with_the_command(run, monkeypatch):
    def missing(_function):
        raise ImportError

    monkeypatch.setattr("hookcli.networks.without_compiler.call_without_compiler", missing)
    said = refused(run("inspect", "open_clip:RN50", CAT, *LOOK), 2)
    assert "open_clip:RN50 needs open_clip" in said
    assert "pip install 'hookcli[open_clip]'" in said


@pytest.mark.parametrize(
    ("file", "code", "error"),
    [
        ("open_clip_config.json", 4, "has no open_clip_config.json"),
        ("open_clip_model.safetensors", 4, "has no weights"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused(run, models, file, code, error):
    shutil.copytree(models / "vit", "own")
    (Path("own") / file).unlink()
    ended = run("inspect", "open_clip:own", CAT, *LOOK, "--weights", "pretrained")
    assert error in refused(ended, code)


def test_a_folder_without_weights_is_random_and_said_so(run, models):
    shutil.copytree(models / "vit", "own")
    Path("own/open_clip_model.safetensors").unlink()
    ended = run("inspect", "open_clip:own", CAT, *LOOK)
    assert ended.code == 0
    assert "RANDOM" in ended.err


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("model_cfg", {}),
        ("model_cfg", {"embed_dim": 16, "vision_cfg": {"patch_size": 0}, "text_cfg": {}}),
        ("preprocess_cfg", {"mean": "x"}),
        ("preprocess_cfg", {"std": [0, 0, 0]}),
        ("preprocess_cfg", {"interpolation": "q"}),
    ],
)
def test_a_configuration_that_describes_no_model_is_refused(run, models, section, content):
    shutil.copytree(models / "vit", "own")
    file = Path("own/open_clip_config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {section: content}))
    said = refused(run("layers", "open_clip:own"), 4)
    assert "open_clip:own" in said
    assert "its configuration may be damaged" in said


def test_damaged_weights_are_refused(run, models):
    shutil.copytree(models / "vit", "own")
    Path("own/open_clip_model.safetensors").write_bytes(b"\xff" * 64)
    ended = run("inspect", "open_clip:own", CAT, *LOOK, "--weights", "pretrained")
    assert "cannot read the weights own/open_clip_model.safetensors: " in refused(ended, 4)


class Evil:
    """Opens a file when it is unpickled."""

    def __reduce__(self):
        return (open, ("ran", "w"))


def test_a_pickle_that_would_run_code_is_refused(run, models):
    shutil.copytree(models / "vit", "own")
    Path("own/open_clip_model.safetensors").unlink()
    torch.save({"visual.proj": Evil()}, "own/open_clip_pytorch_model.bin")
    ended = run("inspect", "open_clip:own", CAT, *LOOK, "--weights", "pretrained")
    assert "holds more than tensors (io.open)" in refused(ended, 4)
    assert not Path("ran").exists()


def test_weights_that_nobody_has_cached_need_a_network(run, library, tmp_path):
    with as_the_hub(nowhere(), tmp_path / "hub"):
        name = "open_clip:ViT-B-32/laion2b_e16"
        ended = run("inspect", name, CAT, *LOOK, "--weights", "pretrained")
    assert "cannot get the weights" in refused(ended, 4)


@pytest.mark.parametrize("name", VISION)
def test_the_features_for_a_map_are_the_embedding(models, name):
    assert find_in(load_model(ModelRequest(f"open_clip:{models / name}"))) == "(model)"


@pytest.mark.parametrize(
    ("section", "fields"),
    [
        ("vision_cfg", {"timm_model_name": "hf-hub:org/name"}),
        ("vision_cfg", {"timm_model_name": "local-dir:../other"}),
        ("vision_cfg", {"timm_model_name": "nosuch"}),
        ("vision_cfg", {"width": 2**40}),
        ("vision_cfg", {"width": 2**13, "layers": 64}),
        ("vision_cfg", {"layers": 2**24}),
        ("vision_cfg", {"image_size": 2**20}),
        ("text_cfg", {"hf_model_name": "org/name"}),
        ("text_cfg", {"hf_model_name": "../own"}),
        ("text_cfg", {"vocab_size": "x"}),
    ],
)
def test_a_hostile_configuration_is_refused_offline(run, models, connections, section, fields):
    shutil.copytree(models / "vit", "own")
    file = Path("own/open_clip_config.json")
    content = json.loads(file.read_text())
    content["model_cfg"][section] |= fields
    file.write_text(json.dumps(content))
    refused(run("inspect", "open_clip:own", CAT, *LOOK), 4)
    assert connections == []


def test_the_file_that_is_hashed_is_the_one_that_is_loaded(run, models, connections):
    shutil.copytree(models / "vit", "own")
    file = Path("own/open_clip_model.safetensors").rename("own/open_clip_pytorch_model.safetensors")
    shutil.copy(models / "timm/open_clip_model.safetensors", "own/open_clip_pytorch_model.bin")
    ended = run("inspect", "open_clip:own", CAT, *LOOK, "--weights", "pretrained")
    assert ended.code == 0, ended.err
    assert hashlib.sha256(file.read_bytes()).hexdigest() in Path("out/manifest.json").read_text()
    assert connections == []
