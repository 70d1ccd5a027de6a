"""Recipes for models of transformers: which image processors can be taken apart, and how."""

from __future__ import annotations

import io
import os
import re

import numpy as np
import pytest
import torch
from PIL import Image

from hookcli.config import ModelRequest
from hookcli.errors import RequestError
from hookcli.networks.load import build_skeleton
from hookcli.networks.processors import ProcessorTransform
from hookcli.networks.recipe_steps import apply_recipe
from hookcli.networks.task import Preprocessing
from hookcli.networks.tasks import CLASSIFICATION
from tests.recipes import noise, prepare

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.transformers


KNOWN = ["vit", "swin", "clip", "dinov2_with_registers", "segformer"]
SHORT, SQUARE = {"shortest_edge": 64}, {"height": 64, "width": 64}
CROP = {"crop_size": {"height": 56, "width": 56}}
SIGNED = {"rescale_factor": 1 / 127.5, "rescale_offset": True}


def prepared(folder, recipe):
    return build_skeleton(ModelRequest(f"hf:{folder}", preprocess=recipe)).prepare


@pytest.mark.parametrize("name", [*KNOWN, "convnext", "mobilevit"])
def test_steps_that_a_recipe_does_not_name_are_the_processors(folders, name):
    own, same = prepared(folders / name, None), prepared(folders / name, "scale=255")
    assert "by torch" in same.words
    for size in ((130, 90), (61, 200), (33, 31)):
        found, expected = (each.to_pixels([noise(*size)]) for each in (same, own))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("ConvNext", {"size": SHORT}, "73 pixels on the short side (bicubic by torch), cropped"),
        ("ConvNext", {"size": SHORT, "crop_pct": 0.5}, "128 pixels on the short side"),
        ("ConvNext", {"size": {"shortest_edge": 384}}, "384x384 pixels (bicubic by torch), scaled"),
        ("Levit", {"size": SHORT, **CROP}, "73 pixels on the short side"),
        ("PoolFormer", {"size": SHORT, **CROP}, "71 pixels on the short side"),
        ("PoolFormer", {"size": SQUARE, "crop_pct": 0.8, **CROP}, "80 pixels on the short side"),
        ("EfficientNet", {"size": SQUARE}, "mean 0.5 0.5 0.5, standard deviation 0.25 0.25 0.25"),
        ("EfficientNet", {"size": SQUARE, "include_top": False}, "standard deviation 0.5 0.5 0.5"),
        ("EfficientNet", {"size": SQUARE, "resample": 0, **SIGNED}, "mean 0.75 0.75 0.75, "),
        ("EfficientNet", {"size": SQUARE, "do_normalize": False}, "mean 0 0 0, standard deviation"),
        ("EfficientNet", {"size": SQUARE, "do_center_crop": True, **CROP}, "cropped to 56x56"),
        ("MobileViT", {"size": SHORT, **CROP}, "blue first, resized to 64 pixels on the short"),
        ("MobileViT", {"size": SHORT, "do_flip_channel_order": False, **CROP}, "not normalized"),
        ("ViT", {"size": SQUARE, "rescale_factor": 1 / 127.5}, "mean 0.25 0.25 0.25, "),
        ("ViT", {"size": {"height": 56, "width": 56}, "resample": 0}, "56x56 pixels (nearest by"),
        ("ViT", {"size": SQUARE, "resample": 0}, "64x64 pixels (nearest by torch)"),
    ],
)
@pytest.mark.parametrize("end", ["ImageProcessor", "ImageProcessorPil"])
def test_the_special_steps_of_processors_are_read(hf, end, name, settings, words):
    transform = ProcessorTransform(getattr(hf, name + end)(**settings), {})
    own = Preprocessing(CLASSIFICATION, transform, (64, 64))
    same = apply_recipe(ModelRequest("net", preprocess="scale=255"), own)
    assert (words if end == "ImageProcessor" else re.sub(" by( torch)?", "", words)) in same.words
    for size in ((130, 90), (61, 200), (33, 31), (160, 96)):
        found, expected = (each.to_pixels([noise(*size)]) for each in (same, own))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_processor_that_flips_colours_normalizes_blue_first(hf):
    transform = ProcessorTransform(hf.MobileViTImageProcessor(size=SHORT, **CROP), {})
    own = Preprocessing(CLASSIFICATION, transform, (56, 56))
    made = apply_recipe(ModelRequest("net", preprocess="mean=0.1/0.2/0.3,std=0.5/0.6/0.7"), own)
    picture = noise(80, 70)
    mean, std = (torch.tensor(v)[:, None, None] for v in ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7]))
    expected = (own.to_pixels([picture]) - mean) / std
    torch.testing.assert_close(made.to_pixels([picture]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("depth_anything", "its resizing or crop, to 56x84 instead of 56x56 pixels"),
        ("sam", "in a way that cannot be taken apart: SamImageProcessor: resized to"),
        ("dinov3_vit", "standard deviation 0.229 0.224 0.225; the obstacle is its resizing"),
        ("detr", "a detection model resizes by itself"),
        ("mask2former", "its image processor places the boxes that it finds"),
    ],
)
def test_a_processor_that_does_more_is_not_taken_apart(folders, name, what):
    with pytest.raises(RequestError) as caught:
        prepared(folders / name, "resize:bicubic")
    assert what in caught.value.message


def test_a_picture_that_a_processor_makes_blue_first_is_drawn_in_its_colours(folders):
    recipe = "mean=0.9/0.5/0.1,std=0.2/0.3/0.4,fit=stretch"
    loaded = build_skeleton(ModelRequest(f"hf:{folders / 'mobilevit'}", preprocess=recipe))
    picture = Image.new("RGB", (64, 64), (200, 100, 50))
    shown = Image.open(io.BytesIO(loaded.show(loaded.prepare.to_pixels([picture]))))
    assert np.abs(np.asarray(shown)[9, 9] - np.array((200, 100, 50))).max() <= 3


@pytest.mark.parametrize("name", ["depth_anything", "sam", "dinov3_vit"])
def test_the_hint_for_a_processor_that_does_more_works(folders, name):
    made = prepared(folders / name, "resize:bicubic,fit=crop,crop=56,mean=0.5,std=0.25")
    picture = noise(70, 90)
    words = {"resize": "bicubic", "mean": "0.5/0.5/0.5", "std": "0.25/0.25/0.25"}
    expected = prepare(picture, words, short=56, side=56)
    assert torch.equal(made.to_pixels([picture]), expected)


def test_a_processor_that_flips_colours_takes_no_other_order(folders):
    with pytest.raises(RequestError, match="takes blue first already"):
        prepared(folders / "mobilevit", "order=bgr")
