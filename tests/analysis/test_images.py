"""Images of a run by name, and where their places lie."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.analysis.images import Geometry, find_image, list_files, list_geometry
from hookcli.errors import RequestError
from hookcli.reading.load import load_run
from tests.toy_runs import ToyRun, edit_json

WHOLE = Geometry("cat.png", (100, 50), (0.0, 0.0, 100.0, 50.0))
MIDDLE = Geometry("cat.png", (100, 50), (25.0, 0.0, 75.0, 50.0))


def test_a_pixel_is_in_the_place_that_covers_it_and_a_place_is_at_its_middle():
    assert WHOLE.find_place((0, 0), (2, 4)) == 0
    assert WHOLE.find_place((99, 49), (2, 4)) == 7
    assert WHOLE.find_place((25, 24), (2, 4)) == 1
    assert WHOLE.find_pixel(7, (2, 4)) == (87.0, 37.0)
    assert MIDDLE.find_place((25, 0), (2, 2)) == 0
    assert MIDDLE.find_place((50, 25), (2, 2)) == 3
    assert MIDDLE.find_pixel(0, (2, 2)) == (37.0, 12.0)


@pytest.mark.parametrize(
    ("geometry", "point", "said"),
    [
        (WHOLE, (100, 0), "100,0 is outside 'cat.png', which is 100 by 50 pixels"),
        (MIDDLE, (24, 0), "24,0 of 'cat.png' is cut away: the network saw the pixels from 25,0"),
        (Geometry("cat.png", (9, 9), None), (1, 1), "does not say which part of 'cat.png'"),
    ],
)
def test_a_pixel_without_a_place_is_refused(geometry, point, said):
    with pytest.raises(RequestError, match=said):
        geometry.find_place(point, (2, 2))


@pytest.fixture
def opened(tmp_path):
    images = {key: {"x": np.ones((1, 2), "f4")} for key in ("cat", "cat-2", "dog")}
    folder = ToyRun(images, parts={"cat": [1, 2, 7, 8]}).write(tmp_path / "run")
    facts = load_run(folder).manifest["images"]
    files = ("a/cat.png", "b/cat.png", "b/dog%20%C3%A9.png")
    named = [image | {"file": file} for image, file in zip(facts, files, strict=True)]
    edit_json(folder / "manifest.json", images=named)
    return load_run(folder)


def test_an_image_is_found_by_its_key_path_or_file_name(opened):
    assert find_image(list_files(opened), "cat-2") == "cat-2"
    assert find_image(list_files(opened), "b/cat.png") == "cat-2"
    assert find_image(list_files(opened), "dog é.png") == "dog"


def test_a_name_of_no_image_or_of_several_is_refused(opened):
    with pytest.raises(RequestError, match=r"'cat\.png' is the name of 2 images") as caught:
        find_image(list_files(opened), "cat.png")
    assert caught.value.hint == "use a key: cat, cat-2"
    with pytest.raises(RequestError, match="the run has no image 'cats'") as caught:
        find_image(list_files(opened), "cats")
    assert caught.value.hint.startswith("did you mean cat")


@pytest.mark.parametrize("part", [[1, 2, 7], [7, 2, 7, 8]])
def test_a_part_that_is_none_is_refused(opened, part):
    geometry = list_geometry(opened)
    assert geometry["cat"] == Geometry("a/cat.png", (8, 8), (1, 2, 7, 8))
    assert geometry["dog"].find_pixel(0, (2, 2)) == (None, None)  # the part is unknown
    images = [opened.manifest["images"][0] | {"part": part}]
    edit_json(opened.folder / "manifest.json", images=images)
    with pytest.raises(RequestError, match=r"cannot read '.*manifest\.json'"):
        list_geometry(load_run(opened.folder))
