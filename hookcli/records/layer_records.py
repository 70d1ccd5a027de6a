"""The light side of a run: strings and numbers, no tensors.

Everything that leaves the model's forward pass as a fact is one of these frozen values. Nothing here
computes on tensors, reads or writes files, or knows how it will be shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.records.calls import Call
    from hookcli.records.layouts import Layout


@dataclass(frozen=True, slots=True)
class TensorStats:
    """What one activation of one image looks like in numbers.

    NaN and Inf are counted and left out of the other figures, which are None when nothing finite is left.

    Attributes:
        shape: of the tensor, one image's part of a batch standing alone: ``(1, C, H, W)``.
        dtype: as torch names it, without ``torch.``.
        mean: arithmetic mean.
        std: population standard deviation (divided by n).
        min: smallest value.
        max: largest value.
        zero_fraction: exact zeros over all values, 0 to 1; None for an empty tensor.
        nan_count: values that are NaN.
        inf_count: values that are plus or minus infinity.
    """

    shape: tuple[int, ...]
    dtype: str
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    zero_fraction: float | None
    nan_count: int = 0
    inf_count: int = 0

    @property
    def norm(self) -> float | None:
        """L2 norm of the finite values; None without any."""
        if self.mean is None or self.std is None:
            return None
        finite = self.numel - self.nan_count - self.inf_count
        return math.sqrt(finite * (self.mean**2 + self.std**2))

    @property
    def numel(self) -> int:
        """How many numbers the tensor holds; a complex value is two."""
        product = 2 if self.dtype.startswith("complex") else 1
        for length in self.shape:
            product *= length
        return product


@dataclass(frozen=True, slots=True, eq=False)
class ChannelRange:
    """Smallest and largest value of each channel, in channel order; NaN where a channel holds NaN."""

    low: Sequence[float]
    high: Sequence[float]

    def __eq__(self, other: object) -> bool:
        """Whether the values are the same, whatever holds them."""
        if not isinstance(other, ChannelRange):
            return NotImplemented
        return (list(self.low), list(self.high)) == (list(other.low), list(other.high))

    def __hash__(self) -> int:
        """The same for ranges that are equal."""
        return hash((tuple(self.low), tuple(self.high)))


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """One row: what one call did to one image.

    Attributes:
        image: the image's key; empty outside a run over images.
        call: which tensor of which call.
        layout: what its axes mean.
        stats: the figures.
        channels: each channel's range; None where the layout has no channel axis.
        grid: the picture's file, relative to the run folder; empty when none was drawn.
        histogram: how many of a sample of the values lie in each of equal parts of the way from the
            smallest to the largest; empty when no sample was taken.
        change: L2 norm of the difference from the run without edits, over the norm there; None in a
            run without edits.
        reason: why there is no gradient; the figures are then None.
        sketch: its 268 bytes (see ``hookcli.distance.sketch``); empty when none was taken.
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
