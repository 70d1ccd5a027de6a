"""The figures of a tensor agree with numpy in float64, for any dtype and any memory layout."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from hookcli.activations import stats as stats_module
from hookcli.activations.observation import Observation, read_records
from hookcli.activations.stats import reduce_rows
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layer_records import ChannelRange, TensorStats
from hookcli.records.layouts import Layout

RELATIVE = 1e-5
CALL = Call(LayerInfo("conv", "Conv2d"))
LONG = (1 << 24) + 3  # more than float32 can count


def figures(rows, channel_axis=None):
    """Return hookcli's statistics and channel ranges of each row."""
    return read(reduce_rows(rows, channel_axis), (1, *rows.shape[1:]), rows.dtype)


def read(reduced, shape, dtype=torch.float32):
    """The stats and channel range of each row, as plain numbers."""
    observed = Observation(CALL, Layout(), shape, dtype, reduced)
    records = read_records([observed], [str(row) for row in range(len(reduced.table))])
    return [(record.stats, record.channels) for record in records]


def stats_of(rows, row=0):
    return figures(rows)[row][0]


def in_numpy(row):
    """Return numpy's statistics, in float64, of the finite values in one row."""
    values = row.detach().to(torch.float64).numpy().ravel()
    finite = values[np.isfinite(values)]
    return {
        "mean": finite.mean(),
        "std": np.sqrt(np.mean((finite - finite.mean()) ** 2)),
        "min": finite.min(),
        "max": finite.max(),
        "zero_fraction": np.count_nonzero(values == 0) / values.size,
        "nan_count": np.count_nonzero(np.isnan(values)),
        "inf_count": np.count_nonzero(np.isinf(values)),
    }


def agree(stats, truth):
    room = RELATIVE * max(abs(truth["mean"]), truth["std"])
    assert stats.mean == pytest.approx(truth["mean"], rel=0, abs=room)
    assert stats.std == pytest.approx(truth["std"], rel=0, abs=room)
    for name in ("min", "max", "zero_fraction", "nan_count", "inf_count"):
        assert getattr(stats, name) == truth[name], name


def check_all_rows(rows):
    for row, (stats, _) in zip(rows, figures(rows), strict=True):
        agree(stats, in_numpy(row))


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# A tensor small enough for a pencil


def check(stats, **figures):
    """Statistics that are not named are those of other tests."""
    assert {name: getattr(stats, name) for name in figures} == figures


# However it lies in memory


@pytest.mark.parametrize("seed", range(4))
def test_random_shapes_agree_with_numpy(seed):
    choose = np.random.default_rng(seed)
    shape = [int(n) for n in choose.integers(1, 19, size=choose.integers(1, 6))]
    check_all_rows(normal(*shape, seed=seed) * 3 + float(choose.normal()))


@pytest.mark.parametrize(
    "rows",
    [
        normal(3, 16, 20, 24).contiguous(memory_format=torch.channels_last),
        normal(6, 32, 20, 24)[::2, ::3, 1:, :-5],
        normal(3, 1, 1, 24).expand(3, 16, 20, 24),
        normal(24, 20, 16, 3).permute(3, 0, 2, 1),
        normal(70_000, 3).t(),
        normal(3, 40_000, 2).transpose(1, 2),
        normal(5),
    ],
    ids=[
        *("channels_last", "sliced", "expanded", "permuted"),
        *("long_strided_rows", "long_inner_axis", "one_axis"),
    ],
)
def test_any_memory_layout_agrees_with_numpy(rows):
    check_all_rows(rows)


@pytest.mark.parametrize("row", [[0.1, 0.1, 0.1, math.nan], [math.nan, 0.5, 1e308, 1e308]])
def test_a_range_in_float64_is_that_of_the_finite_values(row):
    stats = stats_of(torch.tensor([row], dtype=torch.float64))
    finite = [value for value in row if value == value]
    assert (stats.min, stats.max) == (min(finite), max(finite))


def test_a_large_tensor_is_reduced_in_pieces(monkeypatch):
    monkeypatch.setattr(stats_module, "_PIECE", 70)
    rows = normal(5, 3, 4, 5)
    rows[:, 0, 0, 0] = math.inf
    check_all_rows(rows)


