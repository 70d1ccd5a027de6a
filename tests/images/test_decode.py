"""Image files of every kind as upright RGB, and a readable reason where a file is none."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from hookcli.images.decode import decode
from hookcli.images.other_files import turn
from hookcli.images.read import read_images, with_frames
from hookcli.images.style import UndecodableError
from tests.conftest import PILLOW

BLACK, WHITE, RED, BLUE = (0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 0, 255)
DAMAGED = "cannot be decoded: its data is damaged or in an unknown format"


def picture(image, name="photo.png", **options):
    image.save(name, **options)
    sources, skipped = read_images([name])
    assert not skipped
    assert sources[0].read().pictures[0].mode == "RGB"
    return sources[0].read().pictures[0]


def read(data, name="photo"):
    """What becomes of a file of these bytes."""
    Path(name).write_bytes(data)
    sources, skipped = read_images([name])
    assert not skipped
    return pixels(sources[0].read().pictures[0])


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


def greys(*values):
    return [(value,) * 3 for value in values]


def png(width, depth, colour, samples, *chunks):
    """One row, as Pillow cannot write it: ``colour`` 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6
    RGBA."""
    header = struct.pack(">IIBBBBB", width, 1, depth, colour, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(b"\0" + samples)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def shorts(*values):
    return struct.pack(f">{len(values)}H", *values)


def tiff(width, bits, samples, **tags):
    """One row, little-endian and uncompressed; ``tags`` by number, as ``t262=0``."""
    entries = {256: [width], 257: [1], 258: bits, 259: [1], 262: [1], 273: [0], 277: [len(bits)]}
    entries |= {278: [1], 279: [len(samples)]}
    entries |= {int(tag[1:]): value for tag, value in tags.items()}
    after = 8 + 2 + 12 * len(entries) + 4
    wide = b""
    lines = []
    for tag, values in sorted(entries.items()):
        packed = struct.pack(f"<{len(values)}H", *values)
        if len(packed) > 4:
            offset, wide = after + len(wide), wide + packed
            packed = struct.pack("<I", offset)
        lines.append([tag, len(values), packed.ljust(4, b"\0")])
    for line in lines:
        if line[0] == 273:
            line[2] = struct.pack("<I", after + len(wide))
    directory = b"".join(struct.pack("<HHI", tag, 3, count) + value for tag, count, value in lines)
    head = b"II*\0" + struct.pack("<IH", 8, len(lines))
    return head + directory + bytes(4) + wide + samples


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
    pixels = np.array([[[0], [1], [2]], [[3], [4], [5]]])
    assert turn(pixels, orientation)[..., 0].tolist() == expected


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


def test_a_transparent_grey_of_sixteen_bits_is_recognized_by_all_its_bits():
    # 0x1234 / 257 = 18.1; its neighbour shares the upper byte
    data = png(2, 16, 0, shorts(0x1234, 0x1235), (b"tRNS", shorts(0x1234)))
    assert read(data) == [WHITE, (18, 18, 18)]


@pytest.mark.parametrize(
    ("depth", "samples", "transparent", "expected"),
    [
        (1, 0b01000000, 0, (WHITE, WHITE)),
        (1, 0b01000000, 1, (BLACK, WHITE)),
        (2, 0b01100000, 1, (WHITE, (170,) * 3)),  # 2 * 255 / 3
        (2, 0b01110000, 3, ((85,) * 3, WHITE)),
        (4, 0x56, 5, (WHITE, (102,) * 3)),  # 6 * 255 / 15
        (4, 0x1F, 15, ((17,) * 3, WHITE)),
        (4, 0x12, 17, ((17,) * 3, (34,) * 3)),  # no grey of 4 bits is 17
    ],
)
def test_a_transparent_grey_of_few_bits_becomes_white(depth, samples, transparent, expected):
    data = png(2, depth, 0, bytes([samples]), (b"tRNS", shorts(transparent)))
    assert read(data) == list(expected)


def test_a_transparent_colour_becomes_white():
    data = png(2, 8, 2, bytes([1, 2, 3, 1, 2, 4]), (b"tRNS", shorts(1, 2, 3)))
    assert read(data) == [WHITE, (1, 2, 4)]


def test_a_transparent_colour_of_sixteen_bits_is_refused_and_not_guessed():
    data = png(1, 16, 2, shorts(0x1234, 0x5678, 0x9ABC), (b"tRNS", shorts(0x1234, 0x5678, 0x9ABD)))
    Path("photo.png").write_bytes(data)
    assert reason("photo.png") == "has a transparent colour of 16 bits, which cannot be read"


def test_sixteen_bit_colours_are_scaled_as_greys_are():
    data = png(2, 16, 2, shorts(65535, 0x80FF, 257, 0, 0x1200, 255))
    assert read(data) == [(255, 128, 1), (0, 18, 1)]


def test_sixteen_bit_colours_with_alpha_are_laid_on_white():
    data = png(2, 16, 6, shorts(65535, 0, 0, 65535, 0, 0, 0, 0))
    assert read(data) == [RED, WHITE]


def test_sixteen_bit_greys_with_alpha_are_laid_on_white():
    assert read(png(2, 16, 4, shorts(0x1212, 65535, 0, 0))) == [(18, 18, 18), WHITE]


def test_a_palette_may_be_half_transparent():
    chunks = [(b"PLTE", bytes([255, 0, 0, 0, 0, 0, 1, 2, 3])), (b"tRNS", bytes([0, 127]))]
    # black of 127 lets through 128 of the white's 255; an entry without alpha is solid
    assert read(png(3, 8, 3, bytes([0, 1, 2]), *chunks)) == [WHITE, (128, 128, 128), (1, 2, 3)]


def test_a_number_beyond_the_palette_is_black():
    assert read(png(2, 8, 3, bytes([0, 1]), (b"PLTE", bytes(RED)))) == [RED, BLACK]


@pytest.mark.parametrize(
    ("samples", "tags", "expected"),
    [
        # 16 and 12 bits from nothing to all; 12 bits are two numbers in three bytes
        (np.array([0, 257, 65535], "u2"), {}, [0, 1, 255]),
        (bytes([0xFF, 0xF0, 0x01, 0x80, 0x00, 0x00]), {"bits": 12, "t339": [1]}, [255, 0, 128]),
        # 32 bits that fit 16 are scaled likewise; others go from their smallest to their largest
        (np.array([0, 257, 65535], "i4"), {"t339": [2]}, [0, 1, 255]),
        (np.array([-10, 0, 10], "i4"), {"t339": [2]}, [0, 128, 255]),
        (np.array([0, 1 << 16, 1 << 17], "i4"), {"t339": [2]}, [0, 128, 255]),
        (np.array([0, 1 << 31, (1 << 32) - 1], "u4"), {}, [0, 128, 255]),
        # signed
        (np.array([-32768, 0, 32767], "i2"), {"t339": [2]}, [0, 128, 255]),
        # 0 is white
        (np.array([0, 1, 255], "u1"), {"t262": [0]}, [255, 254, 0]),
        (np.array([0, 257, 65535], "u2"), {"t262": [0]}, [255, 254, 0]),
        (np.array([0, 0.2, 1], "f4"), {"t262": [0], "t339": [3]}, [255, 204, 0]),
        # floats from 0 to 1, and others, from the smallest to the largest
        (np.array([0, 0.2, 1], "f4"), {"t339": [3]}, [0, 51, 255]),
        (np.array([0, 50, 200], "f4"), {"t339": [3]}, [0, 64, 255]),
        (np.array([-3, 0, 3], "f4"), {"t339": [3]}, [0, 128, 255]),
        (np.array([1000, 2000, 6000], "f4"), {"t339": [3]}, [0, 51, 255]),
        (np.array([7000, 7000, 7000], "f4"), {"t339": [3]}, [0, 0, 0]),
        # what is not a number
        (np.array([np.nan, 0.2, 1], "f4"), {"t339": [3]}, [0, 51, 255]),
        (np.array([-np.inf, 0.2, np.inf], "f4"), {"t339": [3]}, [0, 51, 255]),
        (np.array([np.nan, np.nan, np.nan], "f4"), {"t339": [3]}, [0, 0, 0]),
    ],
    ids=str,
)
def test_greys_of_a_tiff_are_what_its_tags_say(samples, tags, expected):
    bits = tags.pop("bits", None) or 8 * samples.dtype.itemsize
    data = samples if isinstance(samples, bytes) else samples.tobytes()
    assert read(tiff(3, [bits], data, **tags)) == greys(*expected)


def test_the_tags_of_a_turned_tiff_count_too():
    data = tiff(2, [16], np.array([0, 65535], "u2").tobytes(), t262=[0], t274=[3])
    assert read(data) == [BLACK, WHITE]


@pytest.mark.skipif(PILLOW < (13,), reason="read by Pillow 13 and later")
def test_a_premultiplied_grey_is_laid_on_white():
    # half black, half white: what is left of the white shows, and 64 of the grey
    (half, solid) = read(tiff(2, [8, 8], bytes([64, 128, 9, 255]), t338=[1]))
    assert half == pytest.approx((64 + 127,) * 3, abs=2)
    assert solid == (9, 9, 9)


def test_a_premultiplied_colour_is_laid_on_white():
    (half,) = read(tiff(1, [8] * 4, bytes([64, 0, 0, 128]), t262=[2], t338=[1]))
    assert half == pytest.approx((64 + 127, 127, 127), abs=2)


def to_srgb(lightness, a, b):
    """CIE 15: L*a*b* of the white D50 to XYZ, by Bradford to D65; then IEC 61966-2-1."""
    y = (lightness + 16) / 116
    cubes = np.array([y + a / 500, y, y - b / 200])
    xyz = np.where(cubes > 6 / 29, cubes**3, 3 * (6 / 29) ** 2 * (cubes - 4 / 29))
    xyz *= [0.9642, 1, 0.8249]
    bradford = [[0.9556, -0.0230, 0.0632], [-0.0283, 1.0099, 0.0210], [0.0123, -0.0205, 1.3299]]
    matrix = [[3.2405, -1.5371, -0.4985], [-0.9693, 1.8760, 0.0416], [0.0556, -0.2040, 1.0572]]
    linear = (np.array(matrix) @ np.array(bradford) @ xyz).clip(0, 1)
    return 255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize(
    ("lightness", "a", "b"),
    [(0, 0, 0), (100, 0, 0), (50, 0, 0), (50, 60, 20), (60, -40, 30), (45, 10, -30)],
)
def test_lab_becomes_rgb(lightness, a, b):
    stored = struct.pack("Bbb", round(lightness * 255 / 100), a, b)
    (colour,) = read(tiff(1, [8] * 3, stored, t262=[8]))
    assert colour == pytest.approx(to_srgb(lightness, a, b), abs=3)


def test_cmyk_becomes_rgb():
    # no cyan, all magenta and yellow, no black: red
    ink = [(0, 255, 255, 0), (0, 0, 0, 255), (0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 100)]
    expected = [RED, BLACK, WHITE, (0, 255, 255), (155, 155, 155)]
    assert pixels(picture(row("CMYK", *ink), "photo.tif")) == expected


def test_the_inverted_cmyk_of_a_jpeg_becomes_rgb():
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert pixels(picture(image, "photo.jpg", quality=100))[0] == pytest.approx(RED, abs=3)


@pytest.mark.parametrize("name", ["photo.png", "photo.webp", "photo.tif"])
def test_a_file_of_several_pictures_is_its_first_one(name):
    lossless = {"lossless": True} if name.endswith("webp") else {}
    frames = [row("RGB", RED), row("RGB", BLUE)]
    several = picture(frames[0], name, save_all=True, append_images=frames[1:], **lossless)
    assert pixels(several) == [RED]


def test_a_format_is_recognized_by_the_content_and_not_by_the_name():
    row("RGB", RED).save("photo.png")
    Path("photo.png").rename("photo.jpg")
    assert pixels(read_images(["photo.jpg"])[0][0].read().pictures[0]) == [RED]


def test_a_source_carries_the_files_own_hash():
    row("RGB", RED).save("photo.png")
    expected = hashlib.sha256(Path("photo.png").read_bytes()).hexdigest()
    assert read_images(["photo.png"])[0][0].read().sha256 == expected


def test_text_named_jpg_is_no_image():
    Path("text.jpg").write_text("hello", encoding="utf-8")
    assert reason("text.jpg") == "is not a readable image"


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\0\0\0\x18ftypmp42", "is a video"),
        (b"\x1aE\xdf\xa3\x01\0\0\0\0\0\0\0", "is a video"),
        (b"RIFF\0\0\0\0AVI LIST", "is a video"),
        (b"\0\0\0\x18ftypheic", "is a HEIC picture"),
        (b"%PDF-1.7\n", "is a PDF"),
    ],
)
def test_a_file_of_another_kind_is_named(start, kind):
    Path("holiday.jpg").write_bytes(start + bytes(100))
    said = reason("holiday.jpg")
    assert said.startswith(kind)
    assert ": " in said  # what to do


def test_an_empty_file_is_said_to_be_empty():
    Path("empty.png").touch()
    assert reason("empty.png") == "is empty"


KINDS = [
    *("png", "jpg", "gif", "tif", "bmp", "webp", "ppm", "tga", "ico", "jp2", "avif", "sgi"),
    *("pcx", "qoi"),
    pytest.param(
        "dds",
        marks=pytest.mark.skipif(PILLOW < (12, 3), reason="Pillow fills it with black until 12.3"),
    ),
]


@pytest.mark.parametrize("part", [0.5, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_skipped_and_no_half_picture_comes_back(kind, part, cat):
    with Image.open(cat) as image:
        image.convert("RGB").save(f"photo.{kind}")
    data = Path(f"photo.{kind}").read_bytes()
    Path("photo").write_bytes(data[: int(part * len(data))])
    said = reason("photo")
    assert said.startswith("cannot be decoded: ") or said == "is not a readable image"
    assert 20 < len(said) < 140


def test_a_truncated_file_is_said_to_be_truncated(cat):
    Path("photo.png").write_bytes(cat.read_bytes()[:9999])
    assert reason("photo.png") == "cannot be decoded: image file is truncated"


def test_a_file_that_cannot_be_decoded_cannot_be_the_second_time_either(cat):
    Path("photo.png").write_bytes(cat.read_bytes()[:9999])
    sources, skipped = read_images(["photo.png", "photo.png"])
    assert (len(sources), len(skipped)) == (0, 2)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_png_with_a_damaged_chunk_of_pixels_is_skipped(cat, compressed):
    with Image.open(cat) as image:
        image.save("photo.png", compress_level=6 if compressed else 0)
    data = bytearray(Path("photo.png").read_bytes())
    data[len(data) // 2] ^= 0xFF
    Path("photo.png").write_bytes(data)
    assert reason("photo.png").startswith("cannot be decoded: ")
    assert "data stream" in reason("photo.png")


def test_a_png_with_a_damaged_header_is_skipped():
    data = bytearray(png(1, 8, 2, bytes(RED)))
    data[20] ^= 1  # the width's sum is no longer right
    Path("photo.png").write_bytes(data)
    assert reason("photo.png") == "is not a readable image"


def test_what_only_a_programmer_would_understand_is_not_said():
    # Pillow says: invalid literal for int() with base 10: b'x'
    Path("photo.ppm").write_bytes(b"P6 1 x 255\n\0\0\0")
    Path("photo.tif").write_bytes(tiff(1, [8], b"\0", t259=[5]))  # says: decoder error -2
    # McIDAS: 1 by 1 pixel of one byte, 9 bytes before the file, which is no place to seek: Invalid
    # argument
    numbers = dict.fromkeys(range(64), 0) | {1: 4, 8: 1, 9: 1, 10: 1, 13: 1, 33: -9}
    Path("photo.area").write_bytes(struct.pack(">64i", *numbers.values()))
    assert reason("photo.ppm") == reason("photo.tif") == reason("photo.area") == DAMAGED


def test_a_directory_is_said_to_be_one(tmp_path):
    assert reason(tmp_path) == "is a directory; a folder of frames needs `clip`"


def test_a_missing_file_is_said_not_to_exist():
    assert reason("nowhere/photo.png") == "does not exist"


def test_a_name_that_no_file_system_takes_is_skipped():
    assert "too long" in reason("x" * 300 + ".png")


@pytest.mark.parametrize("name", ["fifo", "/dev/zero"])
def test_what_is_no_regular_file_is_not_waited_for(name):
    os.mkfifo("fifo")
    assert reason(name) == "is not a regular file"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that cannot be read by anybody")
def test_a_file_that_cannot_be_read_says_what_the_system_says():
    assert reason("/proc/self/mem") == "cannot be read: Input/output error"


def test_a_name_with_a_nul_is_skipped():
    assert "null" in reason("a\0.png")


def test_postscript_is_never_handed_to_ghostscript(tmp_path, monkeypatch):
    ghostscript = tmp_path / "bin" / "gs"
    ghostscript.parent.mkdir()
    ghostscript.write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n", encoding="utf-8")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ghostscript.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # what Pillow found before
    Image.init()  # as any file that is none of the common formats makes Pillow do
    head = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    Path("drawing.png").write_text(head, encoding="utf-8")
    assert reason("drawing.png") == "is not a readable image"
    assert not Path("started").exists()
    with Image.open("drawing.png") as image, pytest.raises(OSError):  # noqa: PT011
        image.load()
    assert Path("started").exists()  # so it would have shown


@pytest.mark.parametrize("most", [99, 60, 30])
def test_a_picture_of_too_many_pixels_is_skipped(monkeypatch, most):
    row("L", *range(100)).save("photo.png")
    monkeypatch.setattr(
        Image, "MAX_IMAGE_PIXELS", most
    )  # Pillow warns; from twice as many it raises
    assert reason("photo.png") == "has too many pixels to decode safely"


def test_a_picture_of_as_many_pixels_as_are_allowed_is_read(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3)
    assert pixels(picture(row("L", 0, 1, 2))) == greys(0, 1, 2)


@pytest.mark.parametrize("size", [(20_000, 10), (1, 10_000), (10_000, 1), (1, 1)])
def test_a_thin_picture_is_read(size):
    assert picture(Image.new("L", size)).size == size


@pytest.mark.parametrize("size", [(1, 10_001), (10_001, 1)])
def test_a_picture_without_end_is_skipped(size):
    Image.new("L", size).save("photo.png")
    assert reason("photo.png") == (f"is {size[0]} by {size[1]} pixels, too thin to show a network")


def test_what_libtiff_prints_does_not_reach_the_terminal(capfd):
    Image.radial_gradient("L").save("photo.tif", compression="tiff_lzw")
    with Image.open("photo.tif") as image:
        (start,) = image.tag_v2[273]  # type: ignore[attr-defined]
    data = bytearray(Path("photo.tif").read_bytes())
    data[start : start + 40] = bytes(40)
    Path("photo.tif").write_bytes(data)
    with Image.open("photo.tif") as image, pytest.raises(OSError):  # noqa: PT011
        image.load()
    assert capfd.readouterr().err == "tempfile.tif: Using code not yet in table.\n"
    assert reason("photo.tif") == DAMAGED
    os.write(2, b"ours\n")
    assert capfd.readouterr().err == "ours\n"


def test_threads_that_read_tiffs_leave_stderr_and_filters_as_they_were(capfd):
    Image.radial_gradient("L").save("photo.tif")
    data = Path("photo.tif").read_bytes()
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(decode, [io.BytesIO(data) for _ in range(200)]))) == 200
    os.write(2, b"ours\n")
    assert capfd.readouterr().err == "ours\n"
    assert warnings.filters == before


def test_a_tiff_is_read_where_stderr_is_closed():
    kept = os.dup(2)
    os.close(2)
    try:
        assert pixels(picture(row("RGB", RED), "photo.tif")) == [RED]
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_good_and_bad_files_are_returned_separately_and_in_order():
    row("RGB", RED).save("b.png")
    row("RGB", RED).save("a.png")
    sources, skipped = read_images(["b.png", "no.png", "a.png", "nor.png"])
    assert [source.file for source in sources] == ["b.png", "a.png"]
    assert [file.file for file in skipped] == ["no.png", "nor.png"]


HOSTILE = [
    b"a b'c\"d.png",
    b"50%#1?.png",
    b"new\nline.png",
    b"\x1b[31m.png",
    "\u202egnp.png".encode(),
    *(b"\xff\xfe.png", b"-rf.png", b"~.png", b"*.png", b"$(ls).png"),
    b"x" * 251 + b".png",
]


@pytest.mark.parametrize("raw", HOSTILE, ids=ascii)
def test_a_file_of_any_name_is_read(raw):
    name = os.fsdecode(raw)
    row("RGB", RED).save("photo.png")
    Path("photo.png").rename(name)
    ((source,), skipped) = read_images([name])
    assert (source.file, pixels(source.read().pictures[0]), skipped) == (name, [RED], [])
    assert source.key.replace("_", "").replace("-", "").isalnum()
    assert 0 < len(source.key) <= 60


def levels(*values):
    return [Image.new("L", (4, 4), value) for value in values]


def shown(content):
    return [image.getpixel((0, 0))[0] for image in content.pictures]


def frames_of(source, most):
    return with_frames(source.file, source.read(), most)


def animation(*values, name="a.gif"):
    first, *rest = levels(*values)
    first.save(name, save_all=True, append_images=rest)
    ((source,), _) = read_images([name])
    return source


def test_an_animation_gives_frames_at_even_distances():
    content = frames_of(animation(*range(0, 110, 10)), 6)
    assert (shown(content), content.frame_count) == ([0, 20, 40, 60, 80, 100], 11)


def test_a_short_animation_gives_all_its_frames():
    content = frames_of(animation(0, 100, 200), 16)
    assert (shown(content), content.frame_count) == ([0, 100, 200], 3)


def test_a_still_image_has_one_frame():
    row("L", 7).save("photo.png")
    ((source,), _) = read_images(["photo.png"])
    assert frames_of(source, 16) == source.read()


def test_frames_behind_a_damaged_one_are_left_out(cat):
    with Image.open(cat) as image:
        frames = [image.convert("RGB").rotate(turn) for turn in (0, 90, 180)]
    frames[0].save("a.png", save_all=True, append_images=frames[1:])
    data = bytearray(Path("a.png").read_bytes())
    second = data.index(b"fdAT")
    data[second + 1000 : second + 1100] = bytes(100)
    Path("a.png").write_bytes(data)
    ((source,), _) = read_images(["a.png"])
    assert [image.size for image in frames_of(source, 3).pictures] == [(451, 300)]


def test_an_animation_of_which_a_later_frame_is_too_large_has_no_frames(monkeypatch):
    first, second = Image.new("L", (4, 4)), Image.new("L", (40, 40))
    first.save("a.tif", save_all=True, append_images=[second])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    ((source,), _) = read_images(["a.tif"])
    with pytest.raises(UndecodableError, match=r"^has too many pixels to decode safely$"):
        frames_of(source, 2)


def test_an_animation_that_has_gone_since_has_no_frames():
    source = animation(0, 1)
    Path("a.gif").unlink()
    with pytest.raises(UndecodableError, match=r"^cannot be read: No such file or directory$"):
        frames_of(source, 2)


def clip(*names):
    Path("clip").mkdir()
    for level, name in enumerate(names):
        Image.new("L", (2, 2), level).save(f"clip/{name}", "PNG")


def test_a_folder_of_frames_is_a_clip_in_the_order_of_the_names():
    clip("c.png", "a.png", "b.png")
    ((source,), skipped) = read_images(["clip"], clip_frames=16)
    assert (shown(source.read()), source.read().frame_count, skipped) == ([1, 2, 0], 3, [])
    assert (source.key, source.file) == ("clip", "clip")


def test_hidden_files_and_folders_are_no_frames():
    clip(".hidden.png", "a.png")
    Path("clip/folder").mkdir()
    ((source,), _) = read_images(["clip"], clip_frames=16)
    assert (shown(source.read()), source.read().frame_count) == ([1], 1)


def test_a_clip_carries_the_hash_of_its_frames_bytes():
    clip("a.png", "b.png")
    data = Path("clip/a.png").read_bytes() + Path("clip/b.png").read_bytes()
    ((source,), _) = read_images(["clip"], clip_frames=2)
    assert source.read().sha256 == hashlib.sha256(data).hexdigest()


def test_a_clip_without_frames_is_skipped():
    Path("clip").mkdir()
    _, (skipped,) = read_images(["clip"], clip_frames=16)
    assert skipped.reason == "is a directory without images"


def test_a_clip_with_a_frame_that_is_none_is_skipped_and_names_it():
    clip("a.png", "c.png")
    Path("clip/b.png").write_text("hello", encoding="utf-8")
    _, (skipped,) = read_images(["clip"], clip_frames=16)
    assert skipped.reason == "has a frame, 'b.png', that is not a readable image"
