"""Which part of an image a network sees, read from what its preprocessing does to two ramps."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from PIL import Image
from torchvision.transforms import functional as fn

from hookcli.config import ModelRequest
from hookcli.networks.load import build_skeleton, load_model


@pytest.mark.parametrize(
    ("size", "part"),
    [
        # the short side becomes 256 pixels, then the middle 224 x 224 are kept
        ((512, 256), (144, 16, 368, 240)),
        ((256, 1024), (16, 400, 240, 624)),
        # 451 x 300 becomes 384 x 256; one pixel of it is 451 / 384 or 300 / 256 of the image
        ((451, 300), (80 * 451 / 384, 16 * 300 / 256, 304 * 451 / 384, 240 * 300 / 256)),
        # so large that it is drawn smaller
        ((4032, 3024), (58 * 4032 / 341, 189, 282 * 4032 / 341, 2835)),
        # so small that it is enlarged
        ((40, 40), (2.5, 2.5, 37.5, 37.5)),
    ],
)
def test_a_classifier_sees_the_middle_of_the_image(size, part):
    # at most a tenth of a pixel of the network's input
    a_tenth = max(size) / min(size) * min(size) / 256 / 10
    assert build_skeleton(ModelRequest("resnet18")).find_part(size) == pytest.approx(
        part, abs=max(a_tenth, 0.1)
    )


def test_the_shown_input_has_the_colours_of_the_image():
    model = build_skeleton(ModelRequest("resnet18", size=32))
    pixels = model.prepare.to_pixels([Image.new("RGB", (40, 40), (200, 30, 90))])
    shown = Image.open(io.BytesIO(model.show(pixels)))
    assert shown.getpixel((9, 9)) == pytest.approx((200, 30, 90), abs=6)


def test_a_tensor_file_is_seen_whole():
    part = build_skeleton(ModelRequest("resnet18")).find_part((320, 200), as_pixels=True)
    assert part == pytest.approx((0, 0, 320, 200), abs=0.2)


def test_what_a_detection_model_pads_lies_outside_the_image():
    loaded = load_model(ModelRequest("fasterrcnn_mobilenet_v3_large_320_fpn", weights="random"))
    # short side 320 of 1000 by 700: 457 by 320, filled up to 480 by 320
    assert loaded.find_part((1000, 700)) == pytest.approx(
        (0, 0, 1000 * 480 / 457, 700), abs=0.25 * 1000 / 457
    )


@pytest.mark.parametrize(
    "bend",
    [
        lambda picture: fn.rotate(picture, 30),
        lambda picture: fn.perspective(
            picture, [[0, 0], [99, 0], [99, 99], [0, 99]], [[0, 0], [99, 0], [60, 99], [40, 99]]
        ),
    ],
    ids=["turned", "in perspective"],
)
def test_the_part_is_unknown_if_pixels_are_not_where_a_crop_has_them(bend):
    plain = build_skeleton(ModelRequest("resnet18"))
    usual = plain.prepare.transform
    prepare = replace(plain.prepare, transform=lambda picture: usual(bend(picture)))
    assert replace(plain, prepare=prepare).find_part((300, 300)) is None


def test_a_crop_without_resizing_is_found_for_large_photos_too():
    plain = build_skeleton(ModelRequest("resnet18"))
    prepare = replace(
        plain.prepare, transform=lambda picture: fn.to_tensor(fn.center_crop(picture, [224]))
    )
    part = replace(plain, prepare=prepare).find_part((2000, 1600))
    assert part == pytest.approx((888, 688, 1112, 912), abs=4)
