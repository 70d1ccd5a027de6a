"""What hookcli knows of the model in a file, with inputs that these tests state."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from hookcli.config import ModelRequest
from hookcli.errors import ForwardError, RequestError
from hookcli.networks.graph_file import (
    GraphInput,
    check_graph_request,
    describe_graph,
    fit_inputs,
)

FLOAT = "float32"


def describe(*shapes, dtype=FLOAT, **options):
    inputs = [GraphInput(shape, dtype) for shape in shapes]
    request = ModelRequest("net.onnx", **options)
    return describe_graph(request, inputs, "", None)


def refuse(*shapes, **options):
    with pytest.raises(RequestError) as caught:
        describe(*shapes, **options)
    return caught.value.message


@pytest.mark.parametrize(
    ("shape", "made"),
    [
        ((1, 3, 96, 96), (3, 96, 96)),
        ((1, 3, 96, 64), (3, 96, 64)),
        ((None, None, None, None), (3, 224, 224)),
        ((1, 1, 32, 32), (1, 32, 32)),
        ((1, 1, 32, 16), (1, 32, 16)),
    ],
)
def test_a_picture_gets_the_size_and_the_colours_of_the_input(shape, made):
    described = describe(shape)
    pixels = described.prepare.to_pixels([Image.new("RGB", (50, 80), "white")])
    assert tuple(pixels.shape) == made
    assert described.info.input_shape == (1, *made)


def test_a_grey_picture_is_scaled_to_one():
    pixels = describe((1, 1, 8, 8)).prepare.to_pixels([Image.new("RGB", (8, 8), "white")])
    assert pixels.unique().tolist() == [1.0]


def test_the_size_is_chosen_if_the_file_leaves_it_open():
    assert describe((1, 3, None, None), size=64).info.input_shape == (1, 3, 64, 64)
    message = refuse((1, 3, 96, 96), size=64)
    assert message == "'net.onnx' takes pictures of 96x96 pixels"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((1, 7),), "'net.onnx' takes the shape 1x7, and a picture is 1xCxHxW"),
        (((1, 3, 8, 8), (1, 7)), "'net.onnx' takes 2 inputs, not 1"),
        (((4, 3, 8, 8),), "'net.onnx' takes 4 pictures at once, not one"),
        ((), "'net.onnx' takes nothing, which pixels cannot be"),
        (
            ((1, 3, 10_000, 8),),
            "'net.onnx' takes 1x3x10000x8, and a picture has at most 8192 pixels a side",
        ),
    ],
)
def test_inputs_that_are_no_pictures_are_refused(shapes, message):
    assert refuse(*shapes) == message


@pytest.mark.parametrize(
    ("shape", "like"),
    [((1, 3, 8, 8), None), ((1, 3, 8, 6), "resnet18"), ((1, None, None, None), None)],
)
def test_an_input_of_whole_numbers_takes_pixels_from_0_to_255(shape, like):
    described = describe(shape, dtype="uint8", like=like)
    for value in (0, 1, 254, 255):
        pixels = described.prepare.to_pixels([Image.new("RGB", (8, 8), (value,) * 3)])
        assert pixels.unique().tolist() == [value]
    assert described.info.preprocessing.endswith("scaled to 0 to 1, multiplied by 255, rounded")
    (note,) = described.info.notes
    assert "0 to 255" in note


def test_an_input_that_cannot_hold_pixels_is_refused():
    assert refuse((1, 3, 8, 8), dtype="int8") == "'net.onnx' takes int8, which pixels cannot be"


def test_whole_numbers_are_not_normalized():
    message = "'net.onnx' takes uint8, so its pixels are from 0 to 255"
    assert refuse((1, 3, 8, 8), dtype="uint8", std=(0.5,) * 3) == message


@pytest.mark.parametrize(
    ("shape", "asked", "axis", "is_nhwc"),
    [
        ((1, 224, 224, 3), None, None, True),
        ((1, 3, 224, 224), None, None, False),
        ((1, 3, 224, 3), None, None, False),
        ((1, 3, 224, 3), None, 3, True),
        ((1, 64, 64, 12), None, 3, True),
        ((1, 64, 64, 12), "NHWC", None, True),
        ((1, 12, 64, 3), "NCHW", 1, False),
        ((None, None, None, None), None, None, False),
        ((1, 3, 4, 8, 3), "NHWC", 3, False),
    ],
)
def test_the_channel_axis_is_that_of_the_user_of_the_operators_or_of_the_shape(
    shape, asked, axis, is_nhwc
):
    assert GraphInput(shape, FLOAT).with_layout(asked, axis).is_nhwc == is_nhwc


@pytest.mark.parametrize(
    ("shape", "asked", "axis"),
    [
        ((1, 224, 224, 3), "NCHW", 3),
        ((None, None, None, 3), "NCHW", None),
        ((1, 3, 224, 224), "NHWC", None),
    ],
)
def test_a_layout_that_the_shape_contradicts_is_refused(shape, asked, axis):
    with pytest.raises(RequestError, match=f"shows that it is not {asked}") as caught:
        GraphInput(shape, FLOAT).with_layout(asked, axis)
    assert caught.value.hint == f"leave out `input_layout='{asked}'`"


def test_a_graph_gets_its_own_layout_and_no_rounded_numbers():
    pixels = torch.arange(12.0).reshape(1, 3, 2, 2)
    taken = GraphInput((1, 2, 2, 3), "uint8").with_layout("NHWC")
    (fitted,) = fit_inputs([pixels], [taken])
    assert fitted.tolist() == [[[[0, 4, 8], [1, 5, 9]], [[2, 6, 10], [3, 7, 11]]]]
    for wrong in (pixels + 0.5, pixels - 1, pixels * 255, pixels * float("nan")):
        with pytest.raises(ForwardError, match="whole numbers from 0 to 255"):
            fit_inputs([wrong], [taken])


def test_another_model_says_how_pictures_are_prepared():
    described = describe((1, 3, 96, 64), like="resnet18")
    assert described.categories[0] == "tench"
    assert described.info.preprocessing == (
        "resized to 96x64 pixels (bilinear), scaled to 0 to 1, mean 0.485 0.456 0.406, "
        "standard deviation 0.229 0.224 0.225"
    )
    assert described.info.notes == ()


@pytest.mark.parametrize(
    "options", [{"weights": "random"}, {"dtype": "float16"}, {"mode": "train"}, {"device": "cuda"}]
)
def test_what_the_file_fixes_cannot_be_requested(options):
    with pytest.raises(RequestError):
        check_graph_request(ModelRequest("net.onnx", **options))


@pytest.mark.parametrize(
    ("shape", "recipe", "words"),
    [
        ((1, 3, 96, 96), "fit=letterbox", "fitted into 96x96 pixels on grey (bilinear)"),
        ((1, 3, 96, 64), "fit=letterbox", "fitted into 96x64 pixels on grey (bilinear)"),
        ((1, 3, 96, 64), "resize:bicubic", "resized to 96x64 pixels (bicubic)"),
        ((1, 3, None, None), "fit=stretch,crop=48", "resized to 48x48 pixels (bilinear)"),
        ((1, 1, 32, 32), "fit=stretch", "turned grey, resized to 32x32 pixels (bilinear)"),
        (
            (1, 3, 96, 64),
            "fit=crop",
            "resized to cover 96x64 pixels (bilinear), cropped to 96x64 in",
        ),
    ],
)
def test_a_file_takes_a_recipe(shape, recipe, words):
    described = describe(shape, preprocess=recipe)
    assert described.info.preprocessing.startswith(words)
    pixels = described.prepare.to_pixels([Image.new("RGB", (50, 80), "white")])
    assert described.info.input_shape == (1, *pixels.shape)


@pytest.mark.parametrize("like", [None, "resnet18"])
@pytest.mark.parametrize("sides", [(96, 96), (96, 64)])
def test_a_recipe_applies_to_what_a_file_is_like(like, sides):
    described = describe((1, 3, *sides), like=like, preprocess="fit=stretch,order=bgr,mean=0,std=1")
    picture = Image.new("RGB", (50, 80), (255, 102, 0))
    pixels = described.prepare.to_pixels([picture])
    assert pixels[:, 0, 0].tolist() == pytest.approx([0, 0.4, 1])
    assert pixels.shape == (3, *sides)


@pytest.mark.parametrize(
    ("shape", "recipe", "message"),
    [
        ((1, 3, 96, 96), "crop=64", "`preprocess`: net.onnx takes 96x96 pixels, not 64x64"),
        ((1, 5, 96, 96), "scale=1", "`preprocess`: net.onnx takes 5 channels, not colour"),
    ],
)
def test_a_recipe_that_does_not_fit_a_file_is_refused(shape, recipe, message):
    assert refuse(shape, preprocess=recipe).startswith(message)


@pytest.mark.parametrize("recipe", ["mean=0", "std=1", "scale=255"])
def test_a_recipe_does_not_change_the_values_of_whole_numbers(recipe):
    message = refuse((1, 3, 8, 8), dtype="uint8", preprocess=recipe)
    assert message == "'net.onnx' takes uint8, so its pixels are from 0 to 255"


def test_whole_numbers_are_resized_by_a_recipe():
    described = describe((1, 3, 8, 8), dtype="uint8", preprocess="fit=letterbox")
    pixels = described.prepare.to_pixels([Image.new("RGB", (50, 100), "white")])
    assert pixels[0, 0].tolist() == [114.0] * 2 + [255.0] * 4 + [114.0] * 2
