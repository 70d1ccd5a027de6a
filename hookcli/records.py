"""The light side of a run: strings and numbers, no tensors.

Everything that leaves the model's forward pass as a fact is one of these frozen values. Nothing here
computes on tensors, reads or writes files, or knows how it will be shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT_LABEL = "(model)"
RECOMPUTED = "it was computed again in the backward"  # why a call has no gradient of its own


def shape_text(shape: Sequence[int]) -> str:
    """A shape as people see it: ``1x64x56x56``; ``scalar`` without axes."""
    return "x".join(str(length) for length in shape) or "scalar"


def figure_text(value: float | None) -> str:
    """Three digits of how far two calls are apart; empty where it is not known."""
    if value is None:
        return ""
    return f"{value:.3g}" if math.isfinite(value) else "not finite"


def fact_text(value: Any) -> str:
    """What a run depends on, as people read it."""
    if value is None or value == "":
        return "none"
    return shape_text(value) if isinstance(value, list) else str(value)


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One module of a model.

    Attributes:
        module_path: dotted name from ``named_modules()``; empty for the model itself.
        module_type: class name.
        depth: 0 for the model itself, 1 for its children, and so on.
        is_leaf: the module has no children, or is a ``MultiheadAttention``.
        params: parameters of this module and all below it.
        channels: where its output keeps channels, as far as its type tells: ``first``, ``last``,
            ``likely first`` or ``likely last`` (a neighbour's type tells), ``mixed`` when its axes
            are no longer the image's, or ``unknown``.
    """

    module_path: str
    module_type: str
    depth: int = 1
    is_leaf: bool = True
    params: int = 0
    channels: str = "unknown"

    @property
    def label(self) -> str:
        """The module path as people see it."""
        return self.module_path or ROOT_LABEL


@dataclass(frozen=True, slots=True)
class Call:
    """One tensor of one call of one module.

    Attributes:
        layer: the module.
        call_index: 0 for the module's first call in one forward, then 1, …
        order: position among the observed calls, from 1, by the moment the call started.
        side: ``output``, ``input``, ``grad_output``, ``grad_input``, or ``param`` (a gradient too).
        output_key: which tensor of an output that is several, empty when it is one; a parameter's name.
    """

    layer: LayerInfo
    call_index: int = 0
    order: int = 0
    side: str = "output"
    output_key: str = ""

    @property
    def id(self) -> str:
        """What people see and paste: ``layer1.0.relu#1``, ``self_attention[1]``, ``input:fc``, ``param:fc.bias``."""
        if self.side == "param":
            return "param:" + ".".join(filter(None, (self.layer.module_path, self.output_key)))
        side = "" if self.side == "output" else f"{self.side}:"
        index = f"#{self.call_index}" if self.call_index else ""
        key = f"[{self.output_key}]" if self.output_key else ""
        return f"{side}{self.layer.label}{index}{key}"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the axes of a tensor mean.

    Attributes:
        name: ``NCHW``, ``NHWC``, ``NLC``, ``NCL``, ``NC``, ``NCDHW``, ``NDHWC``, or ``unknown``.
        channel_axis: which axis holds channels; None when that cannot be told.
        height: rows of one feature map; 0 when there is no spatial form.
        width: columns of one feature map; 0 when there is no spatial form.
        prefix: how many tokens stand before the spatial ones (the class token).
    """

    name: str = "unknown"
    channel_axis: int | None = None
    height: int = 0
    width: int = 0
    prefix: int = 0

    @property
    def is_spatial(self) -> bool:
        """Whether a channel can be drawn as a picture."""
        return self.height * self.width > 1


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

    __hash__ = None  # type: ignore[assignment]


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
        sketch: its 268 bytes (see ``hookcli.sketches``); empty when none was taken.
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


@dataclass(frozen=True, slots=True)
class Uncalled:
    """A selected layer that never ran, and why as far as that is known."""

    layer: LayerInfo
    reason: str
