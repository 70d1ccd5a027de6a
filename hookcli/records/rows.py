"""Rows of ``layers.csv``, and of what ``hookcli ablate``, ``report`` and ``export`` print."""

from __future__ import annotations

from dataclasses import dataclass

from hookcli.documents import Axes, Whole
from hookcli.records.statistics import Statistics


@dataclass(frozen=True)
class _CallColumns:
    """The columns that come before the statistics: which call it is, and what its tensor is."""

    __slots__ = ()

    order: Whole
    call_id: str
    module_path: str
    module_type: str
    call_index: Whole
    side: str
    output_key: str
    shape: Axes
    dtype: str
    layout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow(Statistics, _CallColumns):
    """One row of ``layers.csv``, and one of ``layers`` in the JSON document.

    The statistics are those of the values of all images. ``dead_channels`` is the number of
    channels that are zero everywhere in all images, out of ``channels``; both are None without a
    channel axis. ``shape`` is that of one image, the first one where images differ.

    ``norm`` is the L2 norm of an image's finite values, and over several images the root of the
    mean square of their norms. ``ratio`` is, for a parameter's gradient, ``norm`` over the norm of
    the parameter. ``change`` is the distance of an edited run from the run without edits: the L2
    norm of the difference over that of the unedited values, and over several images the root of the
    mean square. ``sparsity`` is the share of zeros in the weight of a pruned layer. ``reason`` says
    why there is no gradient. ``layout_note`` says that the layout was inferred; it is empty where
    the type of the module or the shape tells.
    """

    dead_channels: Whole | None
    channels: Whole | None
    images: Whole
    params: Whole
    norm: float | None = None
    ratio: float | None = None
    change: float | None = None
    sparsity: float | None = None
    reason: str = ""
    layout_note: str = ""


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """The effect of one channel on a score. The figures are None when a score is not finite.

    Attributes:
        rank: the rank from 1; the channel on which the score depends most comes first.
        layer: the label of the layer (``LayerInfo.label``).
        channel: the channel, counted from 0.
        effect: ``plain_score`` minus ``score``.
        score: the mean score over the images, with the channel set to zero.
        plain_score: the mean score over the images, with nothing set to zero.
        images: the number of images.
    """

    rank: int
    layer: str
    channel: int
    effect: float | None
    score: float | None
    plain_score: float | None
    images: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file that ``hookcli report`` or ``hookcli export`` wrote.

    Attributes:
        file: its path from the working directory.
        call_id: the call that the file is about; empty for a page, and for the list of images that
            all arrays share.
        shape: the shape of its array, (images, …); None for a file that holds no array.
    """

    file: str
    call_id: str = ""
    shape: tuple[int, ...] | None = None
