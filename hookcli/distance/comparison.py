"""Define the result of a comparison: its rows, changed facts, uncompared calls and exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

from hookcli import errors
from hookcli.outside.documents import AtLeastOne, Axes, Distance, Whole, keywords

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hookcli.distance.answer import Answer
    from hookcli.distance.culprits import Blame
    from hookcli.distance.tolerance import Tolerance
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import SkippedImage

Cosine: TypeAlias = Annotated[float, keywords(minimum=-1, maximum=1)]
LeftOutKind: TypeAlias = Literal["merged", "idle", "part"]
LEFT_OUT_KINDS: tuple[LeftOutKind, ...] = get_args(LeftOutKind)
Fact: TypeAlias = Annotated[object, keywords(type=["string", "integer", "array", "null"])]


@dataclass(frozen=True, slots=True)
class DiffRow:
    """The distance of a call in run B from its counterpart in A, for one image or the worst image.

    Unknown distances are null. If sketches were compared, ``max_abs`` and ``mean_abs`` are unknown,
    and ``rel_l2`` and ``cosine`` are estimates. If figures (statistics such as the mean) were
    compared, ``rel_l2`` and ``max_abs`` are lower bounds, and ``mean_abs`` and ``cosine`` are
    unknown.

    Attributes:
        rank: the rank of the call, from 1 for the worst call.
        order: the position of the call, from 1, in the order in which the compared calls complete
            in run A.
        call_id: the id of the call in run A, or in run B if A does not have the call.
        other_call_id: the id of the call in run B; empty if B does not have the call. The id
            differs from ``call_id`` if calls with different ids were matched by their order.
        module_type: the class name of the module.
        holds: whether the call is within the tolerance for the image; in a row for all images,
            whether the call is within the tolerance for every image.
        reason: why the call is not within the tolerance, regardless of the distance; empty if the
            distance decides.
        metric: the distance that is compared with the tolerance: ``rel-l2``, ``max-abs``,
            ``mean-abs`` or ``cosine``.
        tolerance: the largest tolerated value of the metric (for ``cosine``: of 1 minus the
            cosine); null when nothing was measured.
        rel_l2: the L2 norm of the difference between the tensors in runs A and B, divided by the L2
            norm of the tensor in A; Inf if only the tensor in A is zero.
        max_abs: the largest magnitude of the difference between the tensors in runs A and B, in the
            unit of the activations.
        mean_abs: the mean magnitude of the difference between the tensors in runs A and B, in the
            unit of the activations.
        cosine: the cosine of the angle between the tensors in runs A and B, -1 to 1.
        own_rel_l2: the own error of the call: the relative L2 distance from A's tensor when B
            computes the call from A's inputs. Null unless the comparison looked for culprits, and
            for calls that only one side has.
        channel_median: the median of the channels' relative L2 distances. Each channel's distance
            is divided by the norm of the channel in A, or by a tenth of the median norm of A's
            channels if that is larger. Null if the channel axis is unknown, if whole tensors were
            not compared, or if they hold NaN or Inf.
        channel_worst: the largest of the channels' distances, measured as for ``channel_median``.
        own_channel_median: as ``channel_median``, when B computes the call from A's inputs.
        own_channel_worst: as ``channel_worst``, when B computes the call from A's inputs.
        shape: the shape of one image's tensor in run A, with the leading axis 1; empty if A does
            not have the call.
        other_shape: the shape of one image's tensor in run B, with the leading axis 1; empty if B
            does not have the call.
        dtype: the dtype of the tensor in run A; empty if A does not have the call.
        other_dtype: the dtype of the tensor in run B; empty if B does not have the call.
        source: the data that were compared: ``tensors`` (followed by the save options that changed
            the tensors, if any), ``sketches`` or ``figures``; empty when nothing was measured.
        image: the key of the image; in a row for all images, the worst image's key.
        images: the number of images for which the call was compared.
        failed_images: the number of images for which the call is not within the tolerance.
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
    own_rel_l2: Distance | None = field(default=None, kw_only=True)
    channel_median: Distance | None = field(default=None, kw_only=True)
    channel_worst: Distance | None = field(default=None, kw_only=True)
    own_channel_median: Distance | None = field(default=None, kw_only=True)
    own_channel_worst: Distance | None = field(default=None, kw_only=True)
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
        if self.other_call_id in ("", self.call_id):
            return self.call_id
        return f"{self.call_id} / {self.other_call_id}"


def find_first(rows: Iterable[DiffRow]) -> DiffRow | None:
    return min((row for row in rows if not row.holds), key=lambda row: row.order, default=None)


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A fact that a run depends on and that differs between the two runs.

    Attributes:
        name: the name of the fact.
        a: the value of the fact in run A; null if A does not have the fact.
        b: the value of the fact in run B; null if B does not have the fact.
    """

    name: str
    a: Fact
    b: Fact


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A call that only A or only B has, and that does not count as a difference in results.

    Attributes:
        call_id: the id of the call.
        kind: ``merged`` for a convolution, linear layer or BatchNorm that the other side computes
            together with the BatchNorm or ReLU after it; ``idle`` for a layer that changes nothing,
            such as a dropout; ``part`` for every other call of which the other side has no tensor.
        reason: why the call was left out, in words, such as where the other side computes it.
    """

    call_id: str
    kind: LeftOutKind
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    a: str  # the name of run A, the reference, as the user gave it
    b: str
    tolerance: Tolerance
    rows: tuple[DiffRow, ...]  # one per call, for its worst image; the worst call first
    changed: tuple[ChangedFact, ...] = ()
    images: tuple[str, ...] = ()  # the keys of the compared images
    only_in_a: tuple[str, ...] = ()  # the keys of the images that only A has
    only_in_b: tuple[str, ...] = ()
    skipped: tuple[SkippedImage, ...] = ()
    # the chosen layers that ran in neither A nor B; empty unless hookcli has just run both models
    uncalled: tuple[Uncalled, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()  # automatic changes to either model that affect computed values
    # one row per call and image: the calls in the order of ``rows``, and the rows of a call in the
    # order of the images; empty unless these rows were requested
    image_rows: tuple[DiffRow, ...] = ()
    blame: Blame | None = None  # None unless the comparison looked for culprits
    answer: Answer | None = None
    # the names of the nodes of B that compute the culprits; None if nodes have no names
    keep: tuple[str, ...] | None = None

    @property
    def first(self) -> DiffRow | None:
        return find_first(self.rows)

    @property
    def failed(self) -> tuple[DiffRow, ...]:
        return tuple(row for row in self.rows if not row.holds)

    @property
    def equal(self) -> bool:
        return not (self.failed or self.only_in_a or self.only_in_b)

    @property
    def exit_code(self) -> int:
        return errors.choose_code(failed=not self.equal, skipped=bool(self.skipped))
