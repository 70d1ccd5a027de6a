"""Pictures as SVG and PDF: their text is text, and all else is one image."""

from __future__ import annotations

import base64
import io
import re
import zlib
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from hookcli.render.draw.canvas import load_palette, new_canvas, write_text
from hookcli.render.draw.picture_files import to_vector

SVG = "{http://www.w3.org/2000/svg}"
PALETTE = load_palette("ember", "light")


def test_an_svg_has_the_text_as_text_and_the_maps_as_an_image_of_the_same_pixels():
    root = parse(to_vector(picture(), PALETTE, "svg"))
    texts = [(node.text, node.get("x"), node.get("y")) for node in root.iter(f"{SVG}text")]
    assert texts == [("conv1   $net$ <cat>", "10", "23"), ("0", "10", "54")]
    for node in root.iter(f"{SVG}text"):
        assert node.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve"
    (image,) = root.iter(f"{SVG}image")
    data = base64.b64decode(image.get("{http://www.w3.org/1999/xlink}href").partition(",")[2])
    with Image.open(io.BytesIO(data)) as embedded:
        pixels = np.asarray(embedded.convert("RGB"))
    without = picture().to_image(PALETTE, has_text=False).convert("RGB")
    assert image.get("transform").startswith("scale(1 -1)")  # matplotlib embeds it upside down
    assert np.array_equal(pixels[::-1], np.asarray(without))


def test_a_pdf_embeds_its_font_and_holds_one_image():
    """Type 3 fonts, which many publishers refuse, are not in it."""
    data = to_vector(picture(), PALETTE, "pdf")
    assert data.startswith(b"%PDF-")
    assert b"DejaVuSans" in data
    assert b"/FontFile2" in data
    assert b"/Type3" not in data
    assert data.count(b"/Subtype /Image") == 1
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL)
    unpacked = [zlib.decompress(each) for each in streams if each[:1] == b"x"]
    assert sum(each.count(b"BT") for each in unpacked if b" Tf" in each) == 2


def parse(svg):
    return ElementTree.fromstring(svg)  # noqa: S314  our own file


def picture():
    canvas = new_canvas(["conv1   $net$ <cat>"], 40, 30)
    write_text(canvas, "0", (10, 44), size=10, width=40)
    canvas.pixels[56:60, 10:20] = np.arange(10, dtype=np.uint8) * 20
    return canvas


def test_text_that_is_cut_in_the_png_is_cut_in_the_svg_too():
    whole, cut = (new_canvas(["t"], 80, 30) for _ in range(2))
    write_text(whole, "1234", (10, 44), size=10, width=60)
    write_text(cut, "1234", (10, 44), size=10, width=6)
    palette = load_palette("ember")
    assert b"clip-path=" not in to_vector(whole, palette, "svg")
    assert b"clip-path=" in to_vector(cut, palette, "svg")
