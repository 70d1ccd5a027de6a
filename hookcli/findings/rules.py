"""The rules with their thresholds, and what they look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.records import LayerRecord, Uncalled
    from hookcli.results import ModelInfo, SkippedImage

RULES: dict[str, float] = {
    "nan": 0,  # values that are NaN, more than
    "inf": 0,  # values that are infinite, more than
    "dead": 0.2,  # share of channels that are zero everywhere, at least
    "constant": 0.2,  # share of channels that hold one value other than zero, at least
    "saturated": 0.2,  # share of channels that never leave an end of their activation, at least
    "exploding": 20,  # spread over that of the layer of the same type before, at least
    "vanishing": 20,  # the other way round
    "float16": 0.5,  # largest magnitude over what float16 holds, at least
    "overwritten": 0,  # layers whose output is written over in place later, more than
    "uncalled": 0,  # selected layers that did not run, more than
    "skipped": 0,  # images that were skipped, more than
    "untrained": 0,  # weights that are random
    "small": 1,  # shorter side of the image over what the network sees, less than
}
"""Every rule with its threshold, the gravest first."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rules look at.

    Attributes:
        records: one an image, call and output.
        uncalled: selected layers that did not run.
        skipped: images that were not used.
        model: which model ran.
        sizes: height and width of each image by key, as given, and of what the network saw of it.
        producers: who made the first ``NaN`` and ``Inf``, as sentences.
        written: which module wrote over what a call returned, by call id.
    """

    records: Sequence[LayerRecord]
    uncalled: Sequence[Uncalled] = ()
    skipped: Sequence[SkippedImage] = ()
    model: ModelInfo | None = None
    sizes: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    producers: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)


def count_layers(count: int, more: str = "") -> str:
    """``1 layer``, ``2 layers``."""
    return f"{count} {more}layer{'' if count == 1 else 's'}"
