"""Tiny models of transformers in folders, and photos, that the tests of several files share."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.conftest import PHOTOS
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
