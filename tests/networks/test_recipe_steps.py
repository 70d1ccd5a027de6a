"""Recipes against plain scripts (``tests/recipes``), and where they do not apply."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms
from torchvision.transforms import functional

import hookcli
from hookcli.config import ModelRequest
from hookcli.errors import RequestError
from hookcli.networks.load import build_skeleton
from hookcli.networks.presets import make_imagenet
from hookcli.networks.recipe_steps import apply_recipe
from hookcli.networks.task import Preprocessing
from hookcli.networks.tasks import CLASSIFICATION
from tests.recipes import SIZES, draw_recipes, noise, prepare, write_recipe

TOY = ModelRequest("toy", size=32, resize=37)
GREY = make_imagenet(crop_size=32, resize_size=37, mean=(0.5,), std=(0.5,))
CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 2, 3), nn.Linear(2, 2)

    def forward(self, pixels):
        return self.fc(self.conv(pixels).mean((2, 3)))

make = Net
"""


@pytest.fixture
def toy():
    Path("toy.py").write_text(CODE)
    noise(60, 40).save("a.png")


def prepare_toy(words):
    own = CLASSIFICATION.prepare(
        ModelRequest("toy", size=32, resize=37), nn.Identity(), make_imagenet
    )
    return apply_recipe(ModelRequest("toy", preprocess=write_recipe(words)), own)


def compare_with_script(words, size, *, is_grey):
    """Assert that a recipe's pixels are those of a plain script, bit by bit."""
    picture = noise(*size)
    if is_grey:
        plain = Preprocessing(CLASSIFICATION, GREY, (32, 32), channels=1, grey=True)
        made = apply_recipe(ModelRequest("net", preprocess=write_recipe(words)), plain)
        expected = prepare(picture, words, short=37, side=32, own=((0.5,), (0.5,)))
    else:
        made, expected = prepare_toy(words), prepare(picture, words, short=37, side=32)
    found = made.to_pixels([picture])
    assert found.dtype == expected.dtype == torch.float32
    assert torch.equal(found, expected)


@pytest.mark.parametrize("number", range(45))
def test_pixels_are_those_of_a_plain_script_bit_by_bit(number):
    words = draw_recipes(45, 0, ("pillow", "torch"))[number]
    compare_with_script(words, SIZES[number % len(SIZES)], is_grey=False)


@pytest.mark.parametrize("number", range(15))
def test_grey_pixels_are_those_of_a_plain_script_bit_by_bit(number):
    words = draw_recipes(15, 0, ("pillow", "torch"), is_grey=True)[number]
    compare_with_script(words, SIZES[number % len(SIZES)], is_grey=True)


def refuse(name, recipe, **options):
    with pytest.raises(RequestError) as caught:
        build_skeleton(ModelRequest(name, preprocess=recipe, **options))
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("name", "recipe", "what", "hint"),
    [
        (
            "resnet18",
            "antialias=off,library=pillow",
            "Pillow always smooths: antialias=off",
            "library=torch",
        ),
        (
            "resnet18",
            "antialias=off,resize:nearest",
            "nearest has no antialias=off",
            "leave it out",
        ),
        (
            "resnet18",
            "antialias=off,resize:area",
            "area has no antialias=off",
            "leave it out",
        ),
        (
            "resnet18",
            "library=torch,resize:lanczos",
            "torch has no lanczos",
            "library=pillow",
        ),
        (
            "resnet18",
            "mean=1/2",
            "resnet18 takes 3 channels",
            "give one number for each in mean and std",
        ),
        (
            "resnet18",
            "std=1/2/3/4",
            "resnet18 takes 3 channels",
            "give one number for each in mean and std",
        ),
        ("vit_b_16", "crop=256", "vit_b_16 takes 224x224 pixels, not 256x256", "leave out crop"),
        (
            "ssdlite320_mobilenet_v3_large",
            "scale=1",
            "a detection model resizes by itself",
            "order=bgr can be asked for",
        ),
        (
            "raft_small",
            "fit=stretch",
            "an optical flow model takes pairs, which keep their ratio",
            "order=bgr can be asked for",
        ),
        (
            "r3d_18",
            "order=bgr,crop=64",
            "a video model prepares the frames of a clip together",
            "order=bgr can be asked for",
        ),
    ],
)
def test_a_recipe_that_does_not_apply_is_refused(name, recipe, what, hint):
    assert refuse(name, recipe) == (f"`preprocess`: {what}", hint)


