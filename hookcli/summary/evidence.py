"""The facts about a run that the rules of findings need."""

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
    """The facts about a run that the rules of findings need.

    Attributes:
        takes_any_size: whether the model is made for pictures of any size.
        sizes: by image key, the (height, width) of the given image and the (height, width) of the
            network's input.
        producers: by kind (``NaN`` or ``Inf``), a sentence that says which module produced the
            first such value.
        written: by call id, what overwrote the call's output in place: a module (``by relu
            (ReLU)``), or an operation between modules (``inside layer1.0 (BasicBlock)``).
        intensities: by image key, the range of values of each picture of more than 8 bits.
        files: by image key, the file of the image as the user gave it.
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
    intensities: Mapping[str, Intensities] = field(default_factory=dict)
