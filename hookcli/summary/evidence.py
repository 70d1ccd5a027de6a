"""Declare the facts about a run that the rules of findings need; ``run/close`` fills them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli.summary.scales import order_by_end

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.records.calls import Uncalled
    from hookcli.records.images import Intensities, SkippedImage
    from hookcli.records.pictures import HeatPicture
    from hookcli.records.runs import ModelInfo
    from hookcli.summary.call_tally import CallTally


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts of one run from which hookcli derives findings.

    Attributes:
        calls: the statistics of each call, by call id.
        takes_any_size: whether the model is made for images of any size.
        sizes: by image key, the (height, width) of the image and of the network's input.
        producers: for ``NaN`` and ``Inf``, a sentence that names the module that first produced it.
        written: by call id, what overwrote the call's output in place.
        unsteady: the ids of the calls that returned other values when the first image ran again.
        files: the names of the image files, by image key.
        intensities: the ranges of images with more than 8 bits, by image key.
        idle_norms: by path of each module, in the model's order, whether it is a batch norm that
            has no statistics yet, and so rescales nothing.
        cams: the Grad-CAMs, with their tests.
    """

    calls: Mapping[str, CallTally]
    uncalled: Sequence[Uncalled] = ()
    skipped: Sequence[SkippedImage] = ()
    model: ModelInfo | None = None
    takes_any_size: bool = False
    sizes: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    producers: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    unsteady: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    intensities: Mapping[str, Intensities] = field(default_factory=dict)
    idle_norms: Mapping[str, bool] = field(default_factory=dict)
    cams: Sequence[HeatPicture] = ()

    def list_ended(self, side: str, target: str = "") -> list[CallTally]:
        """Return the tallies of one side in the order in which the calls ended."""
        calls = self.calls.values()
        return order_by_end(t for t in calls if (t.call.side, t.call.target) == (side, target))
