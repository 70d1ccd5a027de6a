"""Images made to fit the model that they are for: with the frames or the second image that it needs, or skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.config import CLIP_FRAMES
from hookcli.errors import NoImageError, RequestError
from hookcli.images import UndecodableError, read_images, with_frames
from hookcli.results import SkippedImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

    from hookcli.config import InspectConfig
    from hookcli.images import ImageSource
    from hookcli.models import LoadedModel

_NO_PAIR = "holds pixels; a pair is of two pictures"


def need_one(sources: Sequence[ImageSource], skipped: Sequence[SkippedImage]) -> None:
    """See that there is an image left.

    Raises:
        NoImageError: there is none.
    """
    if sources:
        return
    first = skipped[0] if skipped else SkippedImage("", "no image was given")
    more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
    raise NoImageError(
        f"no image can be used: {first.file!r} {first.reason}{more}",
        "give one or more image files, for example: hookcli inspect resnet34 photo.jpg",
    )


def fit_sources(
    config: InspectConfig, loaded: LoadedModel, sources: Sequence[ImageSource]
) -> tuple[list[ImageSource], list[SkippedImage]]:
    """The images that this model can be shown, with the frames or the pair that it needs; the rest as skipped.

    Raises:
        RequestError: a clip or a pair was given to a model that takes none.
        NoImageError: none is left, or the second image of a pair cannot be used.
    """
    task = loaded.info.task
    if config.clip and task != "video":
        raise RequestError(f"{config.model.name} takes no clip", "--clip is for video models")
    if config.pair is not None and task != "optical_flow":
        raise RequestError(
            f"{config.model.name} takes no pair", "--pair is for raft_large and raft_small"
        )
    second = _read_pair(config.pair)
    fitting, skipped = [], []
    for source in sources:
        if source.pixels is None:
            reason = loaded.prepare.refuse(source.pictures[0])
        else:
            reason = _NO_PAIR if second else ""
        if reason:
            skipped.append(SkippedImage(source.file, reason))
        elif task == "video" and source.pixels is None:
            try:
                fitting.append(with_frames(source, CLIP_FRAMES))
            except UndecodableError as error:
                skipped.append(SkippedImage(source.file, str(error)))
        else:
            fitting.append(replace(source, pictures=(*source.pictures, *second)))
    need_one(fitting, skipped)
    return fitting, skipped


def _read_pair(file: str | None) -> tuple[Image.Image, ...]:
    if file is None:
        return ()
    sources, skipped = read_images([file])
    if skipped or sources[0].pixels is not None:
        reason = skipped[0].reason if skipped else _NO_PAIR
        raise NoImageError(f"the second image cannot be used: {file!r} {reason}")
    return sources[0].pictures