def test_a_recipe_for_a_grey_model_has_no_order_of_colours():
    plain = Preprocessing(CLASSIFICATION, GREY, (32, 32), channels=1, grey=True)
    with pytest.raises(RequestError, match="`preprocess`: net takes 1 channel"):
        apply_recipe(ModelRequest("net", preprocess="order=bgr"), plain)


def test_a_grey_model_is_given_grey_pictures_with_a_grey_border():
    plain = Preprocessing(CLASSIFICATION, GREY, (32, 32), channels=1, grey=True)
    made = apply_recipe(ModelRequest("net", preprocess="fit=letterbox,mean=0,std=1"), plain)
    picture = Image.new("RGB", (20, 40), "white")
    pixels = made.to_pixels([picture])
    assert pixels.shape == (1, 32, 32)
    assert (
        pixels[0, 16].tolist()
        == [pytest.approx(114 / 255)] * 8 + [1] * 16 + [pytest.approx(114 / 255)] * 8
    )


def test_pictures_of_many_bands_are_not_prepared_by_recipes():
    plain = Preprocessing(CLASSIFICATION, GREY, (32, 32), bands=5)
    with pytest.raises(RequestError, match="net takes 5 channels, not colour or grey"):
        apply_recipe(ModelRequest("net", preprocess="scale=1"), plain)


class Brighter(torch.nn.Module):
    """Prepares pictures as torchvision's preset, and makes them brighter."""

    def forward(self, picture):
        return make_imagenet(crop_size=32, resize_size=37)(picture) + 0.01


class ImageClassification(Brighter):
    """Claims to be torchvision's preset."""

    def __init__(self):
        super().__init__()
        vars(self).update(vars(make_imagenet(crop_size=32, resize_size=37)))


LIMITED = transforms.Compose(
    [  # as without the limit, except for large pictures
        transforms.Resize(37, max_size=4000),
        transforms.CenterCrop(32),
        transforms.ToTensor(),
        transforms.Normalize((0.5,) * 3, (0.5,) * 3),
    ]
)


NORMALIZED = [transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)]


class Sharper(transforms.Resize):
    """Resizes by another filter than it says."""

    def forward(self, picture):
        return picture.resize((32, 32), Image.Resampling.HAMMING)


Sharper.__name__ = "Resize"


@pytest.mark.parametrize(
    ("transform", "obstacle"),
    [
        (Brighter(), "Brighter"),
        (ImageClassification(), "its scaling or normalization"),
        (LIMITED, "Resize"),
        (transforms.Compose([transforms.Grayscale(3), *NORMALIZED]), "Grayscale"),
        (transforms.Compose(NORMALIZED), "a missing step"),
        (
            transforms.Compose([Sharper(32), *NORMALIZED]),
            "its resizing or crop, to 32x32 instead of 32x46 pixels",
        ),
        (transforms.Compose([Sharper((32, 32)), *NORMALIZED]), "its resizing"),
    ],
)
def test_steps_that_cannot_be_told_are_not_kept(transform, obstacle):
    plain = Preprocessing(CLASSIFICATION, transform, (32, 32))
    with pytest.raises(RequestError) as caught:
        apply_recipe(ModelRequest("net", preprocess="resize:area"), plain)
    assert "net prepares images in a way that cannot be taken apart: " in caught.value.message
    assert caught.value.message.endswith(f"; the obstacle is {obstacle}")
    assert caught.value.hint == "give resize, fit, crop, mean and std"


def test_a_complete_recipe_needs_no_known_steps():
    plain = Preprocessing(CLASSIFICATION, Brighter(), (32, 32))
    words = {"resize": "bicubic", "fit": "crop", "crop": "24", "mean": "0.5", "std": "0.25"}
    made = apply_recipe(ModelRequest("net", preprocess=write_recipe(words)), plain)
    picture = noise(50, 40)
    assert torch.equal(made.to_pixels([picture]), prepare(picture, words, short=24, side=24))
    assert made.crop == (24, 24)


@pytest.mark.parametrize("transform", [Brighter(), make_imagenet(crop_size=32, resize_size=37)])
def test_the_order_of_colours_changes_whatever_comes_after_it(transform):
    plain = Preprocessing(CLASSIFICATION, transform, (32, 32))
    made = apply_recipe(ModelRequest("net", preprocess="order=bgr"), plain)
    picture = noise(50, 40)
    flipped = Image.fromarray(np.asarray(picture)[..., ::-1])
    assert torch.equal(made.to_pixels([picture]), transform(flipped))
    assert made.words.startswith("blue first, ")


