"""Images made into pixels ahead of the forwards that need them, in worker processes where that pays."""

from __future__ import annotations

import os
import resource
import signal
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from hookcli.errors import ModelError
from hookcli.files import NotRegularError, hash_file
from hookcli.images.decode import UndecodableError
from hookcli.images.fit import refuse_unlike
from hookcli.images.read import ImageFile
from hookcli.records.images import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource

T = TypeVar("T")

_LEAST_SHARED = 256 << 20  # bytes; containers have 64 MB unless told otherwise
_AHEAD = 8  # images that each worker may be ahead


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image ready for the model, or the reason why it is not.

    Attributes:
        key: the image's.
        file: as given.
        state: the file as it was read.
        pixels: of the image alone, without a leading axis; None when it is skipped.
        reason: why it is skipped.
        size: width and height of the image.
        note: what was made of it that is another picture, or more than one.
    """

    key: str
    file: str
    state: FileState
    pixels: Tensor | None = None
    reason: str = ""
    size: tuple[int, int] = (0, 0)
    note: str = ""


def prepare_pixels(fitter: Fitter, source: ImageSource) -> Tensor:
    """The pixels of one image that fits, on the CPU, and of nobody else."""
    if source.ready is not None:
        return torch.from_numpy(source.ready).clone()
    if source.pixels is None:
        return fitter.prepare.to_pixels(source.pictures).float()
    return fitter.prepare.repeat(torch.from_numpy(source.pixels.astype("float32")))


def release_pictures(
    fitter: Fitter, sources: Sequence[ImageSource | ImageFile]
) -> list[ImageSource | ImageFile]:
    """The same images, with what the model is shown of them in the place of pictures.

    A large picture takes 340 MB for as long as it is kept. A detection model is shown the whole of it,
    as floats that take three times as much: those are made when their turn comes.
    """
    if fitter.prepare.task == "detection":
        return list(sources)
    return [
        source
        if isinstance(source, ImageFile) or not source.pictures
        else _without_pictures(fitter, source)
        for source in sources
    ]


def _without_pictures(fitter: Fitter, source: ImageSource) -> ImageSource:
    ready = prepare_pixels(fitter, source)
    note = _describe(fitter, source)
    return replace(source, pictures=(), ready=ready.numpy(), note=note)


def _describe(fitter: Fitter, source: ImageSource) -> str:
    """What was made of the image that is another one; empty where the transform is all."""
    count = max(len(source.pictures), source.frame_count)
    return fitter.prepare.describe(source.pictures, count)


def prepare_image(fitter: Fitter, image: ImageSource | ImageFile) -> PreparedImage:
    """Read an image, if it has not been read, and make pixels of it."""
    if not isinstance(image, ImageFile):
        return _prepared(fitter, image, FileState(image.file, sha256=image.sha256))
    state = file_state(image.file)
    try:
        source = image.read()
        return _prepared(fitter, fitter.fit(source), replace(state, sha256=source.sha256))
    except UndecodableError as error:
        state = replace(
            file_state(image.file, verify=True), size=state.size, mtime_ns=state.mtime_ns
        )
        return PreparedImage(image.key, image.name, state, reason=str(error))


def prepare_like(
    fitter: Fitter, image: ImageSource | ImageFile, first: Sequence[int] | None
) -> PreparedImage:
    """As ``prepare_image``; of a model of which nothing else is known, only what is like the first that went through.

    Args:
        fitter: makes it ready.
        image: read or not.
        first: shape of the first pixels that went through, without a leading axis; None before there are any.
    """
    ready = prepare_image(fitter, image)
    if fitter.prepare.channels is not None or first is None or ready.pixels is None:
        return ready
    reason = refuse_unlike(first, ready.pixels.shape)
    return replace(ready, pixels=None, reason=reason) if reason else ready


def file_state(file: str, *, verify: bool = False) -> FileState:
    """The file as it is now; ``verify`` reads it for its hash."""
    try:
        facts = os.stat(file)  # noqa: PTH116  names may not be UTF-8
        state = FileState(file, facts.st_size, facts.st_mtime_ns)
    except (OSError, ValueError):
        return FileState(file)
    try:
        return replace(state, sha256=hash_file(file)) if verify else state
    except NotRegularError:
        return state
    except OSError:
        return FileState(file)


def prepare_images(
    fitter: Fitter,
    images: Sequence[ImageSource | ImageFile],
    workers: int,
    warn: Callable[[str], None],
    close_in_worker: int | None = None,
) -> Iterator[PreparedImage]:
    """The images in order, made ready ahead of time by ``workers`` processes; 0 does it here.

    A worker that is killed is said to be, and replaced once; what it held is prepared again.

    Args:
        fitter: makes them ready.
        images: what to read.
        workers: how many processes.
        warn: is told of a worker that died.
        close_in_worker: a file of this process that workers must not hold open, such as a lock.

    Raises:
        ModelError: workers die again and again.
    """
    done, deaths = 0, 0
    while done < len(images):
        try:
            for image in _stream(fitter, images[done:], workers, close_in_worker):
                done += 1
                yield image
        except (RuntimeError, ConnectionError, EOFError, FileNotFoundError) as error:
            died = "DataLoader worker (pid"  # the others: it died before its pixels were taken over
            if isinstance(error, RuntimeError) and not str(error).startswith(died):
                raise
            deaths += 1
            if deaths > 1:
                raise ModelError(
                    "processes that prepare images are killed again and again",
                    "memory may be short: try --workers 0 and --resume",
                ) from error
            warn("a process that prepared images was killed; it is replaced")


def _stream(
    fitter: Fitter,
    images: Sequence[ImageSource | ImageFile],
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
        worker_init_fn=partial(_begin_worker, close_in_worker),
    )
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD)
    ready = iter(loader)
    if is_main:  # torch's handler raises wherever the main thread is when a worker dies
        signal.signal(signal.SIGCHLD, before)
    yield from ready


def _is_shared_memory_short() -> bool:
    """Whether pixels may not fit where workers leave them; a worker would then wait for ever."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return True
    try:
        facts = os.statvfs("/dev/shm")  # noqa: S108
    except OSError:
        return False  # not Linux
    return facts.f_bavail * facts.f_frsize < _LEAST_SHARED


class _Images(Dataset[PreparedImage]):
    """What a worker takes images from."""

    def __init__(self, fitter: Fitter, images: Sequence[ImageSource | ImageFile]) -> None:
        self._fitter, self._images = fitter, images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> PreparedImage:
        return prepare_image(self._fitter, self._images[index])


def _as_it_is(image: T) -> T:
    return image


def _begin_worker(close: int | None, _worker: int) -> None:
    """Ctrl-C is for the run itself; a lock must not outlive it in a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if close is not None:
        os.close(close)


def _prepared(fitter: Fitter, source: ImageSource, state: FileState) -> PreparedImage:
    return PreparedImage(
        source.key,
        source.file,
        state,
        prepare_pixels(fitter, source),
        size=source.size,
        note=_describe(fitter, source) if source.ready is None else source.note,
    )
