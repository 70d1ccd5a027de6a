"""Words that people guess from other tools: the message says what to type."""

from __future__ import annotations

import pytest
from PIL import Image

SEE = "see: hookcli inspect --help"


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--json", "--format json"),
        ("--gpu", "--device cuda"),
        ("--open", "each run writes a page, report.html, into its folder: open it in a browser"),
        ("--cam", "hookcli gradients --cam has it"),
        ("--colourmap", "--colormap"),
    ],
)
def test_an_option_of_other_tools_is_translated(run, option, hint):
    ended = run("inspect", "resnet18", "cat.png", option)
    assert ended == (2, "", f"error: No such option: {option}\nhint: {hint}; {SEE}\n")


def test_only_options_of_the_command_are_named(run):
    """layers has no weights."""
    ended = run("layers", "resnet18", "--checkpoint", "w.pth")
    assert "--weights" not in ended.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("timm:vit_base cat.png", "hookcli inspect timm:vit_base cat.png; "),
        ("resnet18", "hookcli layers resnet18; "),
        ("cat.png resnet18", "hookcli inspect resnet18 cat.png; "),
        ("summary resnet18", "hookcli layers MODEL; "),
        ("inspct resnet18 cat.png", "hookcli inspect resnet18 cat.png; "),
        ("nonsense", ""),
    ],
)
def test_a_word_that_is_no_command_may_be_a_model(run, words, hint):
    first = words.split()[0]
    ended = run(*words.split())
    assert ended == (2, "", f"error: No such command: {first}\nhint: {hint}see: hookcli --help\n")


def test_without_an_image_the_next_step_is_said(run):
    ended = run("inspect", "resnet18")
    assert ended.code == 2
    step = "hookcli inspect resnet18 photo.jpg; its layers alone: hookcli layers resnet18"
    assert ended.err == f"error: Missing argument 'IMAGE'.\nhint: {step}; {SEE}\n"


def test_an_image_in_the_place_of_the_model_is_reported(run):
    ended = run("inspect", "cat.png", "resnet18")
    assert ended.code == 2
    assert ended.err == (
        "error: the model comes before the images, and 'cat.png' is an image\n"
        "hint: give 'resnet18' as the model, and 'cat.png' as an image\n"
    )


def test_a_second_layer_is_not_taken_for_an_image(run):
    Image.new("RGB", (40, 30)).save("cat.png")
    ended = run("inspect", "resnet18", "cat.png", "--layers", "layer1", "layer2.0")
    assert ended.code == 2
    assert ended.err == (
        "error: there is no image 'layer2.0'\n"
        "hint: several layers are one word: --layers layer1,layer2.0\n"
    )


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([], "Missing option '--against'.", "--against weights=B.pth"),
        (["--against", "train"], "--against cannot read 'train'", "mode=train"),
        (["--against", "b.pth"], "--against cannot read 'b.pth'", "weights=b.pth"),
        (
            ["--against", "seed=1", "--against", "seed=2"],
            "--against seed=… was given 2 times",
            "compare twice",
        ),
    ],
)
def test_the_hint_says_what_can_be_compared_with_a_model(run, words, message, hint):
    ended = run("compare", "resnet18", "cat.png", *words)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {message}\n")
    assert hint in ended.err


def test_a_source_file_is_answered_with_the_models_that_may_be_in_it(run, tmp_path):
    file = tmp_path / "net.py"
    file.write_text("class Net: ...\ndef _help(): ...\ndef make(): ...\nraise SystemExit")
    ended = run("layers", file)
    assert ended.code == 2
    assert f"hint: {file}:make, {file}:Net\n" in ended.err
    file.write_text("def make(:")
    assert "hint: write FILE.py:FUNCTION\n" in run("layers", file).err
