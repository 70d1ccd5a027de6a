"""The meaning of a tensor's axes, from the module's type and the shape, or unknown."""

from __future__ import annotations

import pytest
from torch import nn
from torchvision.ops import MultiScaleRoIAlign, RoIPool

from hookcli.hooks.layers import list_layers
from hookcli.records.calls import LayerInfo
from hookcli.records.layouts import Channels, Layout, Tokens, recall_layout, resolve_layout

UNKNOWN = Layout("unknown", None)
WIDE = (224, 448)
PHOTO = (300, 451)


def nchw(height, width):
    return Layout("NCHW", 1, height, width)


def nhwc(height, width):
    return Layout("NHWC", 3, height, width)


@pytest.mark.parametrize(
    ("shape", "channels", "pixels", "layout"),
    [
        # ResNet: what the type says holds, and the shape alone is enough
        ((1, 64, 112, 112), "first", (224, 224), nchw(112, 112)),
        ((1, 64, 7, 7), "likely first", None, nchw(7, 7)),
        ((1, 1000), "last", (224, 224), Layout("NC", 1)),
        # ViT: a class token before 14 x 14
        ((1, 197, 768), "unknown", (224, 224), Layout("NLC", 2, 14, 14, 1)),
        ((1, 1 + 7 * 14, 768), "unknown", WIDE, Layout("NLC", 2, 7, 14, 1)),
        ((1, 198, 768), "likely last", (224, 224), Layout("NLC", 2)),
        ((1, 198, 768), "unknown", (224, 224), UNKNOWN),
        # ViT's first dropout stands after a convolution and sees tokens all the same
        ((1, 197, 768), "likely first", (224, 224), Layout("NLC", 2, 14, 14, 1)),
        ((1, 196, 196), "likely first", (224, 224), UNKNOWN),
        ((1, 64, 100), "likely first", None, Layout("NCL", 1, 1, 100)),
        # Swin, ConvNeXt: channels last
        # MaxViT: 64 windows of 49 tokens are no picture
        ((1, 64, 49, 64), "last", (224, 224), Layout("NHWC", 3)),
        ((1, 64, 49, 64), "unknown", (224, 224), UNKNOWN),
        # as many channels as rows and columns: only the type or the neighbour can tell
        ((1, 64, 64, 64), "likely first", (64, 64), nchw(64, 64)),
        ((1, 64, 64, 64), "likely last", (64, 64), nhwc(64, 64)),
        ((1, 64, 64, 64), "unknown", (64, 64), UNKNOWN),
        # a neighbour is overruled by the shape
        ((1, 56, 56, 96), "likely first", (224, 224), nhwc(56, 56)),
        ((1, 96, 56, 56), "likely last", (224, 224), nchw(56, 56)),
        # pixels that are not square
        ((1, 7, 14, 64), "unknown", WIDE, nhwc(7, 14)),
        ((1, 64, 14, 14), "unknown", WIDE, UNKNOWN),
        ((1, 3, 7, 14), "unknown", WIDE, nchw(7, 14)),  # 3 x 7 is one column from 3 x 6
        ((1, 64, 10, 15), "unknown", PHOTO, nchw(10, 15)),  # halved five times, rounding up
        ((1, 64, 18, 28), "unknown", PHOTO, nchw(18, 28)),  # four times, rounding down
        # video: five axes
        ((1, 64, 8, 28, 28), "unknown", (112, 112), Layout("NCDHW", 1, 28, 28)),
        ((1, 8, 28, 28, 96), "unknown", (112, 112), Layout("NDHWC", 4, 28, 28)),
        # operations, whose shape tells nothing: heads of attention, windows, indices
        ((1, 3, 224, 224), "by input", (224, 224), UNKNOWN),
        # nothing to tell from
        ((), "first", None, UNKNOWN),
        ((1, 64, 0, 7), "first", None, UNKNOWN),
    ],
)
def test_a_layout_follows_from_shape_channels_and_pixels(shape, channels, pixels, layout):
    assert resolve_layout(shape, Channels(channels), pixels) == layout


SIXTEEN = (16, 16)
DETECTION = Tokens(SIXTEEN, after=100)
SQUARE = (224, 224)


