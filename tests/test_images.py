"""Image files of every kind as upright RGB, and a readable reason where a file is none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from PIL import Image

from hookcli.images import read_images

WHITE, RED, BLUE = (255, 255, 255), (255, 0, 0), (0, 0, 255)


def picture(image, name="photo.png", **options):
    image.save(name, **options)
    sources, skipped = read_images([name])
    assert not skipped
    assert sources[0].pictures[0].mode == "RGB"
    return sources[0].pictures[0]


def pixels(image):
    return [image.getpixel((x, y)) for y in range(image.height) for x in range(image.width)]


def reason(name):
    sources, skipped = read_images([str(name)])
    assert not sources
    assert skipped[0].file == str(name)
    return skipped[0].reason


def row(mode, *values):
    image = Image.new(mode, (len(values), 1))
    for x, value in enumerate(values):
        image.putpixel((x, 0), value)
    return image


# --- what is decoded


def test_an_rgb_picture_comes_back_as_it_is():
    assert pixels(picture(row("RGB", RED, (1, 2, 3)))) == [RED, (1, 2, 3)]


@pytest.mark.parametrize(
    ("orientation", "expected"),
    [
        (1, [[0, 1, 2], [3, 4, 5]]),
        (2, [[2, 1, 0], [5, 4, 3]]),
        (3, [[5, 4, 3], [2, 1, 0]]),
        (4, [[3, 4, 5], [0, 1, 2]]),
        (5, [[0, 3], [1, 4], [2, 5]]),
        (6, [[3, 0], [4, 1], [5, 2]]),
        (7, [[5, 2], [4, 1], [3, 0]]),
        (8, [[2, 5], [1, 4], [0, 3]]),
    ],
)
def test_a_picture_is_turned_upright_as_its_exif_data_says(orientation, expected):
    stored = Image.new("L", (3, 2))
    stored.putdata([0, 1, 2, 3, 4, 5])
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = picture(stored, exif=exif)
    assert [
        [upright.getpixel((x, y))[0] for x in range(upright.width)] for y in range(upright.height)
    ] == expected


def test_transparency_is_laid_on_white():
    clear, half, solid = (255, 0, 0, 0), (255, 0, 0, 127), (255, 0, 0, 255)
    # half of it lets through 128 of the white's 255
    assert pixels(picture(row("RGBA", clear, half, solid))) == [WHITE, (255, 128, 128), RED]


def test_a_grey_with_alpha_is_laid_on_white():
    assert pixels(picture(row("LA", (0, 0), (9, 255)))) == [WHITE, (9, 9, 9)]


def test_a_transparent_entry_of_a_palette_becomes_white():
    image = row("P", 0, 1)
    image.putpalette([10, 20, 30, 40, 50, 60])
    assert pixels(picture(image, transparency=0)) == [WHITE, (40, 50, 60)]


def test_a_palette_becomes_its_colours():
    image = row("P", 1, 0)
    image.putpalette([10, 20, 30, 40, 50, 60])
    assert pixels(picture(image)) == [(40, 50, 60), (10, 20, 30)]


def test_a_transparent_grey_becomes_white():
    assert pixels(picture(row("L", 7, 8), transparency=7)) == [WHITE, (8, 8, 8)]


@pytest.mark.parametrize("name", ["photo.png", "photo.tif"])
def test_sixteen_bit_greys_are_scaled_and_not_clipped(name):
    # 65535 / 257 = 255, 32896 / 257 = 128, 257 / 257 = 1
    grey = picture(row("I;16", 65535, 32896, 257, 0), name)
    assert pixels(grey) == [WHITE, (128,) * 3, (1,) * 3, (0,) * 3]


def test_cmyk_becomes_rgb():
    # no cyan, all magenta and yellow, no black: red
    assert pixels(picture(row("CMYK", (0, 255, 255, 0)), "photo.tif")) == [RED]


def test_greys_become_three_equal_channels():
    assert pixels(picture(row("L", 0, 100))) == [(0, 0, 0), (100, 100, 100)]


def test_one_bit_becomes_black_and_white():
    assert pixels(picture(row("1", 0, 1))) == [(0, 0, 0), WHITE]


def test_an_animation_is_its_first_frame():
    frames = [row("RGB", RED), row("RGB", BLUE)]
    gif = picture(frames[0], "photo.gif", save_all=True, append_images=frames[1:])
    assert pixels(gif) == [RED]


def test_a_format_is_told_by_the_content_and_not_by_the_name():
    row("RGB", RED).save("photo.png")
    Path("photo.png").rename("photo.jpg")
    assert pixels(read_images(["photo.jpg"])[0][0].pictures[0]) == [RED]


def test_a_source_carries_the_files_own_hash():
    row("RGB", RED).save("photo.png")
    expected = hashlib.sha256(Path("photo.png").read_bytes()).hexdigest()
    assert read_images(["photo.png"])[0][0].sha256 == expected


def test_the_real_photo_keeps_its_size(cat):
    assert read_images([str(cat)])[0][0].pictures[0].size == (451, 300)


# --- what is not


def test_text_named_jpg_is_no_image():
    Path("text.jpg").write_text("hello", encoding="utf-8")
    assert reason("text.jpg") == "is not an image that can be read"


def test_an_empty_file_is_said_to_be_empty():
    Path("empty.png").touch()
    assert reason("empty.png") == "is empty"


@pytest.mark.parametrize("name", ["photo.png", "photo.jpg"])
def test_a_truncated_file_is_skipped_and_no_half_picture_comes_back(name, cat):
    with Image.open(cat) as image:
        image.convert("RGB").save(name)
    data = Path(name).read_bytes()
    Path(name).write_bytes(data[: len(data) // 2])
    assert reason(name).startswith("cannot be decoded: image file is truncated")


def test_a_directory_is_said_to_be_one(tmp_path):
    assert reason(tmp_path) == "is a directory; a folder of frames needs --clip"


def test_a_missing_file_is_said_not_to_exist():
    assert reason("nowhere/photo.png") == "does not exist"


def test_a_name_that_no_file_system_takes_is_skipped():
    assert "too long" in reason("x" * 300 + ".png")


def test_postscript_is_never_handed_to_ghostscript():
    Image.init()  # as any file that is none of the common formats makes Pillow do
    Path("drawing.png").write_text(
        "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", encoding="utf-8"
    )
    assert reason("drawing.png") == "is not an image that can be read"


def test_a_picture_of_too_many_pixels_is_skipped(monkeypatch):
    row("L", *range(100)).save("photo.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
    assert reason("photo.png") == "has more pixels than is safe to decode"


def test_good_and_bad_files_come_back_apart_and_in_order():
    row("RGB", RED).save("b.png")
    row("RGB", RED).save("a.png")
    sources, skipped = read_images(["b.png", "no.png", "a.png", "nor.png"])
    assert [source.file for source in sources] == ["b.png", "a.png"]
    assert [file.file for file in skipped] == ["no.png", "nor.png"]


# --- keys


def keys(*files):
    for file in files:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        row("RGB", RED).save(file, "PNG")
    sources, skipped = read_images(files)
    assert not skipped
    return [source.key for source in sources]


def test_a_key_is_the_files_stem():
    assert keys("some/where/photo.of.me.png") == ["photo.of.me"]


def test_equal_stems_get_keys_of_their_own():
    assert keys("a/x.png", "b/x.png", "x.jpg") == ["x", "x-2", "x-3"]


def test_a_numbered_key_never_meets_a_file_of_that_name():
    assert keys("a/x.png", "x-2.png", "b/x.png") == ["x", "x-2", "x-3"]


def test_stems_that_differ_in_case_alone_get_keys_for_file_systems_that_do_not_care():
    assert keys("x.png", "X.png") == ["x", "X-2"]


def test_the_same_file_twice_is_two_images():
    row("RGB", RED).save("x.png")
    assert [source.key for source in read_images(["x.png", "x.png"])[0]] == ["x", "x-2"]


def test_a_key_has_nothing_that_a_file_system_or_shell_reads():
    assert keys("a b\n$(x)|ä\u200f.png") == ["a_b_x"]


def test_a_stem_of_nothing_safe_still_gets_a_key():
    assert keys("猫.png") == ["unnamed"]
