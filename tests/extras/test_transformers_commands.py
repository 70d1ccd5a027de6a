"""What hookcli does with its own models, done with models of transformers."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import hookcli
from hookcli.config import ModelRequest
from hookcli.errors import RequestError
from hookcli.networks.load import load_model
from hookcli.networks.sources import find_model
from tests.cluster.fake_ray import FakeRay, put_in_place
from tests.conftest import PHOTOS
from tests.extras.plain_hooks import opaque
from tests.extras.test_transformers_models import library_model
from tests.passes.test_features import find_in
from tests.world.test_folders import assert_same_folders

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.transformers
CAT = PHOTOS / "cat.png"
PLAIN = ("--grids", "none", "-q", "--device", "cpu")


@pytest.fixture
def many(photos):
    Path("many").mkdir()
    for index in range(2):
        for file in photos:
            shutil.copy(file, f"many/{index}-{file.name}")
    return Path("many")


def test_weights_of_attention_are_those_that_the_model_returns(run, hf, folders):
    words = ("--layers", "attention", "--attention", "all", "--save", "attention")
    ended = run("inspect", f"hf:{folders / 'vit'}", CAT, *words, *PLAIN, "-o", "out")
    assert ended.code == 0, ended.err
    model = library_model(hf, folders / "vit")
    model.set_attn_implementation("eager")
    processor = hf.AutoImageProcessor.from_pretrained(folders / "vit")
    pixels = processor(opaque(CAT), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model(pixels, output_attentions=True).attentions
    saved = hookcli.load_run(Path("out"))
    assert len(expected) == 2
    for index, own in enumerate(expected):
        mine = np.asarray(saved[f"attention:vit.layers.{index}.attention"])
        assert np.allclose(mine, own.numpy(), atol=1e-6)


def test_gradients_are_those_of_backward_on_the_library_model(run, hf, folders):
    words = ("--layers", "classifier", "--cam", "vit.layernorm")
    ended = run("gradients", f"hf:{folders / 'vit'}", CAT, *words, *PLAIN, "-o", "out")
    assert ended.code == 0, ended.err
    model = library_model(hf, folders / "vit")
    processor = hf.AutoImageProcessor.from_pretrained(folders / "vit")
    pixels = processor(opaque(CAT), return_tensors="pt")["pixel_values"]
    logits = model(pixels).logits[0]
    logits[logits.argmax()].backward()
    rows = {each["call_id"]: each for each in hookcli.load_run(Path("out")).figures().to_pylist()}
    row, gradient = rows["param:classifier.weight"], model.classifier.weight.grad
    assert row["norm"] == pytest.approx(float(gradient.norm()), rel=1e-6)
    assert (row["min"], row["max"]) == (float(gradient.min()), float(gradient.max()))
    assert list(Path("out/cam").rglob("*.png"))


def test_workers_of_a_cluster_compute_the_same_and_have_the_same_library(
    run, folders, many, hf, monkeypatch
):
    ray = FakeRay()
    put_in_place(monkeypatch, ray)
    words = ("inspect", f"hf:{folders / 'vit'}", many, "--layers", "leaf", *PLAIN)
    there = ("--cluster", "auto", "--cluster-workers", "2")
    assert run(*words, "-o", "here", "--threads", "1").code == 0
    assert run(*words, *there, "-o", "there").code == 0
    assert_same_folders("here", "there")
    ray.before = lambda *_work: monkeypatch.setattr(hf, "__version__", "5.99.0")
    ended = run(*words, *there, "-o", "again")
    assert ended.code == 4
    assert "differs in transformers: 5.99.0, not " in ended.err


def test_what_others_print_while_a_model_is_found_is_not_lost(hf, monkeypatch, capsys):
    def choose(*_arguments):
        print("heard", file=sys.stderr)
        raise ImportError(name="package")

    monkeypatch.setattr("hookcli.networks.transformers._choose_class", choose)
    with pytest.raises(RequestError, match=r"(?m)needs package, which is not installed$"):
        find_model("hf-config:vit", 0)
    assert capsys.readouterr().err == "heard\n"


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("hf-config:dinov2", ("num_hidden_layers=1", "hidden_size=32", "num_attention_heads=2")),
        ("hf-config:convnext", ("depths=1,1,1,1", "hidden_sizes=8,8,8,8")),
    ],
)
def test_a_type_alone_is_its_default_configuration_with_random_weights(run, hf, name, small):
    words = [word for field in small for word in ("--model-arg", field)]
    ended = run("inspect", name, CAT, "--layers", "leaf", *PLAIN, "-o", "out", *words)
    assert ended.code == 0, ended.err
    assert f"{name} is a configuration without weights" in ended.err
    ended = run("inspect", name, CAT, *PLAIN, "-o", "no", "--weights", "pretrained", *words)
    assert ended.code == 4


@pytest.mark.parametrize(
    ("name", "call_id"),
    [
        ("vit", "input:classifier"),
        ("clip", "(model)[image_embeds]"),
        ("segformer", "decode_head.dropout"),
        ("detr", "model[last_hidden_state]"),
    ],
)
def test_the_features_for_a_map_are_the_pooled_embedding(folders, name, call_id):
    assert find_in(load_model(ModelRequest(f"hf:{folders / name}"))) == call_id
