"""The figures of attention calls over many images, added up as they come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hookcli.records.attention import AttentionRow


@dataclass(slots=True)
class HeadSums:
    """A figure of each head, added up over images.

    Attributes:
        sums: the sum over the images in which the head has the figure.
        counts: how many these are.
    """

    sums: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, values: tuple[float | None, ...]) -> HeadSums:
        """Return the sums of one image."""
        return cls([value or 0.0 for value in values], [int(value is not None) for value in values])

    def merge(self, other: HeadSums) -> None:
        """Add the sums of later images; the figures of other numbers of heads are left out."""
        if len(other.sums) == len(self.sums):
            self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]
            self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]

    def means(self) -> tuple[float | None, ...]:
        """Return the mean of each head; None where no image has the figure."""
        pairs = zip(self.sums, self.counts, strict=True)
        return tuple(total / count if count else None for total, count in pairs)


@dataclass(slots=True)
class AttentionTally:
    """One attention call over some images.

    Attributes:
        row: the facts of the call, as the first of the images has them.
        images: the number of images.
        entropy: the entropy of each head.
        prefix_share: the share of each head's attention on the prefix.
        distance: how far each head looks.
    """

    row: AttentionRow
    images: int = 0
    entropy: HeadSums = field(default_factory=HeadSums)
    prefix_share: HeadSums = field(default_factory=HeadSums)
    distance: HeadSums = field(default_factory=HeadSums)

    @classmethod
    def of(cls, row: AttentionRow) -> AttentionTally:
        """Return the tally of one image, whose figures ``row`` holds."""
        return cls(
            replace(row, entropy=(), prefix_share=(), distance=()),
            row.images,
            HeadSums.of(row.entropy),
            HeadSums.of(row.prefix_share),
            HeadSums.of(row.distance),
        )

    def merge(self, other: AttentionTally) -> None:
        """Add the tally of later images."""
        self.images += other.images
        if not self.row.function:  # of the images before, no figures were known
            self.row = replace(other.row, reason=other.row.reason or self.row.reason)
            self.entropy, self.prefix_share = other.entropy, other.prefix_share
            self.distance = other.distance
            return
        errors = [each for each in (self.row.row_error, other.row.row_error) if each is not None]
        self.row = replace(
            self.row,
            row_error=max(errors, default=None),
            broken=self.row.broken + other.row.broken,
        )
        self.entropy.merge(other.entropy)
        self.prefix_share.merge(other.prefix_share)
        self.distance.merge(other.distance)

    def means(self) -> AttentionRow:
        """Return the row with the means over the images."""
        return replace(
            self.row,
            images=self.images,
            entropy=self.entropy.means(),
            prefix_share=self.prefix_share.means(),
            distance=self.distance.means(),
        )
