"""Read tensor files (``.npy``, ``.safetensors``), and check, split and name the images in them."""

from __future__ import annotations

import io
from tokenize import TokenError
from typing import TYPE_CHECKING, TypeAlias

from hookcli.images.style import DECODING_ERRORS, UndecodableError
from hookcli.outside.files import natural_key
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Pixels: TypeAlias = NDArray[np.generic]  # (C, H, W) or (H, W, C)

TENSOR_SUFFIXES = (".npy", ".safetensors")


def tensor_rows(path: Path, data: bytes) -> Iterator[tuple[str, Pixels]]:
    """Yield the name and values of each image: (C, H, W) or (H, W, C); integers may be (H, W).

    If the file has several tensors, the name begins with ``:`` and the tensor's name. If the tensor
    has several images, the name ends with the row, such as ``[3]``. Otherwise, the name is empty.
    """
    for name, array in _load_arrays(path, data).items():
        if array.dtype.kind not in "biuf":
            raise UndecodableError(f"holds {array.dtype}, and pixels are numbers")
        if array.ndim not in ((3, 4) if array.dtype.kind == "f" else (2, 3, 4)) or 0 in array.shape:
            shape = shape_text(array.shape)
            raise UndecodableError(f"holds a {shape} tensor, not (C, H, W) or (N, C, H, W)")
        images = array if array.ndim == 4 else array[None]
        for row, pixels in enumerate(images):
            yield (f"{name}[{row}]" if len(images) > 1 else name), pixels


def _load_arrays(path: Path, data: bytes) -> dict[str, Pixels]:
    """Return a file's arrays by names such as ``:left``; a single array has an empty name."""
    import numpy as np

    if path.suffix.lower() == ".npy":
        try:
            return {"": np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)}
        except (*DECODING_ERRORS, TokenError) as error:
            raise UndecodableError("is not a .npy file of numbers") from error
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UndecodableError(f"is not a safetensors file that numpy can hold: {error}") from error
    if not arrays:
        raise UndecodableError("holds no tensors")
    names = sorted(arrays, key=natural_key)  # safetensors' own order differs between processes
    return {f":{name}" if len(names) > 1 else "": arrays[name] for name in names}
