"""Large pictures are converted band by band, in little memory, to the same bits as whole ones."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps, TiffImagePlugin

from hookcli.config import ModelRequest
from hookcli.images import decode as decoding
from hookcli.images import rgb
from hookcli.images.decode import decode
from hookcli.images.fit import Fitter
from hookcli.images.prepare import prepare_image, release_pictures
from hookcli.images.read import read_images
from hookcli.networks.load import build_skeleton

SIZE = (37, 53)  # of a whole number of bands in no direction
RNG = np.random.default_rng(0)
ORIENTATIONS = (1, 6)


def whole(image):
    """Return the picture converted as a whole, without bands."""
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        return deep(np.asarray(image))
    if image.mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return image.convert("RGB")


def deep(values):
    """A grey of more than 8 bits, from its type or its own smallest and largest number."""
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    if values.dtype.kind == "f" and 0 <= low <= high <= 1:
        low, high = 0, 1
    elif values.dtype.kind == "u":
        low, high = 0, 65535
    scaled = (values.astype(float) - low) * 255 / (high - low)
    grey = np.nan_to_num(scaled, nan=0, posinf=255, neginf=0).round().clip(0, 255).astype("u1")
    return Image.fromarray(grey).convert("RGB")


def noise(*shape, dtype="u1"):
    return RNG.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def plane(size=SIZE, dtype="u1"):
    return Image.fromarray(noise(size[1], size[0], dtype=dtype))


def bands_of(mode, size=SIZE):
    return Image.merge(mode, [plane(size) for _ in Image.new(mode, (1, 1)).getbands()])


def palette(mode="RGB", size=SIZE):
    image = plane(size).convert("P")
    image.putpalette(noise(256 * len(mode)).tobytes(), mode)
    return image


def floats(low, high, *odd):
    values = RNG.uniform(low, high, SIZE[::-1]).astype("f4")
    values.flat[: len(odd)] = odd
    return Image.fromarray(values)


def with_info(image, **info):
    image.info |= info
    return image


PICTURES = {
    "1": lambda: plane().convert("1"),
    "L": plane,
    "L, transparent": lambda: with_info(plane(), transparency=7),
    "LA": lambda: bands_of("LA"),
    "La": lambda: bands_of("LA").convert("La"),
    "P": palette,
    "P, of an RGBA palette": lambda: palette("RGBA"),
    "P, one transparent": lambda: with_info(palette(), transparency=9),
    "P, each half transparent": lambda: with_info(palette(), transparency=bytes(range(256))),
    "RGB": lambda: bands_of("RGB"),
    "RGB, transparent": lambda: with_info(
        bands_of("RGB").quantize(9).convert("RGB"), transparency=(1, 2, 3)
    ),
    "RGBA": lambda: bands_of("RGBA"),
    "RGBa": lambda: bands_of("RGBA").convert("RGBa"),
    "CMYK": lambda: bands_of("CMYK"),
    "LAB": lambda: bands_of("LAB"),
    "I;16": lambda: plane(dtype="u2"),
    "I;16B": lambda: plane(dtype="u2").convert("I").convert("I;16B"),
    "I": lambda: plane(dtype="i4"),
    "F, from 0 to 1": lambda: floats(0, 1),
    "F": lambda: floats(-3, 9, np.nan, np.inf, -np.inf),
}


@pytest.fixture
def thin_bands(monkeypatch):
    """Bands of eight rows of a picture of 37 columns, so that the last band is not a whole one."""
    monkeypatch.setattr(rgb, "BAND", 37 * 8 + 1)


def to_upright_rgb(image):
    image.load()
    return decoding._turn(rgb.to_rgb(image)[0], image.getexif().get(274, 1))


def turned(image, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return with_info(image, exif=exif.tobytes())


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_in_bands_has_the_bits_of_the_whole_one(kind, thin_bands):
    for orientation in ORIENTATIONS:
        image = turned(PICTURES[kind](), orientation)
        expected, before = whole(image), image.copy()
        made = to_upright_rgb(image)
        assert (made.mode, made.size) == ("RGB", SIZE if orientation < 5 else SIZE[::-1])
        assert made.tobytes() == expected.tobytes(), orientation
        assert (image.mode, image.tobytes()) == (before.mode, before.tobytes())
    assert kind.partition(",")[0] == image.mode


def file_of(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF"])
def test_each_frame_in_bands_has_the_bits_of_the_whole_frame(kind, thin_bands):
    still = [bands_of("RGBA") for _ in range(4)]
    data = file_of(still[0], kind, save_all=True, append_images=still[1:])
    with Image.open(io.BytesIO(data)) as image:
        expected = []
        for at in (0, 2, 3):  # three at even distances, of four
            image.seek(at)
            expected.append(whole(image).tobytes())
    for count in (3, 1):
        found = decode(io.BytesIO(data), count).pictures
        assert [image.tobytes() for image in found] == expected[:count]


def test_libtiff_is_not_given_the_number_of_a_file_that_it_would_map(monkeypatch):
    """If a mapped file is truncated, the process is killed; only very large files are mapped."""
    Path("photo.tif").write_bytes(file_of(bands_of("RGBA"), "TIFF", compression="tiff_lzw"))
    asked = []
    before = TiffImagePlugin.TiffImageFile._load_libtiff

    def load(image):
        try:
            asked.append(os.fstat(image.fp.fileno()).st_size)
        except OSError:
            asked.append(None)
        return before(image)

    monkeypatch.setattr(TiffImagePlugin.TiffImageFile, "_load_libtiff", load)
    ((small,), _) = read_images(["photo.tif"])
    monkeypatch.setattr(decoding, "_MOST_READ", 1000)
    ((large,), _) = read_images(["photo.tif"])
    assert asked == [None, Path("photo.tif").stat().st_size]
    assert small.read().pictures[0].tobytes() == large.read().pictures[0].tobytes()


def test_what_is_kept_instead_of_a_picture_gives_the_same_pixels_each_time(cat):
    loaded = build_skeleton(ModelRequest("resnet18"))
    fitter = Fitter(loaded.prepare)
    ((source,), _) = read_images([str(cat)])
    before = prepare_image(fitter, source)
    ((kept,), _) = release_pictures(fitter, [source])
    first = prepare_image(fitter, kept)
    first.pixels.zero_()  # a model may write over its input
    again = prepare_image(fitter, kept)
    assert (kept.kept.pictures, again.size) == ((), (451, 300))
    assert torch.equal(again.pixels, before.pixels)
    assert again.pixels.stride() == before.pixels.stride()
    assert replace(again, pixels=None) == replace(before, pixels=None)


SIDE = 9400  # of the largest square that Pillow opens without a warning
MOST = 1_400_000_000  # bytes
LARGE = {
    "LA.tif": lambda level: Image.merge("LA", [level, level]),
    "RGBA.webp": lambda level: Image.merge("RGBA", [level] * 4),
    "CMYK.jpg": lambda level: Image.merge("CMYK", [level] * 4),
    "P.png": lambda level: level.convert("P"),
    "I16.png": lambda level: level.convert("I").convert("I;16"),
    "F.tif": lambda level: level.convert("F"),
}


# a small process between, since a child's peak counts what its parent had when it began
LAUNCH = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [*((name, ()) for name in LARGE), ("LA.tif", ("--focus", "4000,4000,900,900"))],
)
def test_the_largest_picture_of_any_mode_and_turn_takes_little_memory(name, more):
    image = LARGE[name](Image.linear_gradient("L").resize((SIDE, SIDE)))
    options: dict[str, object] = {"transparency": bytes(range(256))} if name == "P.png" else {}
    options |= {"method": 0} if name.endswith("webp") else {}
    tags = {"tiffinfo": {274: 5}} if name.endswith("tif") else {"exif": exif_of(6)}
    image.save(name, **options, **tags)
    words = ["inspect", "resnet18", name, "--layers", "conv[1]", "--weights", "random", "-q", *more]
    command = [sys.executable, "-c", LAUNCH, sys.executable, "-m", "hookcli", *words]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    code, peak = map(int, ended.stdout.split())
    assert code == 0
    assert peak * (1 if sys.platform == "darwin" else 1024) < MOST
