"""Turn images into pixels ahead of forward passes; count, start and replace worker processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from hookcli.errors import HookcliError, ModelError
from hookcli.images.fit import refuse_unlike, replace_kept
from hookcli.images.style import UndecodableError
from hookcli.networks.task import UnfitPictureError
from hookcli.records.images import ImageResult
from hookcli.store.locations.storage import list_options, use_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageContent, ImageSource
    from hookcli.records.images import FileState, Intensities, Prediction, SkippedImage

_LEAST_SHARED = 256 << 20  # bytes of shared memory; containers have 64 MB by default
_AHEAD = 8  # images that each worker prepares in advance
_WORTH_WORKERS = 24
_MOST_WORKERS = 4
# Bytes: such a photo has two megapixels or more, and decoding it takes as long as a forward pass.
_LARGE = 250_000


@dataclass(frozen=True, slots=True)
class PreparedImage:
    key: str
    file: str
    state: FileState
    pixels: Tensor | None = None  # without a batch axis; None if the image is skipped
    reason: str = ""  # why the image is skipped
    size: tuple[int, int] = (0, 0)  # width and height of the image
    note: str = ""  # how the input was made: a clip, a pair, a part of the image
    is_tensor: bool = False  # from a tensor file, whose values are used unchanged
    intensities: Intensities | None = None  # None for values of 8 bits

    def record(self, predictions: tuple[Prediction, ...]) -> ImageResult:
        assert self.pixels is not None  # noqa: S101  a skipped image has no forward pass
        return ImageResult(
            self.key,
            self.file,
            *self.size,
            sha256=self.state.sha256,
            predictions=predictions,
            pixels_shape=(1, *self.pixels.shape),
            note=self.note,
            intensities=self.intensities,
        )


def _prepare_pixels(fitter: Fitter, content: ImageContent) -> Tensor:
    if content.ready is not None:
        return torch.from_numpy(content.ready).clone()
    if content.pixels is None:
        try:
            return fitter.prepare.to_pixels(content.pictures).float()
        except UnfitPictureError as error:
            raise UndecodableError(error.message) from error
    return fitter.prepare.task.repeat(torch.from_numpy(content.pixels.astype("float32")))


def release_pictures(
    fitter: Fitter, sources: Sequence[ImageSource]
) -> tuple[list[ImageSource], list[SkippedImage]]:
    """Replace decoded pictures, which may take 340 MB each, with the inputs that the model gets.

    The second list has the images that cannot be prepared. If none is left, raise a NoImageError.
    """

    def release(source: ImageSource) -> ImageContent | None:
        kept = source.kept
        if fitter.prepare.task.keeps_pictures or not (kept and kept.pictures):
            return kept
        ready = _prepare_pixels(fitter, kept).numpy()
        return replace(kept, pictures=(), ready=ready, note=_describe(fitter, kept))

    return replace_kept(sources, release)


def _describe(fitter: Fitter, content: ImageContent) -> str:
    count = max(len(content.pictures), content.frame_count)
    pages = f"only page 0 of {content.pages}: `page` chooses others" if content.pages > 1 else ""
    return fitter.prepare.describe(content.pictures, count) or pages


def prepare_image(fitter: Fitter, source: ImageSource) -> PreparedImage:
    state = source.state()
    try:
        content = source.kept or fitter.fit(source)
        pixels = _prepare_pixels(fitter, content)
    except UndecodableError as error:
        now = replace(source.state(verify=True), size=state.size, mtime_ns=state.mtime_ns)
        return PreparedImage(source.key, source.name, now, reason=str(error))
    return PreparedImage(
        source.key,
        source.name,
        replace(state, sha256=content.sha256),
        pixels,
        size=content.size,
        note=_describe(fitter, content) if content.ready is None else content.note,
        is_tensor=content.pixels is not None,
        intensities=content.intensities,
    )


class FirstImage:
    def __init__(
        self,
        fitter: Fitter,
        images: Sequence[ImageSource],
        accepts: Callable[[Tensor], bool] = lambda _: True,
    ) -> None:
        self._fitter, self._images, self._accepts = fitter, images, accepts
        self._index, self._is_known = 0, False

    @property
    def source(self) -> ImageSource:
        return self._images[self._index]

    def __call__(self) -> Tensor | None:
        """Prepare the first usable image; return its pixels (1, …), or None if there is none."""
        for index in range(self._index, len(self._images)):
            pixels = prepare_image(self._fitter, self._images[index]).pixels
            if pixels is not None and (self._is_known or self._accepts(pixels[None])):
                self._index, self._is_known = index, True
                return pixels[None]
        return None


def prepare_like(fitter: Fitter, image: ImageSource, first: Sequence[int] | None) -> PreparedImage:
    # ``first`` is the shape of the first pixels that the model accepted, if any
    ready = prepare_image(fitter, image)
    if fitter.prepare.channels is not None or first is None or ready.pixels is None:
        return ready
    reason = refuse_unlike(first, ready.pixels.shape)
    return replace(ready, pixels=None, reason=reason) if reason else ready


def count_workers(asked: int | None, sources: Sequence[ImageSource]) -> int:
    if all(source.kept is not None for source in sources):
        return 0
    if asked is not None:
        return asked
    cores = os.cpu_count() or 1
    if len(sources) < _WORTH_WORKERS:
        return 0
    sizes = [0]
    for source in sources[:_WORTH_WORKERS]:
        with contextlib.suppress(OSError, ValueError):
            sizes.append(os.stat(source.file).st_size)  # noqa: PTH116
    if sum(sizes) > _LARGE * len(sizes):
        return min(_MOST_WORKERS, cores)
    return min(_MOST_WORKERS, cores - 1) if cores > 2 else 0  # one worker costs more than it saves


def prepare_images(
    fitter: Fitter, images: Sequence[ImageSource], workers: int, warn: Callable[[str], None]
) -> Iterator[PreparedImage]:
    # Killed workers are replaced once.
    done, deaths = 0, 0
    while done < len(images):
        try:
            for image in _stream(fitter, images[done:], workers):
                done += 1
                yield image
        except (RuntimeError, ConnectionError, EOFError, FileNotFoundError) as error:
            # An error other than a RuntimeError means that a worker died before its pixels arrived.
            died = "DataLoader worker (pid"
            if isinstance(error, RuntimeError) and not str(error).startswith(died):
                raise
            deaths += 1
            if deaths > 1:
                what = "processes that prepare images are killed repeatedly"
                hint = "memory may be short: try `workers=0` and `resume=True`"
                raise ModelError(what, hint) from error
            warn("a process that prepared images was killed; it is replaced")


def _stream(fitter: Fitter, images: Sequence[ImageSource], workers: int) -> Iterator[PreparedImage]:
    if not workers or _is_shared_memory_short():
        yield from (prepare_image(fitter, image) for image in images)
        return
    loader = DataLoader(
        _Images(fitter, images),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=_AHEAD,
        worker_init_fn=partial(_begin_worker, list_options()),
    )
    for image in _start_workers(loader):
        if isinstance(image, HookcliError):
            raise image
        yield image


def _start_workers(loader: DataLoader[PreparedImage | HookcliError]) -> Iterator[Any]:
    death = getattr(signal, "SIGCHLD", None)  # Windows has no such signal
    if death is None or threading.current_thread() is not threading.main_thread():
        return iter(loader)
    before = signal.getsignal(death)
    ready = iter(loader)
    signal.signal(death, before)  # torch's handler would raise anywhere in the main thread
    return ready


def _is_shared_memory_short() -> bool:
    """Return whether /dev/shm is so full that a worker might wait forever to share its pixels."""
    try:
        return shutil.disk_usage("/dev/shm").free < _LEAST_SHARED  # noqa: S108
    except OSError:
        return False  # not Linux


class _Images(Dataset["PreparedImage | HookcliError"]):
    """Prepares images by index; returns errors, since torch would change a raised error's text."""

    def __init__(self, fitter: Fitter, images: Sequence[ImageSource]) -> None:
        self._fitter, self._images = fitter, images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> PreparedImage | HookcliError:
        try:
            return prepare_image(self._fitter, self._images[index])
        except HookcliError as error:
            return error


def _begin_worker(options: tuple[tuple[str, str], ...], _worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    use_options(options)
