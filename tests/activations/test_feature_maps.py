"""From an activation to small pictures: which channels, in which order, on which scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from hookcli.activations.feature_maps import Bars, take_cam, take_heat, take_tiles
from hookcli.config import GridStyle
from hookcli.records.layouts import Layout

PAIR = Layout("NCHW", 1, 1, 2)  # feature maps of one row and two columns


def pairs(*maps):
    """(1, C, 1, 2): each channel two values."""
    return torch.tensor(maps).view(1, -1, 1, 2)


def order(activation, layout=PAIR, **style):
    return take_tiles(activation, layout, GridStyle(**style)).channels.tolist()


def levels(activation, layout=PAIR, **style):
    """The levels by channel, in channel order unless a rank is asked for."""
    return take_tiles(activation, layout, GridStyle(**{"rank": "index"} | style)).levels.tolist()


# Which channels


SPREAD_1_3_2 = pairs([9.0, 10.0], [0.0, 3.0], [-20.0, -18.0])  # means 9.5, 1.5, -19
MAXIMA = pairs([0.0, 5.0], [4.0, 4.0], [-1.0, 7.0])  # means 2.5, 4, 3


@pytest.mark.parametrize(
    ("rank", "activation", "channels"),
    [
        ("std", SPREAD_1_3_2, [1, 2, 0]),
        ("std", pairs([1e4, 1e4 + 1], [0.0, 2.0]), [1, 0]),  # whatever the mean
        ("mean", SPREAD_1_3_2, [0, 1, 2]),
        ("mean", MAXIMA, [1, 2, 0]),
        ("max", MAXIMA, [2, 0, 1]),
        ("index", MAXIMA, [0, 1, 2]),
    ],
)
def test_channels_are_in_the_order_of_their_rank(rank, activation, channels):
    assert order(activation, rank=rank) == channels


@pytest.mark.parametrize("rank", ["max", "index"])
def test_only_the_first_channels_are_taken(rank):
    tiles = take_tiles(MAXIMA, PAIR, GridStyle(rank=rank, top=2))
    assert tiles.channels.tolist() == {"max": [2, 0], "index": [0, 1]}[rank]
    assert tiles.levels.shape == (2, 1, 2)
    assert tiles.total == 3


def test_chosen_channels_are_in_their_order_without_those_that_a_layer_lacks():
    assert order(MAXIMA, channels=(2, 64, 0, 3), top=1, rank="mean") == [2, 0]


def test_a_layer_that_lacks_all_chosen_channels_gives_no_tile():
    tiles = take_tiles(MAXIMA, PAIR, GridStyle(channels=(64,)))
    assert (tiles.channels.tolist(), tiles.levels.shape, tiles.total) == ([], (0, 1, 2), 3)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize("rank", ["std", "mean", "max"])
def test_a_channel_that_is_not_finite_comes_first_whatever_the_rank(bad, rank):
    assert order(pairs([0.0, 100.0], [0.0, 50.0], [0.0, bad]), rank=rank) == [2, 0, 1]


# On which scale

NAN, INF = math.nan, math.inf
LAYER, SIGNED = {"scale": "layer"}, {"signed": True}
# of each case the channels, the style, and the levels
SCALES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "from lowest to highest": ([[-7, 3], [0.25, 0]], {}, [[0, 239], [239, 0]]),
    "against each other": ([[0, 239], [10, 20]], LAYER, [[0, 239], [10, 20]]),
    "against one not shown": ([[0, 10], [0, 239]], LAYER | {"channels": (0,)}, [[0, 10]]),
    "constant": ([[4, 4], [0, 0]], {}, [[0, 0], [0, 0]]),
    "not finite": ([[1, NAN, INF, -INF, 3]], {}, [[0, 240, 240, 240, 239]]),
    "one that is not finite": ([[0, 239], [INF, NAN]], LAYER, [[0, 239], [240, 240]]),
    "the largest numbers": ([[-3e38, 3e38]], {}, [[0, 239]]),
    # halves of 119 are 60, rounded to even
    "signed": ([[-2, 1], [0, 3], [-4, 0]], SIGNED, [[1, 180], [120, 239], [1, 120]]),
    "signed zeros": ([[0, 0], [-0.0, 0]], SIGNED, [[120, 120]] * 2),
    "signed layer": ([[-119, 0], [10, 20]], SIGNED | LAYER, [[1, 120], [130, 140]]),
    "signed, not finite": ([[-1, NAN, INF, -INF, 2]], SIGNED, [[60, 240, 240, 240, 239]]),
    "the smallest gradients": ([[-1e-37, 1e-37]], SIGNED, [[1, 239]]),
}


@pytest.mark.parametrize("name", SCALES)
def test_a_value_has_the_level_that_its_scale_gives_it(name):
    channels, style, expected = SCALES[name]
    maps = torch.tensor(channels, dtype=torch.float32)[None, :, None]
    assert levels(maps, Layout("NCHW", 1, 1, maps.shape[3]), **style) == [[row] for row in expected]


# How large


def test_a_large_map_becomes_the_means_of_squares():
    four_by_four = torch.tensor(
        [
            [0.0, 0.0, 2.0, 4.0],
            [0.0, 0.0, 6.0, 8.0],  # means 0 and 5
            [10.0, 10.0, 0.0, 0.0],
            [10.0, 10.0, 0.0, 4.0],  # means 10 and 1; the whole reaches from 0 to 10
        ]
    ).view(1, 1, 4, 4)
    tiles = take_tiles(four_by_four, Layout("NCHW", 1, 4, 4), GridStyle(tile=2))
    assert tiles.levels.tolist() == [[[0, 120], [239, 24]]]  # 239 / 2 and 239 / 10, rounded
    assert tiles.shown == (4, 4)


def test_squares_cut_by_the_edge_are_means_of_what_is_left():
    row = torch.tensor([[[[0.0, 2.0, 4.0, 0.0, 4.0]]]])
    tiles = take_tiles(row, Layout("NCHW", 1, 1, 5), GridStyle(tile=3))
    assert tiles.levels.tolist() == [[[60, 120, 239]]]  # means 1, 2 and 4 of 4


# From any layout


@pytest.mark.parametrize(
    ("layout", "permutation"),
    [(Layout("NCDHW", 1, 1, 2), (0, 1, 2, 3, 4)), (Layout("NDHWC", 4, 1, 2), (0, 2, 3, 4, 1))],
    ids=["NCDHW", "NDHWC"],
)
def test_a_video_shows_its_middle_frame(layout, permutation):
    video = torch.zeros(1, 2, 3, 1, 2)  # (N, C, D, H, W)
    video[0, 0, 1] = torch.tensor([[0.0, 5.0]])
    video[0, 1, 1] = torch.tensor([[5.0, 0.0]])
    video[:, :, 2] = 77.0
    assert levels(video.permute(permutation), layout) == [[[0, 239]], [[239, 0]]]


def test_tiles_do_not_change_when_the_activation_is_written_over_afterwards():
    activation = pairs([0.0, 1.0])
    tiles = take_tiles(activation, PAIR, GridStyle())
    activation.fill_(7.0)
    assert tiles.levels.tolist() == [[[0, 239]]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_tiles_of_any_type_have_the_same_levels(dtype):
    assert levels(pairs([0.0, 239.0], [239.0, 0.0]).to(dtype)) == [[[0, 239]], [[239, 0]]]


# Without spatial form


def bars(activation, layout):
    taken = take_tiles(activation, layout, GridStyle())
    assert isinstance(taken, Bars)
    return taken.values.tolist(), taken.per_channel, taken.run


def test_channels_of_several_values_without_form_become_bars_of_their_means():
    windows = torch.tensor([[[[1.0, 10.0]], [[3.0, 20.0]]]])  # (1, 2, 1, C)
    assert bars(windows, Layout("NHWC", 3)) == ([2.0, 15.0], True, 2)


def test_many_values_of_an_unknown_layout_become_means_of_runs():
    values, per_channel, run = bars(torch.arange(4096.0).view(1, 64, 64), Layout())
    assert (len(values), per_channel, run) == (1024, False, 4)
    assert values[:2] == [1.5, 5.5]
    assert values[-1] == 4093.5


def test_a_value_after_the_last_whole_run_is_not_dropped():
    activation = torch.zeros(1, 1025)
    activation[0, 1024] = math.nan
    values, _, _ = bars(activation, Layout())
    assert math.isnan(values[-1])


def test_a_grad_cam_weighs_channels_by_their_mean_slope():
    activation = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.0]]]])  # two channels of 1 by 2
    gradient = torch.tensor([[[[4.0, 0.0]], [[-1.0, -1.0]]]])  # mean slopes 2 and -1
    layout = Layout("NCHW", 1, 1, 2)
    # 2 * 1 - 3 and 2 * 2 - 0
    assert take_cam(activation, gradient, layout).tolist() == [[-1.0, 4.0]]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("hirescam", [4 * 1 - 3, 0]),
        ("layercam", [4 * 1, 0]),
        # the only positive slope is 4: 16 / (2 * 16 + 3 * 64) = 1 / 14, times 4, times 1 and 2
        ("gradcam++", [4 / 14, 8 / 14]),
        # the places (1, 3) and (2, 0) differ by (-1, 3); the first is stronger
        ("eigencam", [math.sqrt(10) / 2, -math.sqrt(10) / 2]),
    ],
)
def test_each_other_method_by_hand(method, expected):
    activation = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.0]]]])
    gradient = torch.tensor([[[[4.0, 0.0]], [[-1.0, -1.0]]]])
    found = take_cam(activation, gradient, Layout("NCHW", 1, 1, 2), method)
    torch.testing.assert_close(found, torch.tensor([expected]).float())


# Channels at the resolution of their layer


def maps(channel, **style):
    """The levels of one channel (h, w), as they are written beside the grid."""
    activation = torch.tensor(channel)[None, None]
    layout = Layout("NCHW", 1, *activation.shape[2:])
    return take_tiles(activation, layout, GridStyle(**{"mode": "layers"} | style)).maps[0].tolist()


def test_a_channel_larger_than_its_tile_keeps_its_own_resolution_in_255_levels():
    steps = torch.arange(255.0).view(15, 17)
    activation = (2 * steps - 7)[None, None]
    taken = take_tiles(activation, Layout("NCHW", 1, 15, 17), GridStyle("layers", tile=8))
    assert taken.levels.shape == (1, 5, 6)
    assert torch.equal(taken.maps[0], steps.to(torch.uint8))


def test_the_levels_of_channels_on_one_scale_have_the_range_of_the_layer():
    style = GridStyle("layers", scale="layer", rank="index")
    taken = take_tiles(pairs([0.0, 1.0], [-2.0, 2.0]), PAIR, style)
    assert taken.maps.flatten().tolist() == [127, 190, 0, 254]  # -2 to 2, in 254 steps
    assert taken.range.tolist() == [-2.0, 2.0]


# Heat: one value of all channels for each place

BY_NUMPY = {
    "mean": lambda maps: maps.mean(0),
    "max": lambda maps: maps.max(0),
    "sum": lambda maps: maps.sum(0),
    "l2": lambda maps: np.sqrt((maps**2).sum(0)),
}


@pytest.mark.parametrize("of", BY_NUMPY)
@pytest.mark.parametrize(
    ("layout", "arrange"),
    [
        (Layout("NCHW", 1, 3, 4), lambda maps: maps),
        (Layout("NHWC", 3, 3, 4), lambda maps: maps.movedim(1, -1)),
        (
            Layout("NLC", 2, 3, 4, prefix=2),
            lambda maps: torch.cat([torch.full((1, 2, 5), 99.0), maps.flatten(2).mT], 1),
        ),
    ],
    ids=["NCHW", "NHWC", "tokens behind a prefix"],
)
def test_the_heat_of_a_place_is_that_of_its_channels(of, layout, arrange):
    maps = torch.randn(1, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    heat = take_heat(arrange(maps), layout, of).numpy()
    assert heat == pytest.approx(BY_NUMPY[of](maps[0].numpy().astype(np.float64)), abs=1e-5)


def test_the_heat_of_half_precision_is_computed_in_float32():
    maps = torch.full((1, 4, 1, 2), 60000.0).half()
    assert take_heat(maps, PAIR, "sum").tolist() == [[240_000.0] * 2]  # Inf in float16


def test_the_heat_of_complex_values_is_that_of_their_magnitudes():
    assert take_heat(pairs([3 + 4j, 0j]), PAIR, "mean").tolist() == [[5.0, 0.0]]
