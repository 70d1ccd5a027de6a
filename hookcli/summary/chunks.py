"""A chunk of a run: some consecutive images and their results, in a form that can be saved.

Everything that a run reports about its images is the sum of its chunks in their order, so a run
that was interrupted resumes from the saved chunks and ends with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli.records.attention import AttentionMaps
from hookcli.records.images import FileState, ImageResult, SkippedImage
from hookcli.records.pictures import Grid, HeatPicture, Thumbnails
from hookcli.summary.attention_tally import AttentionTally, merge_attention
from hookcli.summary.call_tally import CallTally
from hookcli.summary.tally import Tally
from hookcli.summary.top_images import TopImages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookcli.records.report import FocusBox


@dataclass(slots=True)
class Chunk:
    """The results of the images of one chunk. Its field names are those of the saved files.

    Attributes:
        number: the number of the chunk, from 0.
        files: the state of each file that was planned, in the order of the plan.
        images: the images that went through the model, in the same order.
        skipped: the images that could not be used.
        calls: the figures of the images, by call id.
        called: the module paths of the selected layers that ran.
        written: the module that wrote over the output of a call, by call id.
        broken: the first image that holds a ``NaN``, and the first that holds an ``Inf``.
        grids: the pictures of feature maps, and what they show.
        heats: the maps that were drawn over the images.
        thumbnails: the pictures of thumbnails.
        attention: the figures of the attention calls, by call id.
        attention_maps: the maps of the attention calls, for the page.
        written_files: the files that were written, relative to the run folder.
        alone: whether images may not share a forward from this chunk on.
        halved: the number of batches that ran out of memory and were divided.
        merge_key: the settings that must be the same before two chunks may be merged.
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
    thumbnails: list[Thumbnails] = field(default_factory=list)
    attention: dict[str, AttentionTally] = field(default_factory=dict)
    attention_maps: list[AttentionMaps] = field(default_factory=list)
    written_files: list[str] = field(default_factory=list)
    alone: bool = False
    halved: int = 0
    merge_key: str = ""


@dataclass(slots=True)
class RunTotals:
    """The results of a run so far: the sum of its chunks.

    Attributes:
        tally: the figures of the images.
        images: the images that went through the model.
        skipped: the images that could not be used.
        called: the module paths of the selected layers that ran.
        written: the module that wrote over the output of a call, by call id.
        broken: the first image that holds a ``NaN``, and the first that holds an ``Inf``.
        grids: the pictures of feature maps, and what they show.
        heats: the maps that were drawn over the images.
        thumbnails: the pictures of thumbnails.
        attention: the figures of the attention calls, by call id.
        attention_maps: the maps of the attention calls, for the page.
        files: the files that were written, relative to the run folder.
        alone: whether images may no longer share a forward.
        halved: the number of batches that ran out of memory and were divided.
        top: the images that fire each channel most.
        focus: the box of ``--focus`` and its place in the network's input; None without a box.
    """

    tally: Tally = field(default_factory=Tally)
    images: list[ImageResult] = field(default_factory=list)
    skipped: list[SkippedImage] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    written: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    grids: list[Grid] = field(default_factory=list)
    heats: list[HeatPicture] = field(default_factory=list)
    thumbnails: list[Thumbnails] = field(default_factory=list)
    attention: dict[str, AttentionTally] = field(default_factory=dict)
    attention_maps: list[AttentionMaps] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    alone: bool = False
    halved: int = 0
    top: TopImages = field(default_factory=TopImages)
    focus: FocusBox | None = None

    def merge(self, chunk: Chunk) -> None:
        """Add the next chunk."""
        self.tally.merge(chunk.calls)
        self.images += chunk.images
        self.skipped += chunk.skipped
        self.called |= chunk.called
        self.written |= chunk.written
        _add_missing(self.broken, chunk.broken)
        self.grids += chunk.grids
        self.heats += chunk.heats
        self.thumbnails += chunk.thumbnails
        merge_attention(self.attention, chunk.attention)
        self.attention_maps += chunk.attention_maps
        self.files += chunk.written_files
        self.alone |= chunk.alone
        self.halved += chunk.halved


def _add_missing(known: dict[str, str], more: Mapping[str, str]) -> None:
    for name, value in more.items():
        known.setdefault(name, value)
