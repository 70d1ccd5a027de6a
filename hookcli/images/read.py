"""Reading the files that the user named: pictures, clips in folders, and tensors."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.files import NotRegularError, open_regular, read_regular
from hookcli.images import remote
from hookcli.images.decode import UndecodableError, decode
from hookcli.images.keys import KeyMaker
from hookcli.images.tensor_files import TENSOR_SUFFIXES, tensor_rows
from hookcli.records.frames import spread_evenly
from hookcli.records.images import SkippedImage
from hookcli.store.places import storage
from hookcli.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedReader

    from PIL import Image

    from hookcli.images.tensor_files import Pixels


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image of a run: pictures, or pixels that are used unchanged.

    Attributes:
        key: the image's key, safe as a file name and unique in the run.
        file: the file as the user gave it; for a row of a tensor file, followed by the row.
        sha256: the hash of the file's bytes; for a clip, of its frames' bytes in order.
        size: the width and height.
        pictures: the upright pictures, RGB with 8 bits per channel: one, or the frames of a clip.
        pixels: the floats (C, H, W) from a tensor file; None for pictures.
        frame_count: how many pictures an animated file or a folder holds.
        ready: the pixels that the model is given, if the pictures are no longer kept.
        note: what the pictures were turned into for the model, if they are not used as they are.
        row: what identifies the image in a tensor file; empty for other files.
    """

    key: str
    file: str
    sha256: str
    size: tuple[int, int]
    pictures: tuple[Image.Image, ...] = ()
    pixels: Pixels | None = None
    frame_count: int = 1
    ready: Pixels | None = None
    note: str = ""
    row: str = ""

    @property
    def path(self) -> str:
        """The file, without the row."""
        return self.file.removesuffix(self.row)


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image that is read when it is needed.

    Attributes:
        key: the image's key, safe as a file name and unique in the run.
        file: the file as it was found.
        row: what identifies the image in a tensor file; empty for other files.
    """

    key: str
    file: str
    row: str = ""

    @property
    def path(self) -> str:
        """The file, without the row."""
        return self.file

    @property
    def name(self) -> str:
        """The file and the row, as they are shown to people."""
        return f"{self.file}{self.row}"

    def read(self) -> ImageSource:
        """Read the image.

        Raises:
            UndecodableError: the image cannot be used.
        """
        for source in _read_or_refuse(self.file, 0):
            if source.file == self.name:
                return replace(source, key=self.key)
        raise UndecodableError("has changed: the row is no longer there")


def list_images(files: Sequence[str]) -> list[ImageFile]:
    """Return one image per file, or per row of a tensor file, in order; no picture is decoded."""
    images: list[ImageFile] = []
    keys = KeyMaker()
    for file in files:
        rows = [""]
        if _is_tensor_file(file):
            with contextlib.suppress(UndecodableError):
                rows = [source.file.removeprefix(file) for source in _read_or_refuse(file, 0)]
        stem = Path(file).stem
        for row in rows:
            name = Path(f"{stem}{row}").name  # a tensor's name may contain a slash
            images.append(ImageFile(keys.make_key(name), file, row))
    return images


def read_images(
    files: Sequence[str], *, clip_frames: int = 0
) -> tuple[list[ImageSource], list[SkippedImage]]:
    """Decode ``files`` in order; return the images, and what cannot be used with the reasons.

    Args:
        files: images, tensor files (``.npy`` and ``.safetensors``, with one image per row) and,
            with ``clip_frames``, folders.
        clip_frames: how many frames of a folder are read, at even distances; 0 refuses folders.
    """
    sources: list[ImageSource] = []
    skipped: list[SkippedImage] = []
    keys = KeyMaker()
    for file in files:
        try:
            read = _read_or_refuse(file, clip_frames)
            sources += [replace(each, key=keys.make_key(each.key)) for each in read]
        except UndecodableError as error:
            skipped.append(SkippedImage(file, str(error)))
    return sources, skipped


def _read_or_refuse(file: str, clip_frames: int) -> Iterator[ImageSource]:
    """Yield the images in one file.

    Raises:
        UndecodableError: the file cannot be read or used.
        OutputError: its storage cannot be reached.
    """
    try:
        yield from _read(file, clip_frames)
    except FileNotFoundError as error:
        raise UndecodableError("does not exist") from error
    except NotRegularError as error:
        raise UndecodableError("is not a regular file") from error
    except storage.StorageError as error:
        raise remote.storage_error(file, error) from error
    except OSError as error:
        raise _cannot_read(error) from error
    except ValueError as error:  # the name contains a NUL
        raise UndecodableError(str(error)) from error


def _cannot_read(error: OSError) -> UndecodableError:
    return UndecodableError(f"cannot be read: {error.strerror or error}")


def with_frames(source: ImageSource, most: int) -> ImageSource:
    """Return the image with up to ``most`` frames at even distances, if its file is an animation.

    Raises:
        UndecodableError: the first picture could be decoded, but the frames cannot.
    """
    if len(source.pictures) != 1:
        return source
    try:
        with _open(source.file) as stream:
            pictures, count = decode(stream, most)
    except OSError as error:  # the file was removed after it was first read
        raise _cannot_read(error) from error
    return replace(source, pictures=tuple(pictures), frame_count=count)


def _read(file: str, clip_frames: int) -> Iterator[ImageSource]:
    """Yield the images in one file.

    Raises:
        UndecodableError: the file cannot be used.
        OSError: the file cannot be read.
    """
    path = Path(file)
    if remote.is_folder(file) if is_url(file) else path.is_dir():
        if not clip_frames:
            raise UndecodableError("is a directory; a folder of frames needs --clip")
        yield _read_clip(file, clip_frames)
    elif _is_tensor_file(file):
        digest, rows = _read_tensor_file(file, *find_state(file))
        for row, pixels in rows:
            size = pixels.shape[-1], pixels.shape[-2]
            key, name = f"{path.stem}{row}", f"{file}{row}"
            yield ImageSource(key, name, digest, size, pixels=pixels, row=row)
    else:
        sha256 = hashlib.sha256()
        pictures = _read_pictures(file, sha256)
        yield ImageSource(path.stem, file, sha256.hexdigest(), pictures[0].size, pictures)


def holds_pixels(source: ImageSource | ImageFile) -> bool:
    """Return whether an image is exact pixels, of a tensor file, and no picture."""
    if isinstance(source, ImageFile):
        return _is_tensor_file(source.file)
    return source.pixels is not None


def _is_tensor_file(file: str) -> bool:
    return Path(file).suffix.lower() in TENSOR_SUFFIXES


@functools.lru_cache(maxsize=1)  # consecutive calls read rows of one file
def _read_tensor_file(
    file: str, _size: int, _mtime_ns: int
) -> tuple[str, list[tuple[str, Pixels]]]:
    data = storage.read_file(file) if is_url(file) else read_regular(file)
    if not data:
        raise UndecodableError("is empty")
    return hashlib.sha256(data).hexdigest(), list(tensor_rows(Path(file), data))


def _open(file: str) -> BufferedReader | io.BytesIO:
    """Open a picture; one in a storage is read at once.

    Raises:
        OSError: the file cannot be read.
    """
    return io.BytesIO(storage.read_file(file)) if is_url(file) else open_regular(file)


def find_state(file: str) -> tuple[int, int]:
    """Return the size of a file, and when it was changed in ns since 1970.

    Raises:
        OSError: there is no such file.
    """
    if is_url(file):
        return storage.find_state(file)
    facts = os.stat(file)  # noqa: PTH116  names may not be UTF-8
    return facts.st_size, facts.st_mtime_ns


def hash_image(file: str) -> str:
    """Return the sha256 of a file, in hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    with _open(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_pictures(file: str, sha256: hashlib._Hash) -> tuple[Image.Image, ...]:
    """Return the picture in a file, and add its bytes to ``sha256``.

    The file is read twice, first for the hash, since it may be large.

    Raises:
        UndecodableError: the file cannot be used, or was changed after it was hashed.
    """
    with _open(file) as stream:
        before = _state(stream)
        hashlib.file_digest(stream, lambda: sha256)
        if not stream.seek(0, io.SEEK_END):
            raise UndecodableError("is empty")
        pictures, _ = decode(stream)
        if _state(stream) != before:
            raise UndecodableError("was changed while it was read")
    return tuple(pictures)


def _state(stream: BufferedReader | io.BytesIO) -> tuple[int, int] | None:
    if isinstance(stream, io.BytesIO):
        return None
    facts = os.fstat(stream.fileno())
    return facts.st_size, facts.st_mtime_ns


def _list_frames(folder: str) -> list[str]:
    """Return the files in a folder, sorted by name, without hidden ones."""
    inside = sorted(Path(folder).iterdir())
    return [str(file) for file in inside if file.is_file() and not file.name.startswith(".")]


def _read_clip(file: str, most: int) -> ImageSource:
    """Return the frames in a folder, in the order of their names."""
    files = list(remote.list_frames(file)) if is_url(file) else _list_frames(file)
    if not files:
        raise UndecodableError("is a directory without images")
    chosen = spread_evenly(len(files), min(most, len(files)))
    sha256 = hashlib.sha256()
    pictures: list[Image.Image] = []
    for frame in (files[place] for place in chosen):
        try:
            pictures += _read_pictures(frame, sha256)
        except UndecodableError as error:
            name = Path(frame).name
            raise UndecodableError(f"has a frame, {name!r}, that {error}") from error
    name = Path(file).name if is_url(file) else Path(file).resolve().name
    return ImageSource(
        name, file, sha256.hexdigest(), pictures[0].size, tuple(pictures), frame_count=len(files)
    )
