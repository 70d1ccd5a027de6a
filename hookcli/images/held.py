"""Check pictures, arrays and tensors that a Python program passes; encode them as image files."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from hookcli.errors import RequestError
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_AS_TIFF = ("CMYK", "F", "I", "LAB")  # PNG has no such pictures
_CONVERTED = {"HSV": "RGB", "RGBX": "RGB", "YCbCr": "RGB", "La": "LA", "PA": "RGBA", "RGBa": "RGBA"}


def encode_images(thing: Any) -> Iterator[tuple[str, bytes]]:
    # An array is a picture (H, W) or (H, W, 3), as bytes or as floats from 0 to 1, which get 8
    # bits. A tensor (N, C, H, W) or (C, H, W) is the network's input, unchanged.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor):
        if thing.is_meta or thing.layout != torch.strided:
            raise _refuse(thing.shape, "no values (meta)" if thing.is_meta else thing.layout)
        if not thing.numel() or not thing.is_floating_point() or thing.ndim not in (3, 4):
            raise _refuse(thing.shape, thing.dtype)
        values = thing.detach().cpu()
        for row in values.float().reshape(-1, *values.shape[-3:]):
            stream = io.BytesIO()
            np.save(stream, row.numpy()[None])
            yield ".npy", stream.getvalue()
        return
    if isinstance(thing, np.ndarray):
        thing = Image.fromarray(_to_bytes(thing))
    if not isinstance(thing, Image.Image):
        hint = "give files, pictures of Pillow, arrays (H, W, 3) or tensors (N, C, H, W)"
        raise RequestError(f"`images` cannot be a {type(thing).__name__}", hint)
    stream, kind = io.BytesIO(), "TIFF" if thing.mode in _AS_TIFF else "PNG"
    try:
        thing = ImageOps.exif_transpose(thing)
        thing = thing.convert(_CONVERTED.get(thing.mode, thing.mode))
        thing.save(stream, kind)
    except (OSError, ValueError, SystemError) as error:
        hint = "give a whole picture"
        raise RequestError(f"`images` has a picture that cannot be read: {error}", hint) from error
    yield f".{kind.lower()}", stream.getvalue()


def _to_bytes(array: Any) -> Any:
    is_picture = array.size and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3))
    if is_picture and array.dtype == np.uint8:
        return array
    if is_picture and array.dtype.kind == "f" and 0 <= array.min() <= array.max() <= 1:
        return np.round(255 * array).astype(np.uint8)
    raise _refuse(array.shape, array.dtype)


def _refuse(shape: Any, dtype: object) -> RequestError:
    return RequestError(
        f"`images` cannot be an array {shape_text(shape)} of {str(dtype).removeprefix('torch.')}",
        "give (H, W) or (H, W, 3) of uint8 or of floats from 0 to 1; a tensor of floats "
        "(N, C, H, W) is the network's own input",
    )
