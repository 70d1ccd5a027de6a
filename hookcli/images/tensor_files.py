"""Read tensor files (``.npy``, ``.safetensors``), and check, split and name the images in them."""

from __future__ import annotations

import io
from tokenize import TokenError
from typing import TYPE_CHECKING, TypeAlias

from hookcli.images.style import DECODING_ERRORS, UndecodableError
from hookcli.outside.files import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Pixels: TypeAlias = NDArray[np.generic]  # (C, H, W) or (H, W, C)

TENSOR_SUFFIXES = (".npy", ".safetensors")


def tensor_rows(path: Path, data: bytes) -> Iterator[tuple[str, Pixels]]:
    """Yield each image's name and values: (C, H, W) or (H, W, C); integers may also be (H, W)."""
    # In a file with several tensors, the name begins with ``:`` and the tensor's name. In a tensor
    # of several images, it ends with the row, such as ``[3]``. A single image has no name.
    for name, array in _load_arrays(path, data).items():
        if array.dtype.kind not in "biuf":
            raise UndecodableError(f"holds {array.dtype}, and pixels are numbers")
        if array.ndim not in ((3, 4) if array.dtype.kind == "f" else (2, 3, 4)) or 0 in array.shape:
            shape = "x".join(str(length) for length in array.shape) or "scalar"
            raise UndecodableError(f"holds a {shape} tensor, not (C, H, W) or (N, C, H, W)")
        if array.ndim < 4:
            yield name, array
            continue
        for row, pixels in enumerate(array):
            yield (f"{name}[{row}]" if len(array) > 1 else name), pixels


def _load_arrays(path: Path, data: bytes) -> dict[str, Pixels]:
    """Map ``:NAME`` to each array in a file, or map an empty text to the only array."""
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
    # safetensors' own order differs from process to process
    return {
        f":{name}" if len(arrays) > 1 else "": arrays[name]
        for name in sorted(arrays, key=natural_key)
    }
