"""``--input``: models that take more than the pixels, a dictionary, or no picture at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

NET = """
import torch
from torch import nn


class Two(nn.Module):
    '''Returns the first pixel times 10, plus the fact, times the scale.'''

    def __init__(self):
        super().__init__()
        self.last = nn.Identity()

    def forward(self, image, facts, scale=1, *, mask=None):
        return self.last((image[:, :1, 0, 0] * 10 + facts) * scale)


class ByKeyword(Two):
    def forward(self, image, *, facts):
        return super().forward(image, facts)


class Anything(Two):
    def forward(self, *images, **others):
        return super().forward(*images, **others)


class Dictionary(Two):
    def forward(self, data):
        data.update(size=len(data["image0"]))
        if "mask" in data:
            raise ValueError
        return super().forward(data["image0"], data["facts"])


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 2, bias=False)
        nn.init.eye_(self.last.weight)

    def forward(self, z, scale=1.0):
        return self.last(z) * scale
"""
WORDS = ("pixels.npy", "--layers", "last", "--device", "cpu", "--grids", "none", "-o", "out")
DICT = ("--inputs-as", "dict", "--input", "facts=five.npy")


@pytest.fixture
def inspect(run):
    Path("net.py").write_text(NET)
    pixels = np.ones((2, 3, 4, 4), np.float32)
    pixels[1] = 2
    np.save("pixels.npy", pixels)
    np.save("five.npy", np.array([[5.0]]))  # float64, as numpy makes it
    return lambda name, *words: run("inspect", f"net.py:{name}", *WORDS, *words)


def means():
    return [row["mean"] for row in pq.read_table("out/records.parquet").to_pylist()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Two", ("--input", "facts=5")),
        ("Two", ("--input", "facts=[5.0]")),  # an axis of its own: one for each image
        ("Two", ("--input", "facts=2.5", "--input", "scale=1.0", "--input", "image=pixels")),
        ("ByKeyword", ("--input", "facts=five.npy")),
        ("Anything", ("--input", "facts=five.npy")),
        ("Dictionary", DICT),  # the pixels are the first key that is missing
    ],
)
def test_a_value_is_given_for_all_images(inspect, name, words):
    ended = inspect(name, *words)
    assert ended.code == 0, ended.err
    fact = 2.5 if "facts=2.5" in words else 5
    assert means() == [10 + fact, 20 + fact]


def test_a_value_without_an_axis_for_images_lets_them_run_one_at_a_time(inspect):
    np.save("two.npy", np.array([[5.0], [7.0]], np.float32))
    ended = inspect("Two", "--input", "facts=two.npy")
    assert ended.code == 0
    assert ended.err.count("the whole of inputs whose first axis is not 1: facts (2x1)") == 1
    assert means() == [16, 26]  # with a batch of two, the rows would be taken for the images


def test_a_vector_takes_the_place_of_the_image(inspect):
    np.save("z.npy", np.array([[3.0, 5.0]], np.float32))
    ended = inspect("Generator", "--input", "z=z.npy")
    assert ended.code == 0
    assert means() == [4, 4]
    assert "the image is not used" in ended.err


@pytest.mark.parametrize(
    ("name", "words", "code", "said"),
    [
        ("Two", (), 4, "give a value for all images: --input facts=FILE.npy"),
        ("Dictionary", (), 4, "take a dictionary? --inputs-as dict passes one"),
        ("Dictionary", ("--inputs-as", "dict"), 4, "--input facts=FILE.npy"),
        ("Generator", (), 4, "take a vector, and no picture? give it in place of the image: "),
        (
            "Generator",
            ("--input", "z=[[1, 2]]"),
            4,
            "given integers: in --input, write 1.0 in place of 1",
        ),
        ("Two", ("--input", "fact=5"), 2, "the model takes no 'fact'\nhint: it takes image, facts"),
        ("Two", ("--input", "facts=gone.npy"), 2, "facts='gone.npy': No such file"),
        ("Two", ("--input", "facts=[[1], 2]"), 2, "--input: cannot read facts="),
    ],
)
def test_what_is_missing_or_wrong_is_said(inspect, name, words, code, said):
    ended = inspect(name, *words)
    assert (ended.code, "Traceback" in ended.err) == (code, False)
    assert said in ended.err


def test_a_file_that_changed_is_another_run(inspect):
    words = ("--input", "facts=five.npy", "--resume")
    assert inspect("Two", *words).code == 0
    assert "is complete" in inspect("Two", *words).err
    np.save("five.npy", np.array([[6.0]]))
    ended = inspect("Two", *words)
    assert ended.code == 2
    assert "before five.npy changed" in ended.err
