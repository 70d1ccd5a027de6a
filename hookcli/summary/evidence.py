"""Declare the facts about a run that the rules of findings need; ``run/close`` fills them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.records.calls import Uncalled
    from hookcli.records.images import Intensities, SkippedImage
    from hookcli.records.runs import ModelInfo
    from hookcli.summary.call_tally import CallTally


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts of one run from which findings are derived; those on images are by image key."""

    calls: Mapping[str, CallTally]
    uncalled: Sequence[Uncalled] = ()
    skipped: Sequence[SkippedImage] = ()
    model: ModelInfo | None = None
    takes_any_size: bool = False
    # (height, width) of the given image and of the network's input
    sizes: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    # for ``NaN`` and ``Inf``, a sentence that names the module that first produced it
    producers: Mapping[str, str] = field(default_factory=dict)
    # by call id, what overwrote the output in place
    written: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    # of pictures of more than 8 bits
    intensities: Mapping[str, Intensities] = field(default_factory=dict)
