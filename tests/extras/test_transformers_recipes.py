"""Recipes for models of transformers: which image processors can be taken apart, and how."""

from __future__ import annotations

import os

import pytest
import torch

from hookcli.config import ModelRequest
from hookcli.errors import RequestError
from hookcli.networks.load import build_skeleton
from tests.recipes import noise

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.transformers


def prepared(folder, recipe):
    return build_skeleton(ModelRequest(f"hf:{folder}", preprocess=recipe)).prepare


@pytest.mark.parametrize("name", ["vit", "swin", "clip", "dinov2_with_registers", "segformer"])
def test_steps_that_a_recipe_does_not_name_are_the_processors(folders, name):
    own, same = prepared(folders / name, None), prepared(folders / name, "scale=255")
    assert "by torch" in same.words
    for size in ((130, 90), (61, 200), (33, 31)):
        found, expected = (each.to_pixels([noise(*size)]) for each in (same, own))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("mobilevit", "in a way that cannot be taken apart: MobileViTImageProcessor: resized to"),
        ("convnext", "in a way that cannot be taken apart: ConvNextImageProcessor: resized to"),
        ("detr", "a detection model resizes by itself"),
        ("mask2former", "its image processor places the boxes that it finds"),
    ],
)
def test_a_processor_that_does_more_is_not_taken_apart(folders, name, what):
    with pytest.raises(RequestError) as caught:
        prepared(folders / name, "resize:bicubic")
    assert what in caught.value.message


def test_a_processor_that_flips_colours_takes_no_other_order(folders):
    with pytest.raises(RequestError, match="takes blue first already"):
        prepared(folders / "mobilevit", "order=bgr")
