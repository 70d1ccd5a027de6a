"""Image files of every kind as upright RGB, and a readable reason where a file is none."""

from __future__ import annotations

import hashlib
import io
import os
import struct
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


@pytest.mark.parametrize(
    ("depth", "samples", "transparent", "expected"),
    [
        (1, bytes([0b01000000]), 1, (BLACK, WHITE)),
        (2, bytes([0b01100000]), 1, (WHITE, (170,) * 3)),  # 2 * 255 / 3
        (4, bytes([0x56]), 5, (WHITE, (102,) * 3)),  # 6 * 255 / 15
        (4, bytes([0x12]), 17, ((17,) * 3, (34,) * 3)),  # no grey of 4 bits is 17
        (8, bytes([7, 8]), 7, (WHITE, (8,) * 3)),
        # 0x1234 / 257 = 18.1; its neighbour shares the upper byte
        (16, shorts(0x1234, 0x1235), 0x1234, (WHITE, (18,) * 3)),
    ],
)
def test_a_transparent_grey_becomes_white(depth, samples, transparent, expected):
    data = png(2, depth, 0, samples, (b"tRNS", shorts(transparent)))
    assert read(data) == list(expected)


def test_a_transparent_colour_becomes_white():
    data = png(2, 8, 2, bytes([1, 2, 3, 1, 2, 4]), (b"tRNS", shorts(1, 2, 3)))
    assert read(data) == [WHITE, (1, 2, 4)]


def test_a_transparent_colour_of_sixteen_bits_is_refused_and_not_guessed():
    data = png(1, 16, 2, shorts(0x1234, 0x5678, 0x9ABC), (b"tRNS", shorts(0x1234, 0x5678, 0x9ABD)))
    Path("photo.png").write_bytes(data)
    assert reason("photo.png") == "has a transparent colour of 16 bits, which cannot be read"


def test_a_palette_may_be_half_transparent():
    chunks = [(b"PLTE", bytes([255, 0, 0, 0, 0, 0, 1, 2, 3])), (b"tRNS", bytes([0, 127]))]
    # black of 127 lets through 128 of the white's 255; an entry without alpha is solid
    assert read(png(3, 8, 3, bytes([0, 1, 2]), *chunks)) == [WHITE, (128, 128, 128), (1, 2, 3)]


@pytest.mark.parametrize("name", ["photo.png", "photo.tif"])
def test_sixteen_bit_greys_are_scaled_and_not_clipped(name):
    # 65535 / 257 = 255, 32896 / 257 = 128, 257 / 257 = 1
    grey = picture(row("I;16", 65535, 32896, 257, 0), name)
    assert pixels(grey) == [WHITE, (128,) * 3, (1,) * 3, (0,) * 3]


@pytest.mark.parametrize(
    ("colour", "samples", "expected"),
    [
        (2, (65535, 0x80FF, 257, 0, 0x1200, 255), [(255, 128, 1), (0, 18, 1)]),
        (6, (65535, 0, 0, 65535, 0, 0, 0, 0), [RED, WHITE]),
        (4, (0x12FF, 65535, 0, 0), [(19, 19, 19), WHITE]),  # 4863 / 257 = 18.9
    ],
    ids=["RGB", "RGBA", "grey and alpha"],
)
def test_sixteen_bit_colours_are_scaled_and_laid_on_white(colour, samples, expected):
    assert read(png(2, 16, colour, shorts(*samples))) == expected


@pytest.mark.parametrize(
    ("samples", "tags", "expected"),
    [
        # 16 and 12 bits from nothing to all; 12 bits are two numbers in three bytes
        (np.array([0, 257, 65535], "u2"), {}, [0, 1, 255]),
        (bytes([0xFF, 0xF0, 0x01, 0x80, 0x00, 0x00]), {"bits": 12, "t339": [1]}, [255, 0, 128]),
        # 32 bits go from their smallest to their largest
        (np.array([-10, 0, 10], "i4"), {"t339": [2]}, [0, 128, 255]),
        (np.array([0, 1 << 31, (1 << 32) - 1], "u4"), {}, [0, 128, 255]),
        # signed
        (np.array([-32768, 0, 32767], "i2"), {"t339": [2]}, [0, 128, 255]),
        # 0 is white
        (np.array([0, 1, 255], "u1"), {"t262": [0]}, [255, 254, 0]),
        (np.array([0, 0.2, 1], "f4"), {"t262": [0], "t339": [3]}, [255, 204, 0]),
        # floats from 0 to 1, and others, from the smallest to the largest
        (np.array([0, 0.2, 1], "f4"), {"t339": [3]}, [0, 51, 255]),
        (np.array([1000, 2000, 6000], "f4"), {"t339": [3]}, [0, 51, 255]),
        (np.array([7000, 7000, 7000], "f4"), {"t339": [3]}, [0, 0, 0]),
        # what is not a number
        (np.array([-np.inf, 0.2, np.inf], "f4"), {"t339": [3]}, [0, 51, 255]),
        (np.array([np.nan, np.nan, np.nan], "f4"), {"t339": [3]}, [0, 0, 0]),
    ],
    ids=str,
)
def test_greys_of_a_tiff_are_what_its_tags_say(samples, tags, expected):
    bits = tags.pop("bits", None) or 8 * samples.dtype.itemsize
    data = samples if isinstance(samples, bytes) else samples.tobytes()
    assert read(tiff(3, [bits], data, **tags)) == greys(*expected)


