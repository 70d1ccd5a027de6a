"""A result as HTML for a notebook."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from hookcli.records.statistics import layer_cells
from hookcli.render.report.notebook import render_layers

FIGURES = {"mean": 0.25, "std": 1.5, "min": None, "max": 12345.678, "zero_fraction": 0.5}
CELLS = layer_cells("conv1", "Conv2d", "1x64x112x112", FIGURES)


class Reader(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def png(width, height):
    stream = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    Image.fromarray(noise).save(stream, "PNG")
    return stream.getvalue()


def test_a_row_holds_figures_with_four_digits_and_nothing_where_a_figure_is_missing():
    page = Reader(render_layers("net", ["weights: random"], [CELLS], 1))
    assert page.texts == [
        *("net", "weights: random"),
        *("call", "type", "shape", "mean", "std", "min", "max", "zeros"),
        *("conv1", "Conv2d", "1x64x112x112", "0.25", "1.5", "1.235e+04", "50.0%"),
    ]


def test_text_from_strangers_makes_no_tag_and_no_script():
    evil = '<script>alert("1")</script>\x1b'
    cells = layer_cells(evil, evil, evil, FIGURES)
    html = render_layers(evil, [evil], [cells], 1, [(f'" onerror="{evil}', png(2, 2))])
    page = Reader(html)
    assert "script" not in page.tags
    assert "\x1b" not in html
    assert page.texts[0] == '<script>alert("1")</script>\\x1b'
    assert html.count("onerror=&quot;") == html.count("onerror") == 1


def test_a_picture_is_made_small_and_one_that_is_damaged_is_left_out():
    good = png(720, 400)
    broken = bytes(4).join(good.rsplit(b"IDAT", 1))  # a later chunk has no name
    sizes = b"IHDR" + struct.pack(">2I", 1 << 16, 1 << 16) + good[24:29]
    bomb = good[:12] + sizes + struct.pack(">I", zlib.crc32(sizes)) + good[33:]
    damaged = [("b", b"no picture"), ("c", broken), ("d", bomb)]
    html = render_layers("net", [], [], 0, [("a", good), *damaged])
    (coded,) = re.findall(r'src="data:image/jpeg;base64,([^"]+)" alt="feature maps of a"', html)
    assert Image.open(io.BytesIO(base64.b64decode(coded))).size == (360, 200)
    assert html.count("<img") == 1
