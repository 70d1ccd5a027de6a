"""Turning images into pixels ahead of their forward passes, in worker processes if that pays."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from hookcli.errors import HookcliError, ModelError
from hookcli.images.decode import UndecodableError
from hookcli.images.fit import refuse_unlike
from hookcli.records.images import ImageResult
from hookcli.store.places.storage import list_options, use_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageContent, ImageSource
    from hookcli.records.images import FileState, Prediction

T = TypeVar("T")

_LEAST_SHARED = 256 << 20  # bytes; containers have 64 MB by default
_AHEAD = 8  # images that each worker prepares in advance
_WORTH_WORKERS = 24
_MOST_WORKERS = 4
# Bytes: such a photo has two megapixels or more, and decoding it takes as long as a forward pass.
_LARGE = 250_000


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image that is ready for the model, or the reason why it is not.

    Attributes:
        file: the file as the user gave it.
        state: the state of the file when it was read.
        pixels: the pixels without a leading axis; None if the image is skipped.
        reason: why it is skipped.
        size: the width and height of the image.
        note: how the input was made from the image, if it is not used as it is.
    """

    key: str
    file: str
    state: FileState
    pixels: Tensor | None = None
    reason: str = ""
    size: tuple[int, int] = (0, 0)
    note: str = ""

    def record(self, predictions: tuple[Prediction, ...]) -> ImageResult:
        """Return the image's record after its forward pass."""
        assert self.pixels is not None  # noqa: S101  a skipped image has no forward pass
        return ImageResult(
            self.key,
            self.file,
            *self.size,
            sha256=self.state.sha256,
            predictions=predictions,
            pixels_shape=(1, *self.pixels.shape),
            note=self.note,
        )


def prepare_pixels(fitter: Fitter, content: ImageContent) -> Tensor:
    """Return a fitting image's pixels on the CPU; nothing else refers to their memory."""
    if content.ready is not None:
        return torch.from_numpy(content.ready).clone()
    if content.pixels is None:
        return fitter.prepare.to_pixels(content.pictures).float()
    return fitter.prepare.task.repeat(torch.from_numpy(content.pixels.astype("float32")))


def release_pictures(fitter: Fitter, sources: Sequence[ImageSource]) -> list[ImageSource]:
    """Return the same images, with the model's pixels in place of the pictures.

    A large picture takes 340 MB for as long as it is kept. A detection model takes the whole
    picture as floats, which need three times as much memory; hookcli makes them only when needed.
    """
    if fitter.prepare.task.keeps_pictures:
        return list(sources)
    return [
        replace(source, kept=_without_pictures(fitter, source.kept))
        if source.kept and source.kept.pictures
        else source
        for source in sources
    ]


def _without_pictures(fitter: Fitter, content: ImageContent) -> ImageContent:
    ready = prepare_pixels(fitter, content)
    note = _describe(fitter, content)
    return replace(content, pictures=(), ready=ready.numpy(), note=note)


def _describe(fitter: Fitter, content: ImageContent) -> str:
    """Return how the image was changed before the transform; empty if it was not."""
    count = max(len(content.pictures), content.frame_count)
    return fitter.prepare.describe(content.pictures, count)


def prepare_image(fitter: Fitter, source: ImageSource) -> PreparedImage:
    """Read an image, unless it was read before, and make its pixels."""
    state = source.state()
    try:
        content = source.kept or fitter.fit(source)
    except UndecodableError as error:
        now = replace(source.state(verify=True), size=state.size, mtime_ns=state.mtime_ns)
        return PreparedImage(source.key, source.name, now, reason=str(error))
    return PreparedImage(
        source.key,
        source.name,
        replace(state, sha256=content.sha256),
        prepare_pixels(fitter, content),
        size=content.size,
        note=_describe(fitter, content) if content.ready is None else content.note,
    )


class FirstImage:
    """The first usable image of a run, with which hookcli tries out a model."""

    def __init__(
        self,
        fitter: Fitter,
        images: Sequence[ImageSource],
        accepts: Callable[[Tensor], bool] = lambda _: True,
    ) -> None:
        """Read no image yet.

        ``accepts`` returns whether the model takes the pixels (1, …) of an image.
        """
        self._fitter, self._images, self._accepts = fitter, images, accepts
        self._place = 0
        self._is_known = False

    @property
    def source(self) -> ImageSource:
        """The image; the first of all images until its pixels have been requested."""
        return self._images[self._place]

    def __call__(self) -> Tensor | None:
        """Return its pixels (1, …), or None if no image can be used.

        Each call makes new pixels, because a large picture's pixels take as much memory as it does.
        """
        for place in range(self._place, len(self._images)):
            pixels = prepare_image(self._fitter, self._images[place]).pixels
            if pixels is not None and (self._is_known or self._accepts(pixels[None])):
                self._place, self._is_known = place, True
                return pixels[None]
        return None


