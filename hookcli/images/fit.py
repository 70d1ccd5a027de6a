"""Make images, clips and pairs fit a model; skip an image that fails, or stop (``on_error``)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli.errors import ModelError, NoBoxError, NoImageError, RequestError
from hookcli.images.read import read_images, with_frames
from hookcli.images.style import NoRangeError, ReadStyle, UndecodableError
from hookcli.outside.urls import HELD
from hookcli.records.images import SkippedImage
from hookcli.records.text import and_more, count, shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hookcli.config import ImageRequest, OnError
    from hookcli.images.decode import Picture
    from hookcli.images.read import ImageContent, ImageSource
    from hookcli.networks.description import ModelDescription
    from hookcli.networks.task import Preprocessing

_NO_PAIR = "holds pixels, but a pair needs two pictures"


def require_image(sources: Sequence[object], skipped: Sequence[SkippedImage]) -> None:
    if sources:
        return
    first = skipped[0] if skipped else SkippedImage("", "no image was given")
    more = and_more(len(skipped) - 1, " (and {} more)")
    hint = "give one or more image files, for example photo.jpg"
    raise NoImageError(f"no image can be used: {first.file!r} {first.reason}{more}", hint)


@dataclass(frozen=True, slots=True)
class Fitter:
    prepare: Preprocessing
    second: tuple[Picture, ...] = ()  # the second image of every pair

    def fit(self, source: ImageSource) -> ImageContent:
        content = source.read()
        if content.ready is not None:
            return content  # already fitted; the pictures are no longer kept
        if content.pixels is None:
            reason = self.prepare.refuse(content.pictures[0])
        else:
            from hookcli.images.intensities import put_bands_first

            is_held = source.file.startswith(HELD)  # a tensor, which is the network's own input
            channels = None if is_held else self.prepare.find_channels(content.pixels.shape)
            pixels = put_bands_first(content.pixels, channels, source.style.bands)
            content = replace(content, pixels=pixels, size=(pixels.shape[-1], pixels.shape[-2]))
            reason = _NO_PAIR if self.second else self.prepare.refuse_pixels(pixels.shape)
        if reason:
            raise UndecodableError(reason)
        if self.prepare.task.frames > 1 and content.pixels is None:
            return with_frames(source.file, content, self.prepare.task.frames, source.style)
        return replace(content, pictures=(*content.pictures, *self.second))


@contextmanager
def skip_failing(
    on_error: OnError, file: str, skipped: list[SkippedImage], *, is_one_of_several: bool
) -> Iterator[None]:
    try:
        yield
    except (ModelError, NoBoxError) as error:
        if on_error == "stop":
            if is_one_of_several:
                error.name_image(file)
            raise
        skipped.append(SkippedImage(file, error.message))


def refuse_unlike(first: Sequence[int], shape: Sequence[int]) -> str:
    if len(first) == len(shape) and first[0] == shape[0]:
        return ""
    has = count(first[0], "channel") if len(first) == len(shape) else shape_text(first)
    return f"is {shape_text(shape)}: the first image that went through has {has}"


def make_fitter(
    request: ImageRequest, loaded: ModelDescription, bands: tuple[int, ...] = ()
) -> Fitter:
    if request.clip and loaded.task.frames == 1:
        raise RequestError(f"{loaded.info.name} takes no clip", "`clip` is for video models")
    if request.pair is not None and not loaded.task.takes_pair:
        hint = "`pair` is for raft_large and raft_small"
        raise RequestError(f"{loaded.info.name} takes no pair", hint)
    style = ReadStyle(request.range, bands, request.page, is_alone=False)
    return Fitter(loaded.prepare, _read_pair(request.pair, style))


def replace_kept(
    sources: Sequence[ImageSource], convert: Callable[[ImageSource], ImageContent | None]
) -> tuple[list[ImageSource], list[SkippedImage]]:
    """Return the sources with ``kept`` replaced by ``convert(source)``, and the skipped images.

    hookcli skips images for which ``convert`` raises an UndecodableError. If no image is left, a
    NoImageError is raised.
    """
    replaced: list[ImageSource] = []
    skipped = []
    for source in sources:
        try:
            replaced.append(replace(source, kept=convert(source)))
        except NoRangeError as error:
            raise error.refuse(source.name) from error
        except UndecodableError as error:
            skipped.append(SkippedImage(source.name, str(error)))
    require_image(replaced, skipped)
    return replaced, skipped


def _read_pair(file: str | None, style: ReadStyle) -> tuple[Picture, ...]:
    if file is None:
        return ()
    try:
        sources, skipped = read_images([file], style=style)
    except NoRangeError as error:
        raise error.refuse(file) from error
    if skipped or not sources[0].is_picture:
        reason = skipped[0].reason if skipped else _NO_PAIR
        raise NoImageError(f"the second image cannot be used: {file!r} {reason}")
    return sources[0].read().pictures
