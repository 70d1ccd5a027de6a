"""Folders of models of four libraries: what is read of them, and what is refused in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import PHOTOS
from tests.hub_server import MAIN, Hub, as_the_hub, serving
from tests.two_directories import members_of, with_two_directories

os.environ["HF_HUB_OFFLINE"] = "1"
LOOK = (PHOTOS / "cat.png", "--grids", "none", "-q", "-o", "out", "--overwrite", "--device", "cpu")
PRETRAINED = ("--weights", "pretrained")
# The folder, by fixture, and the names of its configuration, its weights, and weights in pickles
LIBRARIES = {
    "timm": ("timm_folder", "config.json", "model.safetensors", "pytorch_model.bin"),
    "open_clip": (
        "clips/vit",
        "open_clip_config.json",
        "open_clip_model.safetensors",
        "open_clip_pytorch_model.bin",
    ),
    "smp": ("smp_folders/unet", "config.json", "model.safetensors", ""),
    "hf": ("folders/vit", "config.json", "model.safetensors", "pytorch_model.bin"),
}
MARKS: dict[str, Any] = {
    "timm": (),
    "open_clip": pytest.mark.libraries,
    "smp": pytest.mark.libraries,
    "hf": pytest.mark.transformers,
}


class Own:
    def __init__(self, library, folder, run):
        _, self.config, self.weights, self.pickled = LIBRARIES[library]
        self.library, self.folder = library, Path(shutil.copytree(folder, "own"))
        self.run = run

    def configure(self, change, file=""):
        path = self.folder / (file or self.config)
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    def inspect(self, *words, code=0, name="./own"):
        """The lines on stderr of a run that ends with this code, an error with one hint at most."""
        ended = self.run("inspect", f"{self.library}:{name}", *LOOK, *words)
        assert ended.code == code, ended.err
        assert "Traceback" not in ended.err
        assert ended.err.count("hint: ") <= 1
        return ended.err


@pytest.fixture
def own(request, run):
    name, _, part = LIBRARIES[request.param][0].partition("/")
    return Own(request.param, Path(request.getfixturevalue(name), part), run)


def of(*libraries):
    params = [pytest.param(each, marks=MARKS[each]) for each in libraries or LIBRARIES]
    return pytest.mark.parametrize("own", params, indirect=True)


@of()
def test_a_folder_is_read_without_a_connection(own, connections):
    assert "RANDOM" not in own.inspect(*PRETRAINED)
    assert connections == []


@of()
def test_a_folder_without_weights_is_random_or_refused(own):
    (own.folder / own.weights).unlink()
    assert "RANDOM" in own.inspect()
    assert "has no weights" in own.inspect(*PRETRAINED, code=4)


@of()
def test_a_folder_without_configuration_is_refused(own):
    (own.folder / own.config).unlink()
    assert f"has no {own.config}" in own.inspect(code=4)


@of()
def test_damaged_weights_are_refused(own):
    (own.folder / own.weights).write_bytes(b"\xff" * 64)
    assert f"cannot read the weights own/{own.weights}: dam" in own.inspect(*PRETRAINED, code=4)


class Evil:
    def __reduce__(self):
        return (open, ("ran", "w"))


@of("timm", "open_clip", "hf")
def test_a_pickle_that_would_run_code_is_refused(own):
    (own.folder / own.weights).unlink()
    torch.save({"fc.bias": Evil()}, own.folder / own.pickled)
    assert re.search(r"holds more than tensors \(_?io.open\)", own.inspect(*PRETRAINED, code=4))
    assert not Path("ran").exists()


@of("timm", "hf")
def test_a_file_of_weights_with_two_directories_is_refused(own):
    (own.folder / own.weights).unlink()
    members = []
    for number in (0, 1):
        torch.save({"a": torch.full((3,), number)}, "w.bin")
        members.append(members_of(Path("w.bin").read_bytes()))
    (own.folder / own.pickled).write_bytes(with_two_directories(members[0], members[1]))
    assert "it may have a second directory" in own.inspect(*PRETRAINED, code=4)


@of("open_clip", "smp")
def test_a_model_of_the_hub_is_downloaded(own, tmp_path):
    hub = Hub()
    hub.add("zoo/net", own.folder)
    with serving(hub), as_the_hub(hub.url, tmp_path / "hub"):
        own.inspect(*PRETRAINED, name="hf-hub:zoo/net")
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["model"]["weights"] == f"zoo/net@{MAIN[:12]}"


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("open_clip:RN50", "open_clip", "open-clip"),
        ("smp:unet/resnet18", "segmentation_models_pytorch", "smp"),
        ("hf-config:vit", "transformers", "hf"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_the_command(
    run, monkeypatch, name, package, extra
):
    def missing(_function):
        raise ImportError

    monkeypatch.setattr("hookcli.networks.without_compiler.call_without_compiler", missing)
    ended = run("inspect", name, *LOOK)
    assert (ended.code, ended.err) == (
        2,
        f"error: {name} needs {package}\nhint: install it: pip install 'hookcli[{extra}]'\n",
    )


HOSTILE = {
    "timm": [
        {"architecture": "hf-hub:org/name"},
        {"num_classes": 2**40},
        {"model_args": {"checkpoint_path": "../other.pth"}},
        {"model_args": 5},
        {"pretrained_cfg": {"crop_pct": 1e-9}},
        {"pretrained_cfg": {"input_size": [3, 2**24, 2**24]}},
    ],
    "open_clip": [
        {"model_cfg": {"vision_cfg": {"timm_model_name": "hf-hub:org/name"}}},
        {"model_cfg": {"vision_cfg": {"timm_model_name": "local-dir:../other"}}},
        {"model_cfg": {"vision_cfg": {"width": 2**40}}},
        {"model_cfg": {"text_cfg": {"hf_model_name": "org/name"}}},
    ],
    "smp": [
        {"encoder_name": "tu-hf-hub:org/name"},
        {"encoder_name": "tu-local-dir:../other"},
        {"classes": 2**40},
        {"decoder_channels": [10**6] * 5},
        {"_model_class": "Nope"},
    ],
    "hf": [
        {"architectures": [5]},
        {"hidden_size": 2**40},
        {"num_hidden_layers": 4096},
        {"quantization_config": {"quant_method": "eetq"}},
        {"transformers_weights": "other.safetensors"},
        {"model_type": "detr", "backbone": "hf-hub:org/name", "use_timm_backbone": True},
        {"model_type": "maskformer", "backbone": "org/name"},
    ],
}


def merge(content, changes):
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(content.get(key), dict):
            merge(content[key], value)
        else:
            content[key] = value


@pytest.mark.parametrize(
    ("own", "changes"),
    [
        pytest.param(library, changes, marks=MARKS[library])
        for library, several in HOSTILE.items()
        for changes in several
    ],
    indirect=["own"],
)
def test_a_hostile_configuration_is_refused_at_once_and_offline(own, connections, changes):
    own.configure(lambda content: merge(content, changes))
    began = time.monotonic()
    own.inspect(code=4)
    assert time.monotonic() - began < 10
    assert connections == []
