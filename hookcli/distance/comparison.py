"""The result of comparing two runs: one row per call, other changes, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from hookcli import errors
from hookcli.outside.documents import AtLeastOne, Axes, Distance, Whole, keywords

if TYPE_CHECKING:
    from hookcli.distance.tolerance import Tolerance
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import SkippedImage

Cosine: TypeAlias = Annotated[float, keywords(minimum=-1, maximum=1)]
Fact: TypeAlias = Annotated[object, keywords(type=["string", "integer", "array", "null"])]


@dataclass(frozen=True, slots=True)
class DiffRow:
    """The distance of a call of B from the same call of A, for one image or for the worst image.

    Unknown figures are null. From sketches, ``max_abs`` and ``mean_abs`` are unknown, and the other
    figures are estimates. From figures, ``rel_l2`` and ``max_abs`` are lower bounds, and the others
    are unknown.

    Attributes:
        rank: the rank from 1, the worst call first.
        order: the position among the compared calls, from 1, by the moment at which they complete
            in A.
        call_id: the id of the call in A, or in B if A does not have the call.
        other_call_id: the id of the call in B, a different one if calls are matched by their order;
            empty if B does not have the call.
        module_type: the class name of the module.
        holds: whether the image is within the tolerance; in a row for all images, whether every
            image is.
        reason: why the call fails, if not because of its distance; empty otherwise.
        metric: the distance that decides.
        tolerance: the largest tolerated value of the figure that decides, in its own unit (for
            ``cosine``, its distance from 1); null when nothing was measured.
        rel_l2: the L2 norm of the difference over A's norm; Inf if only A is zero.
        max_abs: the largest magnitude of the difference, in the unit of the activations.
        mean_abs: the mean magnitude of the difference.
        cosine: the cosine of the angle between the two, -1 to 1.
        shape: the shape of one image's tensor in A, with the leading axis 1.
        other_shape: the shape of one image's tensor in B.
        dtype: the dtype in A.
        other_dtype: the dtype in B.
        source: ``tensors`` (followed by how they were saved, if not whole and unchanged),
            ``sketches`` or ``figures``; empty when nothing was measured.
        image: the key of the image; in a row for all images, the worst image's key.
        images: the number of images for which the call was compared.
        failed_images: the number of these images that are not within the tolerance.
    """

    rank: AtLeastOne
    order: AtLeastOne
    call_id: str
    other_call_id: str
    module_type: str
    holds: bool
    reason: str
    metric: str
    tolerance: Distance | None
    rel_l2: Distance | None
    max_abs: Distance | None
    mean_abs: Distance | None
    cosine: Cosine | None
    shape: Axes
    other_shape: Axes
    dtype: str
    other_dtype: str
    source: str
    image: str
    images: Whole
    failed_images: Whole

    @property
    def names(self) -> str:
        """The id of the call, or ``conv / stem`` if it has a different one in B."""
        if self.other_call_id in ("", self.call_id):
            return self.call_id
        return f"{self.call_id} / {self.other_call_id}"


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A fact that a run depends on and that differs between the two runs.

    Attributes:
        name: the name of the fact.
        a: its value in A; null if A does not have it.
        b: its value in B; null if B does not have it.
    """

    name: str
    a: Fact
    b: Fact


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs, A and B.

    Attributes:
        a: the user's name of the first run, the reference.
        b: the user's name of the second run.
        rows: one row per call, with the figures of its worst image; the worst first.
        changed: the other differences between the runs.
        images: the keys of the compared images.
        only_in_a: the keys of the images that B does not have.
        only_in_b: the keys of the images that A does not have.
        uncalled: the chosen layers that ran in neither; known only if both models have just run.
        notes: unrequested changes to either model that affect what it computes.
        image_rows: one row per call and image, in the order of ``rows`` and then of the images;
            empty if they were not kept.
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
    image_rows: tuple[DiffRow, ...] = ()

    @property
    def first(self) -> DiffRow | None:
        """The call that differs first, by the moment at which calls complete; None if none does."""
        return min(self.failed, key=lambda row: row.order, default=None)

    @property
    def failed(self) -> tuple[DiffRow, ...]:
        """The calls that fail, the worst first."""
        return tuple(row for row in self.rows if not row.holds)

    @property
    def equal(self) -> bool:
        """True when every call holds and no image is missing."""
        return not (self.failed or self.only_in_a or self.only_in_b)

    @property
    def exit_code(self) -> int:
        """7 when something differs, else 6 when images were skipped, else 0."""
        if not self.equal:
            return errors.FAILED_RULE
        return errors.SKIPPED if self.skipped else errors.DONE
