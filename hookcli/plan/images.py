"""The images that a request names, found before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.images.find import find_files
from hookcli.images.fit import require_image
from hookcli.images.read import list_images, read_images
from hookcli.records.frames import CLIP_FRAMES
from hookcli.store.places.storage import use_options

if TYPE_CHECKING:
    from hookcli.config import RunRequest
    from hookcli.images.read import ImageSource
    from hookcli.outside.urls import Place
    from hookcli.records.images import SkippedImage

# If there are at most this many images, they are read before the model is loaded, so that a bad one
# is reported early.
_MOST_READ_FIRST = 8


@dataclass(frozen=True, slots=True)
class FoundImages:
    """The images that a request names.

    Attributes:
        sources: the images in order; if there are only a few, they already hold their content.
        skipped: the named images that cannot be used.
    """

    sources: list[ImageSource]
    skipped: list[SkippedImage]


def find_images(
    request: RunRequest,
    leave_out: Place | None = None,
    storage: tuple[tuple[str, str], ...] = (),
) -> FoundImages:
    """Find the images, and also read their content if they are few or a clip.

    Files in the folder ``leave_out`` are not used as images. From this call on, the process opens
    URLs with the options ``storage``.

    Raises:
        RequestError: a list of names cannot be read.
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
    if len(files) <= _MOST_READ_FIRST or images.clip:
        sources, unread = read_images(files, clip_frames=CLIP_FRAMES * images.clip)
        skipped += unread
    else:
        sources = list_images(files)
    require_image(sources, skipped)
    return FoundImages(sources, skipped)
