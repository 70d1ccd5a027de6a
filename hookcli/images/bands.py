"""Pictures with other bands than grey and colours, and the readers of files with such pictures.

The packages tifffile and pydicom are imported only for files that Pillow cannot read.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image, TiffImagePlugin

from hookcli.images.intensities import ReadStyle, measure, samples_of, scale, to_bytes
from hookcli.images.undecodable import (
    DECODING_ERRORS,
    INSTALL,
    UndecodableError,
    check_page,
)
from hookcli.records.text import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hookcli.images.intensities import Numbers, Samples
    from hookcli.records.images import Intensities

    Picture: TypeAlias = "Image.Image | BandPicture"

_ROWS = 1 << 20  # values that are scaled at once
_MOST_BYTES = 1 << 30  # of the values of one picture
_SLACK = 1 << 16  # bytes by which compressed data may be larger than its values
_INTENSITIES = (0, 1, 2)  # TIFF's photometric interpretations without a palette or other colours
_SAMPLES, _BITS, _ORIENTATION = 277, 258, 274  # tags of TIFF 6.0
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # the transfer syntax of DICOM whose files can grow
_HEAD = 4096  # bytes in which a DICOM file names its transfer syntax


@dataclass(frozen=True, slots=True)
class BandPicture:
    """A picture of two bands, or of more than three.

    Attributes:
        values: the values (H, W, C) from 0 to 255, not rounded.
    """

    values: NDArray[np.float32]

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height."""
        return self.width, self.height

    @property
    def bands(self) -> int:
        """The number of bands."""
        return int(self.values.shape[2])

    @property
    def width(self) -> int:
        """The width in pixels."""
        return int(self.values.shape[1])

    @property
    def height(self) -> int:
        """The height in pixels."""
        return int(self.values.shape[0])

    def __array__(self, *how: Any, **more: Any) -> NDArray[Any]:
        """Return the values, as numpy does for pictures of Pillow."""
        return np.array(self.values, *how, **more)

    def crop(self, box: tuple[int, int, int, int]) -> BandPicture:
        """Return the part of the picture between left, top, right and bottom."""
        left, top, right, bottom = box
        return BandPicture(self.values[top:bottom, left:right])

    def resize(
        self, size: tuple[int, int], resample: Image.Resampling | None = None
    ) -> BandPicture:
        """Return the picture in another size, resized by Pillow band by band."""
        bands = [Image.fromarray(band) for band in self.values.transpose(2, 0, 1)]
        return BandPicture(
            np.stack([np.asarray(band.resize(size, resample)) for band in bands], -1)
        )


def draw(
    values: NDArray[Any], style: ReadStyle, samples: Samples | None = None
) -> tuple[Picture, Intensities | None]:
    """Return values (H, W, C) as a picture, and the range of its values; None for 8 bits.

    A picture of one or three bands becomes RGB of 8 bits. ``samples`` is the meaning of the values;
    None is that of their dtype.

    Raises:
        NoRangeError: the values have no natural range, and the picture is not alone.
        UndecodableError: a chosen band does not exist.
    """
    check_size(values.shape[1], values.shape[0], values.nbytes)
    if style.bands:
        values = values[:, :, choose_bands(style.bands, values.shape[2])]
    samples = samples or samples_of(values.dtype.kind, 8 * values.dtype.itemsize)
    is_picture = values.shape[-1] in (1, 3)
    made = np.empty(values.shape, np.uint8 if is_picture else np.float32)
    found = None if values.dtype == np.uint8 else measure(lambda: _split(values), samples, style)
    for band, part in zip(_split(values), _split(made), strict=True):
        if found is not None:
            part[:] = (to_bytes if is_picture else scale)(band, found, samples)
        else:
            part[:] = 255 - band if samples.is_white_zero else band
    if not is_picture:
        return BandPicture(made), found
    return Image.fromarray(made if made.shape[-1] == 3 else made[..., 0]).convert("RGB"), found


def choose_bands(bands: Sequence[int], there: int) -> list[int]:
    """Return the chosen bands of a picture as a list.

    Raises:
        UndecodableError: the picture has too few bands.
    """
    if max(bands) >= there:
        raise UndecodableError(
            f"has {count(there, 'band')}, and no band {max(bands)} (counted from 0)"
        )
    return list(bands)


def arrange(pixels: NDArray[Any], wanted: int | None, bands: Sequence[int]) -> NDArray[Any]:
    """Return the pixels (C, H, W) of a tensor file, whose order may be (H, W, C).

    Args:
        pixels: the pixels in the order of the file.
        wanted: how many channels the network takes; None if this is not known.
        bands: the bands to choose; empty for all.
    """
    is_last = wanted is not None and pixels.shape[0] != wanted == pixels.shape[-1]
    if bands:
        is_last = pixels.shape[-1] < pixels.shape[0]
    if is_last:
        pixels = np.ascontiguousarray(np.moveaxis(pixels, -1, 0))
    return pixels[choose_bands(bands, len(pixels))] if bands else pixels