def test_figures_do_not_change_when_the_tensor_is_written_over_afterwards():
    rows = torch.tensor([[1.0, -2.0]])
    reduced = reduce_rows(rows, 1)
    rows.zero_()
    ((stats, channels),) = read(reduced, (1, 2))
    assert (stats.min, stats.max) == (-2.0, 1.0)
    assert channels == ChannelRange((1.0, -2.0), (1.0, -2.0))


# Whatever its numbers are


@pytest.mark.parametrize("offset", [-1e3, 1e5])
def test_a_mean_large_against_the_spread_leaves_the_spread_its_digits(offset):
    values = (torch.arange(40_000) % 5).float() - 2  # -2, -1, 0, 1, 2: variance 2
    stats = stats_of((values + offset).view(1, 4, 100, 100))
    assert stats.mean == pytest.approx(offset, rel=1e-7)
    assert stats.std == pytest.approx(math.sqrt(2), rel=RELATIVE)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("magnitude", [1e-40, 1e-15, 1e8, 1e37])
def test_any_magnitude_agrees_with_numpy(magnitude, offset):
    rows = (normal(2, 3, 50, 50) + offset).double() * (magnitude / (offset or 1))
    check_all_rows(rows.float())


def test_a_hundred_million_values_are_summed_without_drift():
    rows = (
        torch.arange(4.0).repeat(25_000_000).view(1, 100, 1_000, 1_000)
    )  # 0, 1, 2, 3: variance 5/4
    stats = stats_of(rows)
    assert stats.mean == pytest.approx(1.5, rel=RELATIVE)
    assert stats.std == pytest.approx(math.sqrt(1.25), rel=RELATIVE)
    assert (stats.min, stats.max, stats.zero_fraction) == (0.0, 3.0, 0.25)


@pytest.mark.parametrize("value", [-7.0, 1e-20])
def test_a_constant_tensor_has_no_spread(value):
    stats = stats_of(torch.full((1, 3, 31, 37), value))
    constant = torch.tensor(value).item()
    assert (stats.min, stats.max) == (constant, constant)
    assert stats.mean == pytest.approx(constant, rel=1e-6)
    assert stats.std == pytest.approx(0.0, abs=1e-6 * abs(constant))


@pytest.mark.parametrize("empty", [(2, 0), (2, 3, 0, 5)])
def test_an_empty_tensor_has_no_figures(empty):
    for row in range(2):
        assert figures(torch.zeros(empty), 1)[row] == (
            TensorStats((1, *empty[1:]), "float32", None, None, None, None, None),
            None,
        )


# NaN and Inf


def test_nan_and_inf_are_counted_and_left_out():
    row = [1.0, math.nan, 3.0, math.inf, -math.inf, math.nan, 0.0, 4.0]
    std = pytest.approx(math.sqrt(2.5))  # squares of -1, 1, -2 and 2 are 10 together
    stats = stats_of(torch.tensor([row]))
    check(stats, mean=2.0, std=std, min=0.0, max=4.0, zero_fraction=0.125)
    check(stats, nan_count=2, inf_count=2, shape=(1, 8))


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_one_bad_value_does_not_poison_the_others(bad):
    rows = normal(3, 4, 10, 10) + 2
    rows[1, 2, 3, 4] = bad
    check_all_rows(rows)


def test_a_row_without_finite_values_has_no_figures_but_counts():
    stats = stats_of(torch.tensor([[math.nan, math.inf, math.nan]]))
    check(stats, mean=None, std=None, min=None, max=None, zero_fraction=0.0)
    check(stats, nan_count=2, inf_count=1)


# Any data type


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_floating_type_agrees_with_numpy(dtype):
    check_all_rows((normal(3, 8, 40, 40) + 100).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_whole_numbers_agree_with_numpy(dtype):
    check_all_rows((torch.arange(600).view(3, 200) * 7 % 101).to(dtype))


def test_the_mean_of_booleans_is_the_share_of_true():
    stats = stats_of(torch.tensor([[True, False, False, False]]))
    assert (stats.mean, stats.min, stats.max, stats.zero_fraction) == (0.25, 0.0, 1.0, 0.75)
    assert stats.dtype == "bool"


def test_a_quantized_tensor_is_seen_with_its_scale():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = torch.quantize_per_tensor(
            torch.tensor([[-1.0, 0.0, 0.5, 2.5]]), 0.5, 4, torch.quint8
        )
    stats = stats_of(rows)
    assert (stats.mean, stats.min, stats.max, stats.zero_fraction) == (0.5, -1.0, 2.5, 0.25)
    assert stats.std == pytest.approx(math.sqrt(1.625))  # 2.25 + 0.25 + 0 + 4 are 6.5
    assert stats.dtype == "quint8"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex128])
