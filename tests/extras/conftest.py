"""Tiny models, and photos, that the tests of several files share."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.conftest import PHOTOS
from tests.extras.exports import NETS
from tests.extras.tiny_transformers import ARCHITECTURES, make


@pytest.fixture(scope="session")
def hf():
    """The package, imported only where these tests run."""
    pytest.importorskip("transformers")
    pytest.importorskip("transformers.processing_utils")  # replaces the package in sys.modules
    sys.modules["transformers"].logging.set_verbosity_error()
    return sys.modules["transformers"]


@pytest.fixture(scope="session")
def folders(hf, tmp_path_factory):
    """The folder of each architecture, as ``save_pretrained`` writes it."""
    home = tmp_path_factory.mktemp("models")
    for name in ARCHITECTURES:
        model, processor = make(hf, name)
        model.save_pretrained(home / name)
        processor.save_pretrained(home / name)
    return home


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
ENCODERS = {"unet": "resnet18", "deeplabv3plus": "mobilenet_v2", "segformer": "mit_b0"}


@pytest.fixture(scope="session")
def open_clip():
    """The package, imported only where these tests run."""
    return pytest.importorskip("open_clip")


@pytest.fixture(scope="session")
def clips(open_clip, tmp_path_factory):
    """A folder for each architecture, with the files that open_clip reads."""
    home = tmp_path_factory.mktemp("open_clip")
    for name, vision in VISION.items():
        folder = home / name
        folder.mkdir()
        config = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": TEXT}
        content = {"model_cfg": config, "preprocess_cfg": PREPARED[name]}
        (folder / "open_clip_config.json").write_text(json.dumps(content))
        torch.manual_seed(0)
        model = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
        save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return home


@pytest.fixture(scope="session")
def smp():
    """The package, imported only where these tests run."""
    return pytest.importorskip("segmentation_models_pytorch")


@pytest.fixture(scope="session")
def smp_folders(smp, tmp_path_factory):
    """A folder for each architecture, as ``save_pretrained`` writes it."""
    home = tmp_path_factory.mktemp("smp")
    for arch, encoder in ENCODERS.items():
        torch.manual_seed(0)
        model = smp.create_model(arch, encoder, encoder_weights=None, classes=3)
        model.save_pretrained(home / arch)
    return home


@pytest.fixture(scope="session")
def timm_folder(tmp_path_factory):
    """A folder as timm's ``save_for_hf`` writes it, of timm's own toy with three classes."""
    timm = pytest.importorskip("timm")
    folder = tmp_path_factory.mktemp("timm") / "saved"
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=3)
    words = {"model_config": {"label_names": ["cat", "dog", "cup"]}}
    timm.models.save_for_hf(model, str(folder), safe_serialization=True, **words)
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Three photos of odd sizes, a grey one, and one with transparent parts."""
    home = tmp_path_factory.mktemp("photos")
    with Image.open(PHOTOS / "cat.png") as cat:
        whole = cat.convert("RGB")
    whole.resize((97, 61)).save(home / "wide.png")
    whole.resize((33, 127)).save(home / "tall.png")
    whole.resize((30, 31)).save(home / "small.png")
    whole.resize((80, 75)).convert("L").save(home / "grey.png")
    faded = whole.resize((70, 90)).convert("RGBA")
    faded.putalpha(Image.linear_gradient("L").resize(faded.size))
    faded.save(home / "faded.png")
    return sorted(home.iterdir())


@pytest.fixture
def connections(monkeypatch):
    """Refuse every connection, as if nothing said that the hub cannot be reached; list them."""
    from huggingface_hub import constants

    asked = []

    def refuse(*words, **_options):
        asked.append(words)
        raise OSError("no connection is allowed here")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for owner, name in (
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
        (socket.socket, "connect"),
    ):
        monkeypatch.setattr(owner, name, refuse)
    return asked


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """Work in a folder with networks to export, and pixels for them."""
    monkeypatch.syspath_prepend(tmp_path)
    Path("nets.py").write_text(NETS)
    np.save("a.npy", np.random.default_rng(0).normal(size=(3, 24, 20)).astype("f4"))
    yield
    sys.modules.pop("nets", None)


@pytest.fixture
def compare(run):
    """Run ``compare`` with the pixels, and return its document."""

    def command(model, *words, code=0):
        common = ("a.npy", "--device", "cpu", "--format", "json")
        ended = run("compare", model, *common, *words)
        assert ended.code == code, ended.err
        return json.loads(ended.out)

    return command


@pytest.fixture
def refused(run):
    """Run ``compare``, and return its exit code and the lines on stderr without warnings."""

    def command(*words):
        ended = run("compare", *words, "--device", "cpu")
        lines = ended.err.splitlines()
        return ended.code, *(line for line in lines if not line.startswith("warning: "))

    return command
