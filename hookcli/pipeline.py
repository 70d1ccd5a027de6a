"""A run on one machine: images and a model in, a run folder and a RunResult out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from hookcli.closing import (
    Found,
    close,
    describe_request,
    prepare_pixels,
    write_tables,
)
from hookcli.errors import RequestError
from hookcli.forward import BrokenForwardError, HookedForward
from hookcli.planning import Clock, prepare_run
from hookcli.results import ImageResult, RunResult
from hookcli.sinks.grids import GridWriter
from hookcli.sinks.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from hookcli.config import InspectConfig
    from hookcli.forward import BatchResult
    from hookcli.images import ImageSource
    from hookcli.models import LoadedModel
    from hookcli.planning import PreparedRun


_LEAST_FOCUS = 0.25  # of a pixel of what the network sees


def inspect_images(config: InspectConfig) -> RunResult:
    """Run the images through the model, write the run folder, and return what was found.

    Raises:
        HookcliError: see ``hookcli.errors`` for what each means.
    """
    return run(prepare_run(config))


def run(prepared: PreparedRun) -> RunResult:
    """Do what was prepared.

    Raises:
        ForwardError: the model raised; what was observed until then is in the folder, without a
            manifest.
        OutputError: the folder is protected or in use, or a file could not be written.
    """
    config = prepared.config
    clock = Clock(prepared.seconds)
    folder = RunFolder(
        prepared.plan.out_dir,
        describe_request(config),
        replace_run=config.out is None,
        replace_any=config.overwrite,
    )
    loaded = prepared.loaded
    forward = HookedForward(
        loaded.module, prepared.layers, config.at, config.grids,
        sample=True, feed=loaded.feed, find_writes=True,
    )  # fmt: skip
    focus = _find_focus(prepared)
    if focus is not None:
        forward.focus = focus.to(loaded.info.device)
    with folder:
        writer = GridWriter(folder.folder, config.grids)
        found = Found(written=forward.written)
        found.focus = None if focus is None else _describe_focus(prepared, focus)
        try:
            for sources, pixels in _batches(loaded, prepared.sources, config.batch_size):
                found.add(_run_batch(prepared, forward, folder, sources, pixels), writer)
                clock.lap("forward")
            import hookcli.sinks.report  # noqa: F401  0.07 s, while the grids are being written

            grids = writer.finish()
        except BrokenForwardError as error:
            found.add_partial(error.partial, writer)
            writer.finish()
            write_tables(folder, prepared, found)
            raise
        finally:
            writer.close()
        clock.lap("write grids")
        result = close(folder, prepared, found, grids)
        clock.lap("write tables")
    return replace(result, seconds=clock.seconds)


def _find_focus(prepared: PreparedRun) -> Tensor | None:
    """What of the network's view is inside the box of ``--focus``, and what outside: (2, H, W).

    Raises:
        RequestError: it is outside of the image, or is cut away.
    """
    box = prepared.config.focus
    if box is None:
        return None
    source = prepared.sources[0]
    left, top, width, height = box
    if left + width > source.size[0] or top + height > source.size[1]:
        raise RequestError(
            f"--focus {left},{top},{width},{height} is not inside the image, which is "
            f"{source.size[0]} by {source.size[1]} pixels"
        )
    if len(prepared.sources) != 1:
        raise RequestError("--focus is a box in one image", "give one image")
    shares = prepared.loaded.find_box(source.size, box, as_pixels=source.pixels is not None)
    if float(shares[1].max()) < _LEAST_FOCUS:
        raise RequestError(
            "--focus is all that the network sees, and leaves nothing to compare with"
        )
    if float(shares[0].max()) < _LEAST_FOCUS:
        raise RequestError(
            f"--focus {left},{top},{width},{height} is cut away: the network sees the middle of the image",
            "choose a box nearer to the middle, or another --resize",
        )
    return shares


def _describe_focus(prepared: PreparedRun, shares: Tensor) -> dict[str, Any]:
    """The box as given, and its left, top, width and height as shares of the picture that is shown."""
    inside = shares[0] >= _LEAST_FOCUS
    rows, columns = inside.any(1).nonzero().flatten(), inside.any(0).nonzero().flatten()
    (top, bottom), (left, right) = rows[[0, -1]].tolist(), columns[[0, -1]].tolist()
    height, width = inside.shape
    seen = (left / width, top / height, (right + 1 - left) / width, (bottom + 1 - top) / height)
    return {"box": prepared.config.focus, "seen": seen}


def _batches(
    loaded: LoadedModel, sources: Sequence[ImageSource], size: int
) -> Iterator[tuple[list[ImageSource], Tensor]]:
    """The first image alone (see ``HookedForward.run``), then up to ``size`` of one shape at a time, in order."""
    batch: list[ImageSource] = []
    pixels: list[Tensor] = []
    limit = 1
    for source in sources:
        prepared = prepare_pixels(loaded, source)
        if batch and (len(batch) == limit or prepared.shape != pixels[0].shape):
            yield batch, torch.stack(pixels)
            batch, pixels, limit = [], [], size
        batch.append(source)
        pixels.append(prepared)
    yield batch, torch.stack(pixels)


def _run_batch(
    prepared: PreparedRun,
    forward: HookedForward,
    folder: RunFolder,
    sources: Sequence[ImageSource],
    pixels: Tensor,
) -> tuple[list[ImageResult], list[BatchResult]]:
    loaded = prepared.loaded
    device, dtype = loaded.info.device, getattr(torch, loaded.info.dtype)
    results = forward.run([s.key for s in sources], pixels.to(device=device, dtype=dtype))
    read = [p for result in results for p in loaded.read(result.output)]
    predictions = read if len(read) == len(sources) else [()] * len(sources)
    shape = (1, *pixels.shape[1:])
    images = []
    for source, mine, said in zip(sources, pixels, predictions, strict=True):
        seen = folder.write_bytes(f"seen/{source.key}.jpg", loaded.show(mine))
        note = loaded.prepare.describe(max(len(source.pictures), source.frame_count))
        width, height = source.size
        images.append(
            ImageResult(
                source.key, source.file, width, height, source.sha256, said, shape, note, seen
            )
        )
    return images, results
