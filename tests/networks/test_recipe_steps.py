from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.config import ModelRequest
from hookcli.networks.presets import make_imagenet
from hookcli.networks.recipe_steps import apply_recipe
from hookcli.networks.tasks import CLASSIFICATION
from tests.recipes import SIZES, draw_recipes, noise, prepare, write_recipe


def prepare_toy(words):
    own = CLASSIFICATION.prepare(
        ModelRequest("toy", size=32, resize=37), nn.Identity(), make_imagenet
    )
    return apply_recipe(ModelRequest("toy", preprocess=write_recipe(words)), own)


@pytest.mark.parametrize("number", range(48))
def test_pixels_are_those_of_a_plain_script_with_the_same_steps(number):
    words = draw_recipes(48, 0, ("pillow", "torch"))[number]
    picture = noise(*SIZES[number % len(SIZES)])
    found = prepare_toy(words).to_pixels([picture])
    torch.testing.assert_close(
        found, prepare(picture, words, short=37, side=32), rtol=1e-6, atol=1e-6
    )