@pytest.mark.parametrize(
    ("shape", "channels", "pixels", "tokens", "layout"),
    [
        # the model says how many tokens there are before those of the image
        ((1, 201, 384), "last", SQUARE, Tokens(before=5), Layout("NLC", 2, 14, 14, 5)),
        ((1, 201, 384), "unknown", SQUARE, Tokens(), UNKNOWN),
        # the patches tell how many tokens are the image's: the others come before them
        ((1, 201, 384), "last", SQUARE, Tokens(SIXTEEN), Layout("NLC", 2, 14, 14, 5)),
        ((1, 5 + 18 * 28, 64), "last", PHOTO, Tokens(SIXTEEN), Layout("NLC", 2, 18, 28, 5)),
        # 225 tokens would be 15 x 15, but the network sees 14 x 14 patches
        ((1, 225, 384), "last", SQUARE, Tokens(SIXTEEN), Layout("NLC", 2)),
        ((1, 201, 384), "last", SQUARE, Tokens(SIXTEEN, before=4), Layout("NLC", 2)),
        # fewer tokens than patches: they were merged, as in Swin
        ((1, 49, 768), "last", SQUARE, Tokens((4, 4)), Layout("NLC", 2, 7, 7)),
        # YOLOS: class token, patches, and 100 detection tokens; a head takes these alone
        ((1, 297, 768), "last", SQUARE, DETECTION, Layout("NLC", 2, 14, 14, 1)),
        ((1, 100, 768), "last", SQUARE, DETECTION, Layout("NLC", 2)),
        # vit_l_16: 1024 channels are no 32 x 32 tokens, because there are 14 x 14 patches
        ((1, 197, 1024), "likely first", SQUARE, Tokens(SIXTEEN), Layout("NLC", 2, 14, 14, 1)),
        ((1, 197, 1024), "likely first", SQUARE, Tokens(), UNKNOWN),
        # 24 channels could be 4 x 4 patches and 8 more, but (N, C, L) has no tokens besides patches
        ((1, 17, 24), "likely first", (64, 64), Tokens(SIXTEEN), Layout("NLC", 2, 4, 4, 1)),
        ((1, 17, 16), "likely first", (64, 64), Tokens(SIXTEEN), UNKNOWN),
        # windows are no rows and columns, but their channels are known
        ((1, 49, 49, 64), "windows", SQUARE, Tokens(), Layout("NHWC", 3)),
    ],
)
def test_the_layout_of_tokens(shape, channels, pixels, tokens, layout):
    assert resolve_layout(shape, Channels(channels), pixels, tokens) == layout


def test_an_inferred_layout_is_that_of_tensors_with_as_many_axes_and_says_so():
    layer = LayerInfo("block", "Block", inferred=(("output:", "NLC"),))
    assert layer.layout_of((1, 197, 768), SQUARE) == Layout("NLC", 2, 14, 14, 1, inferred=True)
    assert layer.layout_of((1, 12, 197, 64), SQUARE) == UNKNOWN  # the heads


def test_the_type_of_a_module_or_of_the_one_before_it_shows_where_channels_are():
    parts = [nn.ReLU(), nn.Conv2d(1, 2, 1), nn.Dropout(), nn.Linear(2, 2), nn.GELU()]
    norms = [nn.LayerNorm(4), nn.LayerNorm((2, 4, 4))]
    model = nn.Sequential(*parts, *norms, MultiScaleRoIAlign(["0"], 7, 2), RoIPool(7, 1.0))
    _, *layers = list_layers(model)
    assert [layer.channels.value for layer in layers] == [
        *("same", "first", "likely first", "last", "likely last"),
        *("last", "unknown", "first", "first"),
    ]


@pytest.mark.parametrize(
    ("layout", "shape", "order", "maps"),
    [
        (nchw(5, 7), (2, 3, 5, 7), (0, 1, 2, 3), (2, 3, 5, 7)),
        (nhwc(5, 7), (2, 5, 7, 3), (0, 3, 1, 2), (2, 3, 5, 7)),
        (Layout("NCDHW", 1, 5, 7), (2, 3, 4, 5, 7), (0, 1, 2, 3, 4), (2, 3, 4, 5, 7)),
        (Layout("NDHWC", 4, 5, 7), (2, 4, 5, 7, 3), (0, 4, 1, 2, 3), (2, 3, 4, 5, 7)),
        (Layout("NLC", 2, 5, 7, 1), (2, 36, 3), (0, 2, 1), (2, 3, 5, 7)),
        (Layout("NCL", 1, 1, 9), (2, 3, 9), (0, 1, 2), (2, 3, 9)),
    ],
)
def test_a_layout_knows_the_order_and_the_shape_of_its_feature_maps(layout, shape, order, maps):
    assert (layout.channels_first, layout.maps_shape(shape)) == (order, maps)


@pytest.mark.parametrize(("length", "before"), [(196, 0), (197, 1), (198, 2), (201, 5), (200, 4)])
def test_tokens_of_a_saved_run_are_those_that_leave_an_image(length, before):
    layout = recall_layout("NLC", (1, length, 8), (224, 224))
    assert (layout.height, layout.width, layout.prefix) == (14, 14, before)
