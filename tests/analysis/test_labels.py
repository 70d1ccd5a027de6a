"""The labels of images: folders, and files of labels."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.analysis.labels import Labels
from hookcli.errors import RequestError
from hookcli.reading.load import load_run
from tests.toy_runs import ToyRun, edit_json

FILES = {"a": "photos/cats/a.jpg", "b": "photos/dogs/b.jpg", "c": "c.jpg"}


@pytest.fixture
def opened(tmp_path):
    folder = ToyRun({key: {"x": np.ones((1, 2), "f4")} for key in FILES}).write(tmp_path / "run")
    facts = load_run(folder).manifest["images"]
    edit_json(
        folder / "manifest.json", images=[image | {"file": FILES[image["key"]]} for image in facts]
    )
    return load_run(folder)


def test_folders_are_the_names_of_the_photos_folders(opened):
    assert Labels.read("folders").of(opened) == {"a": "cats", "b": "dogs", "c": "."}


@pytest.mark.parametrize("name", ["photos/cats/a.jpg", "a.jpg", "a"])
def test_a_file_names_images_by_path_file_name_or_key(opened, tmp_path, name):
    file = tmp_path / "labels.csv"
    file.write_text(f"\ufeffscore,label,image\n1,cat,{name}\n2,dog,other.jpg\n3,,b\n")
    assert Labels.read(str(file)).of(opened) == {"a": "cat"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image,label\nx.jpg,cat\n", "has labels for other files: none of its 1 names"),
        ("image,label\na,cat\na,dog\n", "has two labels for 'a': cat and dog"),
        ("file,label\na,cat\n", "has no image and label in line 2"),
        ("", "has no labels"),
        ('image,label\n"a,cat\n', "is not a CSV file"),
    ],
)
def test_a_file_that_is_of_no_use_is_refused(opened, tmp_path, text, said):
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(RequestError, match=said):
        Labels.read(str(file)).of(opened)


def test_a_missing_file_is_named():
    with pytest.raises(RequestError, match=r"cannot read 'no\.csv': No such file") as caught:
        Labels.read("no.csv")
    assert "`labels='folders'`" in caught.value.hint


def test_a_file_name_that_several_images_have_names_none_of_them(opened, tmp_path):
    facts = opened.manifest["images"]
    named = [image | {"file": f"{image['key']}/1.png"} for image in facts]
    edit_json(opened.folder / "manifest.json", images=named)
    file = tmp_path / "labels.csv"
    file.write_text("image,label\n1.png,cat\n")
    with pytest.raises(RequestError, match=r"'1\.png', which is the name of 3 images"):
        Labels.read(str(file)).of(load_run(opened.folder))
    file.write_text("image,label\na/1.png,cat\nb,dog\n")
    assert Labels.read(str(file)).of(load_run(opened.folder)) == {"a": "cat", "b": "dog"}


def test_labels_in_memory_are_of_all_images_in_order_or_of_named_ones(opened):
    assert Labels.read([1, None, "x"]).of(opened) == {"a": "1", "c": "x"}
    assert Labels.read({"photos/dogs/b.jpg": 2, "a": ""}).of(opened) == {"b": "2"}
    with pytest.raises(RequestError, match="`labels` has labels for other files"):
        Labels.read({"x.jpg": "cat"}).of(opened)
