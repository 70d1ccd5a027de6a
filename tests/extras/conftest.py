"""Tiny models, and photos, that the tests of several files share."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import PHOTOS
from tests.extras.exports import NETS
from tests.extras.tiny_transformers import ARCHITECTURES, make


@pytest.fixture(scope="session")
def hf():
    """The package, imported only where these tests run."""
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    return transformers


@pytest.fixture(scope="session")
def folders(hf, tmp_path_factory):
    """The folder of each architecture, as ``save_pretrained`` writes it."""
    home = tmp_path_factory.mktemp("models")
    for name in ARCHITECTURES:
        model, processor = make(hf, name)
        model.save_pretrained(home / name)
        processor.save_pretrained(home / name)
    return home


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
    for place, name in (
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
        (socket.socket, "connect"),
    ):
        monkeypatch.setattr(place, name, refuse)
    return asked


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """Work in a folder with networks to export, and pixels for them."""
    monkeypatch.chdir(tmp_path)
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
