"""Declare the record of one tensor for one image, and the columns of ``records.parquet``."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hookcli.outside.documents import Axes, Whole
from hookcli.records.rows import Side
from hookcli.records.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.records.calls import Call
    from hookcli.records.layouts import Layout


@dataclass(frozen=True)
class _TensorForm:  # the fields of ``TensorStats`` that come before the statistics
    __slots__ = ()

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TensorStats(Statistics, _TensorForm):
    """The statistics of one tensor for one image.

    Example:
        >>> stats = captured.records[0].stats
        >>> stats.mean, stats.std, stats.zero_fraction

    ``nan_count`` and ``inf_count`` count the values that are not finite. The mean, the standard
    deviation, the minimum and the maximum ignore these values, and are None if no value is finite.
    ``zero_fraction`` is None only for an empty tensor or a missing gradient. Complex values count
    by their magnitudes. All statistics are also columns of ``records.parquet``.

    Attributes:
        shape: the shape of the tensor or, in a batch, of one image's part: ``(1, C, H, W)``.
        dtype: torch's name of the dtype, without ``torch.``.
    """

    @property
    def norm(self) -> float | None:
        """The L2 norm of the finite values; None if no value is finite."""
        if self.mean is None or self.std is None:
            return None
        finite = self.numel - self.nan_count - self.inf_count
        return math.sqrt(finite * (self.mean**2 + self.std**2))

    @property
    def numel(self) -> int:
        """The number of values in the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelRange:
    """The smallest and the largest value of each channel; both are NaN for a channel with NaN."""

    low: Sequence[float]
    high: Sequence[float]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChannelRange):
            return NotImplemented
        return (list(self.low), list(self.high)) == (list(other.low), list(other.high))

    def __hash__(self) -> int:
        return hash((tuple(self.low), tuple(self.high)))


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """One row of a run's records, which describes one tensor of one call for one image.

    Example:
        >>> with hookcli.capture(model, layers="conv") as captured:
        ...     model(images)
        >>> {record.call.id: record.stats.mean for record in captured.records}

    Attributes:
        image: the image's key, its unique name in the run; empty for ``hookcli.capture``.
        call: the call, and the tensor that the record describes.
        layout: which axes of the tensor are batch, channels, rows and columns.
        stats: the statistics of the tensor.
        channels: each channel's smallest and largest value; None if the channel axis is unknown.
        histogram: how many values of a sample of the tensor are in each of several equal intervals,
            from the tensor's smallest to its largest value; empty if no sample was taken.
        change: the L2 norm of the change by edits, divided by the unedited tensor's L2 norm; None
            without edits.
        reason: why a gradient, and so its statistics, are missing; empty for all other tensors.
        sketch: 268 bytes that sum up the tensor, as ``hookcli.distance.sketch`` computes them;
            empty if none are kept.
    """

    image: str
    call: Call
    layout: Layout
    stats: TensorStats
    channels: ChannelRange | None = None
    histogram: tuple[int, ...] = ()
    change: float | None = None
    reason: str = ""
    sketch: bytes = b""


@dataclass(frozen=True, kw_only=True)
class _RecordColumns:  # the columns of ``records.parquet`` that come before the statistics
    __slots__ = ()

    image: str
    call_id: str
    module_path: str = ""
    module_type: str
    call_index: Whole = 0
    side: Side = "output"
    output_key: str = ""
    order: Whole = 0
    shape: Axes
    dtype: str
    layout: str = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow(Statistics, _RecordColumns):
    """A row of ``records.parquet``, which describes one tensor of one call for one image.

    hookcli makes the columns of the file, their types and their descriptions from this class.

    Attributes:
        image: the image's key, its unique name in the run.
        call_id: the id of the call, as tables show it: layer1.0.relu#1.
        module_path: the module's dotted name; empty for the model itself.
        module_type: the class name of the module, or the name of the operation.
        call_index: 0 for the module's first call in a forward pass, then 1, and so on.
        side: output, input, grad_output, grad_input, or param for the gradient of a parameter.
        output_key: the tensor's name if the call has several, or the parameter's; otherwise empty.
        order: the position of the call in the order in which the observed calls started, from 1.
        shape: the shape of one image's part of the tensor, with a batch axis of 1.
        dtype: torch's name of the dtype, such as float32.
        layout: the meaning of the axes, such as NCHW.
        change: the L2 norm of the change by edits, divided by the unedited tensor's L2 norm; null
            without edits.
        reason: why a gradient is missing; empty for all other tensors.
        grid: the file of the tensor's picture, relative to the run folder; empty without one.
        sketch: 67 little-endian float32 that sum up the tensor, as ``hookcli.distance.sketch``
            computes them; null if none are kept.
        target: of gradients for several classes, the class's index or predicted; else empty.
    """

    change: float | None = None
    reason: str = ""
    grid: str = ""
    sketch: bytes | None = None
    target: str = ""


_RECORD_COLUMNS = frozenset(each.name for each in fields(RecordRow))


def read_record(cells: Mapping[str, Any]) -> RecordRow:
    """Return a row of ``records.parquet``; a default replaces each cell that is missing or null."""
    known = {n: cell for n, cell in cells.items() if cell is not None and n in _RECORD_COLUMNS}
    return RecordRow(**{**known, "shape": tuple(cells["shape"])})
