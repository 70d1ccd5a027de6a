"""Write the figures of a ``hookcli.capture`` block to TensorBoard or a similar writer.

hookcli imports no logging library: any object with ``add_scalar`` and ``add_image`` is a writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from hookcli.passes.kept_grids import draw_kept
from hookcli.records.statistics import STATISTICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.records.layer_records import LayerRecord, TensorStats


class LogWriter(Protocol):
    """The two methods of TensorBoard's ``SummaryWriter`` that hookcli calls."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> object:
        """Write one number for a training step."""

    def add_image(self, tag: str, img_tensor: NDArray[np.uint8], global_step: int, /) -> object:
        """Write one picture, (3, H, W), for a training step."""


def write_log(
    writer: LogWriter,
    step: int,
    prefix: str,
    records: Sequence[LayerRecord],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write the figures of every record, and a picture of every kept tensor with height and width.

    The tag of a figure is ``prefix/call id/figure``; the tag of a picture is ``prefix/call id``.
    """
    for record in records:
        for name, value in _list_figures(record.call.side, record.stats):
            writer.add_scalar(f"{prefix}/{record.call.id}/{name}", value, step)
    for call_id, image in draw_kept(records, tensors):
        writer.add_image(f"{prefix}/{call_id}", np.asarray(image).transpose(2, 0, 1), step)


def _list_figures(side: str, stats: TensorStats) -> Iterator[tuple[str, float]]:
    # hookcli leaves out ``min`` and ``max`` of activations, and figures that are None.
    figures = {"norm": stats.norm, "max_abs": _largest(stats)}
    if side in ("output", "input"):
        figures = {name: getattr(stats, name) for name in STATISTICS if name not in ("min", "max")}
    counts = {name: getattr(stats, name) for name in STATISTICS if STATISTICS[name].unit == "count"}
    for name, value in (figures | counts).items():
        if value is not None:
            yield name, value


def _largest(stats: TensorStats) -> float | None:
    if stats.min is None or stats.max is None:
        return None
    return max(abs(stats.min), abs(stats.max))
