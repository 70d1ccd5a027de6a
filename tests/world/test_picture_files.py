"""The theme and the formats of the pictures of a run, and what their titles name."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.conftest import PHOTOS

MODEL = "tests.world.test_attention_pictures:Attends"
WORDS = ("--layers", "patches", "--attention", "all", "--device", "cpu", "-o", "out")
WHITE = (255, 255, 255)
GRID, HEADS = "grids/cat/001_patches", "attention/cat/001_attention"


def inspect(run, *words):
    ended = run("inspect", MODEL, PHOTOS / "cat.png", *WORDS, *words)
    assert ended.code == 0, ended.err
    return ended


def corner(file):
    with Image.open(Path("out", file)) as image:
        return image.convert("RGB").getpixel((0, 0))


@pytest.mark.parametrize(("words", "colour"), [((), (22, 22, 28)), (("--theme", "light"), WHITE)])
def test_grids_and_heads_have_the_background_of_the_theme(run, words, colour):
    inspect(run, *words, "--colormap", "gray")
    assert [corner(f"{file}.png") for file in (GRID, HEADS)] == [colour, colour]
    colours = json.loads(Path("out/report.json").read_text())["colours"]
    assert (colours[0], colours[-1]) == ("#000000", "#ffffff")


def test_a_picture_names_its_layer_its_model_and_its_photo(run):
    inspect(run, "--picture-format", "svg")
    for file in (GRID, HEADS):
        title = " ".join(text for text, _ in texts(file)[:3])  # a small grid breaks its title
        layer = Path(file).name.partition("_")[2]
        assert all(name in title for name in (layer, MODEL, "cat"))


def test_every_picture_is_written_in_both_formats_and_is_in_the_manifest(run):
    inspect(run, "--picture-format", "pdf", "--overview", "--rollout")
    pictures = [f"{GRID}.pdf", f"{HEADS}.pdf", "attention/cat/000_rollout.pdf", "overview.pdf"]
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert "--picture-format" in manifest["command"]
    for file in pictures:
        assert Path("out", file).read_bytes().startswith(b"%PDF-")
        assert Path("out", file).with_suffix(".png").exists()
        assert file in json.dumps(manifest)
    found = {str(file.relative_to("out")) for file in Path("out").rglob("*.pdf")}
    assert found == set(pictures)


def test_the_chart_of_gradients_names_the_photo_and_is_an_svg_too(run):
    words = ("--layers", "patches", "--cam", "patches", "--saliency", "--device", "cpu")
    ended = run(
        "gradients", MODEL, PHOTOS / "cat.png", *words, "--picture-format", "svg", "-o", "out"
    )
    assert ended.code == 0, ended.err
    assert f"{MODEL}   gradient flow   cat" in dict(texts("gradient_flow"))
    assert texts("saliency/cat")[0][0] == f"Saliency   {MODEL}   cat"
    assert texts("cam/cat/001_patches")[0][0] == f"Grad-CAM of patches   {MODEL}   cat"


def texts(picture):
    """The lines of text of a picture in SVG, each with its left edge."""
    root = ElementTree.parse(Path("out", f"{picture}.svg")).getroot()  # noqa: S314  our own file
    nodes = root.iter("{http://www.w3.org/2000/svg}text")
    return [(node.text, int(float(node.get("x", "0")))) for node in nodes]
