"""Rows of tables: of ``layers.csv``, and of what ``hookcli ablate``, ``report`` and ``export`` print."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One row of ``layers.csv``, and one of ``layers`` in the JSON document.

    ``mean`` and ``std`` (population) are over all finite values of all images, ``min`` and ``max``
    too, ``zero_fraction`` over all values; ``dead_channels`` counts the channels that are zero
    everywhere in all images, of ``channels``, both None without a channel axis. ``shape`` is one
    image's; where images differ it is the first one's.

    ``norm`` is the L2 norm of an image's finite values, over images the root of the mean square;
    ``ratio``, of a parameter's gradient, is ``norm`` over the norm of the parameter. ``change`` is how
    far an edited run is from the one without edits: the L2 norm of the difference over that of the
    unedited values, over images the root of the mean square. ``sparsity`` is the share of zeros in the weight of a
    layer that was pruned. ``reason`` says why there is no gradient.
    """

    order: int
    call_id: str
    module_path: str
    module_type: str
    call_index: int
    side: str
    output_key: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    zero_fraction: float | None
    nan_count: int
    inf_count: int
    dead_channels: int | None
    channels: int | None
    images: int
    params: int
    norm: float | None = None
    ratio: float | None = None
    change: float | None = None
    sparsity: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """What a score loses by one channel. The figures are None where a score is not finite.

    Attributes:
        rank: from 1; the channel that the score depends on most comes first.
        layer: the module path as people see it.
        channel: counted from 0.
        effect: ``plain_score`` minus ``score``.
        score: with the channel zeroed, the mean over the images.
        plain_score: with nothing zeroed, the mean over the images.
        images: over how many.
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
        file: as it is found from the working directory.
        call_id: what the file is of; empty for a page, and for the images of all arrays.
        shape: of what the call gave, (images, …); None for a file that does not hold it.
    """

    file: str
    call_id: str = ""
    shape: tuple[int, ...] | None = None