def test_a_premultiplied_colour_is_laid_on_white():
    (half,) = read(tiff(1, [8] * 4, bytes([64, 0, 0, 128]), t262=[2], t338=[1]))
    assert half == pytest.approx((64 + 127, 127, 127), abs=2)


def test_a_format_is_recognized_by_the_content_and_not_by_the_name():
    row("RGB", RED).save("photo.png")
    Path("photo.png").rename("photo.jpg")
    assert pixels(read_images(["photo.jpg"])[0][0].read().pictures[0]) == [RED]


def test_a_source_carries_the_files_own_hash():
    row("RGB", RED).save("photo.png")
    expected = hashlib.sha256(Path("photo.png").read_bytes()).hexdigest()
    assert read_images(["photo.png"])[0][0].read().sha256 == expected


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\0\0\0\x18ftypmp42", "is a video"),
        (b"\0\0\0\x18ftypheic", "is a HEIC picture"),
        (b"%PDF-1.7\n", "is a PDF"),
        (b"SIMPLE  =                    T", "is a FITS picture"),
    ],
)
def test_a_file_of_another_kind_is_named(start, kind):
    Path("holiday.jpg").write_bytes(start + bytes(100))
    said = reason("holiday.jpg")
    assert said.startswith(kind)
    assert ": " in said  # what to do


@pytest.mark.parametrize("kind", ["jpg", "gif", "tif", "webp", "avif", "qoi"])
def test_a_truncated_file_is_skipped_and_no_half_picture_comes_back(kind, cat):
    with Image.open(cat) as image:
        image.convert("RGB").save(f"photo.{kind}")
    data = Path(f"photo.{kind}").read_bytes()
    Path("photo").write_bytes(data[: len(data) // 2])
    said = reason("photo")
    assert said.startswith("cannot be decoded: ") or said == "is not a readable image"
    assert 20 < len(said) < 140


def test_a_truncated_file_is_said_to_be_truncated(cat):
    Path("photo.png").write_bytes(cat.read_bytes()[:9999])
    assert reason("photo.png") == "cannot be decoded: image file is truncated"


def test_a_png_with_a_damaged_chunk_of_pixels_is_skipped(cat):
    data = bytearray(cat.read_bytes())
    data[len(data) // 2] ^= 0xFF
    Path("photo.png").write_bytes(data)
    assert reason("photo.png").startswith("cannot be decoded: ")
    assert "data stream" in reason("photo.png")


def test_what_only_a_programmer_would_understand_is_not_said():
    # Pillow says: invalid literal for int() with base 10: b'x'
    Path("photo.ppm").write_bytes(b"P6 1 x 255\n\0\0\0")
    Path("photo.tif").write_bytes(tiff(1, [8], b"\0", t259=[5]))  # says: decoder error -2
    assert reason("photo.ppm") == reason("photo.tif") == DAMAGED


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder", "is a directory; a folder of frames needs `clip`"),
        ("nowhere/photo.png", "does not exist"),
        ("x" * 300 + ".png", "cannot be read: File name too long"),
        ("fifo", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        (
            "a\0.png",
            "embedded null byte",
        ),  # or, in Python 3.13, "stat: embedded null character in path"
        ("empty.png", "is empty"),
        ("text.jpg", "is not a readable image"),
    ],
    ids=ascii,
)
def test_what_is_no_picture_is_skipped_with_the_reason(name, said):
    Path("folder").mkdir()
    os.mkfifo("fifo")
    Path("empty.png").touch()
    Path("text.jpg").write_text("hello", encoding="utf-8")
    found = reason(name).removeprefix("stat: ").replace("character in path", "byte")
    assert found == said


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


@pytest.mark.parametrize("most", [99, 30])
def test_a_picture_of_too_many_pixels_is_skipped(monkeypatch, most):
    row("L", *range(100)).save("photo.png")
    monkeypatch.setattr(
        Image, "MAX_IMAGE_PIXELS", most
    )  # Pillow warns; from twice as many it raises
    assert reason("photo.png") == "has too many pixels to decode safely"


def test_a_thin_picture_is_read_and_one_without_end_is_skipped():
    assert picture(Image.new("L", (1, 10_000))).size == (1, 10_000)
    Image.new("L", (1, 10_001)).save("photo.png")
    assert reason("photo.png") == "is 1 by 10001 pixels, too thin to show a network"


def test_threads_that_read_pictures_leave_the_filters_of_warnings_as_they_were():
    Image.radial_gradient("L").save("photo.tif")
    data = Path("photo.tif").read_bytes()
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(decode, [io.BytesIO(data) for _ in range(200)]))) == 200
    assert warnings.filters == before


HOSTILE = [b"a b'c\"d.png", b"\x1b[31m\n.png", b"\xff\xfe.png", b"-rf.png", b"x" * 251 + b".png"]


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
    clip("10.png", "1.png", "9.png")
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
