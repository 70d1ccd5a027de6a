"""The figures of attention calls over many images, added up as they come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hookcli.records.attention import AttentionRow

_OF_HEADS = ("entropy", "prefix_share", "distance")  # the figures with one number per head


@dataclass(slots=True)
class HeadSums:
    """A figure of each head, summed over images.

    Attributes:
        sums: the sum over the images in which the head has the figure.
        counts: the number of these images.
    """

    sums: list[float]
    counts: list[int]

    @classmethod
    def of(cls, values: tuple[float | None, ...]) -> HeadSums:
        """Return the sums of one image."""
        return cls([value or 0.0 for value in values], [int(value is not None) for value in values])

    def merge(self, other: HeadSums) -> None:
        """Add the sums of later images, unless their number of heads differs."""
        if len(other.sums) == len(self.sums):
            self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]
            self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]

    def means(self) -> tuple[float | None, ...]:
        """Return each head's mean; None where no image has the figure."""
        pairs = zip(self.sums, self.counts, strict=True)
        return tuple(total / count if count else None for total, count in pairs)


@dataclass(slots=True)
class AttentionTally:
    """One attention call over some images.

    Attributes:
        row: the row of the first image that has figures.
        heads: the sums of the heads' figures, by the name of the figure.
    """

    row: AttentionRow
    images: int
    heads: dict[str, HeadSums]

    @classmethod
    def of(cls, row: AttentionRow) -> AttentionTally:
        """Return the tally of one image from its row."""
        heads = {name: HeadSums.of(getattr(row, name)) for name in _OF_HEADS}
        return cls(row, row.images, heads)

    def merge(self, other: AttentionTally) -> None:
        """Add the tally of later images."""
        self.images += other.images
        if not self.row.function:  # the images before have no figures
            self.row = replace(other.row, reason=other.row.reason or self.row.reason)
            self.heads = other.heads
            return
        errors = [each for each in (self.row.row_error, other.row.row_error) if each is not None]
        broken = self.row.broken + other.row.broken
        self.row = replace(self.row, row_error=max(errors, default=None), broken=broken)
        for name, sums in self.heads.items():
            sums.merge(other.heads[name])

    def means(self) -> AttentionRow:
        """Return the row with the means over the images."""
        means: dict[str, Any] = {name: sums.means() for name, sums in self.heads.items()}
        return replace(self.row, images=self.images, **means)
