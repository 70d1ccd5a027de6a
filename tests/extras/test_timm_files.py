"""Models of timm from a folder and from the hub, and as backbones that return features."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from hookcli.config import ModelRequest
from hookcli.errors import ModelError, RequestError, WeightsError
from hookcli.networks.load import build_skeleton, load_model
from tests.conftest import PHOTOS
from tests.hub_server import MAIN, OLD, Hub, as_the_hub, serving
from tests.two_directories import members_of, with_two_directories

timm = pytest.importorskip("timm")

SMALL = "test_resnet"  # timm's own toy: 160 x 160, half a million parameters
NAMES = ["cat", "dog", "cup"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder as timm's ``save_for_hf`` writes it."""
    from timm.models import save_for_hf

    folder = tmp_path_factory.mktemp("timm") / "saved"
    torch.manual_seed(0)
    model = timm.create_model(SMALL, num_classes=3)
    save_for_hf(model, str(folder), safe_serialization=True, model_config={"label_names": NAMES})
    return folder


@pytest.fixture
def own(saved):
    """A copy, for a test to damage."""
    return Path(shutil.copytree(saved, "own"))


def test_a_folder_gives_the_weights_and_the_class_names(saved):
    loaded = load_model(ModelRequest(f"timm:{saved}"))
    expected = timm.create_model(f"local-dir:{saved}", pretrained=True).state_dict()
    mine = loaded.module.state_dict()
    assert loaded.info.trained
    assert mine.keys() == expected.keys()
    assert all(torch.equal(mine[key], expected[key]) for key in mine)
    assert loaded.categories == tuple(NAMES)


def test_pixels_are_those_of_timms_own_transform_bit_by_bit(saved):
    from PIL import Image
    from timm.data import create_transform, resolve_model_data_config

    loaded = load_model(ModelRequest(f"timm:{saved}"))
    transform = create_transform(**resolve_model_data_config(loaded.module))
    with Image.open(PHOTOS / "cat.png") as photo:
        picture = photo.convert("RGB")
    assert torch.equal(loaded.prepare.to_pixels([picture]), transform(picture))


def test_a_revision_of_the_hub_is_downloaded(saved, own, tmp_path):
    from safetensors.torch import load_file, save_file

    hub = Hub()
    hub.add("zoo/net", saved)
    tensors = load_file(own / "model.safetensors")
    tensors["fc.bias"] += 1
    save_file(tensors, own / "model.safetensors")
    hub.add("zoo/net", own, OLD)
    with serving(hub), as_the_hub(hub.url, tmp_path / "hub"):
        new, old = (load_model(ModelRequest(f"timm:hf-hub:zoo/net{at}")) for at in ("", "@old"))
    assert (new.info.weights, old.info.weights) == (f"zoo/net@{MAIN[:12]}", f"zoo/net@{OLD[:12]}")
    before, after = (each.module.get_parameter("fc.bias") for each in (new, old))
    assert torch.equal(after, before + 1)


def test_a_folder_without_weights_is_random_or_refused(own):
    (own / "model.safetensors").unlink()
    loaded = load_model(ModelRequest("timm:own"))
    assert not loaded.info.trained
    assert "timm:own has no weights" in loaded.info.warning
    with pytest.raises(WeightsError, match="timm:own has no weights"):
        load_model(ModelRequest("timm:own", weights="pretrained"))


class Evil:
    """Opens a file when it is unpickled."""

    def __reduce__(self):
        return (open, ("ran", "w"))


def test_a_pickle_that_would_run_code_is_refused(own):
    (own / "model.safetensors").unlink()
    torch.save({"fc.bias": Evil()}, own / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="holds more than tensors"):
        load_model(ModelRequest("timm:own", weights="pretrained"))
    assert not Path("ran").exists()