def test_the_figures_of_a_complex_tensor_are_those_of_its_magnitudes(dtype):
    stats = stats_of(torch.tensor([[0j, 3 - 4j, -4j]], dtype=dtype))
    assert (stats.mean, stats.min, stats.max, stats.zero_fraction) == (3.0, 0.0, 5.0, 1 / 3)
    assert stats.std == pytest.approx(math.sqrt(14 / 3))  # 41 / 3 - 9
    assert stats.norm == pytest.approx(math.sqrt(41))


def test_a_complex_number_of_which_a_part_is_not_finite_is_not_finite():
    parts = torch.tensor([[1.0, 3.0, math.inf, 4.0]]), torch.tensor([[math.nan, 4, math.nan, 3]])
    stats = stats_of(torch.complex(*parts))
    assert (stats.mean, stats.min, stats.max, stats.nan_count) == (5.0, 5.0, 5.0, 2)


# Exact zeros


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["positive", "both signs"])
def test_zeros_are_counted_exactly_beyond_two_to_the_24(sign):
    rows = torch.ones(1, LONG)
    rows[0, ::2] = sign
    rows[0, 5:7] = 0  # leaves 2**24 + 1, which float32 does not have
    assert stats_of(rows).zero_fraction == 2 / LONG


# Channels


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_channel_ranges_follow_the_channel_axis(axis):
    images = torch.zeros(
        2, 3, 2, 2
    )  # (N, C, H, W): channel c of image n reaches from -c to 10n + c
    for image in range(2):
        for channel in range(3):
            images[image, channel, 0, 1] = 10 * image + channel
            images[image, channel, 1, 0] = -channel
    ranges = [channels for _, channels in figures(images.movedim(1, axis), axis)]
    assert ranges == [
        ChannelRange((0.0, -1.0, -2.0), (0.0, 1.0, 2.0)),
        ChannelRange((0.0, -1.0, -2.0), (10.0, 11.0, 12.0)),
    ]


def test_a_channel_that_holds_nan_has_nan_for_its_range():
    images = torch.zeros(1, 2, 2, 2)
    images[0, 1, 0, 0] = math.nan
    ((_, channels),) = figures(images, 1)
    assert channels.low[0] == channels.high[0] == 0
    assert math.isnan(channels.low[1])
    assert math.isnan(channels.high[1])


# The way to the host


def test_figures_stay_in_their_order_on_the_way_to_the_host():
    seen = [
        Observation(
            CALL, Layout(), (1, 2), torch.float32, reduce_rows(torch.full((1, 2), float(n)), 1)
        )
        for n in range(4)
    ]
    records = read_records(seen, ["cat"])
    assert [record.stats.mean for record in records] == [0.0, 1.0, 2.0, 3.0]
    assert [list(record.channels.low) for record in records] == [[float(n)] * 2 for n in range(4)]


def test_figures_in_one_row_apply_to_every_image():
    shared = Observation(CALL, Layout(), (1, 2), torch.float32, reduce_rows(torch.ones(1, 2), 1))
    assert [r.stats.mean for r in read_records([shared], ["cat", "dog"])] == [1.0, 1.0]


@pytest.mark.gpu
def test_a_gpu_gives_the_same_figures_in_one_transfer():
    images = torch.zeros(2, 3, 2, 2)
    images[0, 1, 0, 0], images[1, 2, 1, 1] = 8.0, math.nan
    first = read(reduce_rows(images.cuda(), 1), (1, 3, 2, 2))
    stats, channels = first[0]
    assert stats.mean == pytest.approx(8 / 12)
    assert (stats.max, stats.zero_fraction) == (8.0, 11 / 12)
    assert channels == ChannelRange((0.0, 0.0, 0.0), (0.0, 8.0, 0.0))
    assert first[1][0].nan_count == 1
    assert read(reduce_rows(torch.ones(1, 5).cuda(), None), (1, 5))[0][0].mean == 1.0
