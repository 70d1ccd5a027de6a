"""Define what a chunk (some consecutive images) holds, how large it is, and how chunks add up.

Everything that a run reports about its images is the sum of its chunks in their order. A resumed
run therefore continues from the saved chunks, and writes the same bytes as an uninterrupted run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from hookcli.records.attention_records import AttentionMaps
from hookcli.records.edit_effects import EditEffects
from hookcli.records.images import FileState, ImageResult, SkippedImage
from hookcli.records.pictures import Grid, HeatPicture, Thumbnails
from hookcli.summary.attention_tally import AttentionTally
from hookcli.summary.call_tally import CallTally

if TYPE_CHECKING:
    from collections.abc import Mapping


_LEAST = 32  # a chunk has at least this many images, except the last chunk of a run
FORM = 4  # of saved chunks: increase it when a field goes away, or when its type or meaning changes


@dataclass(slots=True)
class Chunk:
    """The results of some consecutive images: one chunk, or the sum of all chunks so far.

    The sum leaves ``number``, ``files`` and ``merge_key`` at their defaults. The names of the
    fields are also the names in the saved files.

    Attributes:
        files: the states of all image files of the chunk, including the skipped ones.
        calls: the statistics of each call, by call id.
        called: by module path of each layer that ran, what it took or returned instead of a tensor.
        written: by call id, what overwrote the call's output in place.
        unsteady: the ids of the calls that returned other values when the first image ran again.
        broken: the key of the first image that had ``NaN`` or ``Inf``, by this word.
        heatless: by layer, why ``--cam`` drew no map of it.
        attention: the statistics of each attention call, by call id.
        written_files: the files of the chunk, written or queued, relative to the run folder.
        alone: whether later chunks must run one image at a time.
        halved: the number of batches that ran out of memory and ran again in halves.
        merge_key: the settings that all chunks of a run have in common, as text.
    """

    number: int = 0
    files: list[FileState] = field(default_factory=list)
    images: list[ImageResult] = field(default_factory=list)
    skipped: list[SkippedImage] = field(default_factory=list)
    calls: dict[str, CallTally] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    grids: list[Grid] = field(default_factory=list)
    heats: list[HeatPicture] = field(default_factory=list)
    heatless: dict[str, str] = field(default_factory=dict)
    thumbnails: list[Thumbnails] = field(default_factory=list)
    attention: dict[str, AttentionTally] = field(default_factory=dict)
    attention_maps: list[AttentionMaps] = field(default_factory=list)
    written_files: list[str] = field(default_factory=list)
    alone: bool = False
    halved: int = 0
    edits: EditEffects = field(default_factory=EditEffects)
    merge_key: str = ""

    def merge(self, following: Chunk) -> None:
        for each in fields(self):
            if each.name not in ("number", "files", "merge_key"):
                mine, theirs = getattr(self, each.name), getattr(following, each.name)
                setattr(self, each.name, _add(mine, theirs))


def chunk_size(batch_size: int) -> int:
    return -(-_LEAST // batch_size) * batch_size


def merge_by_call(known: dict[str, Any], later: Mapping[str, Any]) -> None:
    for call_id, value in later.items():
        if call_id not in known:
            known[call_id] = value
        elif not isinstance(value, str):
            known[call_id].merge(value)


def _add(mine: Any, theirs: Any) -> Any:
    match mine:
        case dict():
            merge_by_call(mine, theirs)
        case EditEffects():
            mine.merge(theirs)
        case bool() | set():
            mine |= theirs
        case _:
            mine += theirs
    return mine
