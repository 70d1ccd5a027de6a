"""The facts about a run that the rules of findings need."""

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
    """The facts about a run that the rules of findings need.

    Attributes:
        calls: the figures of each call over the images, by call id.
        takes_any_size: the model was made for pictures of no particular size.
        sizes: two sizes of each image, by its key: the height and width of the given image, and of
            the network's input.
        producers: a sentence about the module that produced the first ``NaN`` or ``Inf``, by that
            name.
        written: the module that overwrote the output of a call, by call id.
        files: the file of each image as the user gave it, by its key.
    """

    calls: Mapping[str, CallTally]
    uncalled: Sequence[Uncalled] = ()
    skipped: Sequence[SkippedImage] = ()
    model: ModelInfo | None = None
    takes_any_size: bool = False
    sizes: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    producers: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