def to_layout(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array (H, W), (C, H, W) or (H, W, C) as (H, W, C): bands are the shorter axis."""
    if values.ndim == 2:
        return values[..., None]
    return values if values.shape[-1] < values.shape[0] else np.moveaxis(values, 0, -1)


def turn(values: Numbers, orientation: int) -> Numbers:
    """Return values (H, W, C) turned upright; ``orientation`` is that of EXIF 2.3."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    return values[::-1] if orientation in (3, 4, 7, 8) else values


def check_size(width: int, height: int, size: int = 0) -> None:
    """Check that a picture is not too large to decode; ``size`` is the bytes of its values.

    Raises:
        DecompressionBombError: it is too large.
    """
    if width * height > (Image.MAX_IMAGE_PIXELS or 0) or size > _MOST_BYTES:
        raise Image.DecompressionBombError


def _split(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield some rows of an array at a time."""
    rows = max(1, _ROWS // max(1, values[:1].size))
    for top in range(0, len(values), rows):
        yield values[top : top + rows]


# Files that Pillow cannot read


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """A picture from a file that Pillow cannot read.

    Attributes:
        values: the upright values (H, W, C).
        samples: the meaning of the values.
        pages: how many pages the file has.
    """

    values: Numbers
    samples: Samples
    pages: int


def read_tiff(file: Any, place: int) -> ArrayFile:
    """Return a page of a TIFF, read by tifffile.

    Raises:
        UndecodableError: tifffile is not installed, or the page cannot be read.
        DecompressionBombError: the page is too large.
    """
    try:
        import tifffile
    except ImportError as error:
        what = _describe_tiff(file)
        raise UndecodableError(f"is a TIFF{what}, which needs tifffile: {INSTALL}") from error
    file.seek(0)
    try:
        with tifffile.TiffFile(file, name="picture") as tiff:
            pages = len(tiff.pages)
            check_page(place, pages)
            page = tiff.pages[place]
            axes, orientation = page.axes, page.tags.get(_ORIENTATION)
            if axes not in ("YX", "YXS", "SYX") or page.photometric not in _INTENSITIES:
                raise UndecodableError(f"is a TIFF of a kind that cannot be read: {axes}")
            check_size(page.imagewidth, page.imagelength, page.nbytes)
            if sum(page.databytecounts) > page.nbytes + _SLACK:  # it might grow without end
                raise UndecodableError("cannot be decoded: its data is damaged")
            values = page.asarray(maxworkers=1)
            bits, is_white_zero = page.bitspersample, page.photometric == 0
    except (tifffile.TiffFileError, AssertionError) as error:
        raise UndecodableError("cannot be decoded: its data is damaged") from error
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        raise UndecodableError(
            "is compressed in a way that needs imagecodecs: pip install imagecodecs"
        ) from error
    values = np.moveaxis(values, 0, -1) if axes == "SYX" else np.atleast_3d(values)
    values = turn(values, 1 if orientation is None else orientation.value)
    samples = samples_of(values.dtype.kind, bits, is_white_zero=is_white_zero)
    return ArrayFile(values, samples, pages)


def _describe_tiff(file: Any) -> str:
    """Return the number of bands in the first page of a TIFF, and their bits, if it tells them."""
    file.seek(0)
    with contextlib.suppress(*DECODING_ERRORS):
        tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(8))
        file.seek(tags.next)
        tags.load(file)
        return f" of {count(tags[_SAMPLES], 'band')} of {tags[_BITS][0]} bits"
    return ""


def read_dicom(file: Any, place: int) -> ArrayFile:
    """Return a frame of a DICOM file, read by pydicom, in the units of the modality.

    Raises:
        UndecodableError: pydicom is not installed, or the frame cannot be read.
        DecompressionBombError: the frame is too large.
    """
    try:
        import pydicom
        from pydicom import pixels
    except ImportError as error:
        raise UndecodableError(f"is a DICOM file, which needs pydicom: {INSTALL}") from error
    file.seek(0)
    if _DEFLATED in file.read(_HEAD):
        raise UndecodableError("is a DICOM file that is compressed as a whole: save it without")
    file.seek(0)
    try:
        data = pydicom.dcmread(file)
        if "PixelData" not in data:
            raise UndecodableError("is a DICOM file without a picture")
        pages, colours = int(data.get("NumberOfFrames") or 1), int(data.SamplesPerPixel)
        check_page(place, pages)
        check_size(data.Columns, data.Rows, data.Columns * data.Rows * colours * 8)
        values = pixels.pixel_array(data, index=place)
        kind = str(data.PhotometricInterpretation)
        bits = int(data.BitsStored)
        if kind == "PALETTE COLOR":
            values = pixels.apply_color_lut(values, data)
            kind, bits = values.dtype.kind, 8 * values.dtype.itemsize
        slope, shift = data.get("RescaleSlope", 1), data.get("RescaleIntercept", 0)
        is_raw = "ModalityLUTSequence" not in data and (slope, shift) == (1, 0)
        if not is_raw:
            values = pixels.apply_modality_lut(values, data)
    except pydicom.errors.InvalidDicomError as error:
        raise UndecodableError("cannot be decoded: its data is damaged") from error
    letter = values.dtype.kind if is_raw else "i"
    samples = samples_of(letter, bits, is_white_zero=kind == "MONOCHROME1")
    return ArrayFile(np.atleast_3d(values), samples, pages)
