"""What the rules of findings look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.records.calls import Uncalled
    from hookcli.records.images import SkippedImage
    from hookcli.records.runs import ModelInfo
    from hookcli.summary.call_tally import CallTally


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rules look at.

    Attributes:
        calls: the figures of each call over the images, by its id.
        uncalled: selected layers that did not run.
        skipped: images that were not used.
        model: which model ran.
        sizes: height and width of each image by key, as given, and of what the network saw of it.
        producers: who made the first ``NaN`` and ``Inf``, as sentences.
        written: which module wrote over what a call returned, by call id.
        files: each image's file as the user gave it, by key.
    """

    calls: Mapping[str, CallTally]
    uncalled: Sequence[Uncalled] = ()
    skipped: Sequence[SkippedImage] = ()
    model: ModelInfo | None = None
    sizes: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    producers: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
