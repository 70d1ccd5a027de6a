"""The grids of a finished run as images, its table for pandas, and the run in a notebook."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import hookcli
from hookcli.config import (
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
)
from hookcli.errors import RequestError
from hookcli.run.pipeline import inspect_images
from tests.conftest import PHOTOS, own_state

NET = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(4, 2))
"""


@pytest.fixture(scope="module")
def inspected(tmp_path_factory):
    """A run with a picture of each layer, one with a sheet, and the result of the first."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "net.py").write_text(NET)

    def inspect(mode):
        images = tuple(str(PHOTOS / name) for name in ("cat.png", "coffee.png"))
        model = ModelRequest(f"{folder / 'net.py'}:make", size=32, device="cpu")
        request = RunRequest(model, ImageRequest(images), ("conv", "linear"))
        where = FolderRequest(folder / mode)
        return inspect_images(InspectConfig(request, where, GridStyle(mode)))

    with own_state(folder):
        result, _ = inspect("layers"), inspect("sheet")
    return folder / "layers", folder / "sheet", result


@pytest.fixture
def copied(inspected):
    """A copy of the run with a picture of each layer, for tests that damage it."""
    return Path(shutil.copytree(inspected[0], "copied"))


def test_a_grid_is_the_picture_that_the_run_drew(inspected):
    run = hookcli.load_run(inspected[0])
    for key, image in (("coffee", run.grid("0", "coffee")), ("cat", run.grid("0"))):
        drawn = Image.open(inspected[0] / "grids" / key / "001_0.png").convert("RGB")
        assert image.tobytes() == drawn.tobytes()


def test_the_part_of_the_call_is_cut_out_of_a_sheet(inspected):
    grid, part = (hookcli.load_run(folder).grid("0", "coffee") for folder in inspected[:2])
    (facts,) = [
        each
        for each in json.loads((inspected[0] / "report.json").read_text())["grids"]
        if each["call_id"] == "0" and each["image"] == "coffee"
    ]
    left, top, side = (facts["places"][name] for name in ("left", "top", "width"))
    tile = np.asarray(grid)[top : top + side, left : left + side]
    assert np.asarray(part)[26:, :side].tolist() == tile.tolist()  # its name and numbers above
    assert part.size == (4 * side + 3 * 4, side + 26)


@pytest.mark.parametrize(
    ("call_id", "image_key", "said"),
    [
        ("1", None, "no grid shows '1'"),
        ("0", "cart", "no grid shows '0' for an image 'cart' did you mean cat?"),
    ],
)
def test_a_picture_that_there_is_not_is_an_error_with_close_names(
    inspected, call_id, image_key, said
):
    with pytest.raises(RequestError) as raised:
        hookcli.load_run(inspected[0]).grid(call_id, image_key)
    assert f"{raised.value.message} {raised.value.hint}".startswith(said)


OUTSIDE = dict.fromkeys(("left", "top", "width", "height", "step_x", "step_y", "columns"), 9999)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"file": "../../secret.png"}, "expected the name of a file in the run folder"),
        ({"file": "grids/cat/002_gone.png"}, "No such file"),
        ({"file": "sheets/cat.png", "places": OUTSIDE | {"columns": 0}}, "tiles of '0' are not"),
    ],
)
def test_a_document_that_was_tampered_with_is_refused(copied, inspected, changes, said):
    shutil.copytree(inspected[1] / "sheets", copied / "sheets")
    document = json.loads((copied / "report.json").read_text())
    document["grids"][0] |= changes
    (copied / "report.json").write_text(json.dumps(document))
    with pytest.raises(RequestError, match=said):
        hookcli.load_run(copied).grid("0")


def test_a_picture_that_is_missing_is_damage(copied):
    (copied / "grids/cat/001_0.png").unlink()
    assert hookcli.load_run(copied).damage == ("grids/cat/001_0.png is missing",)


def test_the_figures_are_a_table_with_the_columns_of_the_file(inspected):
    run = hookcli.load_run(inspected[0])
    table = run.figures()
    assert isinstance(table, pa.Table)
    assert table.to_pylist() == run.layers
    types = {field.name: str(field.type) for field in table.schema}
    assert types["call_id"] == types["shape"] == "string"
    assert (types["mean"], types["nan_count"], types["ratio"]) == ("double", "int64", "double")


def test_a_run_shows_its_layers_and_grids(inspected):
    html = hookcli.load_run(inspected[0])._repr_html_()
    assert "make: 2 calls, 2 images</b>" in html
    assert "<div>weights: as " in html
    assert html.count("<img") == 4  # two layers of two images
    assert len(html) < 300_000
    assert str(Path(inspected[0])) in html
