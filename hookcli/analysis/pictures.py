"""Choose pictures of a run's images, and copy them into the folder of an analysis, for its page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.outside.documents import DamagedError, decode
from hookcli.reading.run_files import cannot_read
from hookcli.records.analysis import ImagePictures
from hookcli.records.runs import MOST_THUMBNAILS
from hookcli.store.locations.names import DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Collection

    from hookcli.reading.load import Run
    from hookcli.store.results import ResultFolder

_MOST_BYTES = 1 << 26  # of a picture


def copy_pictures(
    run: Run,
    folder: ResultFolder,
    *,
    first: Collection[str] = frozenset(),
    only: Collection[str] | None = None,
) -> ImagePictures:
    # Of too many images, only those with pictures, in ``first`` before others. ``only`` has keys.
    try:
        known = decode(run.files.read(DOCUMENT), ImagePictures)
    except (OSError, DamagedError) as error:
        raise cannot_read(run.folder / DOCUMENT, error) from error
    images = tuple(image for image in known.images if only is None or image.key in only)
    if len(images) > MOST_THUMBNAILS:
        small = {key for each in known.thumbnails for key in each.images}
        pictured = [image for image in images if image.seen or image.key in small] or images
        best = sorted(pictured, key=lambda image: image.key not in first)[:MOST_THUMBNAILS]
        chosen = {image.key for image in best}
        images = tuple(image for image in images if image.key in chosen)
    shown = {image.key for image in images}
    thumbnails = tuple(
        each
        for each in known.thumbnails
        if shown.intersection(each.images) and _copy(run, folder, each.file)
    )
    copied = (each if _copy(run, folder, each.seen) else replace(each, seen="") for each in images)
    return ImagePictures(tuple(copied), thumbnails)


def _copy(run: Run, folder: ResultFolder, name: str) -> bool:
    if not name or run.files.measure(name) is None:
        return False
    try:
        data = run.files.read(name, _MOST_BYTES)
    except OSError:
        return False
    folder.write(name, data)
    return True
