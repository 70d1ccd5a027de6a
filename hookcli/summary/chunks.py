"""A part of a run: some images in a row, and what they gave, in a form that can be put away and read again.

Everything a run says of its images is the sum of its parts in their order, so a run that was
interrupted goes on from the parts that are there, and ends with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hookcli.records.images import FileState, ImageResult, SkippedImage
from hookcli.records.pictures import Grid, HeatPicture
from hookcli.summary.call_tally import CallTally
from hookcli.summary.tally import Tally
from hookcli.summary.top_images import TopImages

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Chunk:
    """What the images of one part gave.

    Attributes:
        number: from 0.
        files: one an image of the plan, in its order.
        images: those that went through, in the same order.
        skipped: those that did not.
        calls: their figures, by call id.
        called: module paths of the selected layers that ran.
        written: which module wrote over what a call returned, by call id.
        broken: ``NaN`` and ``Inf``: the first image that holds it.
        grids: what the pictures show.
        heats: maps that were drawn over the images.
        written_files: relative to the run folder.
        alone: images may not share a forward from here on.
        halved: batches that ran out of memory and were divided.
        merge_key: settings that must agree before two chunks may be merged.
    """

    number: int = 0
    files: list[FileState] = field(default_factory=list)
    images: list[ImageResult] = field(default_factory=list)
    skipped: list[SkippedImage] = field(default_factory=list)
    calls: dict[str, CallTally] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    written: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    grids: list[Grid] = field(default_factory=list)
    heats: list[HeatPicture] = field(default_factory=list)
    written_files: list[str] = field(default_factory=list)
    alone: bool = False
    halved: int = 0
    merge_key: str = ""


@dataclass(slots=True)
class RunTotals:
    """What a run has found so far: the sum of its parts."""

    tally: Tally = field(default_factory=Tally)
    images: list[ImageResult] = field(default_factory=list)
    skipped: list[SkippedImage] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    written: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    grids: list[Grid] = field(default_factory=list)
    heats: list[HeatPicture] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    alone: bool = False
    halved: int = 0
    top: TopImages = field(default_factory=TopImages)
    focus: dict[str, Any] | None = None  # the box, and where it is in what the network sees

    def merge(self, part: Chunk) -> None:
        """Take over the next part."""
        self.tally.merge(part.calls)
        self.images += part.images
        self.skipped += part.skipped
        self.called |= part.called
        self.written |= part.written
        _add_missing(self.broken, part.broken)
        self.grids += part.grids
        self.heats += part.heats
        self.files += part.written_files
        self.alone |= part.alone
        self.halved += part.halved


def _add_missing(known: dict[str, str], more: Mapping[str, str]) -> None:
    for name, value in more.items():
        known.setdefault(name, value)
