"""Images made to fit a model: with its number of frames, or with the second image, or skipped."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli.errors import ModelError, NoBoxError, NoImageError, RequestError
from hookcli.images.decode import UndecodableError
from hookcli.images.read import read_images, with_frames
from hookcli.records.images import SkippedImage
from hookcli.records.text import and_more, count, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from PIL import Image

    from hookcli.config import ImageRequest, OnError
    from hookcli.images.read import ImageContent, ImageSource
    from hookcli.models.description import ModelDescription
    from hookcli.models.task import Preprocessing

_NO_PAIR = "holds pixels, but a pair needs two pictures"


def require_image(sources: Sequence[object], skipped: Sequence[SkippedImage]) -> None:
    """Raise a NoImageError if no image is left."""
    if sources:
        return
    first = skipped[0] if skipped else SkippedImage("", "no image was given")
    more = and_more(len(skipped) - 1, " (and {} more)")
    raise NoImageError(
        f"no image can be used: {first.file!r} {first.reason}{more}",
        "give one or more image files, for example photo.jpg",
    )


@dataclass(frozen=True, slots=True)
class Fitter:
    """Prepares images for a model, one at a time; it can be sent to another process.

    Attributes:
        prepare: the model's preprocessing.
        second: the second image of every pair; empty if there is none.
    """

    prepare: Preprocessing
    second: tuple[Image.Image, ...] = ()

    def fit(self, source: ImageSource) -> ImageContent:
        """Read an image, with the frames or the pair that the model needs.

        Raises:
            UndecodableError: the model cannot take this image.
        """
        content = source.read()
        if content.ready is not None:
            return content  # already fitted; its pictures are no longer kept
        if content.pixels is None:
            reason = self.prepare.refuse(content.pictures[0])
        else:
            reason = _NO_PAIR if self.second else self.prepare.refuse_pixels(content.pixels.shape)
        if reason:
            raise UndecodableError(reason)
        if self.prepare.task.frames > 1 and content.pixels is None:
            return with_frames(source.file, content, self.prepare.task.frames)
        return replace(content, pictures=(*content.pictures, *self.second))


@contextmanager
def skip_failing(
    on_error: OnError, file: str, skipped: list[SkippedImage], *, is_one_of_several: bool
) -> Iterator[None]:
    """Return a ``with`` block that skips an image if the model fails on it.

    It adds the image to ``skipped``, with the reason. If the run should stop instead, the error
    names the image, unless it is the only one.

    Raises:
        ModelError: the model failed, and the run should stop.
        NoBoxError: the model found nothing that could be scored, and the run should stop.
    """
    try:
        yield
    except (ModelError, NoBoxError) as error:
        if on_error == "stop":
            if is_one_of_several:
                error.name_image(file)
            raise
        skipped.append(SkippedImage(file, error.message))


def refuse_unlike(first: Sequence[int], shape: Sequence[int]) -> str:
    """Return why pixels differ from those that a model has accepted; empty if they fit.

    This is for models about which nothing else is known. The shapes have no leading axis.
    """
    if len(first) == len(shape) and first[0] == shape[0]:
        return ""
    has = count(first[0], "channel") if len(first) == len(shape) else shape_text(first)
    return f"is {shape_text(shape)}: the first image that went through has {has}"


def make_fitter(request: ImageRequest, loaded: ModelDescription) -> Fitter:
    """Return the fitter for this model.

    Raises:
        RequestError: a clip or a pair was given to a model that accepts neither.
        NoImageError: the second image of a pair cannot be used.
    """
    if request.clip and loaded.task.frames == 1:
        raise RequestError(f"{loaded.info.name} takes no clip", "`clip` is for video models")
    if request.pair is not None and not loaded.task.takes_pair:
        raise RequestError(
            f"{loaded.info.name} takes no pair", "`pair` is for raft_large and raft_small"
        )
    return Fitter(loaded.prepare, _read_pair(request.pair))


def fit_sources(
    fitter: Fitter, sources: Sequence[ImageSource]
) -> tuple[list[ImageSource], list[SkippedImage]]:
    """Return the images that fit this model, and the images that do not.

    Images that are read later are returned unchanged.

    Raises:
        NoImageError: no image fits.
    """
    fitting: list[ImageSource] = []
    skipped = []
    for source in sources:
        try:
            kept = None if source.kept is None else fitter.fit(source)
            fitting.append(replace(source, kept=kept))
        except UndecodableError as error:
            skipped.append(SkippedImage(source.name, str(error)))
    require_image(fitting, skipped)
    return fitting, skipped


def _read_pair(file: str | None) -> tuple[Image.Image, ...]:
    if file is None:
        return ()
    sources, skipped = read_images([file])
    if skipped or sources[0].holds_pixels:
        reason = skipped[0].reason if skipped else _NO_PAIR
        raise NoImageError(f"the second image cannot be used: {file!r} {reason}")
    return sources[0].read().pictures