@pytest.mark.parametrize(
    ("recipe", "crop", "size", "words"),
    [
        ("crop=260", None, 260, "resized to 260 pixels on the short side (bilinear)"),
        ("fit=crop,crop=260", None, 260, "resized to 260 pixels on the short side (bilinear)"),
        ("fit=stretch", (520, 520), None, "resized to 520x520 pixels (bilinear)"),
        ("fit=letterbox", (520, 520), None, "fitted into 520x520 pixels on grey (bilinear)"),
    ],
)
def test_models_of_segmentation_do_not_crop(recipe, crop, size, words):
    made = build_skeleton(ModelRequest("lraspp_mobilenet_v3_large", preprocess=recipe)).prepare
    assert (made.crop, made.size, made.words.partition(", ")[0]) == (crop, size, words)
    side = crop[0] if crop else size
    assert made.nominal_shape == (1, 3, side, side)


def test_a_short_side_of_no_pixels_is_one():
    own = CLASSIFICATION.prepare(
        ModelRequest("toy", size=64, resize=8), nn.Identity(), make_imagenet
    )
    made = apply_recipe(ModelRequest("toy", preprocess="crop=3"), own)
    assert made.to_pixels([noise(20, 10)]).shape == (3, 3, 3)


def test_timms_steps_are_changed_one_by_one():
    name, picture = "timm:resnet18", noise(300, 260)
    own = build_skeleton(ModelRequest(name)).prepare
    same = build_skeleton(ModelRequest(name, preprocess="scale=255")).prepare
    assert torch.equal(own.to_pixels([picture]), same.to_pixels([picture]))
    half = build_skeleton(ModelRequest(name, preprocess="crop=112")).prepare
    assert half.words.startswith(
        "resized to 118 pixels on the short side (bicubic), cropped to 112x"
    )


def test_the_words_say_what_resizes_and_whether_it_smooths():
    resized = "resized to 37 pixels on the short side"
    rest = ", cropped to 32x32 in the middle, scaled to 0 to 1"
    shown = {
        "antialias=off": f"{resized} (bilinear by torch without antialiasing){rest}",
        "library=torch,resize:nearest": f"{resized} (nearest by torch){rest}",
        "scale=1,fit=letterbox": (
            "fitted into 32x32 pixels on grey (bilinear), values from 0 to 255"
        ),
        "mean=0,std=1": f"{resized} (bilinear){rest}, not normalized",
    }
    colours = ", mean 0.485 0.456 0.406, standard deviation 0.229 0.224 0.225"
    for recipe, words in shown.items():
        end = "" if "normalized" in words else colours
        own = CLASSIFICATION.prepare(TOY, nn.Identity(), make_imagenet)
        assert apply_recipe(ModelRequest("toy", preprocess=recipe), own).words == words + end


def test_a_picture_of_unscaled_pixels_and_blue_first_is_drawn_in_its_colours():
    loaded = build_skeleton(ModelRequest("resnet18", preprocess="order=bgr,scale=1,fit=stretch"))
    picture = Image.new("RGB", (224, 224), (200, 100, 50))
    shown = Image.open(io.BytesIO(loaded.show(loaded.prepare.to_pixels([picture]))))
    assert np.abs(np.asarray(shown)[9, 9] - np.array((200, 100, 50))).max() <= 3


@pytest.mark.parametrize(
    ("recipe", "box", "part"),
    [
        # 200 by 100 pixels become 224 by 112, with 56 rows of grey above and below
        ("fit=letterbox", (28, 84, 56, 56), (0, -50, 200, 150)),
        ("fit=stretch", (28, 56, 56, 112), (0, 0, 200, 100)),
    ],
)
def test_a_box_of_the_image_is_found_where_the_recipe_puts_it(recipe, box, part):
    loaded = build_skeleton(ModelRequest("resnet18", preprocess=recipe))
    inside = loaded.find_box((200, 100), (25, 25, 50, 50))[0] > 0.5
    rows, columns = inside.any(1).nonzero().flatten(), inside.any(0).nonzero().flatten()
    assert (int(columns[0]), int(rows[0]), len(columns), len(rows)) == box
    assert loaded.find_part((200, 100)) == pytest.approx(part, abs=0.5)


@pytest.mark.parametrize("recipe", ["fit=letterbox", "fit=stretch"])
def test_a_thin_picture_fits_into_sides_that_do_not_depend_on_it(run, toy, recipe):
    noise(2020, 20).save("thin.png")
    assert run("inspect", "toy.py:make", "thin.png", "--preprocess", recipe).code == 0
    for words in ((), ("--preprocess", "fit=crop"), ("--preprocess", "order=bgr")):
        code, _, err = run("inspect", "toy.py:make", "thin.png", *words)
        assert code == 3
        assert "is 2020 by 20 pixels, too thin for this network" in err


