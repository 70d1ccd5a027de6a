"""Names of classes that the user gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hookcli.errors import RequestError
from hookcli.networks.categories import read_categories
from tests.conftest import PHOTOS

CAT = PHOTOS / "cat.png"
LOOK = ("--layers", "all", "--grids", "none", "-o", "out", "--format", "json", "--size", "32")
NET = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
"""


@pytest.mark.parametrize(
    "text",
    [
        "cat\ndog\ncup\n",
        '["cat", "dog", "cup"]',
        '{"0": "cat", "1": "dog", "2": "cup"}',
        '{"0": ["n01", "cat"], "1": ["n02", "dog"], "2": ["n03", "cup"]}',
    ],
)
def test_names_are_read_by_line_or_from_json(tmp_path, text):
    file = tmp_path / "names"
    file.write_bytes(text.encode())
    assert read_categories(str(file)) == ("cat", "dog", "cup")


def test_imagenet_is_the_thousand_names_of_torchvision():
    names = read_categories("imagenet")
    assert (len(names), names[281]) == (1000, "tabby")


@pytest.mark.parametrize("text", ["", "cat\n\ncup\n", "[1, ", '{"1": "cat"}'])
def test_a_file_that_does_not_name_each_class_is_refused(tmp_path, text):
    file = tmp_path / "names"
    file.write_text(text)
    with pytest.raises(RequestError, match="does not hold a name for each class"):
        read_categories(str(file))


@pytest.mark.parametrize("name", ["nowhere.txt", "a\0b"])
def test_a_file_that_cannot_be_read_is_refused(name):
    with pytest.raises(RequestError, match="cannot read the class names"):
        read_categories(name)


def test_predictions_and_targets_of_an_own_model_have_the_names(run):
    Path("net.py").write_text(NET)
    Path("names.txt").write_text("cat\ndog\ncup\n")
    words = ("--categories", "names.txt")
    ended = run("inspect", "net.py:make", CAT, *LOOK, *words)
    assert ended.code == 0, ended.err
    (image,) = json.loads(ended.out)["images"]
    assert {each["category"] for each in image["predictions"]} == {"cat", "dog", "cup"}
    ended = run("gradients", "net.py:make", CAT, *LOOK, "--overwrite", *words, "--target", "cup")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["images"][0]["score"]["target"] == 2


def test_a_wrong_number_of_names_is_noted(run):
    Path("net.py").write_text(NET)
    Path("names.txt").write_text("cat\ndog\n")
    ended = run("inspect", "net.py:make", CAT, *LOOK, "--categories", "names.txt")
    assert ended.code == 0
    assert "has 2 names, and the model's last layer has 3 outputs" in ended.err
