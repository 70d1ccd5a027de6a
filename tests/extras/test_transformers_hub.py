"""``hf:NAME``, downloaded from a server on this machine that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import hookcli
from tests.conftest import PHOTOS
from tests.hub_server import MAIN, OLD, Hub, as_the_hub, nowhere, serving

pytestmark = pytest.mark.transformers
CAT = PHOTOS / "cat.png"
LOOK = ("--layers", "classifier", "--grids", "none", "--save", "tensors", "--device", "cpu")


@pytest.fixture
def hub(hf, folders, tmp_path):
    """A server with ``zoo/vit``; its branch ``old`` has the same model with other weights."""
    served = Hub()
    served.add("zoo/vit", folders / "vit")
    model = hf.AutoModelForImageClassification.from_pretrained(folders / "vit")
    model.classifier.bias.data += 1
    model.save_pretrained(tmp_path / "old")
    shutil.copy(folders / "vit" / "preprocessor_config.json", tmp_path / "old")
    served.add("zoo/vit", tmp_path / "old", OLD)
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


def test_a_revision_has_weights_of_its_own(run, hub):
    for revision in ("main", "old", OLD):
        name = f"hf:zoo/vit@{revision}"
        assert run("inspect", name, CAT, *LOOK, "-o", f"of-{revision}").code == 0
    assert np.allclose(logits("of-old"), logits("of-main") + 1, atol=1e-6)
    assert np.array_equal(logits("of-old"), logits(f"of-{OLD}"))


def test_a_model_that_is_fetched_runs_without_a_network(run, hub, tmp_path):
    ended = run("models", "hf:zoo/vit", "--fetch", "--format", "json")
    assert ended.code == 0, ended.err
    (model,) = json.loads(ended.out)["models"]
    assert (model["name"], model["task"]) == ("hf:zoo/vit", "classification")
    assert model["cached"] == [f"zoo/vit@{MAIN[:12]}"]
    with as_the_hub(nowhere(), tmp_path / "hub"):
        ended = run("inspect", "hf:zoo/vit", CAT, *LOOK, "-o", "offline", "--weights", "pretrained")
        assert ended.code == 0, ended.err


def test_models_in_the_cache_are_listed_and_completed(run, hub):
    from hookcli.cli.completion import complete_model

    assert run("models", "hf:zoo/vit", "--fetch").code == 0
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
    assert ended.code == 4
    assert ended.err.startswith("error: the configuration of hf:zoo/vit is neither cached nor reac")


@pytest.mark.parametrize(
    ("name", "code", "error", "hint"),
    [
        ("hf:zoo/vti", 2, "the hub has no model 'zoo/vti' that you may read", "hf auth login"),
        ("hf:zoo/vit@new", 2, "zoo/vit has no revision 'new'", "/zoo/vit/tree/main"),
        ("hf:zoo/shut", 4, "zoo/shut is gated", "/zoo/shut, then log in: hf auth login"),
        ("hf:a b", 2, "the hub has no model 'a b' that you may read", "ORGANIZATION/NAME"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_refused(run, hub, folders, name, code, error, hint):
    hub.add("zoo/shut", folders / "vit")
    hub.gated.add("zoo/shut")
    ended = run("inspect", name, CAT, *LOOK, "-o", "x")
    assert ended.code == code
    first, second = ended.err.splitlines()[-2:]
    assert first.startswith(f"error: {error}")
    assert second.startswith("hint: ")
    assert second.endswith(hint) or hint in second
    assert not Path("x").exists()
