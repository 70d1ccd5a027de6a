"""Read pictures that Pillow does not read: TIFF with any number of bands, and DICOM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.images.intensities import samples_of
from hookcli.images.style import INSTALL, UndecodableError, check_page, check_size

if TYPE_CHECKING:
    from hookcli.images.intensities import Array, Samples

_DAMAGED = "cannot be decoded: its data is damaged or in an unknown format"
_SLACK = 1 << 16  # bytes by which compressed data may be larger than its values
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # DICOM's syntax of files that grow when they are read


def read_tiff(file: Any, page: int) -> tuple[Array, Samples, int]:
    """Return upright values (H, W, C), the values that mean black and white, and the page count."""
    try:
        import tifffile
    except ImportError as error:
        what = "is a TIFF of many bands or bits"
        raise UndecodableError(f"{what}, which needs tifffile: {INSTALL}") from error
    try:
        with tifffile.TiffFile(file) as tiff:
            pages = len(tiff.pages)
            check_page(page, pages)
            found = tiff.pages[page]
            axes, turned, kind = found.axes, found.tags.get("Orientation"), int(found.photometric)
            if axes not in ("YX", "YXS", "SYX") or kind > 2:  # 3 and more: not intensities
                raise UndecodableError("is a TIFF with a palette, volumes or other colours")
            check_size(found.imagewidth, found.imagelength, found.samplesperpixel)
            if sum(found.databytecounts) > found.nbytes + _SLACK:  # it might fill the memory
                raise UndecodableError(_DAMAGED)
            values = found.asarray(maxworkers=1)
            bits = found.bitspersample
    except (tifffile.TiffFileError, AssertionError, ValueError) as error:
        needs = "imagecodecs" in str(error)
        reason = "is compressed: pip install imagecodecs" if needs else _DAMAGED
        raise UndecodableError(reason) from error
    values = np.moveaxis(values, 0, -1) if axes == "SYX" else np.atleast_3d(values)
    samples = samples_of(values.dtype.kind, bits, is_white_zero=kind == 0)
    return turn(values, turned.value if turned else 1), samples, pages


def turn(values: Array, orientation: int) -> Array:
    """Turn values (H, W, C) upright; ``orientation`` is the value of the EXIF tag Orientation."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    return values[::-1] if orientation in (3, 4, 7, 8) else values


def read_dicom(file: Any, page: int) -> tuple[Array, Samples, int]:
    """Return values (H, W, C), the values that mean black and white, and the number of frames."""
    try:
        import pydicom
        from pydicom import pixels
    except ImportError as error:
        raise UndecodableError(f"is a DICOM file, which needs pydicom: {INSTALL}") from error
    if _DEFLATED in file.read(4096):
        raise UndecodableError("is a DICOM file that is compressed as a whole")
    file.seek(0)
    try:
        data = pydicom.dcmread(file)
        if "PixelData" not in data:
            raise UndecodableError("is a DICOM file without a picture")
        frames = int(data.get("NumberOfFrames") or 1)
        check_page(page, frames)
        check_size(int(data.Columns), int(data.Rows), int(data.SamplesPerPixel))
        values = pixels.pixel_array(data, index=page)
        kind, bits = values.dtype.kind, int(data.BitsStored)
        colours = data.PhotometricInterpretation
        if colours == "PALETTE COLOR":
            values = pixels.apply_color_lut(values, data)
            kind, bits = values.dtype.kind, 8 * values.dtype.itemsize
        scaling = data.get("RescaleSlope", 1), data.get("RescaleIntercept", 0)
        if "ModalityLUTSequence" in data or scaling != (1, 0):
            values, kind = pixels.apply_modality_lut(values, data), "i"
    except pydicom.errors.InvalidDicomError as error:
        raise UndecodableError(_DAMAGED) from error
    if bits < 8:  # bytes would count as values of 8 bits
        values = values.astype(np.uint16)
    samples = samples_of(kind, bits, is_white_zero=colours == "MONOCHROME1")
    return np.atleast_3d(values), samples, frames
