"""What ``hf:`` and ``hf-config:`` refuse: one line, a hint, and the exit code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.conftest import PHOTOS

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.transformers
CAT = PHOTOS / "cat.png"
LOOK = ("--layers", "leaf", "--grids", "none", "-o", "out", "-q")


@pytest.fixture
def own(folders):
    return Path(shutil.copytree(folders / "vit", "own"))


def configure(folder, **fields):
    file = folder / "config.json"
    content = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def refused(ended, code):
    lines = ended.err.splitlines()
    error, *hint = [line for line in lines if line.startswith(("error: ", "hint: "))]
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    assert len(hint) <= 1
    return error.removeprefix("error: "), "".join(hint).removeprefix("hint: ")


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("hf-config:dinov", "transformers has no vision models of the type 'dinov'", "dinov2"),
        ("hf-config:bert", "transformers has no vision models of the type 'bert'", ""),
        ("hf:./nowhere", "there is no folder './nowhere'", "ORGANIZATION/NAME"),
    ],
)
def test_an_unknown_name_is_refused_with_near_ones(run, hf, name, error, hint):
    said, advice = refused(run("inspect", name, CAT, *LOOK), 2)
    assert said == error
    assert hint in advice


def test_an_old_library_is_refused(run, hf, monkeypatch):
    monkeypatch.setattr(hf, "__version__", "4.57.1")
    said, hint = refused(run("inspect", "hf-config:vit", CAT, *LOOK), 2)
    assert said == "hf-config:vit needs transformers 5.4 or later, and 4.57.1 is installed"
    assert hint == "pip install -U transformers"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "hf:own: config.json cannot be read: Expecting property name"),
        ('{"model_type": []}', "hf:own: config.json names no model_type"),
    ],
)
def test_a_damaged_configuration_is_refused(run, own, text, error):
    (own / "config.json").write_text(text)
    assert refused(run("inspect", "hf:own", CAT, *LOOK), 4)[0].startswith(error)


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_size": "abc"},
        {"num_attention_heads": 0},
        {"id2label": {"a": "b"}},
        {"dtype": "float99"},
    ],
)
def test_a_configuration_that_describes_no_model_is_refused(run, own, fields):
    configure(own, **fields)
    assert "hf:own" in refused(run("inspect", "hf:own", CAT, *LOOK), 4)[0]


def test_a_folder_of_another_library_gets_the_name_to_type(run, own):
    (own / "config.json").write_text('{"architecture": "resnet18", "num_classes": 3}')
    said, hint = refused(run("inspect", "hf:own", CAT, *LOOK), 2)
    assert (said, hint) == ("hf:own is a model of timm", "timm:own")
    assert run("layers", hint).code == 0
    (own / "config.json").unlink()
    (own / "open_clip_config.json").write_text("{}")
    said, hint = refused(run("inspect", "hf:own", CAT, *LOOK), 2)
    assert (said, hint) == ("hf:own is a model of open_clip", "open_clip:own")


def test_code_of_a_repository_never_runs(run, own):
    (own / "modeling_own.py").write_text("open('ran', 'w')\n")
    configure(own, model_type="own", auto_map={"AutoModel": "modeling_own.Own"})
    said, hint = refused(run("inspect", "hf:own", CAT, *LOOK), 2)
    assert said.startswith("hf:own needs code of its repository (trust_remote_code)")
    assert "FILE.py:FUNCTION" in hint
    configure(own, model_type="vit")  # a type of the library, which the library's class makes
    assert run("inspect", "hf:own", CAT, *LOOK).code == 0
    assert not Path("ran").exists()


def test_a_type_that_the_installed_version_does_not_know_is_refused(run, own):
    configure(own, model_type="vit9")
    said, hint = refused(run("inspect", "hf:own", CAT, *LOOK), 2)
    assert "has no models of the type 'vit9'" in said
    assert "pip install -U transformers" in hint


@pytest.mark.parametrize(
    ("kind", "takes"),
    [("bert", "text"), ("whisper", "audio"), ("vivit", "video")],
)
def test_a_model_that_takes_no_picture_is_refused(run, own, kind, takes):
    (own / "config.json").write_text(json.dumps({"model_type": kind}))
    said, _ = refused(run("inspect", "hf:own", CAT, *LOOK), 2)
    assert f"takes {takes}" in said or "which has no vision models" in said


def test_weights_in_the_older_form_are_read_without_unpickling_objects(run, own, hf):
    model = hf.AutoModelForImageClassification.from_pretrained(own)
    (own / "model.safetensors").unlink()
    torch.save(model.state_dict(), own / "pytorch_model.bin")
    ended = run("inspect", "hf:own", CAT, *LOOK, "--weights", "pretrained")
    assert ended.code == 0, ended.err
    assert "RANDOM" not in ended.err


def test_weights_that_lack_tensors_are_loaded_with_a_warning(run, own, hf):
    from safetensors.torch import load_file, save_file

    tensors = load_file(own / "model.safetensors")
    del tensors["classifier.weight"]
    save_file(tensors, own / "model.safetensors", metadata={"format": "pt"})
    ended = run("inspect", "hf:own", CAT, *LOOK)
    assert ended.code == 0
    assert "classifier.weight is not in the weights: RANDOM (seed 0)" in ended.err


def test_weights_of_another_model_are_refused(run, own, folders):
    shutil.copy(folders / "convnext" / "model.safetensors", own)
    said, _ = refused(run("inspect", "hf:own", CAT, *LOOK, "--weights", "pretrained"), 4)
    assert said.startswith("the weights of hf:own are not for a ViTForImageClassification")


def test_an_unknown_field_of_a_configuration_is_refused_with_near_ones(run, hf):
    said, hint = refused(run("layers", "hf-config:vit", "--model-arg", "hiden_size=8"), 2)
    assert said == "ViTConfig has no field 'hiden_size'"
    assert "hidden_size" in hint


def test_a_picture_that_the_processor_does_not_take_is_skipped(run, folders):
    Path("many").mkdir()
    shutil.copy(CAT, "many/cat.png")
    Image.new("RGB", (1, 64)).save("many/line.png")  # would be 56 by 0 pixels
    ended = run("inspect", f"hf:{folders / 'depth_anything'}", "many", *LOOK)
    assert ended.code == 6
    warning = "warning: skipped 'many/line.png': cannot be prepared by the DPTImageProcessor"
    assert ended.err.startswith(warning)


@pytest.mark.parametrize(
    "fields",
    [
        {"size": {"height": 2**24, "width": 2**24}},
        {"crop_size": 10**400},
        {"image_processor_type": "pipeline"},
        {"image_mean": "x" * 5000},
        {"image_mean": [0.5] * 5000},
        {"auto_map": {"AutoImageProcessor": "evil.Evil"}, "image_processor_type": "Evil"},
    ],
)
def test_a_hostile_processor_is_refused_at_once_and_offline(run, own, connections, fields):
    file = own / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    ended = run("inspect", "hf:own", CAT, *LOOK)
    assert ended.code == 4, ended.err
    assert connections == []


@pytest.mark.parametrize(
    "fields",
    [
        {"architectures": ["pipeline"]},
        {"attn_implementation": "org/name"},
        {"_attn_implementation": "flash_attention_2"},
        {"experts_implementation": "org/name"},
        {"configuration_files": ["config.0/../../other.json"]},
    ],
)
def test_a_configuration_chooses_no_implementation_and_no_file(run, own, connections, fields):
    assert run("inspect", "hf:own", CAT, *LOOK).code == 0
    plain = json.loads(Path("out/report.json").read_text())["layers"]
    configure(own, **fields)
    ended = run("inspect", "hf:own", CAT, *LOOK, "--overwrite")
    assert ended.code == 0, ended.err
    assert json.loads(Path("out/report.json").read_text())["layers"] == plain
    assert connections == []


def test_the_hash_is_that_of_the_weights_that_were_read(run, own, hf):
    from safetensors.torch import load_file, save_file

    tensors = load_file(own / "model.safetensors")
    halves = [list(tensors)[::2], list(tensors)[1::2]]
    for number, names in enumerate(halves):
        part = {name: tensors[name] for name in names}
        save_file(part, own / f"part{number}.safetensors", metadata={"format": "pt"})
    whole = run("inspect", "hf:own", CAT, *LOOK, "--weights", "pretrained")
    assert whole.code == 0, whole.err
    expected = [row["mean"] for row in json.loads(Path("out/report.json").read_text())["layers"]]
    (own / "model.safetensors").unlink()
    names = {name: f"part{number}.safetensors" for number in (0, 1) for name in halves[number]}
    index = own / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    ended = run("inspect", "hf:own", CAT, *LOOK, "--weights", "pretrained", "--overwrite")
    assert ended.code == 0, ended.err
    means = [row["mean"] for row in json.loads(Path("out/report.json").read_text())["layers"]]
    assert means == pytest.approx(expected)
    hashes = [hashlib.sha256((own / f"part{n}.safetensors").read_bytes()) for n in (0, 1)]
    joined = hashlib.sha256("".join(each.hexdigest() for each in hashes).encode()).hexdigest()
    assert joined in Path("out/manifest.json").read_text()


def test_weights_with_an_adapter_are_refused(run, own):
    (own / "adapter_config.json").write_text('{"base_model_name_or_path": "org/name"}')
    said, hint = refused(run("inspect", "hf:own", CAT, *LOOK, "--weights", "pretrained"), 4)
    assert said == "hf:own has an adapter, which is not loaded here"
    assert "merge_and_unload" in hint
