"""What comparing two runs comes to: a row a call, what else changed, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli import errors

if TYPE_CHECKING:
    from hookcli.distance.tolerance import Tolerance
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import SkippedImage


@dataclass(frozen=True, slots=True)
class DiffRow:
    """How far a call of B is from the same call of A, over the images: the figures of the worst image.

    Figures are None where they are not known: from sketches ``max_abs`` and ``mean_abs`` are not, and
    the others are estimates.

    Attributes:
        rank: from 1, the worst first.
        order: position among the compared calls, from 1, by the moment in which they complete in A.
        call_id: in A; in B where A has none.
        other_call_id: in B, another one where calls are matched by their order; empty where B has none.
        module_type: class name.
        holds: every image is within the tolerance.
        reason: why it does not hold, where no distance says so.
        metric: which distance decides.
        tolerance: what is tolerated of the figure that decides, in its own unit (of ``cosine``, how far it
            may be from 1); None where nothing was measured.
        rel_l2: L2 norm of the difference over that of A; Inf where only A is zero.
        max_abs: largest magnitude of the difference, in the unit of the activations.
        mean_abs: mean magnitude of the difference.
        cosine: of the angle between the two, -1 to 1.
        shape: in A, of one image, leading axis 1.
        other_shape: in B.
        dtype: in A.
        other_dtype: in B.
        source: ``tensors``, with how they were saved where that was not whole and as they were, or
            ``sketches``; empty where nothing was measured.
        image: key of the worst image.
        images: how many were compared.
        failed_images: how many of them are not within the tolerance.
    """

    rank: int
    order: int
    call_id: str
    other_call_id: str
    module_type: str
    holds: bool
    reason: str
    metric: str
    tolerance: float | None
    rel_l2: float | None
    max_abs: float | None
    mean_abs: float | None
    cosine: float | None
    shape: tuple[int, ...]
    other_shape: tuple[int, ...]
    dtype: str
    other_dtype: str
    source: str
    image: str
    images: int
    failed_images: int

    @property
    def names(self) -> str:
        """The call, or ``conv / stem``: in A and in B, where it has another name there."""
        if self.other_call_id in ("", self.call_id):
            return self.call_id
        return f"{self.call_id} / {self.other_call_id}"


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """Something that a run depends on and that is not the same in both."""

    name: str
    a: object
    b: object


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs held against each other.

    Attributes:
        a: what the user calls the first, the reference.
        b: what the user calls the second.
        tolerance: what was asked.
        rows: one a call, the worst first.
        changed: what else is not the same.
        images: keys of the images that were compared.
        only_in_a: keys of images that B lacks.
        only_in_b: keys of images that A lacks.
        skipped: images that could not be used.
        uncalled: chosen layers that ran in neither; known of two models that ran now.
        notes: what was done to a model of either unasked that changes what it computes.
    """

    a: str
    b: str
    tolerance: Tolerance
    rows: tuple[DiffRow, ...]
    changed: tuple[ChangedFact, ...] = ()
    images: tuple[str, ...] = ()
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    skipped: tuple[SkippedImage, ...] = ()
    uncalled: tuple[Uncalled, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> DiffRow | None:
        """The call that differs first, by the moment in which calls complete."""
        return min(self.failed, key=lambda row: row.order, default=None)

    @property
    def failed(self) -> tuple[DiffRow, ...]:
        """The calls that do not hold, the worst first."""
        return tuple(row for row in self.rows if not row.holds)

    @property
    def equal(self) -> bool:
        """Whether every call holds and no image is missing."""
        return not (self.failed or self.only_in_a or self.only_in_b)

    @property
    def exit_code(self) -> int:
        """7 when something differs, else 6 when images were skipped, else 0."""
        if not self.equal:
            return errors.FAILED_RULE
        return errors.SKIPPED if self.skipped else errors.DONE
