"""Preprocessing in words: torchvision's presets and what timm composes."""

from __future__ import annotations

import pytest
import torchvision
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize

from hookcli.networks.presets import describe_transform

presets = torchvision.transforms._presets
IMAGENET = "mean 0.485 0.456 0.406, standard deviation 0.229 0.224 0.225"


class MaybeToTensor:
    """Has the name of timm's."""


class Strange:
    def __repr__(self):
        return "Strange(\n    side=3\n)"


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (
            presets.ImageClassification(crop_size=224),
            (
                "resized to 256 pixels on the short side (bilinear), "
                f"cropped to 224x224 in the middle, scaled to 0 to 1, {IMAGENET}"
            ),
        ),
        (
            presets.SemanticSegmentation(resize_size=520, antialias=False),
            (
                "resized to 520 pixels on the short side (bilinear, without antialiasing), "
                f"scaled to 0 to 1, {IMAGENET}"
            ),
        ),
        (
            presets.VideoClassification(
                crop_size=(112, 96), resize_size=(128, 171), mean=(0.5,) * 3, std=(0.25,) * 3
            ),
            (
                "resized to 128x171 pixels (bilinear), cropped to 112x96 in the middle, "
                "scaled to 0 to 1, mean 0.5 0.5 0.5, standard deviation 0.25 0.25 0.25"
            ),
        ),
        (presets.ObjectDetection(), "scaled to 0 to 1; the model itself resizes and normalizes"),
        (presets.OpticalFlow(), "scaled to -1 to 1"),
    ],
)
def test_a_preset_of_torchvision_is_said_in_words(transform, words):
    assert describe_transform(transform) == words


def test_the_steps_of_timm_are_said_one_after_the_other():
    steps = [
        Resize(235, InterpolationMode.BICUBIC, max_size=400),
        CenterCrop((224, 200)),
        MaybeToTensor(),
        Normalize((0.5, 0.25, 0.125), (1, 2, 3)),
        Strange(),
    ]
    assert describe_transform(Compose(steps)) == (
        "resized to 235 pixels on the short side (bicubic), at most 400 on the long side, "
        "cropped to 224x200 in the middle, scaled to 0 to 1, "
        "mean 0.5 0.25 0.125, standard deviation 1 2 3, Strange( side=3 )"
    )
