"""The figures of a layer: strings and numbers, no tensors.

Every figure that leaves a forward or a backward pass is in one of these frozen values. Nothing here
computes on tensors, reads or writes files, or knows how the figures will be shown.
"""

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
class _TensorForm:
    """The form of a tensor; a base class, so that its fields come before the statistics."""

    __slots__ = ()

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TensorStats(Statistics, _TensorForm):
    """The figures of one tensor of one image.

    Example:
        >>> stats = captured.records[0].stats
        >>> stats.mean, stats.std, stats.zero_fraction

    NaN and Inf are counted, but do not affect the other figures, which are None when no value is
    finite; ``zero_fraction`` is None only for an empty tensor. Complex values count by their
    magnitudes. All figures are also columns of ``records.parquet``.

    Attributes:
        shape: the shape of the tensor; for one image of a batch only its part, ``(1, C, H, W)``.
        dtype: torch's name of the dtype, without ``torch.``.
    """

    @property
    def norm(self) -> float | None:
        """The L2 norm of the finite values; None when there are none."""
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
    """The smallest and largest value of each channel, in channel order.

    Both are NaN for a channel that holds NaN.
    """

    low: Sequence[float]
    high: Sequence[float]

    def __eq__(self, other: object) -> bool:
        """Return whether the values are the same, whatever type of sequence holds them."""
        if not isinstance(other, ChannelRange):
            return NotImplemented
        return (list(self.low), list(self.high)) == (list(other.low), list(other.high))

    def __hash__(self) -> int:
        """Return a hash that equal ranges share."""
        return hash((tuple(self.low), tuple(self.high)))


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """One row of a run's records: one tensor of one call, for one image.

    Example:
        >>> with hookcli.capture(model, layers="conv") as captured:
        ...     model(images)
        >>> {record.call.id: record.stats.mean for record in captured.records}

    Attributes:
        image: the image's key; empty outside a run over images.
        call: the call, and the tensor among the call's tensors.
        layout: the meaning of the tensor's axes.
        stats: the figures of the tensor.
        channels: the range of each channel; None when the layout has no channel axis.
        grid: the file of the picture, relative to the run folder; empty if none was drawn.
        histogram: the number of values of a sample in each of the equal intervals between the
            smallest and the largest value; empty when no sample was taken.
        change: the L2 norm of the difference from the run without edits, over the norm in that run;
            None in a run without edits.
        reason: why there is no gradient (the figures are then None); empty when there is one.
        sketch: the 268 bytes of its sketch (see ``hookcli.distance.sketch``); empty when none was
            taken.
    """

    image: str
    call: Call
    layout: Layout
    stats: TensorStats
    channels: ChannelRange | None = None
    grid: str = ""
    histogram: tuple[int, ...] = ()
    change: float | None = None
    reason: str = ""
    sketch: bytes = b""


@dataclass(frozen=True, kw_only=True)
class _RecordColumns:
    """The columns of ``records.parquet`` that come before the statistics."""

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
    """A row of ``records.parquet``: one tensor of one call, for one image.

    The file's columns, their types and their texts are made from this class. Files of earlier
    versions may lack columns that have a default, but not the statistics ``IN_EVERY_VERSION``.

    Attributes:
        image: key of the image.
        call_id: the call and its layer, as in tables.
        module_path: dotted name; empty for the model itself.
        module_type: class name.
        call_index: 0 for the module's first call in a forward.
        side: output, input, grad_output, grad_input, or param for the gradient of a parameter.
        output_key: name of one tensor among several; empty for a single one; a parameter's name.
        order: position among the observed calls, counted from 1 by their start.
        shape: the shape of this image's part, with leading axis 1.
        dtype: the name of the type in torch.
        layout: the meaning of the axes.
        change: distance from the run without edits, relative to its norm; null without edits.
        reason: why there is no gradient; empty when there is one.
        grid: the picture, relative to the run folder; empty if none was drawn.
        sketch: 67 float32, little-endian, see hookcli/distance/sketch.py; null if none was kept.
    """

    change: float | None = None
    reason: str = ""
    grid: str = ""
    sketch: bytes | None = None


_RECORD_COLUMNS = frozenset(each.name for each in fields(RecordRow))


def read_record(cells: Mapping[str, Any]) -> RecordRow:
    """Return a row that was read from a file; missing or null cells get their defaults."""
    known = {n: cell for n, cell in cells.items() if cell is not None and n in _RECORD_COLUMNS}
    return RecordRow(**{**known, "shape": tuple(cells["shape"])})
