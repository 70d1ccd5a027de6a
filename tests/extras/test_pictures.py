"""Pictures that only the packages of the extra ``images`` read, against the arrays written."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookcli.images.decode import decode
from hookcli.images.read import read_images
from hookcli.images.style import ReadStyle, UndecodableError

pytestmark = pytest.mark.libraries

RNG = np.random.default_rng(0)
DEEP = RNG.integers(0, 10000, (5, 7, 12)).astype("u2")
RANDOM = ("--weights", "random", "--device", "cpu", "--grids", "none", "--layers", "conv1")


@pytest.fixture
def tiff():
    tifffile = pytest.importorskip("tifffile")

    def write(values, **options):
        stream = io.BytesIO()
        tifffile.imwrite(stream, values, **options)
        return stream

    return write


@pytest.fixture
def dicom():
    pydicom = pytest.importorskip("pydicom")

    def write(values, *, colours="MONOCHROME2", bits=12, frames=1, **tags):
        data = pydicom.Dataset()
        data.file_meta = pydicom.dataset.FileMetaDataset()
        data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
        data.SOPClassUID = data.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2"
        data.SamplesPerPixel = 3 if colours == "RGB" else 1
        *_, data.Rows, data.Columns = values.shape[:-1] if colours == "RGB" else values.shape
        data.PlanarConfiguration, data.PixelRepresentation = 0, int(values.dtype.kind == "i")
        data.BitsAllocated, data.BitsStored = 8 * values.dtype.itemsize, bits
        data.HighBit, data.NumberOfFrames, data.PhotometricInterpretation = (
            bits - 1,
            frames,
            colours,
        )
        for name, value in tags.items():
            setattr(data, name, value)
        data.PixelData = values.tobytes()
        stream = io.BytesIO()
        data.save_as(stream, enforce_file_format=True)
        return stream

    return write


def read(stream, **style):
    found = decode(stream, style=ReadStyle(**style))
    (picture,) = found.pictures
    values = getattr(picture, "values", None)
    return (np.asarray(picture) if values is None else values), found.intensities


@pytest.mark.parametrize(
    "options",
    [
        {"planarconfig": "contig"},
        {"planarconfig": "separate"},
        {"planarconfig": "contig", "byteorder": ">"},
        {"planarconfig": "contig", "bigtiff": True},
    ],
)
def test_all_bands_of_a_tiff_are_read(tiff, options):
    values = DEEP.transpose(2, 0, 1) if options["planarconfig"] == "separate" else DEEP
    made, found = read(tiff(np.ascontiguousarray(values), photometric="minisblack", **options))
    assert made == pytest.approx(DEEP / 257, abs=1e-4)
    assert (found.low, found.high) == (0, 65535)


def test_the_fourth_band_beside_colours_is_not_dropped(tiff):
    made, _ = read(tiff(DEEP[..., :4], photometric="rgb", extrasamples=["unspecified"]))
    assert made.shape == (5, 7, 4)


def test_bands_of_a_tiff_can_be_chosen(tiff):
    stream = tiff(DEEP, photometric="minisblack", planarconfig="contig")
    made, _ = read(stream, bands=(3, 2, 1), range=(0, 10000))
    assert made.tolist() == np.round(DEEP[..., [3, 2, 1]] * 0.0255).tolist()


def test_colours_of_sixteen_bits_in_separate_planes_are_read(tiff):
    stream = tiff(
        np.ascontiguousarray(DEEP[..., :3].transpose(2, 0, 1)),
        photometric="rgb",
        planarconfig="separate",
    )
    assert read(stream)[0].tolist() == np.round(DEEP[..., :3] / 257).tolist()


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_floats_of_every_size_are_read(tiff, dtype):
    values = np.linspace(0, 1, 35).reshape(5, 7).astype(dtype)
    made, _ = read(tiff(values))
    assert made[..., 0].tolist() == np.round(values.astype(float) * 255).tolist()


@pytest.mark.parametrize("dtype", ["i8", "i2", "u4"])
def test_integers_without_a_natural_range_are_read(tiff, dtype):
    made, found = read(tiff(np.arange(35).reshape(5, 7).astype(dtype)))
    assert (found.rule, found.low, found.high, made.max()) == ("own", 0, 34, 255)


def test_a_tiff_of_bands_is_turned_upright(tiff):
    stream = tiff(
        DEEP, photometric="minisblack", planarconfig="contig", extratags=[(274, 3, 1, 6, True)]
    )
    assert read(stream)[0] == pytest.approx(np.rot90(DEEP, -1) / 257, abs=1e-4)


def test_a_tiff_that_claims_too_many_pixels_is_not_read(tiff, monkeypatch):
    stream = tiff(DEEP, photometric="minisblack", planarconfig="contig")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)
    with pytest.raises(UndecodableError, match="has too many pixels"):
        read(stream)


def test_a_tiff_whose_data_would_grow_is_not_read(tiff):
    """A small strip of zeros could become gigabytes."""
    import zlib

    tifffile = pytest.importorskip("tifffile")
    stream = tiff(DEEP, photometric="minisblack", planarconfig="contig", compression="deflate")
    stream.seek(0)
    with tifffile.TiffFile(stream) as opened:
        page = opened.pages[0]
        counts = page.tags["StripByteCounts"]
    bomb = zlib.compress(bytes(1 << 27), 9)
    data = bytearray(stream.getvalue())
    offset = len(data)
    data += bomb
    data[counts.valueoffset : counts.valueoffset + 4] = len(bomb).to_bytes(4, "little")
    offsets = page.tags["StripOffsets"]
    data[offsets.valueoffset : offsets.valueoffset + 4] = offset.to_bytes(4, "little")
    with pytest.raises(UndecodableError, match="its data is damaged"):
        read(io.BytesIO(bytes(data)))


def test_a_scan_is_read_in_the_units_of_its_modality(dicom):
    stream = dicom(np.array([[0, 1024, 4095]], "u2"), RescaleSlope=1, RescaleIntercept=-1024)
    made, found = read(stream, range=(-1024, 3071))
    assert made[0, :, 0].tolist() == [0, 64, 255]
    assert (found.smallest, found.largest) == (-1024, 3071)


@pytest.mark.parametrize(
    ("values", "options", "shown"),
    [
        ([0, 819, 4095], {}, [0, 51, 255]),
        ([0, 819, 4095], {"colours": "MONOCHROME1"}, [255, 204, 0]),
        ([0, 1], {"bits": 1}, [0, 255]),
    ],
)
def test_a_radiograph_without_units_has_the_range_of_its_bits(dicom, values, options, shown):
    made, _ = read(dicom(np.array([values], "u2"), **options))
    assert made[0, :, 0].tolist() == shown


def test_colours_of_a_scan_stay_as_they_are(dicom):
    values = RNG.integers(0, 256, (4, 5, 3)).astype("u1")
    assert read(dicom(values, colours="RGB", bits=8))[0].tolist() == values.tolist()


def test_the_frames_of_a_scan_are_pages(dicom):
    values = np.stack([np.full((2, 2), v, "u2") for v in (0, 819, 4095)])
    Path("scan.dcm").write_bytes(dicom(values, frames=3).getvalue())
    sources, _ = read_images(["scan.dcm"], style=ReadStyle(page="all"))
    assert [s.name for s in sources] == ["scan.dcm[0]", "scan.dcm[1]", "scan.dcm[2]"]
    assert [np.asarray(s.read().pictures[0]).max() for s in sources] == [0, 51, 255]


def test_a_scan_that_claims_too_many_pixels_is_not_read(dicom):
    stream = dicom(np.zeros((2, 2), "u2"), Rows=60000, Columns=60000)
    with pytest.raises(UndecodableError, match="has too many pixels"):
        read(stream)


def test_a_heic_photo_is_read_in_a_folder(run):
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    Path("photos").mkdir()
    Image.new("RGB", (64, 48), (200, 30, 30)).save("photos/a.HEIC", "HEIF", quality=90)
    sources, _ = read_images(["photos/a.HEIC"])
    photo = sources[0].read().pictures[0]
    assert (photo.size, photo.getpixel((9, 9))) == ((64, 48), pytest.approx((200, 30, 30), abs=6))
    assert run("inspect", "resnet18", "photos", *RANDOM)[0] == 0