def test_damaged_weights_are_refused(own):
    (own / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(WeightsError, match=r"cannot read the weights own/model\.safetensors: dam"):
        load_model(ModelRequest("timm:own", weights="pretrained"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "config.json cannot be read: Expecting"),
        ("[]", "is no model of timm"),
        ('{"architecture": []}', "is no model of timm"),
        ('{"model_type": "vit"}', "config.json names no architecture"),
        ('{"architecture": "resnet9000"}', "has no 'resnet9000', the architecture of timm:own"),
    ],
)
def test_a_configuration_that_timm_cannot_read_is_refused(own, text, error):
    (own / "config.json").write_text(text)
    with pytest.raises(ModelError, match=error):
        load_model(ModelRequest("timm:own"))


@pytest.mark.parametrize("names", [5, "cat", {"cat": 1}, [1, None, {}]])
def test_class_names_of_a_wrong_type_are_no_names(own, names):
    content = json.loads((own / "config.json").read_text()) | {"label_names": names}
    (own / "config.json").write_text(json.dumps(content))
    assert all(isinstance(each, str) for each in load_model(ModelRequest("timm:own")).categories)


def test_a_folder_without_configuration_is_refused(own):
    (own / "config.json").unlink()
    with pytest.raises(ModelError, match=r"timm:own has no config\.json"):
        load_model(ModelRequest("timm:own"))


def test_a_path_that_is_no_folder_is_refused():
    with pytest.raises(RequestError, match=r"there is no folder './nowhere'"):
        load_model(ModelRequest("timm:./nowhere"))


def test_a_backbone_returns_the_features_of_its_stages(run):
    words = ("--model-arg", "features_only=true", "--format", "json")
    look = ("--layers", "conv", "--grids", "none", "-q", "-o", "out")
    ended = run("inspect", f"timm:{SMALL}", PHOTOS / "cat.png", *look, *words)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["images"][0]["predictions"] == []
    assert run("layers", f"timm:{SMALL}", *words).code == 0
    arguments = (("features_only", "true"),)
    names = {
        name
        for name, _ in build_skeleton(
            ModelRequest(f"timm:{SMALL}", arguments=arguments)
        ).module.named_modules()
    }
    assert names == {
        name for name, _ in timm.create_model(SMALL, features_only=True).named_modules()
    }


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("architecture",), "hf-hub:org/name"),
        (("num_classes",), 2**40),
        (("num_classes",), "x"),
        (("model_args",), {"stages": [2**24] * 4}),
        (("model_args",), {"img_size": 2**20}),
        (("model_args",), {"checkpoint_path": "../other.pth"}),
        (("model_args",), 5),
        (("pretrained_cfg",), 5),
        (("pretrained_cfg", "crop_pct"), 1e-9),
        (("pretrained_cfg", "crop_pct"), "x"),
        (("pretrained_cfg", "input_size"), [3, 2**24, 2**24]),
        (("pretrained_cfg", "input_size"), 5),
        (("pretrained_cfg", "interpolation"), "nope"),
    ],
)
def test_a_hostile_configuration_is_refused_offline(run, own, connections, place, value):
    file = own / "config.json"
    content = part = json.loads(file.read_text())
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    file.write_text(json.dumps(content))
    ended = run("inspect", "timm:./own", PHOTOS / "cat.png", "--grids", "none", "-q")
    assert ended.code == 4, ended.err
    assert len(ended.err.splitlines()) <= 2
    assert connections == []


def test_a_folder_is_read_without_a_connection(run, own, connections):
    words = ("--grids", "none", "-q", "--weights", "pretrained")
    assert run("inspect", "timm:./own", PHOTOS / "cat.png", *words).code == 0
    assert connections == []


def test_a_file_of_weights_with_two_directories_is_refused(own):
    (own / "model.safetensors").unlink()
    members = []
    for number in (0, 1):
        torch.save({"a": torch.full((3,), number)}, "w.bin")
        members.append(members_of(Path("w.bin").read_bytes()))
    (own / "pytorch_model.bin").write_bytes(with_two_directories(members[0], members[1]))
    with pytest.raises(WeightsError, match="may have a second directory"):
        load_model(ModelRequest("timm:own", weights="pretrained"))
