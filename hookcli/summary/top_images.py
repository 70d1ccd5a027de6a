"""Keep the images with each channel's largest values, and rank the channels that stand out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hookcli.outside.documents import decode_escaped, encode_escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.records.layer_records import LayerRecord


@dataclass(slots=True)
class TopTally:
    """The images with the largest values of every channel of every call, the largest first.

    In a tie, the earlier image comes first; NaN and minus infinity are left out. ``values`` and
    ``indices``, the positions of the images in the run, are arrays (C, count) by call id. Where an
    image is missing, ``values`` has minus infinity and ``indices`` has -1.
    """

    count: int = 0  # images to keep per channel
    chunks: int = 0  # the chunks that were added
    values: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    indices: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def add(self, records: Iterable[LayerRecord], order: Mapping[str, int]) -> list[LayerRecord]:
        """Add a chunk's records; return those left out because their number of channels differs."""
        self.chunks += 1
        others: list[LayerRecord] = []
        if not self.count:
            return others
        sizes = {call_id: len(values) for call_id, values in self.values.items()}
        groups: dict[str, list[tuple[int, Sequence[float]]]] = {}
        for record in records:
            if record.channels is not None and record.call.side == "output":
                call_id, high = record.call.id, record.channels.high
                if len(high) != sizes.setdefault(call_id, len(high)):
                    others.append(record)
                else:
                    groups.setdefault(call_id, []).append((order[record.image], high))
        for call_id, group in groups.items():
            new = np.array([high for _, high in group])
            at = np.array([position for position, _ in group], dtype=np.int64)
            values = np.where(np.isnan(new), -np.inf, new).T
            self._join(call_id, values, np.broadcast_to(at, values.shape))
        return others

    def merge(self, chunk: TopTally) -> None:
        self.chunks += chunk.chunks
        for call_id, values in chunk.values.items():
            if len(values) == len(self.values.get(call_id, values)):
                self._join(call_id, values, chunk.indices[call_id])

    def rows(self) -> Iterator[tuple[str, int, int, int, float]]:
        """Yield (call id, channel, rank from 1, position of the image in the run, value)."""
        for call_id, values in self.values.items():
            channels = zip(values.tolist(), self.indices[call_id].tolist(), strict=True)
            for channel, (best, indices) in enumerate(channels):
                for rank, (value, index) in enumerate(zip(best, indices, strict=True), 1):
                    if index >= 0:
                        yield call_id, channel, rank, index, value

    def strongest(self, call_id: str, most: int) -> list[int]:
        """Return up to ``most`` channels with values above 0, the most outstanding channel first.

        The measure is ``(best - last) / (last + usual)``. ``best`` and ``last`` are the channel's
        largest and smallest finite kept values (at least 0); ``usual`` is the mean of ``best`` over
        the channels whose best value is finite and above 0. If ``usual`` is 5, a channel stands
        out with a best value of 10.71 and a last one of 2.98, but not with 100 and 90.
        """
        values = self.values[call_id]
        best = values[:, 0]
        firing = np.flatnonzero(np.isfinite(best) & (best > 0))
        if not firing.size:
            return []
        kept = values[firing]
        last = np.where(np.isfinite(kept), np.maximum(kept, 0), np.inf).min(1)
        out = (best[firing] - last) / (last + best[firing].mean())
        return [int(each) for each in firing[np.argsort(-out, kind="stable")[:most]]]

    def to_bytes(self) -> bytes:
        arrays = {
            call_id: (values.tobytes(), self.indices[call_id].tobytes())
            for call_id, values in self.values.items()
        }
        return encode_escaped(_SavedTop(self.count, self.chunks, arrays))

    def _join(self, call_id: str, new: NDArray[np.float64], at: NDArray[np.int64]) -> None:
        shape = (len(new), self.count)
        values = np.concatenate([self.values.get(call_id, np.full(shape, -np.inf)), new], 1)
        indices = np.concatenate([self.indices.get(call_id, np.full(shape, -1)), at], 1)
        order = np.argsort(-values, 1, kind="stable")[:, : self.count]
        self.values[call_id] = np.take_along_axis(values, order, 1)
        self.indices[call_id] = np.take_along_axis(indices, order, 1)


def list_tops(
    count: int, records: Sequence[LayerRecord], positions: Mapping[str, int]
) -> list[TopTally]:
    """Collect a chunk's top images: one tally, or several if a call's number of channels varies."""
    tops = [TopTally(count)]
    while records := tops[-1].add(records, positions):
        tops.append(TopTally(count, chunks=-1))
    return tops


@dataclass(frozen=True, slots=True)
class _SavedTop:
    count: int
    chunks: int
    arrays: dict[str, tuple[bytes, bytes]]  # the values and the indices, by call id


def read_top_images(data: bytes, images: int) -> TopTally | None:
    """Decode the result of ``TopTally.to_bytes``. Return None if ``data`` is damaged."""
    # A position that is not below ``images`` counts as damage.
    try:
        saved = decode_escaped(data, _SavedTop)
        top = TopTally(saved.count, saved.chunks)
        for call_id, (values, indices) in saved.arrays.items():
            top.values[call_id] = np.frombuffer(values, np.float64).reshape(-1, saved.count)
            form = top.values[call_id].shape
            top.indices[call_id] = np.frombuffer(indices, np.int64).reshape(form)
    except ValueError:
        return None
    kept = [indices for indices in top.indices.values() if indices.size]
    return top if all(-1 <= each.min() <= each.max() < images for each in kept) else None
