"""``hookcli.places`` from Python."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hookcli
from hookcli.errors import RequestError
from tests.toy_runs import ToyRun

MAPS = np.random.default_rng(0).normal(size=(3, 6, 4, 4)).astype(np.float32)
KEYS = ("photo0", "photo1", "photo2")


@pytest.fixture(autouse=True)
def a_run():
    images = {key: {"conv": MAPS[n : n + 1]} for n, key in enumerate(KEYS)}
    ToyRun(images, parts={key: [0.0, 0.0, 8.0, 8.0] for key in KEYS}).write("run")


def test_the_answer_and_its_files_are_in_memory(capfd):
    found = hookcli.places("run", similar=(3, 5), image="photo1")
    assert capfd.readouterr() == ("", "")
    assert {*Path().iterdir()} == {Path("run")}
    table = pq.read_table(io.BytesIO(found.files["places.parquet"])).to_pydict()
    own = np.array(table["similarity"])[np.array(table["image"]) == "photo1"]
    pixels = np.moveaxis(MAPS[1], 0, 2).reshape(16, 6)
    directions = pixels / np.linalg.norm(pixels, axis=1, keepdims=True)
    assert own == pytest.approx(directions @ directions[9], abs=1e-6)  # row 2, column 1
    assert [row.image for row in found.rows] == [*KEYS]
    assert found.document().point == (3, 5)
    assert found.document().folder == ""
    assert "every place: places.parquet" in str(found.table())
    assert found.page.html.count("data:image/png;base64,") == len(KEYS)


def test_files_are_those_of_the_command(run):
    found = hookcli.places("run", correspond="photo2", mutual=True, out="kept", theme="light")
    assert run("places", "run", "--correspond", "photo2", "--mutual", "-o", "typed").code == 0
    assert found.files["places.parquet"] == Path("kept/places.parquet")
    assert found.page.path == Path("kept/report.html")
    typed = Path("typed/places.parquet").read_bytes()
    assert found.files["places.parquet"].read_bytes() == typed
    assert [note.text for note in found.notes if note.level == "note"] == [
        "open first: kept/report.html"
    ]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"at": (1, 1)}, "`at` belongs to `correspond`"),
        ({"similar": (0.5, 2)}, "`similar` cannot be (0.5, 2)"),
        ({"correspond": "photo0"}, "`correspond` is the image 'photo0' itself"),
        ({"similr": (1, 2)}, "`hookcli.places` has no keyword 'similr'"),
    ],
)
def test_errors_are_in_words_of_python(keywords, message):
    with pytest.raises(RequestError) as caught:
        hookcli.places("run", **keywords)
    assert caught.value.message == message
