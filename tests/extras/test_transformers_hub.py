"""``hf:NAME``, downloaded from a server on this machine that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import hookcli
from hookcli.cli.completion import complete_model
from tests.conftest import PHOTOS
from tests.hub_server import MAIN, Hub, as_the_hub, nowhere, serving

pytestmark = pytest.mark.transformers
CAT = PHOTOS / "cat.png"
LOOK = ("--layers", "classifier", "--grids", "none", "--save", "tensors", "--device", "cpu")


@pytest.fixture
def hub(hf, folders, tmp_path):
    served = Hub()
    served.add("zoo/vit", folders / "vit")
    with serving(served), as_the_hub(served.url, tmp_path / "hub"):
        yield served


def logits(folder):
    return np.asarray(hookcli.load_run(Path(folder))["classifier"])


def test_a_model_of_the_hub_computes_what_its_files_compute_in_a_folder(run, hub, folders):
    ended = run("inspect", "hf:zoo/vit", CAT, *LOOK, "-o", "remote", "--format", "json")
    assert ended.code == 0, ended.err
    assert run("inspect", f"hf:{folders / 'vit'}", CAT, *LOOK, "-o", "here").code == 0
    assert np.array_equal(logits("remote"), logits("here"))
    manifest = json.loads(Path("remote/manifest.json").read_text())
    assert manifest["model"]["weights"] == f"zoo/vit@{MAIN[:12]}"
    weights = (folders / "vit" / "model.safetensors").read_bytes()
    assert manifest["model"]["sha256"] == hashlib.sha256(weights).hexdigest()


def test_a_model_that_is_fetched_is_listed_and_runs_without_a_network(run, hub, tmp_path):
    ended = run("models", "hf:zoo/vit", "--fetch", "--format", "json")
    assert ended.code == 0, ended.err
    (model,) = json.loads(ended.out)["models"]
    assert (model["name"], model["task"]) == ("hf:zoo/vit", "classification")
    assert model["cached"] == [f"zoo/vit@{MAIN[:12]}"]
    with as_the_hub(nowhere(), tmp_path / "hub"):
        ended = run("inspect", "hf:zoo/vit", CAT, *LOOK, "-o", "offline", "--weights", "pretrained")
        assert ended.code == 0, ended.err
    ended = run("models", "--source", "hf", "zoo/*", "--format", "json")
    (model,) = json.loads(ended.out)["models"]
    assert (model["name"], model["cached"]) == ("hf:zoo/vit", ["pretrained"])
    assert complete_model("hf:zoo") == ["hf:zoo/vit"]
    assert "hf-config:dinov2" in complete_model("hf-config:dino")


def test_without_weights_in_the_cache_they_are_random_and_said_so(run, hub, tmp_path):
    assert run("layers", "hf:zoo/vit").code == 0  # this needs only the configuration
    assert not any(name == "model.safetensors" for _, name, _ in hub.asked)
    with as_the_hub(nowhere(), tmp_path / "hub"):
        ended = run("inspect", "hf:zoo/vit", CAT, *LOOK, "-o", "random")
        assert ended.code == 0
        assert "RANDOM" in ended.err
        ended = run("inspect", "hf:zoo/vit", CAT, *LOOK, "-o", "x", "--weights", "pretrained")
        assert ended.code == 4
        assert "model.safetensors" in ended.err or "cannot be reached" in ended.err


def test_without_a_configuration_nothing_can_be_made_up(run, tmp_path, hf):
    with as_the_hub(nowhere(), tmp_path / "hub"):
        ended = run("inspect", "hf:zoo/vit", CAT, *LOOK, "-o", "x")
        named = run("inspect", "hf:dinov2-small@main", CAT, *LOOK, "-o", "x")
    assert ended.code == 4
    assert ended.err.startswith("error: the configuration of hf:zoo/vit is neither cached nor reac")
    assert ended.err.endswith("; without one: hf-config:vit, with random weights\n")
    assert named.err.endswith("named ORGANIZATION/NAME\nhint: hf:facebook/dinov2-small@main\n")
