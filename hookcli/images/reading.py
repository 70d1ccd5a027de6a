"""Files as the user names them: images, clips in folders, tensors; each with a key of its own."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from hookcli.files import safe_name
from hookcli.images.decoding import UndecodableError, decode
from hookcli.results import SkippedImage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from PIL import Image

_TENSORS = (".npy", ".safetensors")
# of a header that is not what numpy writes, or that promises more than memory holds
_NPY_ERRORS = (
    ValueError, TypeError, EOFError, OSError, SyntaxError, ArithmeticError, MemoryError, TokenError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image of a run: pictures, or pixels that are used as they are.

    Attributes:
        key: safe as a file name, unique in the run.
        file: as the user gave it; a row of a tensor file has its number after it.
        sha256: of the file's bytes; of a clip, of its frames' bytes one after the other.
        pictures: upright, RGB, 8 bits a channel: one, or the frames of a clip.
        pixels: (C, H, W) floats from a tensor file; None for pictures.
        frame_count: how many pictures an animated file, or a folder, holds.
    """

    key: str
    file: str
    sha256: str
    pictures: tuple[Image.Image, ...] = ()
    pixels: NDArray[Any] | None = None
    frame_count: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        if self.pixels is not None:
            return int(self.pixels.shape[-1]), int(self.pixels.shape[-2])
        return self.pictures[0].size


def read_images(
    files: Sequence[str], *, clip_frames: int = 0
) -> tuple[list[ImageSource], list[SkippedImage]]:
    """Decode ``files`` in order; what cannot be used comes back as skipped, with the reason.

    Args:
        files: images, tensor files (``.npy``, ``.safetensors``: a row an image) and, with
            ``clip_frames``, folders.
        clip_frames: how many frames of a folder are read, at even distances; 0 refuses folders.
    """
    sources: list[ImageSource] = []
    skipped: list[SkippedImage] = []
    keys: set[str] = set()
    for file in files:
        try:
            read = _read(file, clip_frames)
            sources += [replace(each, key=_unique_key(each.key, keys)) for each in read]
        except FileNotFoundError:
            skipped.append(SkippedImage(file, "does not exist"))
        except OSError as error:
            skipped.append(SkippedImage(file, f"cannot be read: {error.strerror or error}"))
        except (UndecodableError, ValueError) as error:  # ValueError: a NUL in the name
            skipped.append(SkippedImage(file, str(error)))
    return sources, skipped


def with_frames(source: ImageSource, most: int) -> ImageSource:
    """The same image with up to ``most`` frames, at even distances, if its file is an animation.

    Raises:
        UndecodableError: the first picture could be decoded, and the frames cannot be.
    """
    if len(source.pictures) != 1:
        return source
    try:
        data = Path(source.file).read_bytes()
    except OSError as error:  # gone since it was read first
        raise UndecodableError(f"cannot be read: {error.strerror or error}") from error
    pictures, count = decode(data, most)
    return replace(source, pictures=tuple(pictures), frame_count=count)


def _read(file: str, clip_frames: int) -> Iterator[ImageSource]:
    """The images in one file.

    Raises:
        UndecodableError: it cannot be used.
        OSError: it cannot be read.
    """
    path = Path(file)
    if path.is_dir():
        if not clip_frames:
            raise UndecodableError("is a directory; a folder of frames needs --clip")
        yield _read_clip(file, clip_frames)
        return
    if path.exists() and not path.is_file():
        raise UndecodableError("is not a regular file")
    data = path.read_bytes()
    if not data:
        raise UndecodableError("is empty")
    digest = hashlib.sha256(data).hexdigest()
    if path.suffix.lower() in _TENSORS:
        for number, pixels in _tensor_rows(path, data):
            yield ImageSource(f"{path.stem}{number}", f"{file}{number}", digest, pixels=pixels)
        return
    pictures, _ = decode(data)
    yield ImageSource(path.stem, file, digest, tuple(pictures))


def _read_clip(file: str, most: int) -> ImageSource:
    """The frames in a folder, by the order of their names."""
    files = sorted(f for f in Path(file).iterdir() if f.is_file() and not f.name.startswith("."))
    if not files:
        raise UndecodableError("is a directory without images")
    number = min(most, len(files))
    chosen = [files[round(i * (len(files) - 1) / max(1, number - 1))] for i in range(number)]
    digest = hashlib.sha256()
    pictures = []
    for frame in chosen:
        data = frame.read_bytes()
        digest.update(data)
        try:
            pictures += decode(data)[0]
        except UndecodableError as error:
            raise UndecodableError(f"has a frame, {frame.name!r}, that {error}") from error
    name = Path(file).resolve().name
    return ImageSource(name, file, digest.hexdigest(), tuple(pictures), frame_count=len(files))


def _tensor_rows(path: Path, data: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """The images (C, H, W) of a tensor file, each with what tells it from the others of the file.

    Raises:
        UndecodableError: it holds no floats of such a shape.
    """
    import numpy as np

    for name, array in _load_arrays(path, data).items():
        if not np.issubdtype(array.dtype, np.floating):
            raise UndecodableError(f"holds {array.dtype}, and pixels are floats")
        if array.ndim not in (3, 4) or 0 in array.shape:
            shape = "x".join(str(length) for length in array.shape) or "scalar"
            raise UndecodableError(f"holds a {shape} tensor, not (C, H, W) or (N, C, H, W)")
        if array.ndim == 3:
            yield name, array
            continue
        for row, pixels in enumerate(array):
            yield (f"{name}[{row}]" if len(array) > 1 else name), pixels


def _load_arrays(path: Path, data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in a file by what follows the file's name; one alone follows with nothing."""
    import numpy as np

    if path.suffix.lower() == ".npy":
        try:
            return {"": np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)}
        except _NPY_ERRORS as error:
            raise UndecodableError("is not a .npy file of numbers") from error
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UndecodableError(f"is not a safetensors file that numpy can hold: {error}") from error
    if not arrays:
        raise UndecodableError("holds no tensors")
    return {f":{name}" if len(arrays) > 1 else "": array for name, array in arrays.items()}


def _unique_key(name: str, keys: set[str]) -> str:
    stem = safe_name(name)
    key, number = stem, 2
    while key.lower() in keys:
        key = f"{stem}-{number}"
        number += 1
    keys.add(key.lower())
    return key
