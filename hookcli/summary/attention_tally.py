"""Average the statistics of each attention head over the images, for ``attention.csv``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hookcli.records.attention_records import AttentionRow

_OF_HEADS = ("entropy", "prefix_share", "distance")  # the statistics with one value per head


@dataclass(slots=True)
class HeadSums:
    sums: list[float]
    counts: list[int]

    @classmethod
    def of(cls, values: tuple[float | None, ...]) -> HeadSums:
        return cls([value or 0.0 for value in values], [int(value is not None) for value in values])

    def merge(self, other: HeadSums) -> None:
        if len(other.sums) == len(self.sums):
            self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]
            self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]

    def means(self) -> tuple[float | None, ...]:
        pairs = zip(self.sums, self.counts, strict=True)
        return tuple(total / count if count else None for total, count in pairs)


@dataclass(slots=True)
class AttentionTally:
    # of the first image with statistics; ``row_error`` and ``broken`` cover all images
    row: AttentionRow
    images: int
    heads: dict[str, HeadSums]  # by the name of a statistic

    @classmethod
    def of(cls, row: AttentionRow) -> AttentionTally:
        return cls(row, row.images, {name: HeadSums.of(getattr(row, name)) for name in _OF_HEADS})

    def merge(self, other: AttentionTally) -> None:
        self.images += other.images
        if not self.row.function:  # no earlier image has statistics
            self.row = replace(other.row, reason=other.row.reason or self.row.reason)
            self.heads = other.heads
            return
        errors = [each for each in (self.row.row_error, other.row.row_error) if each is not None]
        broken = self.row.broken + other.row.broken
        self.row = replace(self.row, row_error=max(errors, default=None), broken=broken)
        for name, sums in self.heads.items():
            sums.merge(other.heads[name])

    def means(self) -> AttentionRow:
        means: dict[str, Any] = {name: sums.means() for name, sums in self.heads.items()}
        return replace(self.row, images=self.images, **means)