def prepare_like(fitter: Fitter, image: ImageSource, first: Sequence[int] | None) -> PreparedImage:
    """Prepare an image, and skip it if it differs from the first one that the model accepted.

    This is the same as ``prepare_image`` for models with known inputs. ``first`` is the shape of
    the first pixels that the model accepted, without a leading axis; None before there are any.
    """
    ready = prepare_image(fitter, image)
    if fitter.prepare.channels is not None or first is None or ready.pixels is None:
        return ready
    reason = refuse_unlike(first, ready.pixels.shape)
    return replace(ready, pixels=None, reason=reason) if reason else ready


def count_workers(asked: int | None, sources: Sequence[ImageSource]) -> int:
    """Return the number of processes that prepare images; 0 if too few images would use them."""
    if all(source.kept is not None for source in sources):
        return 0
    if asked is not None:
        return asked
    cores = os.cpu_count() or 1
    if len(sources) < _WORTH_WORKERS:
        return 0
    if _are_large(sources):
        return min(_MOST_WORKERS, cores)
    return min(_MOST_WORKERS, cores - 1) if cores > 2 else 0  # one process costs more than it saves


def _are_large(sources: Sequence[ImageSource]) -> bool:
    """Return whether decoding the first files takes long enough to pay for worker processes."""
    sizes = [0]
    for source in sources[:_WORTH_WORKERS]:
        with contextlib.suppress(OSError, ValueError):
            sizes.append(os.stat(source.file).st_size)  # noqa: PTH116
    return sum(sizes) > _LARGE * len(sizes)


def prepare_images(
    fitter: Fitter,
    images: Sequence[ImageSource],
    workers: int,
    warn: Callable[[str], None],
    close_in_worker: int | None = None,
) -> Iterator[PreparedImage]:
    """Yield the images in order; ``workers`` processes prepare them ahead, or this one if it is 0.

    If a worker is killed, hookcli warns, replaces the workers once, and prepares the lost images
    again. ``warn`` receives the message. ``close_in_worker`` is a file descriptor of this process
    that workers must not keep open, such as a lock's.

    Raises:
        ModelError: workers are killed repeatedly.
    """
    done, deaths = 0, 0
    while done < len(images):
        try:
            for image in _stream(fitter, images[done:], workers, close_in_worker):
                done += 1
                yield image
        except (RuntimeError, ConnectionError, EOFError, FileNotFoundError) as error:
            # The other errors mean that the worker died before its pixels were received.
            died = "DataLoader worker (pid"
            if isinstance(error, RuntimeError) and not str(error).startswith(died):
                raise
            deaths += 1
            if deaths > 1:
                raise ModelError(
                    "processes that prepare images are killed repeatedly",
                    "memory may be short: try `workers=0` and `resume=True`",
                ) from error
            warn("a process that prepared images was killed; it is replaced")


def _stream(
    fitter: Fitter,
    images: Sequence[ImageSource],
    workers: int,
    close_in_worker: int | None,
) -> Iterator[PreparedImage]:
    if not workers or _is_shared_memory_short():
        yield from (prepare_image(fitter, image) for image in images)
        return
    loader = DataLoader(
        _Images(fitter, images),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=_AHEAD,
        collate_fn=_as_it_is,
        worker_init_fn=partial(_begin_worker, close_in_worker, list_options()),
    )
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD)
    ready = iter(loader)
    if is_main:  # when a worker dies, torch's handler would raise anywhere in the main thread
        signal.signal(signal.SIGCHLD, before)
    for image in ready:
        if isinstance(image, HookcliError):
            raise image
        yield image


def _is_shared_memory_short() -> bool:
    """Return whether shared memory may be too small for the pixels.

    A worker would then wait forever.
    """
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return True
    try:
        facts = os.statvfs("/dev/shm")  # noqa: S108
    except OSError:
        return False  # not Linux
    return facts.f_bavail * facts.f_frsize < _LEAST_SHARED


class _Images(Dataset["PreparedImage | HookcliError"]):
    """The images as workers index them; torch would change an error's message in transit."""

    def __init__(self, fitter: Fitter, images: Sequence[ImageSource]) -> None:
        self._fitter, self._images = fitter, images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> PreparedImage | HookcliError:
        try:
            return prepare_image(self._fitter, self._images[index])
        except HookcliError as error:
            return error


def _as_it_is(image: T) -> T:
    return image


def _begin_worker(close: int | None, options: tuple[tuple[str, str], ...], _worker: int) -> None:
    """Set up a worker: ignore Ctrl-C (the main process handles it), and apply the storage options.

    It also closes the inherited lock file, so that the lock ends with the run. A process that was
    not forked has not inherited it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_options(options)
    if close is not None:
        with contextlib.suppress(OSError):
            os.close(close)
