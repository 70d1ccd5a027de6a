"""Read named files (pictures, pages, clips, tensor files), hash them, and make unique keys."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.images.decode import decode
from hookcli.images.filesystems import choose_filesystem
from hookcli.images.style import (
    COLOURS,
    PLAIN,
    NoRangeError,
    ReadStyle,
    UndecodableError,
    check_shared,
)
from hookcli.images.tensor_files import TENSOR_SUFFIXES, tensor_rows
from hookcli.outside.files import NotRegularError, safe_name
from hookcli.outside.urls import HELD
from hookcli.records.images import FileState, SkippedImage, join_intensities, spread_evenly
from hookcli.store.locations.names import portable_name
from hookcli.store.locations.storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.images.decode import Decoded, Picture
    from hookcli.images.tensor_files import Pixels
    from hookcli.records.images import Intensities


@dataclass(frozen=True, slots=True)
class ImageContent:
    sha256: str  # of the file's bytes or, for a clip, of the bytes of all frames
    size: tuple[int, int]  # width and height
    pictures: tuple[Picture, ...] = ()  # upright: one, a pair, or the frames of a clip
    pixels: Pixels | None = None  # floats (C, H, W) or (H, W, C) from a tensor file
    frame_count: int = 1  # of an animated file or a folder
    ready: Pixels | None = None  # the model's pixels (C, …), if they replace the pictures
    note: str = ""  # how ``ready`` was made: a clip, a pair, a part of the picture
    pages: int = 1  # in the file, if only its first page was read
    intensities: Intensities | None = None  # None for values of 8 bits

    @property
    def bands(self) -> int:
        """The number of bands of the picture; a grey picture counts as three."""
        return getattr(self.pictures[0], "bands", COLOURS) if self.pictures else COLOURS


@dataclass(frozen=True, slots=True)
class ImageSource:
    key: str  # safe as a file name, and unique in the run
    file: str  # path or URL; for a clip, of the folder of frames
    row: str = ""  # in a file of several images, such as ``[3]`` (a row or a page) or ``:name``
    kept: ImageContent | None = None  # if None, the file is read whenever it is needed
    style: ReadStyle = PLAIN
    is_picture: bool = True  # as is a tensor file of integers

    @property
    def name(self) -> str:
        return f"{_name(self.file)}{self.row}"

    def read(self) -> ImageContent:
        if self.kept is not None:
            return self.kept
        rows = _read_or_refuse(self.file, 0, self.style)
        content = next((each.kept for each in rows if each.row == self.row), None)
        if content is None:
            raise UndecodableError("has changed: the row is no longer there")
        return content

    def state(self, *, verify: bool = False) -> FileState:
        if self.kept is not None:
            return FileState(self.name, sha256=self.kept.sha256)
        return file_state(self.file, verify=verify)


def _name(file: str) -> str:
    return Path(file).stem if file.startswith(HELD) else file


def _make_key(name: str, taken: dict[str, int]) -> str:
    """Make a unique key from ``name`` that is safe as a file name: add ``-2``, … if it is taken.

    ``taken`` maps each key in use, in lower case, to the next number to try; the new key is added.
    """
    stem = safe_name(name)
    key, number = portable_name(stem), taken.get(stem.lower(), 2)
    while key.lower() in taken:
        key, number = portable_name(f"{stem}-{number}"), number + 1
    taken[key.lower()] = 2
    taken[stem.lower()] = number
    return key


def list_images(files: Sequence[str], style: ReadStyle = PLAIN) -> list[ImageSource]:
    """Return the images in ``files`` without their pixels.

    A file may have several images: the rows of its tensors, or the pages that ``style`` chooses.
    """
    images: list[ImageSource] = []
    taken: dict[str, int] = {}
    for file in files:
        found = [ImageSource(Path(file).stem, file, style=style)]
        with contextlib.suppress(UndecodableError, OSError, ValueError):
            if _is_tensor_file(file):
                rows = _read_or_refuse(file, 0, replace(style, is_alone=True))
                found = [replace(each, kept=None, style=style) for each in rows]
            elif style.page is not None:
                found = list(_list_pages(file, style))
        # A tensor's name may contain a slash.
        images += [replace(each, key=_make_key(Path(each.key).name, taken)) for each in found]
    return images


def read_images(
    files: Sequence[str], *, clip_frames: int = 0, style: ReadStyle = PLAIN
) -> tuple[list[ImageSource], list[SkippedImage]]:
    sources: list[ImageSource] = []
    skipped: list[SkippedImage] = []
    taken: dict[str, int] = {}
    for file in files:
        try:
            read = _read_or_refuse(file, clip_frames, style)
            sources += [replace(each, key=_make_key(each.key, taken)) for each in read]
        except NoRangeError:
            raise
        except UndecodableError as error:
            skipped.append(SkippedImage(_name(file), str(error)))
    return sources, skipped


def file_state(file: str, *, verify: bool = False) -> FileState:
    # A file that cannot be read has the state of a missing file. A pipe or a device has no hash.
    state = FileState(file)
    try:
        state = FileState(file, *choose_filesystem(file).find_state(file))
        if not verify:
            return state
        with choose_filesystem(file).open_file(file) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return replace(state, sha256=digest)
    except NotRegularError:
        return state
    except StorageError as error:
        raise error.explain(file) from error
    except (OSError, ValueError):
        return FileState(file)


def _read_or_refuse(file: str, clip_frames: int, style: ReadStyle) -> Iterator[ImageSource]:
    try:
        yield from _read(file, clip_frames, style)
    except FileNotFoundError as error:
        raise UndecodableError("does not exist") from error
    except NotRegularError as error:
        raise UndecodableError("is not a regular file") from error
    except StorageError as error:
        raise error.explain(file) from error
    except OSError as error:
        raise UndecodableError(f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # the name contains a NUL
        raise UndecodableError(str(error)) from error


def with_frames(
    file: str, content: ImageContent, most: int, style: ReadStyle = PLAIN
) -> ImageContent:
    if len(content.pictures) != 1 or _is_tensor_file(file):
        return content
    try:
        with choose_filesystem(file).open_file(file) as stream:
            found = decode(stream, most, style)
    except OSError as error:  # the file was removed after it was first read
        raise UndecodableError(f"cannot be read: {error.strerror or error}") from error
    pictures, scaled = tuple(found.pictures), found.intensities
    return replace(content, pictures=pictures, frame_count=found.count, pages=1, intensities=scaled)


def _list_pages(file: str, style: ReadStyle) -> Iterator[ImageSource]:
    stem, pages = Path(file).stem, [style.page]
    if style.page == "all":
        with choose_filesystem(file).open_file(file) as stream:
            count = decode(stream, style=replace(style, is_alone=True)).count
        pages = list(range(count)) if count > 1 else [None]
    for page in pages:
        row = "" if page is None else f"[{page}]"
        yield ImageSource(f"{stem}{row}", file, row, style=replace(style, page=page))


def _read(file: str, clip_frames: int, style: ReadStyle) -> Iterator[ImageSource]:
    stem, filesystem = Path(file).stem, choose_filesystem(file)
    if filesystem.is_folder(file):
        if not clip_frames:
            raise UndecodableError("is a directory; a folder of frames needs `clip`")
        kept = _read_clip(file, clip_frames, style)
        yield ImageSource(filesystem.name_folder(file), file, kept=kept, style=style)
    elif _is_tensor_file(file):
        digest, rows = _read_tensor_file(file, *filesystem.find_state(file))
        for row, pixels in rows:
            content = _read_array(pixels, digest, style)
            is_picture = content.pixels is None
            yield ImageSource(f"{stem}{row}", file, row, content, style, is_picture=is_picture)
    else:
        for source in _list_pages(file, style):
            sha256 = hashlib.sha256()
            found = _read_pictures(file, sha256, source.style)
            pictures, digest = tuple(found.pictures), sha256.hexdigest()
            content = ImageContent(digest, pictures[0].size, pictures, pages=found.count)
            yield replace(source, kept=replace(content, intensities=found.intensities))


def _read_array(array: Pixels, digest: str, style: ReadStyle) -> ImageContent:
    if array.dtype.kind == "f":
        return ImageContent(digest, (array.shape[-1], array.shape[-2]), pixels=array)
    from hookcli.images.intensities import draw, put_bands_last

    picture, found = draw(put_bands_last(array), style)
    return ImageContent(digest, picture.size, (picture,), intensities=found)


def _is_tensor_file(file: str) -> bool:
    return Path(file).suffix.lower() in TENSOR_SUFFIXES


@functools.lru_cache(maxsize=1)  # consecutive calls read rows of one file
def _read_tensor_file(file: str, _size: int, _mtime: int) -> tuple[str, list[tuple[str, Pixels]]]:
    with choose_filesystem(file).open_file(file) as stream:
        data = stream.read()
    if not data:
        raise UndecodableError("is empty")
    return hashlib.sha256(data).hexdigest(), list(tensor_rows(Path(file), data))


def _read_pictures(file: str, sha256: hashlib._Hash, style: ReadStyle) -> Decoded:
    """Hash a file into ``sha256``, and read it again to decode it: it may not fit into memory."""
    with choose_filesystem(file).open_file(file) as stream:
        hashlib.file_digest(stream, lambda: sha256)
        if not stream.seek(0, io.SEEK_END):
            raise UndecodableError("is empty")
        return decode(stream, style=style)


def _read_clip(folder: str, most: int, style: ReadStyle) -> ImageContent:
    files = choose_filesystem(folder).list_frames(folder)
    if not files:
        raise UndecodableError("is a directory without images")
    chosen = spread_evenly(len(files), min(most, len(files)))
    sha256 = hashlib.sha256()
    read: list[Decoded] = []
    for frame in (files[index] for index in chosen):
        try:
            read.append(_read_pictures(frame, sha256, replace(style, is_alone=True)))
        except UndecodableError as error:
            raise UndecodableError(f"has a frame, {Path(frame).name!r}, that {error}") from error
    pictures = tuple(picture for each in read for picture in each.pictures)
    found = [each.intensities for each in read if each.intensities is not None]
    check_shared(found)
    digest, size = sha256.hexdigest(), pictures[0].size
    shared = join_intensities(found)
    return ImageContent(digest, size, pictures, frame_count=len(files), intensities=shared)
