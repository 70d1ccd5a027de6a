"""Which part of a tensor belongs to which image, and the message when the model raises."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hookcli.config import GridStyle
from hookcli.edits.resolve import resolve_edits
from hookcli.hooks.layers import list_layers
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import BrokenForwardError, ForwardSettings, run_forward
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layer_records import ChannelRange, LayerRecord, TensorStats
from hookcli.records.layouts import Channels, Layout
from hookcli.summary.tally import add_records, list_rows
from tests import toy_models as toys
from tests.toy_models import pixel

NO_GRIDS = GridStyle(mode="none")


def aggregate_layers(records):
    """One row per call and output, over all images of the records."""
    calls = {}
    add_records(calls, records, {})
    return list_rows(calls, {}, lambda _call: None)


def hooked(model, *paths, at="output", style=NO_GRIDS):
    layers = [layer for layer in list_layers(model) if layer.module_path in paths]
    assert len(layers) == len(paths)
    return ForwardSettings(EagerRunner(model.eval(), layers, at), style)


def records_of(results):
    return [record for result in results for record in result.records]


def maxima(results, image):
    """The largest value of each of an image's calls, by call id."""
    return {r.call.id: r.stats.max for r in records_of(results) if r.image == image}


def test_each_image_of_a_batch_has_figures_of_its_own():
    forward = hooked(toys.InplaceAdd(), "conv", "")
    (result,) = run_forward(forward, ["a", "b"], pixel(1.0, 10.0))
    assert [(r.image, r.call.id, r.stats.mean, r.stats.shape) for r in result.records] == [
        ("a", "conv", 3.0, (1, 1, 1, 1)),
        ("a", "(model)", 4.0, (1, 1, 1, 1)),
        ("b", "conv", 30.0, (1, 1, 1, 1)),
        ("b", "(model)", 40.0, (1, 1, 1, 1)),
    ]


@pytest.mark.parametrize(
    ("make", "paths"),
    [
        (toys.InplaceRelu, ("conv", "relu")),
        (toys.ReusedRelu, ("conv1", "conv2", "relu")),
        (toys.ChannelsLast, ("conv", "norm", "linear", "act")),
        (toys.Tokens, ("conv", "encoder")),
        (toys.SeveralOutputs, ("split",)),
        (toys.SharedLeadingAxis, ("conv", "bias")),
        (toys.FoldedLeadingAxis, ("conv", "heads")),
        (toys.PairedLeadingAxis, ("conv",)),
    ],
)
@pytest.mark.parametrize("at", ["output", "both"])
def test_two_images_in_a_batch_have_the_records_that_they_have_alone(make, paths, at):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2, 1, 8, 8, generator=generator)
    pixels[1] *= 50
    together = records_of(run_forward(hooked(make(), *paths, at=at), ["a", "b"], pixels))
    alone = [
        record
        for index, key in enumerate("ab")
        for record in records_of(run_forward(hooked(make(), *paths, at=at), [key], pixels[[index]]))
    ]
    assert [(r.image, r.call, r.layout) for r in together] == [
        (r.image, r.call, r.layout) for r in alone
    ]
    for one, other in zip(together, alone, strict=True):
        assert one.stats.shape == other.stats.shape
        assert one.stats.zero_fraction == other.stats.zero_fraction
        for name in ("mean", "std", "min", "max"):
            room = 1e-5 * max(abs(other.stats.mean), other.stats.std)
            assert getattr(one.stats, name) == pytest.approx(getattr(other.stats, name), abs=room)


def test_tiles_show_the_activation_before_it_is_written_over():
    pixels = torch.tensor([[[[-1.0, 1.0]]]])  # conv's channel 0 is [2, -2], its channel 1 [-1, 1]
    style = GridStyle(rank="index")
    layers = [LayerInfo("conv", "Conv2d", channels=Channels.FIRST)]
    forward = ForwardSettings(EagerRunner(toys.InplaceRelu().eval(), layers), style)
    ((picture,),) = [result.pictures for result in run_forward(forward, ["a"], pixels)]
    assert picture.content.levels.tolist() == [[[239, 0]], [[0, 239]]]


def test_heads_folded_into_the_leading_axis_send_images_one_at_a_time():
    forward = hooked(toys.FoldedLeadingAxis(), "conv", "heads")
    results = run_forward(forward, ["a", "b"], pixel(1.0, 2.0))
    assert [result.alone for result in results] == [True, True]
    assert maxima(results, "a") == {"conv": 100.0, "heads": 100.0}
    assert maxima(results, "b") == {"conv": 200.0, "heads": 200.0}


def test_a_fold_that_shows_only_in_a_batch_sends_images_one_at_a_time():
    forward = hooked(toys.PairedLeadingAxis(), "conv", "pairs")
    (result,) = run_forward(forward, ["first"], pixel(7.0))
    assert not result.alone
    results = run_forward(forward, ["a", "b"], pixel(1.0, 3.0))
    assert [result.alone for result in results] == [True, True]
    assert maxima(results, "a") == {"conv": 2.0, "pairs": 4.0}
    assert maxima(results, "b") == {"conv": 6.0, "pairs": 36.0}


def test_images_that_run_again_one_at_a_time_are_as_they_were():
    results = run_forward(hooked(toys.FoldedAfterInplace(), "heads"), ["a", "b"], pixel(1.0, 10.0))
    assert [maxima(results, key) for key in "ab"] == [{"heads": 2.0}, {"heads": 20.0}]


