"""Recipes for OpenCV, and for models of open_clip and segmentation_models_pytorch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torchvision import transforms

from hookcli.config import ModelRequest
from hookcli.errors import RequestError
from hookcli.networks.load import build_skeleton
from tests.extras.conftest import ENCODERS, PREPARED
from tests.networks.test_recipe_steps import CODE, compare_with_script, prepare_toy
from tests.recipes import SIZES, draw_recipes, noise, prepare

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize("number", range(60))
def test_pixels_are_those_of_a_plain_script_with_opencv_bit_by_bit(number):
    pytest.importorskip("cv2")
    is_grey = number % 4 == 3
    words = draw_recipes(60, 1, ("opencv",), is_grey=is_grey)[number]
    compare_with_script(words, SIZES[number % len(SIZES)], is_grey=is_grey)


@pytest.mark.parametrize("library", ["opencv", "pillow"])
def test_a_run_records_the_version_of_opencv_if_it_resizes(run, library):
    version = pytest.importorskip("cv2").__version__
    Path("toy.py").write_text(CODE)
    noise(60, 40).save("a.png")
    words = ("--preprocess", f"library={library}", "--grids", "none", "-o", "out")
    assert run("inspect", "toy.py:make", "a.png", *words).code == 0
    versions = json.loads(Path("out/manifest.json").read_text())["versions"]
    assert versions.get("opencv") == (version if library == "opencv" else None)
    # ... which a run that is resumed must have again
    assert run("inspect", "toy.py:make", "a.png", *words, "--resume").code == 0
    with Path("out/run.json").open() as file:
        assert json.load(file)["versions"] == versions


def test_the_version_of_opencv_is_known_for_pixels_that_are_rounded_after_it():
    version = pytest.importorskip("cv2").__version__
    prepare_one = prepare_toy({"library": "opencv"})
    rounded = transforms.Compose([prepare_one.transform, torch.nn.Identity()])
    assert replace(prepare_one, transform=rounded).versions == {"opencv": version}


def test_the_words_name_opencv():
    pytest.importorskip("cv2")
    words = prepare_toy({"library": "opencv", "resize": "bicubic"}).words
    sides = "resized to 37 pixels on the short side"
    assert words.startswith(f"{sides} (bicubic by OpenCV without antialiasing), cropped")
    area = prepare_toy({"library": "opencv", "resize": "area"}).words
    assert area.startswith(f"{sides} (area by OpenCV), cropped")


@pytest.mark.parametrize("name", PREPARED)
def test_steps_of_open_clip_are_changed_one_by_one(clips, name):
    own, same, other = (
        build_skeleton(ModelRequest(f"open_clip:{clips / name}", preprocess=recipe)).prepare
        for recipe in (None, "scale=255", "scale=1,mean=0,std=1")
    )
    picture = noise(130, 90)
    assert torch.equal(own.to_pixels([picture]), same.to_pixels([picture]))
    mean, std = (
        torch.tensor(getattr(same.transform, key))[:, None, None] for key in ("mean", "std")
    )
    plain = (same.to_pixels([picture]) * std + mean) * 255
    torch.testing.assert_close(other.to_pixels([picture]), plain, rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [None, 64])
def test_steps_of_smp_are_changed_one_by_one(smp_folders, size):
    name = f"smp:{smp_folders / next(iter(ENCODERS))}"
    picture = noise(130, 90)
    own, same, flat = (
        build_skeleton(ModelRequest(name, size=size, preprocess=recipe)).prepare
        for recipe in (None, "scale=255", "fit=stretch")
    )
    torch.testing.assert_close(same.to_pixels([picture]), own.to_pixels([picture]))
    side = size or 512
    short = prepare(picture, {"fit": "stretch"}, short=side, side=side)
    torch.testing.assert_close(flat.to_pixels([picture]), short, rtol=1e-5, atol=1e-5)
    assert flat.nominal_shape == (1, 3, side, side)


def test_the_recipe_of_a_model_without_opencv_names_the_package(monkeypatch):
    pytest.importorskip("cv2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        RequestError, match="library=opencv needs OpenCV, which is not installed"
    ) as caught:
        prepare_toy({"library": "opencv"})
    assert caught.value.hint == "pip install 'hookcli[opencv]'"
