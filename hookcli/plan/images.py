"""Find a run's images, and read the first ones early, to refuse bad files and value ranges."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.images.find import find_files
from hookcli.images.fit import require_image
from hookcli.images.read import list_images, read_images
from hookcli.images.rgb import has_natural_range
from hookcli.images.style import COLOURS, NoRangeError, ReadStyle, UndecodableError, check_shared
from hookcli.outside.urls import choose
from hookcli.records.images import CLIP_FRAMES
from hookcli.store.locations.storage import use_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.config import RunRequest
    from hookcli.images.read import ImageSource
    from hookcli.outside.urls import Location
    from hookcli.records.images import Intensities, SkippedImage

# If there are at most this many images, they are read before the model is loaded, so that a bad one
# is reported early.
_MOST_READ_FIRST = 8
_DEEP = (".tif", ".tiff", ".npy", ".dcm", ".fits", ".fit", ".exr", ".pfm")


@dataclass(frozen=True, slots=True)
class FoundImages:
    sources: list[ImageSource]  # in order; a few already hold their content
    skipped: list[SkippedImage]
    bands: int = COLOURS  # of the first picture; a grey picture counts as three


def find_images(
    request: RunRequest,
    leave_out: Location | None = None,
    storage: tuple[tuple[str, str], ...] = (),
) -> FoundImages:
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
    read = list(_read_some(sources, images.range))
    if images.range != "full" and len(read) == len(sources) and not any(at for *_, at in read):
        raise RequestError("`range` has no effect: no picture has more than 8 bits")
    if len(sources) > 1 or images.pair is not None:
        try:
            check_shared([found for _, _, found in read if found])
        except NoRangeError as error:
            first = next(name for name, _, found in read if found and found.rule == "own")
            raise error.refuse(first) from error
    return FoundImages(sources, skipped, next((bands for _, bands, _ in read), COLOURS))


def _read_some(
    sources: Sequence[ImageSource], range_: str | tuple[float, float]
) -> Iterator[tuple[str, int, Intensities | None]]:
    """Read the images that a plan needs; yield the name, number of bands and range of each.

    These are the first image, images in memory and, if ``range_`` (the option ``--range``) is
    ``full``, some files whose types may not say which values are black and white.
    """
    # With ``full``, these are up to eight remote files, and all local files whose header shows no
    # natural range (up to eight, once a picture has none).
    count, is_refused = 0, False
    for index, source in enumerate(sources):
        most = choose(source.file, _MOST_READ_FIRST if is_refused else count + 1, _MOST_READ_FIRST)
        is_deep = range_ == "full" and source.file.lower().endswith(_DEEP) and count < most
        is_needed = is_deep and not choose(source.file, has_natural_range(source.file), False)
        if source.kept is None and index and not is_needed:
            continue
        with contextlib.suppress(UndecodableError):
            content = replace(source, style=replace(source.style, is_alone=True)).read()
            found = content.intensities
            count, is_refused = count + 1, is_refused or bool(found and found.rule == "own")
            yield source.name, content.bands, found