def edited(settings, *edits):
    runner = settings.runner
    resolved = resolve_edits(runner.module, edits, "output")
    return replace(settings, runner=replace(runner, edits=resolved))


def test_an_edit_of_an_in_place_relu_does_not_change_the_convolution_before_it():
    """-2 and 1 become 0 and 1 in place, and then 0 and 2: a norm of 1 is off by 1."""
    forward = edited(hooked(toys.InplaceRelu(), "conv", "relu"), "relu:scale=2")
    (result,) = run_forward(forward, ["a"], pixel(1.0))
    assert {r.call.id: r.change for r in result.records} == {"conv": 0.0, "relu": 1.0}


def test_the_forward_without_edits_does_not_write_over_the_image():
    forward = edited(hooked(toys.FoldedAfterInplace(), "heads"), "heads:scale=3")
    assert maxima(run_forward(forward, ["a"], pixel(1.0)), "a") == {"heads": 1.0 * 2 * 3}


def failure(model, pixels, *paths):
    forward = hooked(model, *paths)
    with pytest.raises(BrokenForwardError) as raised:
        run_forward(forward, ["a"], pixels)
    return raised.value


def test_a_wrong_shape_is_reported_with_the_module_its_input_and_its_weight():
    error = failure(toys.WrongShape(), torch.ones(1, 1, 4, 5), "stem", "block.0")
    assert error.message.startswith("the model failed in block.1 (Conv2d): Given groups=1")
    assert error.hint == (
        "it was given input 1x2x4x5; its weight is 1x3x1x1; "
        "the last observed layers were stem, block.0"
    )
    assert error.exit_code == 4


def test_what_was_observed_before_the_model_raised_is_kept():
    error = failure(toys.WrongShape(), pixel(3.0), "stem", "block.0", "block.1")
    assert [(r.image, r.call.id, r.stats.max) for r in error.partial.records] == [
        ("a", "stem", 6.0),
        ("a", "block.0", 6.0),
    ]
    assert error.partial.output is None


def test_out_of_memory_while_an_output_is_observed_is_reported_like_the_models():
    class Vast(nn.Module):
        def forward(self, x):
            return torch.ones(1, 1, 1, 1, dtype=torch.int8).expand(1, 1, 1 << 22, 1 << 22)

    model = nn.Sequential(nn.Identity(), Vast())  # one byte, shown as 16 TiB
    error = failure(model, pixel(1.0), "0", "1")
    assert error.message.startswith("the model failed in 1 (Vast): ")
    assert "allocate memory" in error.message
    assert error.hint == (
        "it was given x 1x1x1x1; the last observed layers were 0; "
        "try `batch_size=1`, or a smaller `size`"
    )
    assert error.exit_code == 4
    assert not any(module._forward_hooks for module in model.modules())


def test_an_interrupt_is_no_error_of_the_model():
    with pytest.raises(KeyboardInterrupt):
        run_forward(hooked(toys.RaisesInside(KeyboardInterrupt()), "conv"), ["a"], pixel(1.0))


def test_a_fault_of_the_observer_is_not_reported_as_the_models():
    impossible = GridStyle(tile=0)
    forward = hooked(toys.InplaceAdd(), "conv", style=impossible)
    with pytest.raises(ZeroDivisionError):
        run_forward(forward, ["a"], torch.ones(1, 1, 4, 4))


def record(image, values, call_id="conv", order=1):
    """Return a record with numpy's statistics of one image's values, (1, C, n), without NaN."""
    values = np.asarray(values, np.float64)
    finite = values[np.isfinite(values)]
    has = finite.size > 0
    stats = TensorStats(
        shape=values.shape,
        dtype="float32",
        mean=float(finite.mean()) if has else None,
        std=float(finite.std()) if has else None,
        min=float(finite.min()) if has else None,
        max=float(finite.max()) if has else None,
        zero_fraction=float((values == 0).mean()),
        nan_count=int(np.isnan(values).sum()),
        inf_count=int(np.isinf(values).sum()),
    )
    ranges = ChannelRange(tuple(values.min((0, 2)).tolist()), tuple(values.max((0, 2)).tolist()))
    call = Call(LayerInfo(call_id, "Conv2d", params=9), order=order)
    return LayerRecord(image, call, Layout("NCL", 1, 1, values.shape[2]), stats, ranges)


def test_a_row_has_the_figures_of_the_finite_values_of_all_images():
    choose = np.random.default_rng(0)
    images = [
        choose.normal(choose.normal() * 100, 1 + i, (1, 4, int(choose.integers(5, 90))))
        for i in range(20)
    ]
    images += [np.full((1, 1, 2), math.nan), np.full((1, 1, 1), math.inf)]
    (row,) = aggregate_layers(record(str(i), values) for i, values in enumerate(images))
    finite = np.concatenate([values.ravel() for values in images[:20]])
    assert row.mean == pytest.approx(finite.mean(), rel=1e-12)
    assert row.std == pytest.approx(finite.std(), rel=1e-12)
    assert (row.min, row.max) == (finite.min(), finite.max())
    assert (row.nan_count, row.inf_count, row.images) == (2, 1, 22)
    (row,) = aggregate_layers([record("a", [[[math.nan]]])])
    assert (row.mean, row.std, row.min, row.max) == (None, None, None, None)


def test_a_channel_is_dead_when_it_is_zero_in_all_images():
    first = record("a", [[[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    second = record("b", [[[0.0, 0.0], [0.0, -2.0], [0.0, 0.0], [0.0, 0.0]]])
    (row,) = aggregate_layers([first, second])
    assert (row.dead_channels, row.channels) == (2, 4)