def test_a_library_that_stretches_takes_a_thin_picture():
    thin = "too thin for this network"
    refused = {(32, 32): "", (32,): thin, 32: thin}
    for size, reason in refused.items():
        steps = transforms.Compose([transforms.Resize(size), *NORMALIZED])
        plain = Preprocessing(CLASSIFICATION, steps)
        assert plain.refuse(noise(2, 300)).partition(", ")[2] == reason


class Screen(transforms.Compose):
    """Stretches to 24 by 40 pixels."""

    def __init__(self):
        super().__init__([transforms.Resize((24, 40)), *NORMALIZED])


@pytest.mark.parametrize(
    ("size", "resized"),
    [((80, 60), (40, 30)), ((60, 70), (40, 46)), ((10, 6), (40, 24)), ((100, 31), (77, 24))],
)
def test_a_crop_that_is_no_square_is_cut_from_a_picture_that_covers_it(size, resized):
    plain = Preprocessing(CLASSIFICATION, Screen(), (24, 40), fixed=(24, 40))
    made = apply_recipe(ModelRequest("net", preprocess="fit=crop"), plain)
    picture = noise(*size)
    covering = functional.center_crop(picture.resize(resized, Image.Resampling.BILINEAR), (24, 40))
    expected = (functional.to_tensor(covering) - 0.5) / 0.5
    assert torch.equal(made.to_pixels([picture]), expected)
    assert made.words == (
        "resized to cover 24x40 pixels (bilinear), cropped to 24x40 in the middle, scaled to 0 to "
        "1, mean 0.5 0.5 0.5, standard deviation 0.5 0.5 0.5"
    )
    assert made.refuse(noise(300, 2))  # would be resized to 3600 by 24 pixels


def test_a_comparison_names_the_preparation_that_changed(run, toy):
    code, out, _ = run("compare", "toy.py:make", "a.png", "--against", "preprocess=order=bgr")
    assert code == 7
    assert "conv differs first" in out
    assert out.splitlines()[-1] == "changed: model preprocessing: now blue first"


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("preprocess=resize:foo", "preprocess cannot read 'resize:foo'"),
        ("preprocess=scale=1,scale=1", "preprocess has scale twice"),
        ("preprocess=mean=1/2", "preprocess: toy.py:make takes 3 channels"),
        ("preprocess=resize:lanczos,library=torch", "preprocess: torch has no lanczos"),
        ("edit=foo", "edit 'foo': at position 4: it does not say what to do"),
        ("prune=foo", "prune 'foo': it does not say how much"),
    ],
)
def test_an_error_of_b_names_against(run, toy, word, what):
    code, _, err = run("compare", "toy.py:make", "a.png", "--against", word)
    (error,) = (line for line in err.splitlines() if line.startswith("error"))
    assert (code, error) == (2, f"error: --against {what}")


@pytest.mark.parametrize("own", ["foo", "mean=1/2"])
def test_an_error_of_a_names_its_own_option(run, toy, own):
    words = ("--preprocess", own, "--against", "preprocess=order=bgr")
    code, _, err = run("compare", "toy.py:make", "a.png", *words)
    assert code == 2
    assert "error: --preprocess" in err


def test_a_recipe_of_both_that_the_model_of_b_does_not_take_is_no_word_of_against(run, toy):
    with Path("toy.py").open("a") as file:
        file.write("\n\nclass Grey(Net):\n    def __init__(self):\n        super().__init__()\n")
        file.write("        self.conv = nn.Conv2d(1, 2, 3)\n")
    words = ("--preprocess", "mean=0.1/0.2/0.3", "--against", "model=toy.py:Grey")
    code, _, err = run("compare", "toy.py:make", "a.png", *words)
    assert code == 2
    assert "error: --preprocess: toy.py:Grey takes 1 channel\n" in err


def test_a_crop_of_b_alone_leaves_nothing_to_compare_but_linear_layers(run, toy):
    words = ("compare", "toy.py:make", "a.png", "--against", "preprocess=crop=64")
    code, _, err = run(*words)
    error, hint = err.splitlines()[-2:]
    assert error == (
        "error: nothing could be compared: conv: shapes differ: 1x2x222x222 and 1x2x62x62, "
        "since images are prepared in two sizes"
    )
    assert hint == (
        "hint: give both the same crop and fit with --preprocess, or compare --layers linear"
    )
    assert code == 2
    assert run(*words, "--layers", "linear").code == 7
    assert run(*words, "--preprocess", "crop=64").code == 0


