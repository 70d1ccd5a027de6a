"""The pictures of attention in a run folder, against the probabilities that the run saved."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.conftest import PHOTOS, run_in
from tests.toy_models import SMALL_NET


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of a model with 7 by 7 patches, a class token and 3 heads."""
    home = tmp_path_factory.mktemp("attention")
    (home / "net.py").write_text(SMALL_NET)
    photo, attention = PHOTOS / "cat.png", ("--attention", "all", "--save", "attention")
    words = ("net.py:Attends", photo, "--layers", "fc", *attention, "--device", "cpu")
    ended = run_in(home, "inspect", *words, "-o", "run")
    assert ended.code == 0, ended.err
    return home / "run"


def test_a_block_of_the_picture_holds_the_maps_of_the_query_that_stands_there(folder):
    (saved,) = load_file(folder / "tensors/shard-000000.safetensors").values()
    (maps,) = json.loads((folder / "report.json").read_text())["attention_maps"]
    assert [maps[name] for name in ("heads", "patch_grid", "query_grid", "map_grid")] == [
        3,
        [7, 7],
        [7, 7],
        [7, 7],
    ]
    assert not maps["is_thinned"]
    levels = np.asarray(Image.open(folder / maps["file"]))
    assert levels.shape == (7 * 3 * 7, 7 * 7)
    for row, column, head in np.ndindex(7, 7, 3):
        seen = saved[0, 0, head, 1 + 7 * row + column, 1:].reshape(7, 7)  # without the class token
        top, left = 7 * (3 * row + head), 7 * column
        wanted = 255 * seen / seen.max()
        assert np.abs(levels[top : top + 7, left : left + 7] - wanted).max() <= 0.51
