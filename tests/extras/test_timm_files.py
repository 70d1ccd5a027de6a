"""Models of timm from a folder and from the hub, and as backbones that return features."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from hookcli.config import ModelRequest
from hookcli.errors import ModelError
from hookcli.networks.load import build_skeleton, load_model
from tests.conftest import PHOTOS
from tests.hub_server import MAIN, OLD, Hub, as_the_hub, serving

timm = pytest.importorskip("timm")

SMALL = "test_resnet"  # timm's own toy: 160 x 160, half a million parameters


@pytest.fixture
def own(timm_folder):
    return Path(shutil.copytree(timm_folder, "own"))


def test_a_folder_gives_the_weights_and_the_class_names(timm_folder):
    loaded = load_model(ModelRequest(f"timm:{timm_folder}"))
    expected = timm.create_model(f"local-dir:{timm_folder}", pretrained=True).state_dict()
    mine = loaded.module.state_dict()
    assert loaded.info.trained
    assert mine.keys() == expected.keys()
    assert all(torch.equal(mine[key], expected[key]) for key in mine)
    assert loaded.categories == ("cat", "dog", "cup")


def test_a_revision_of_the_hub_is_downloaded(timm_folder, own, tmp_path):
    from safetensors.torch import load_file, save_file

    hub = Hub()
    hub.add("zoo/net", timm_folder)
    tensors = load_file(own / "model.safetensors")
    tensors["fc.bias"] += 1
    save_file(tensors, own / "model.safetensors")
    hub.add("zoo/net", own, OLD)
    with serving(hub), as_the_hub(hub.url, tmp_path / "hub"):
        new, old = (load_model(ModelRequest(f"timm:hf-hub:zoo/net{at}")) for at in ("", "@old"))
    assert (new.info.weights, old.info.weights) == (f"zoo/net@{MAIN[:12]}", f"zoo/net@{OLD[:12]}")
    before, after = (each.module.get_parameter("fc.bias") for each in (new, old))
    assert torch.equal(after, before + 1)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "config.json cannot be read: Expecting"),
        ('{"architecture": []}', "is no model of timm"),
        ('{"architecture": "resnet9000"}', "has no 'resnet9000', the architecture of timm:own"),
    ],
)
def test_a_configuration_that_timm_cannot_read_is_refused(own, text, error):
    (own / "config.json").write_text(text)
    with pytest.raises(ModelError, match=error):
        load_model(ModelRequest("timm:own"))


@pytest.mark.parametrize("names", ["cat", [1, None, {}]])
def test_class_names_of_a_wrong_type_are_no_names(own, names):
    content = json.loads((own / "config.json").read_text()) | {"label_names": names}
    (own / "config.json").write_text(json.dumps(content))
    assert all(isinstance(each, str) for each in load_model(ModelRequest("timm:own")).categories)


def test_a_backbone_returns_the_features_of_its_stages(run):
    words = ("--model-arg", "features_only=true", "--format", "json")
    look = ("--layers", "conv", "--grids", "none", "-q", "-o", "out")
    ended = run("inspect", f"timm:{SMALL}", PHOTOS / "cat.png", *look, *words)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["images"][0]["predictions"] == []
    assert run("layers", f"timm:{SMALL}", *words).code == 0
    request = ModelRequest(f"timm:{SMALL}", arguments=(("features_only", "true"),))
    built = build_skeleton(request).module, timm.create_model(SMALL, features_only=True)
    mine, own = ([name for name, _ in each.named_modules()] for each in built)
    assert mine == own