@pytest.mark.parametrize("word", ["order=bgr", "resize:area", "fit=stretch,crop=64"])
def test_a_recipe_without_its_name_is_recognized(run, toy, word):
    code, _, err = run("compare", "toy.py:make", "a.png", "--against", word)
    assert code == 2
    assert f"hint: did you mean preprocess={word}? one of: model=M" in err


def test_the_recipe_of_b_applies_on_top_of_the_options_of_a(run, toy):
    words = ("--size", "64", "--against", "preprocess=fit=stretch,order=bgr", "--format", "json")
    code, out, err = run("compare", "toy.py:make", "a.png", *words)
    changed = {each["name"]: (each["a"], each["b"]) for each in json.loads(out)["changed"]}
    colours = "scaled to 0 to 1, mean 0.485 0.456 0.406, standard deviation 0.229 0.224 0.225"
    assert code == 7, err
    assert changed == {
        "model preprocessing": (
            "resized to 73 pixels on the short side (bilinear), cropped to 64x64 in the middle, "
            + colours,
            f"blue first, resized to 64x64 pixels (bilinear), {colours}",
        )
    }


@pytest.mark.parametrize("option", ["--size", "--resize", "--interpolation", "--mean", "--std"])
@pytest.mark.parametrize("command", ["inspect", "compare", "ablate"])
def test_a_recipe_beside_an_older_option_is_refused(run, toy, command, option):
    value = {"--size": "64", "--resize": "64", "--interpolation": "bicubic"}.get(option, "1,1,1")
    against = ("--against", "seed=1") if command == "compare" else ()
    words = ("--preprocess", "order=bgr", option, value, *against)
    code, _, err = run(command, "toy.py:make", "a.png", *words)
    error = f"error: --preprocess and {option} both say how images are prepared\n"
    assert (code, err) == (2, f"{error}hint: say all in --preprocess, or leave it out\n")


def test_a_run_is_recorded_with_its_recipe_and_prepares_by_it(run, toy):
    recipe = "fit=letterbox,order=bgr"
    words = ("--preprocess", recipe, "--layers", "conv", "--at", "input", "--grids", "none")
    code, _, err = run("inspect", "toy.py:make", "a.png", *words, "-o", "out", "--save", "tensors")
    assert code == 0, err
    told = json.loads(Path("out/manifest.json").read_text())
    at = told["command"].index("--preprocess")
    assert told["command"][at + 1] == recipe
    assert told["model"]["preprocessing"].startswith("blue first, fitted into 224x224 pixels")
    seen = hookcli.load_run("out").tensor("input:conv", "a")
    expected = prepare(noise(60, 40), {"fit": "letterbox", "order": "bgr"}, short=256, side=224)
    np.testing.assert_allclose(seen, expected, atol=1e-6)


def test_the_table_does_not_say_that_unscaled_pixels_are_scaled(run, toy):
    words = ("--preprocess", "scale=1,mean=0,std=1", "--grids", "none")
    out = run("inspect", "toy.py:make", "a.png", *words).out
    assert "prepared as the options say, and otherwise as for ImageNet" in out


def test_a_run_with_another_recipe_is_not_resumed(run, toy):
    words = ("inspect", "toy.py:make", "a.png", "--grids", "none", "-o", "out", "--preprocess")
    assert run(*words, "scale=1").code == 0
    code, _, err = run(*words, "scale=255", "--resume")
    assert code == 2, err
    assert "with --preprocess scale=1, not --preprocess scale=255" in err


def test_a_tensor_file_is_refused_since_no_recipe_changes_it(run, toy):
    np.save("a.npy", np.ones((3, 8, 8), np.float32))
    words = ("a.npy", "--against", "preprocess=order=bgr", "--layers", "all")
    ended = run("compare", "toy.py:make", *words)
    assert ended.code == 3
    assert "holds the network's own input, which a recipe cannot change" in ended.err


def test_a_model_in_memory_takes_the_recipe_and_not_the_size_of_what_it_is_like(run, toy):
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with warnings.catch_warnings(action="ignore"):
        ran = hookcli.inspect(
            model, "a.png", like="vit_b_16", preprocess="crop=64,fit=stretch", layers="conv"
        )
    assert ran.result.model.preprocessing.startswith("resized to 64x64 pixels (bilinear), scaled")
    assert ran.result.model.input_shape == (1, 3, 64, 64)
