"""Repeat the first batch of an interrupted run for ``--resume``, and compare it with the records.

If the statistics differ, something has changed that no file of the run records, such as a library.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from hookcli.distance.tolerance import RTOL, Tolerance
from hookcli.errors import RequestError
from hookcli.images.prepare import prepare_images
from hookcli.passes.unchanged import throw_dice
from hookcli.records.statistics import COUNTS
from hookcli.render.draw.grid_writer import GridWriter
from hookcli.run.chunk_runner import ChunkRunner, ChunkStart
from hookcli.summary.chunks import chunk_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepared import PreparedRun
    from hookcli.run.listener import ProgressListener
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import Chunk

_Rows: TypeAlias = "Mapping[tuple[str, str], Mapping[str, Any]]"
_MEASURED = ("mean", "std", "min", "max")  # statistics with a tolerance in ``_find_figure``


def check_first_batch(
    prepared: PreparedRun, folder: RunFolder, totals: Chunk, listener: ProgressListener
) -> None:
    """Run the first images of an interrupted run again, and compare them with the records.

    If the model gives different statistics for the same images each time, hookcli only warns the
    user. The repetition does not affect the random numbers that the model draws afterwards.

    Args:
        prepared: the run to resume.
        folder: the open run folder, which has the records.
        totals: the sum of the saved chunks, with at least one image.
        listener: receives the warning.

    Raises:
        RequestError: a statistic differs from the record by more than the tolerance of ``hookcli
            diff``, or the records cannot be read.
        ForwardError: the model fails on an image.
    """
    from hookcli.reading.parquet_reader import read_rows  # takes 0.2 s

    size = chunk_size(prepared.settings.config.batch_size)
    keys = [source.key for source in prepared.model.sources]
    number = keys.index(totals.images[0].key) // size
    images = _find_first(prepared, number, totals.images[0].key)
    chosen = {image.key for image in images}
    stored = _by_call(row for row in read_rows(folder, number) if row["image"] in chosen)
    dtype = prepared.model.loaded.info.dtype
    with prepared.model.runner.unchanged():
        throw_dice()  # a random model must not repeat its numbers by chance
        now = _run_again(prepared, number, images)
        changed = _find_change(stored, now, dtype)
        differing = changed and _find_change(now, _run_again(prepared, number, images), dtype)
    if differing:
        listener.warn(
            f"the model gives different figures each time it sees the same images ({differing}), "
            "so `resume` cannot tell whether it has changed"
        )
    elif changed:
        raise RequestError(
            f"`resume`: the model no longer gives the figures of the run in {str(folder.path)!r}: "
            f"{changed}",
            "restore what has changed, or start again with `overwrite=True`",
        )


def _find_first(prepared: PreparedRun, number: int, first: str) -> list[PreparedImage]:
    """Return the images of a chunk's first two forward passes: a single image, then a batch."""
    size, model = prepared.settings.config.batch_size, prepared.model
    sources = model.sources[number * chunk_size(size) : (number + 1) * chunk_size(size)]
    images = prepare_images(model.fitter, sources, 0, lambda _: None)
    found = [next(image for image in images if image.key == first)]
    shape = None
    for image in images:
        if len(found) > size:
            break
        if image.pixels is not None and image.pixels.shape == (shape or image.pixels.shape):
            shape = image.pixels.shape
            found.append(image)
    return found


def _run_again(prepared: PreparedRun, number: int, images: Sequence[PreparedImage]) -> _Rows:
    """Return new rows by image key and call id, without images that fail; write nothing."""
    from hookcli.store.parquet import to_row

    model, settings = prepared.model, prepared.settings
    style = replace(settings.style, mode="none", format="png")
    model = replace(model, request=replace(model.request, on_error="skip"))
    again = replace(prepared, model=model, settings=replace(settings, style=style))
    with closing(GridWriter(_write_nothing, style, model="")) as grids:
        runner = ChunkRunner(again, (), grids, warn=lambda _: None, start=ChunkStart())
        ended = runner.run(number, images)
    return _by_call(map(to_row, ended.list_records()))


def _by_call(rows: Iterable[Mapping[str, Any]]) -> _Rows:
    return {(row["image"], row["call_id"]): {**row, "shape": [*row["shape"]]} for row in rows}


def _write_nothing(name: str, _data: bytes) -> str:
    return name


def _find_change(stored: _Rows, now: _Rows, dtype: str) -> str:
    """Describe the first difference; empty if there is none. ``dtype`` is the model's."""
    for key, row in stored.items():
        image, call_id = key
        if key not in now:
            return f"{call_id} for {image!r} is missing now"
        if figure := _find_figure(row, now[key], dtype):
            one, two = (
                f"{value:.9g}" if isinstance(value, float) else value
                for value in (row[figure], now[key][figure])
            )
            return f"the {figure} of {call_id} for {image!r} was {one}, and is {two} now"
    added = (
        f"{call_id} for {image!r} is new"
        for image, call_id in now
        if (image, call_id) not in stored
    )
    return next(added, "")


def _find_figure(stored: Mapping[str, Any], now: Mapping[str, Any], dtype: str) -> str:
    """Return the name of the first statistic that differs; empty if none does.

    The tolerance for mean and standard deviation is relative to the root mean square, because their
    relative difference is never larger than the relative L2 distance of the tensors. For minimum
    and maximum, it is relative to the largest magnitude.
    """
    for figure in ("shape", "dtype", *COUNTS):
        if stored[figure] != now[figure]:
            return figure
    dtypes = {stored["dtype"], dtype} if stored["dtype"] in RTOL else {stored["dtype"]}
    rtol = Tolerance().rtol_of(stored["call_id"], dtypes, sketched=False)
    known = {figure: stored[figure] or 0.0 for figure in _MEASURED}
    size = math.hypot(known["mean"], known["std"])
    largest = max(abs(known["min"]), abs(known["max"]))
    for figure, unit in zip(_MEASURED, (size, size, largest, largest), strict=True):
        one, two = stored[figure], now[figure]
        if (one is None) != (two is None):
            return figure
        if one is not None and not abs(one - two) <= rtol * unit:
            return figure
    return ""
