"""Keep the tensors of the calls that differ most in a live comparison, for their pictures.

hookcli keeps the tensors of a few calls of the running image, and reduces them to feature maps when
the image is done. So memory grows with neither the number of images nor the number of calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hookcli.comparison.pictures import MOST_PICTURES, CallMaps, choose_rows, is_drawable
from hookcli.render.draw.compared_picture import compare_maps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.distance.comparison import DiffRow
    from hookcli.distance.judge import JudgedRow
    from hookcli.distance.metrics import TensorArray
    from hookcli.records.layouts import Layout


@dataclass(frozen=True, slots=True)
class _SeenCall:
    ids: tuple[str, str]  # in A, and in B
    rank: tuple[float, int]  # the worst call sorts first; of two, the one that completes first
    layout: Layout
    a: TensorArray
    b: TensorArray


@dataclass(slots=True)
class WorstCalls:
    _worst: list[_SeenCall] = field(default_factory=list)  # of the running image, the worst first
    _first: _SeenCall | None = None  # of the running image; None if none differs too much
    # by the ids of the calls in A and in B, each call with its worst image
    _maps: dict[tuple[str, str], CallMaps] = field(default_factory=dict)

    def start(self) -> None:
        self._worst, self._first = [], None

    def offer(
        self, judged: JudgedRow, index: int, layout: Layout, a: TensorArray, b: TensorArray
    ) -> None:
        """Keep the tensors ``a`` and ``b`` of a call in A and B if the call is one of the worst."""
        # So are those of the first call beyond the tolerance. ``index`` is the call's position in
        # A. The caller must not change ``a`` later; ``b`` is copied.
        rank = (-judged.excess, index)
        is_first = not judged.row.holds and (self._first is None or index < self._first.rank[1])
        is_worst = len(self._worst) < MOST_PICTURES or rank < self._worst[-1].rank
        if not (is_drawable(judged.row) and (is_first or is_worst)):
            return
        ids = (judged.row.call_id, judged.row.other_call_id)
        call = _SeenCall(ids, rank, layout, a, np.array(b))
        self._first = call if is_first else self._first
        if is_worst:
            self._worst = sorted([*self._worst, call], key=lambda each: each.rank)[:MOST_PICTURES]

    def finish(self, rows: Sequence[DiffRow], image: str) -> None:
        # ``rows`` are of all images so far, the worst call first.
        at_hand = {call.ids: call for call in (*self._worst, self._first) if call is not None}
        known, self._maps = self._maps, {}
        for row in choose_rows(rows):
            ids = (row.call_id, row.other_call_id)
            if row.image != image and ids in known:
                self._maps[ids] = known[ids]
            elif row.image == image and ids in at_hand:
                call = at_hand[ids]
                maps = compare_maps(call.a, call.b, call.layout)
                self._maps[ids] = CallMaps(maps, call.layout.name)
        self.start()

    def choose_rows(self, rows: Sequence[DiffRow]) -> list[DiffRow]:
        return [row for row in choose_rows(rows) if (row.call_id, row.other_call_id) in self._maps]

    def maps_of(self, row: DiffRow) -> CallMaps:
        return self._maps[row.call_id, row.other_call_id]
