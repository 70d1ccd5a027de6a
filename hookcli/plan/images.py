"""The images that a request names, found before torch is imported."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli.images.find import find_files
from hookcli.images.fit import require_image
from hookcli.images.read import list_images, read_images
from hookcli.images.style import COLOURS, NoRangeError, ReadStyle, UndecodableError, check_shared
from hookcli.records.frames import CLIP_FRAMES
from hookcli.store.places.storage import use_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import RunRequest
    from hookcli.images.read import ImageContent, ImageSource
    from hookcli.outside.urls import Place
    from hookcli.records.images import SkippedImage

# If there are at most this many images, they are read before the model is loaded, so that a bad one
# is reported early.
_MOST_READ_FIRST = 8
_DEEP = (".tif", ".tiff", ".npy", ".dcm", ".fits", ".fit", ".exr", ".pfm")


@dataclass(frozen=True, slots=True)
class FoundImages:
    """The images that a request names.

    Attributes:
        sources: the images in order; if there are only a few, they already hold their content.
        skipped: the named images that cannot be used.
        bands: how many bands the first picture has; a grey picture counts as three.
    """

    sources: list[ImageSource]
    skipped: list[SkippedImage]
    bands: int = COLOURS


def find_images(
    request: RunRequest,
    leave_out: Place | None = None,
    storage: tuple[tuple[str, str], ...] = (),
) -> FoundImages:
    """Find the images, and also read their content if they are few or a clip.

    Files in the folder ``leave_out`` are not used as images. From this call on, the process opens
    URLs with the options ``storage``.

    Raises:
        RequestError: a list of names cannot be read, or the values of several pictures have no
            natural range.
        NoImageError: there is no image.
    """
    use_options(storage)
    images = request.images
    files, skipped = find_files(
        images.names,
        recursive=images.recursive,
        null_separated=images.null_separated,
        keep_folders=images.clip,
        leave_out=leave_out,
    )
    style = ReadStyle(images.range, request.model.bands, images.page)
    try:
        if len(files) <= _MOST_READ_FIRST or images.clip:
            sources, unread = read_images(files, clip_frames=CLIP_FRAMES * images.clip, style=style)
            skipped += unread
        else:
            sources = list_images(files, replace(style, is_alone=False))
    except NoRangeError as error:  # of a clip's frames
        raise error.refuse(images.names[0]) from error
    require_image(sources, skipped)
    read = _read_some(sources)
    ranges = {
        source.name: content.intensities
        for source, content in zip(sources, read, strict=False)
        if content and content.intensities
    }
    if len(sources) > 1 or images.pair is not None:
        try:
            check_shared([*ranges.values()])
        except NoRangeError as error:
            first = next(name for name, each in ranges.items() if each.rule == "own")
            raise error.refuse(first) from error
    return FoundImages(sources, skipped, next((each.bands for each in read if each), COLOURS))


def _read_some(sources: Sequence[ImageSource]) -> list[ImageContent | None]:
    """Return the content of the first images; None for an image that cannot be used.

    Of images that are not in memory, only the first is read, and then those whose format may hold
    values without a natural range.
    """
    read: list[ImageContent | None] = []
    for place, source in enumerate(sources[:_MOST_READ_FIRST]):
        content = None
        if place and source.kept is None and not source.name.lower().endswith(_DEEP):
            read.append(None)
            continue
        with contextlib.suppress(UndecodableError):
            content = replace(source, style=replace(source.style, is_alone=True)).read()
        read.append(content)
    return read
