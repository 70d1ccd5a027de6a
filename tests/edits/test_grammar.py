"""``--edit``: what the language says, what it refuses, and what each edit makes of a tensor."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hookcli.edits.grammar import Edit, Side, read_edit
from hookcli.edits.resolve import apply_edit, check_channels
from hookcli.errors import EditSyntaxError, RequestError

SIDES = ("output", "input", "grad_output", "grad_input", "param")
WHATS = "zero, scale=V, clamp=LO:HI, clip-norm=V, mean, set=V"
CHANNELS = "channels are counted from 0: {3,7,10-20}"
ENDS = "write clamp=LO:HI; one of the two may be left out"
A_SIDE = "one of: output, input, grad_output, grad_input, param"

# A shape of each layout, and the axis of its 5 channels
LAYOUTS = {
    "NCHW": ((2, 5, 3, 4), 1),
    "NHWC": ((2, 3, 4, 5), 3),
    "NLC": ((2, 6, 5), 2),
    "NCL": ((2, 5, 6), 1),
    "NC": ((2, 5), 1),
    "NCDHW": ((2, 5, 2, 3, 4), 1),
}
EDITS = ("zero", "scale=-2", "clamp=-0.5:0.7", "clamp=0:", "clip-norm=1.5", "mean", "set=3")


def edit(what: str) -> Edit:
    """``zero``, or with channels ``{1,3}:zero``."""
    return read_edit(f"conv{what if what.startswith('{') else ':' + what}", "output")


def refusal(text: str, default_side: Side = "output") -> tuple[str, str]:
    with pytest.raises(EditSyntaxError) as caught:
        read_edit(text, default_side)
    return caught.value.message, caught.value.hint


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same numbers each time, positive and negative."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def gradient(what: str, values: Tensor, channel_axis: int | None = None) -> Tensor:
    """d(sum of what the edit gives)/d(values)."""
    leaf = values.clone().requires_grad_()
    return torch.autograd.grad(apply_edit(edit(what), leaf, channel_axis).sum(), leaf)[0]


# The language


@pytest.mark.parametrize(
    ("what", "verb", "value", "low", "high"),
    [
        ("zero", "zero", 0.0, None, None),
        ("scale=-2", "scale", -2.0, None, None),
        ("set=inf", "set", math.inf, None, None),
        ("clamp=0:6", "clamp", 0.0, 0.0, 6.0),
        ("clamp=0:", "clamp", 0.0, 0.0, None),
        ("clamp=:6", "clamp", 0.0, None, 6.0),
    ],
)
def test_a_verb_is_read_with_its_numbers(what, verb, value, low, high):
    text = f"conv:{what}"
    assert read_edit(text, "output") == Edit(
        "output", "conv", None, verb, value, low, high, text=text
    )


FORMS = [
    *("conv", "conv[-2:-1]", "layer1.0.relu#1[out]", "layer[!a:c].*", "path:zero", "(model)"),
    *("mean", "output", "re:^a:b$", "re:^conv{3,7}", "re:^(?:a|b):zero$", "re:^a:set=1$"),
]
WHAT = ["zero", "scale=2", "clamp=-1:1", "clamp=0:", "clamp=:6"]
SIDES = ["", "output", "input", "grad_output", "grad_input"]


@pytest.mark.parametrize("form", FORMS)
def test_the_layers_of_an_edit_end_at_the_last_colon_with_a_verb(form):
    for what, side in itertools.product(WHAT, SIDES):
        read = read_edit(f"{side}:{form}:{what}" if side else f"{form}:{what}", "grad_output")
        assert (read.side, read.layers, read.channels) == (side or "grad_output", form, None)
        assert read.verb == what.partition("=")[0]


def test_parameters_are_named_by_a_glob():
    read = read_edit("param:fc.[wb]*:clamp=-1:1", "output")
    assert (read.side, read.layers, read.channels) == ("param", "fc.[wb]*", None)


def test_a_side_is_a_keyword_only_before_layers():
    assert read_edit("output:zero", "input").layers == "output"
    assert read_edit("output.fc:zero", "input").side == "input"
    assert read_edit("output:output:zero", "input").layers == "output"


@pytest.mark.parametrize(
    ("written", "channels"),
    [
        ("{0}", (0,)),
        ("{3,7,10-12}", (3, 7, 10, 11, 12)),
        ("{3,1-4,3}", (3, 1, 2, 4)),
        ("{ 3, 7 - 8 }", (3, 7, 8)),
    ],
)
def test_channels_are_in_braces_after_the_layers(written, channels):
    for form in ("conv[1:4]", "path:norm", "(model)"):
        read = read_edit(f"{form}{written}:clamp=0:", "output")
        assert (read.layers, read.channels, read.low) == (form, channels, 0.0)


@pytest.mark.parametrize(
    ("text", "position", "what", "hint"),
    [
        # Nothing to do, or something unknown
        ("", 1, "it is empty", f"write LAYERS:WHAT, WHAT one of: {WHATS}"),
        ("conv", 5, "it does not say what to do", f"write LAYERS:WHAT, WHAT one of: {WHATS}"),
        ("conv:clmap=0:", 6, "'clmap' is not an edit", f"did you mean clamp? one of: {WHATS}"),
        # Values
        ("conv:zero=1", 10, "zero takes no value, not '=1'", "write zero"),
        ("conv:scale", 11, "scale needs a value", "write scale=V"),
        ("conv:scale=x", 12, "'x' is not a number", "write scale=V"),
        ("conv:scale=nan", 12, "'nan' is not finite", "only set takes nan and infinities"),
        ("conv:clip-norm=0", 16, "a norm of 0 is not above 0", "write clip-norm=V"),
        ("conv:clamp=6", 12, "'6' has no bounds", ENDS),
        ("conv:clamp=:", 12, "':' has no bounds", ENDS),
        ("conv:clamp=2:1", 12, "'2:1' has a lower bound above its upper bound", ENDS),
        # Channels
        ("conv{}:zero", 6, "a channel is missing", CHANNELS),
        ("conv{2,7-3}:zero", 8, "'7-3' runs backwards", CHANNELS),
        ("conv{-1}:zero", 6, "'-1' is not a channel", CHANNELS),
        (
            "input:conv{1}{2}:zero",
            11,
            "write the channels once, in braces after the layers",
            CHANNELS,
        ),
        (
            "input:re:a{3,7-9}:zero",
            11,
            "a regular expression takes no channels",
            "its braces belong to it; name the layers by an alias, a path or a glob",
        ),
        ("param:*.bias{3}:zero", 13, "parameters have no channels", "edit the whole parameter"),
        # Sides and layers
        (":zero", 1, "no layers are named", "all convolutions: conv:zero"),
        (
            "grad_out:conv:zero",
            1,
            "'grad_out' is not a side",
            f"did you mean grad_output? {A_SIDE}",
        ),
        ("input:output:conv:zero", 7, "'output' is a second side", "write one side"),
        ("conv:scale=2:zero", 6, "the text holds two edits", "give `edits` once for each"),
        (
            "param:re:x:zero",
            7,
            "a parameter's name has no colon",
            "write a glob on full names: param:*.bias",
        ),
        ("param:fc.*:mean", 12, "parameters have no mean over an image", "write set=V or scale=V"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_position(text, position, what, hint):
    assert refusal(text) == (f"`edits` {text!r}: at position {position}: {what}", hint)


# Numbers worked out by hand

MAPS = torch.tensor([[[[3.0, 0.0], [0.0, 0.0]], [[0.0, 4.0], [0.0, 0.0]]]])  # (1, 2, 2, 2), norm 5


@pytest.mark.parametrize(
    ("what", "first", "second"),
    [
        ("zero", [0, 0, 0, 0], [0, 0, 0, 0]),
        ("scale=-2", [-6, 0, 0, 0], [0, -8, 0, 0]),
        ("clamp=1:3.5", [3, 1, 1, 1], [1, 3.5, 1, 1]),
        ("clamp=1:", [3, 1, 1, 1], [1, 4, 1, 1]),
        ("clamp=:2", [2, 0, 0, 0], [0, 2, 0, 0]),
        ("clip-norm=2.5", [1.5, 0, 0, 0], [0, 2, 0, 0]),
        ("clip-norm=6", [3, 0, 0, 0], [0, 4, 0, 0]),
        ("mean", [0.75, 0.75, 0.75, 0.75], [1, 1, 1, 1]),
        ("set=-1", [-1, -1, -1, -1], [-1, -1, -1, -1]),
        ("{1}:zero", [3, 0, 0, 0], [0, 0, 0, 0]),
        ("{0}:clamp=1:", [3, 1, 1, 1], [0, 4, 0, 0]),
        ("{1}:clip-norm=1", [3, 0, 0, 0], [0, 1, 0, 0]),
        ("{0,1}:clip-norm=2.5", [1.5, 0, 0, 0], [0, 2, 0, 0]),
        ("{0}:mean", [0.75, 0.75, 0.75, 0.75], [0, 4, 0, 0]),
    ],
)
def test_an_edit_gives_the_numbers_worked_out_by_hand(what, first, second):
    assert apply_edit(edit(what), MAPS, 1).flatten(2).tolist() == [[first, second]]


def test_a_mean_without_channels_is_that_of_the_image():
    assert apply_edit(edit("mean"), MAPS, None).flatten().tolist() == [0.875] * 8


def test_a_tensor_without_images_has_one_norm_and_one_mean_per_channel():
    whole = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    clipped = apply_edit(edit("clip-norm=2.5"), whole, None, per_image=False)
    assert clipped.tolist() == [[1.5, 0.0], [0.0, 2.0]]
    mean = apply_edit(edit("mean"), whole, 1, per_image=False)
    assert mean.tolist() == [[1.5, 2.0], [1.5, 2.0]]


# Against numpy


def expected_by_numpy(what: str, values: np.ndarray, channel_axis: int) -> np.ndarray:
    rest = tuple(axis for axis in range(1, values.ndim) if axis != channel_axis)
    if what == "clip-norm=1.5":
        norms = np.array([np.sqrt((image**2).sum()) for image in values])
        factors = np.where(norms > 1.5, 1.5 / norms, 1.0)
        return np.stack([image * factor for image, factor in zip(values, factors, strict=True)])
    return {
        "zero": np.zeros_like(values),
        "scale=-2": values * -2,
        "clamp=-0.5:0.7": np.minimum(np.maximum(values, -0.5), 0.7),
        "clamp=0:": np.maximum(values, 0),
        "mean": np.broadcast_to(values.mean(rest, keepdims=True) if rest else values, values.shape),
        "set=3": np.full_like(values, 3),
    }[what]


@pytest.mark.parametrize("what", EDITS)
def test_only_the_channels_named_change(what):
    for shape, axis in LAYOUTS.values():
        values = noise(*shape, dtype=torch.float64)
        edited = apply_edit(edit(f"{{3,1}}:{what}"), values, axis).numpy()
        before = np.moveaxis(values.numpy(), axis, -1)
        after = np.moveaxis(edited, axis, -1)
        assert (after[..., [0, 2, 4]] == before[..., [0, 2, 4]]).all()
        alone = np.ascontiguousarray(before[..., [1, 3]])
        wanted = expected_by_numpy(what, alone, alone.ndim - 1)
        np.testing.assert_allclose(after[..., [1, 3]], wanted, rtol=1e-14)


# Gradients


@pytest.mark.parametrize("name", ["NHWC", "NC"])
@pytest.mark.parametrize("what", [*EDITS, *(f"{{3,1}}:{each}" for each in EDITS[::3])])
def test_gradients_are_those_of_the_numbers(what, name):
    shape, axis = LAYOUTS[name]
    values = noise(*shape, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: apply_edit(edit(what), x, axis), values)


def test_nan_that_was_zeroed_leaves_no_nan_in_the_gradient():
    assert gradient("{0}:zero", torch.tensor([[math.nan, 1.0]]), 1).tolist() == [[0, 1]]


# What is kept


@pytest.mark.parametrize("channels", ["", "{1,3}:"])
@pytest.mark.parametrize("what", [*EDITS, "scale=1", "clip-norm=1e9", "clamp=-99:99"])
def test_the_given_tensor_is_not_written_over_and_shares_no_memory(what, channels):
    for shape, axis in LAYOUTS.values():
        values = noise(*shape)
        before, version = values.clone(), values._version
        edited = apply_edit(edit(channels + what), values, axis)
        edited.fill_(123.0)
        assert torch.equal(values, before)
        assert values._version == version


@pytest.mark.parametrize("what", [*EDITS, *(f"{{1,3}}:{each}" for each in EDITS)])
def test_the_dtype_is_kept_and_the_numbers_are_as_close_as_it_allows(what):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        values = noise(2, 5, 3, 4).to(dtype)
        edited = apply_edit(edit(what), values, 1)
        exact = apply_edit(edit(what), values.double(), 1)
        assert edited.dtype == dtype
        torch.testing.assert_close(edited.double(), exact, rtol=torch.finfo(dtype).eps, atol=0)


def test_float16_is_summed_in_something_wider():
    values = torch.full((1, 1, 100, 100), 300.0, dtype=torch.float16)  # squares and sums overflow
    assert apply_edit(edit("mean"), values, 1).unique().tolist() == [300]
    assert apply_edit(edit("clip-norm=15000"), values, 1).unique().tolist() == [150]


def test_norms_of_float32_neither_overflow_nor_vanish():
    assert apply_edit(edit("clip-norm=5"), torch.tensor([[3e30, 4e30]]), 1).tolist() == [[3, 4]]
    small = apply_edit(edit("clip-norm=5e-30"), torch.tensor([[3e-29, 4e-29]]), 1)
    assert small.tolist() == [pytest.approx([3e-30, 4e-30], rel=1e-6)]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("set=1e6", [math.inf, math.inf]),
        ("scale=1e6", [math.inf, -math.inf]),
        ("clamp=-1e6:1e6", [60000, -60000]),
    ],
)
def test_a_number_beyond_the_dtype_is_infinite(what, expected):
    values = torch.tensor([[60000.0, -60000.0]], dtype=torch.float16)
    assert apply_edit(edit(what), values, 1).tolist() == [expected]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("zero", [[0, 0], [0, 0]]),
        ("set=2", [[2, 2], [2, 2]]),
        ("scale=0", [[math.nan, 0], [0, 0]]),
        ("clamp=0:1", [[math.nan, 1], [1, 1]]),
        ("clip-norm=1", [[math.nan, math.nan], [0.6, 0.8]]),
        ("{0}:mean", [[math.nan, 2], [3, 4]]),
    ],
)
def test_nan_stays_nan_where_it_is_not_written_over(what, expected):
    edited = apply_edit(edit(what), torch.tensor([[math.nan, 2.0], [3.0, 4.0]]), 1)
    np.testing.assert_allclose(edited.numpy(), expected, rtol=1e-6)


def test_an_infinity_is_clipped_as_torchs_clip_grad_norm_does():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([math.inf, 1.0])
    torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    values = torch.tensor([[math.inf, 1.0]])
    edited = apply_edit(edit("clip-norm=1"), values, None)
    np.testing.assert_array_equal(edited[0], parameter.grad)
    np.testing.assert_array_equal(edited, [[math.nan, 0.0]])


# What cannot be done


def test_channels_that_do_not_exist_are_refused_by_name_and_count():
    wanted = read_edit("conv{3,64-70}:zero", "output")
    check_channels(wanted, 71, "layer1")
    with pytest.raises(RequestError) as caught:
        check_channels(wanted, 64, "layer1")
    assert caught.value.message == "`edits` 'conv{3,64-70}:zero': layer1 has no channel 64"
    assert caught.value.hint == "it has 64, counted from 0"
    with pytest.raises(RequestError, match="the tensor has no channel 70"):
        apply_edit(wanted, torch.zeros(1, 70, 1, 1), 1)


def test_channels_without_a_channel_axis_are_refused():
    with pytest.raises(RequestError) as caught:
        apply_edit(edit("{0}:zero"), torch.zeros(1, 2), None)
    assert caught.value.message == ("`edits` 'conv{0}:zero': the channel axis is unknown")
    assert caught.value.hint == "edit all channels"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_what_are_no_floating_numbers_is_refused(dtype):
    with pytest.raises(RequestError) as caught:
        apply_edit(edit("zero"), torch.zeros(1, 2, dtype=dtype), 1)
    name = str(dtype).removeprefix("torch.")
    assert (
        caught.value.message == f"`edits` 'conv:zero': the values are {name}, not floating numbers"
    )


@pytest.mark.gpu
@pytest.mark.parametrize("channels", ["", "{3,1}:"])
@pytest.mark.parametrize("what", EDITS)
def test_a_gpu_gives_the_same_numbers(what, channels):
    values = noise(2, 5, 3, 4)
    on_gpu = apply_edit(edit(channels + what), values.cuda(), 1)
    assert on_gpu.is_cuda
    torch.testing.assert_close(on_gpu.cpu(), apply_edit(edit(channels + what), values, 1))
