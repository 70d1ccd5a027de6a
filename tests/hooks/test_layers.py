"""The tokens that a model's modules describe: the size of a patch, and which are not patches."""

from __future__ import annotations

from types import SimpleNamespace

from torch import nn

from hookcli.hooks.layers import find_tokens, list_layers
from hookcli.records.layouts import Tokens


def tokens_of(model):
    return find_tokens(dict(model.named_modules()))


def tower(patch):
    return nn.ModuleDict({"patches": nn.Conv2d(3, 8, patch, stride=patch), "norm": nn.LayerNorm(8)})


def test_the_patches_are_those_of_the_convolution_that_cuts_the_image():
    model = nn.Sequential(tower(16), nn.Conv2d(8, 8, 2, stride=2))
    assert tokens_of(model) == dict.fromkeys(
        ["", "0", "0.patches", "0.norm", "1"], Tokens(patch=(16, 16))
    )


def test_convolutions_that_overlap_or_pad_or_see_no_image_cut_no_patches():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=4),
        nn.Conv2d(3, 8, 4, stride=4, padding=1),
        nn.Conv2d(8, 8, 2, stride=2),
        nn.Conv2d(3, 8, 1),
    )
    assert tokens_of(model) == {}


def test_each_of_two_towers_has_its_own_patches_and_the_whole_has_none():
    model = nn.ModuleDict({"coarse": tower(32), "fine": tower((8, 16))})
    found = tokens_of(model)
    assert found[""] == Tokens()
    assert found["coarse.norm"] == Tokens(patch=(32, 32))
    assert found["fine.norm"] == Tokens(patch=(8, 16))


def test_the_outermost_part_that_says_it_knows_the_number_of_prefix_tokens():
    inner, outer = nn.Identity(), nn.Sequential()
    inner.num_prefix_tokens, outer.num_prefix_tokens = 1, 5
    outer.append(inner)
    found = tokens_of(nn.ModuleDict({"tower": outer, "text": nn.Linear(2, 2)}))
    assert [found[path].before for path in ("", "text", "tower", "tower.0")] == [None, None, 5, 5]


def test_a_configuration_tells_the_detection_tokens():
    model = nn.Sequential(nn.Identity())
    model.config = SimpleNamespace(num_detection_tokens=100)
    assert tokens_of(model)["0"] == Tokens(after=100)


def test_the_width_of_a_layer_with_a_forward_of_its_own_is_the_first_that_is_a_number():
    class Own(nn.Conv2d):
        def forward(self, x):
            return super().forward(x)

    layer = Own(3, 6, 1)
    layer.num_features = [8]
    assert [each.width for each in list_layers(nn.Sequential(layer, nn.Conv2d(6, 4, 1)))] == [
        0, 6, 0,
    ]  # fmt: skip


def test_what_is_no_number_of_tokens_is_not_one():
    model = nn.Sequential(nn.Identity())
    model.num_prefix_tokens, model.config = "many", SimpleNamespace(num_detection_tokens=-1)
    assert tokens_of(model) == {}
