"""Choose up to 12 calls of a comparison, draw their feature maps, and write the page of them."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.distance.comparison import find_first
from hookcli.errors import RequestError
from hookcli.outside.escape import for_page
from hookcli.outside.files import safe_name
from hookcli.records.images import match_images
from hookcli.records.layouts import recall_layout
from hookcli.records.text import shape_text
from hookcli.render.draw.compared_picture import compare_maps, draw_compared_maps, list_labels
from hookcli.render.report.diff_page import DiffPicture, render_difference
from hookcli.store.locations.names import PAGE
from hookcli.store.results import Kind, check_results, make_results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hookcli.comparison.compared_run import ComparedRun, RunCall
    from hookcli.config import Theme
    from hookcli.distance.comparison import Comparison, DiffRow
    from hookcli.reading.shards import Array
    from hookcli.render.draw.compared_picture import ComparedMaps

MOST_PICTURES = 12
_OURS = b'content="hookcli diff"'  # in the head of every page that this module writes
_PNG = re.compile(r'src="([0-9][0-9]_[^"/]+\.png)"')
_WHOLE = "save whole tensors in both runs: `tensors.save` without `pool` and `save.channels`"


@dataclass(frozen=True, slots=True)
class CallMaps:
    compared: ComparedMaps
    layout: str  # as in ``Layout.name``: ``NCHW``, ``NLC``, …


def check_pictures(folder: Path, a: ComparedRun, b: ComparedRun) -> None:
    without = [
        repr(run.name)
        for run in (a, b)
        if not any(call.read for calls in run.calls.values() for call in calls)
    ]
    if without:
        raise RequestError(
            f"`pictures` needs tensors, and {' and '.join(without)} kept none",
            "run both with `tensors.save`",
        )
    for run in (a, b):
        if run.pooled:
            raise RequestError(
                f"`pictures` needs whole tensors, and {run.name!r} "
                f"has them with {' '.join(run.pooled)}",
                _WHOLE,
            )
    if a.saved != b.saved:
        kinds = " and ".join(f"{run.name!r} {' '.join(run.saved) or 'none'}" for run in (a, b))
        hint = "run both with the same `save.dtype`"
        raise RequestError(f"`pictures` needs tensors of one kind: {kinds}", hint)
    check_folder(folder)


def check_folder(folder: Path) -> None:
    check_results(folder, _COMPARISON)


def write_pictures(
    folder: Path,
    comparison: Comparison,
    rows: Sequence[DiffRow],
    maps_of: Callable[[DiffRow], CallMaps],
    models: Sequence[str],
    theme: Theme = "dark",
) -> dict[str, Path]:
    # Several threads call ``maps_of``. ``models`` are the names of the models of A and B.
    title = " and ".join(dict.fromkeys(models))

    def draw(numbered: tuple[int, DiffRow]) -> tuple[DiffPicture, bytes]:
        number, row = numbered
        maps = maps_of(row)
        compared = maps.compared
        words = [row.names, shape_text(row.shape), maps.layout, title, row.image]
        heading = ["   ".join(for_page(word) for word in words), *compared.notes]
        signed = row.call_id.startswith(("grad_", "param:"))
        data, pixels = draw_compared_maps(compared, heading, signed=signed, theme=theme)
        where = f", image {row.image}" if len(comparison.images) > 1 else ""
        caption = (f"{_figures(row)}{where}", "; ".join(compared.notes))
        alt = f"A, B and B minus A of {row.names}. {'; '.join(list_labels(compared))}"
        file = f"{number:02d}_{safe_name(row.call_id)}.png"
        return DiffPicture(row, file, pixels, caption=caption, alt=alt), data

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
        drawn = list(threads.map(draw, enumerate(rows, 1)))
    page = render_difference(title, comparison, [picture for picture, _ in drawn])
    with make_results(folder, _COMPARISON) as made:
        made.write(PAGE, page.encode())
        for picture, data in drawn:
            made.write(picture.file, data)
    return {name: folder / name for name in made.files}


def choose_rows(rows: Sequence[DiffRow]) -> list[DiffRow]:
    first = find_first(rows)
    return sorted(filter(is_drawable, rows), key=lambda row: row != first)[:MOST_PICTURES]


def is_drawable(row: DiffRow) -> bool:
    return row.source.startswith("tensors") and bool(row.max_abs or row.reason)


def read_maps(a: ComparedRun, b: ComparedRun) -> Callable[[DiffRow], CallMaps]:
    others = dict(match_images(a.hashes, b.hashes))

    def read(row: DiffRow) -> CallMaps:
        one = _find_call(a, row.image, row.call_id)
        two = _find_call(b, others[row.image], row.other_call_id)
        pixels = a.images[row.image].pixels_shape
        size = (pixels[-2], pixels[-1]) if len(pixels) > 1 else None
        layout = recall_layout(one.layout, one.tensor.shape, size)
        return CallMaps(compare_maps(_read(one), _read(two), layout), layout.name)

    return read


def _find_call(run: ComparedRun, image: str, call_id: str) -> RunCall:
    return next(call for call in reversed(run.calls[image]) if call.tensor.call_id == call_id)


def _read(call: RunCall) -> Array:
    assert call.read is not None  # noqa: S101  the row was measured from tensors
    return call.read().reshape(call.tensor.shape)


def _figures(row: DiffRow) -> str:
    parts = [row.reason] if row.reason else []
    if row.rel_l2 is not None:
        parts.append(f"relative L2 {row.rel_l2:.3g}")
    if row.own_rel_l2 is not None:
        parts.append(f"own error {row.own_rel_l2:.3g}")
    return ", ".join([*parts, f"largest difference {row.max_abs:.3g}"])


def _list_pictures(page: bytes) -> list[str] | None:
    return _PNG.findall(page.decode(errors="replace")) if _OURS in page else None


_COMPARISON = Kind("comparison", "a", PAGE, _list_pictures, "choose another folder for `pictures`")
