"""The calls of one image on both sides of a comparison, and which of them are counterparts.

Calls have the same id, unless an export computes several calls in one or leaves some out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hookcli.compare.arrays import to_array
from hookcli.compare.order import pair_by_order
from hookcli.distance.axes import find_axes, is_same
from hookcli.distance.judge import CallTensor, find_floor
from hookcli.distance.metrics import measure_arrays
from hookcli.distance.tolerance import coarser, is_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.distance.metrics import Distance
    from hookcli.records.calls import Call

    Values = NDArray[np.generic]

_RELUS = ("relu", "relu6")
_FAR = 0.1  # the relative L2 distance from which on a tensor may have other axes


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call that was observed, and the description of its tensor.

    Attributes:
        place: the position of the call in the order in which the calls complete, from 0.
    """

    call: Call
    tensor: CallTensor
    place: int


@dataclass(frozen=True, slots=True)
class SeenPair:
    """A call of A, its counterpart in B, and the distance of their tensors."""

    a: SeenCall
    b: SeenCall
    distance: Distance


@dataclass(slots=True)
class SeenCalls:
    """The calls of one image on both sides: ``keep`` observes A, and ``measure`` observes B.

    Attributes:
        keeps_values: whether to keep the copies of A's tensors when B has run the same calls.
        merges_calls: whether B may compute several calls of A in one.
        a: A's calls, by call id.
        b: B's calls, by call id.
        values: copies of A's tensors on the host, by call id.
        distances: the distance of each tensor of B from its counterpart in A, by A's call id.
        axes: the order in which a tensor of B has the axes of its counterpart in A, by A's call id;
            only of transposed tensors.
        partners: the id of the counterpart in A, by the id of the call of B.
        size: the height and width of the layers' input in A; None if unknown.
        origins: what the runners of A and of B know of how the tensors of calls are computed.
        show: called with every pair of calls, right after its distance was measured, and with the
            tensors of A and of B; None if nobody wants to see them.
    """

    keeps_values: bool = False
    merges_calls: bool = False
    a: dict[str, SeenCall] = field(default_factory=dict)
    b: dict[str, SeenCall] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)
    distances: dict[str, Distance] = field(default_factory=dict)
    axes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    partners: dict[str, str] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    origins: tuple[Mapping[str, tuple[str, str]], ...] = ({}, {})
    show: Callable[[SeenPair, Values, Values], None] | None = None
    _outputs: dict[tuple[str, int, str], list[str]] = field(default_factory=dict)

    def keep(self, call: Call, tensor: Tensor) -> None:
        """Store a description and a copy of a tensor of A."""
        place = (call.layer.module_path, call.call_index, call.side)
        self._outputs.setdefault(place, []).append(call.id)
        array = np.array(to_array(tensor))
        last = next(reversed(self.a.values()), None)
        seen = _describe(call, tensor, self.a, self.origins[0])
        saturated = is_gate(seen.tensor.module_type) and not np.any(np.greater(array, 0))
        seen = replace(seen, tensor=replace(seen.tensor, is_saturated=bool(saturated)))
        if last is not None and np.array_equal(self.values[last.call.id].ravel(), array.ravel()):
            operator = last.tensor.operator or last.tensor.module_type  # a block passes it on
            saturated = last.tensor.is_saturated
            passed = replace(seen.tensor, operator=operator, is_saturated=saturated)
            seen = replace(seen, tensor=passed)
        self.a[call.id], self.values[call.id] = seen, array

    def measure(self, call: Call, tensor: Tensor) -> None:
        """Measure the distance of a tensor of B from its counterpart in A.

        Unless ``keeps_values``, this deletes the copy of the counterpart.
        """
        self.b[call.id] = _describe(call, tensor, self.b, self.origins[1])
        partner = self._find_partner(call)
        if partner is not None and self.merges_calls:
            partner = self._find_in_export(call, partner, tensor)
        if partner is None:
            return
        self.partners[call.id] = partner
        plain = self.values[partner] if self.keeps_values else self.values.pop(partner)
        self._measure_pair(partner, call.id, plain, to_array(tensor))

    def measure_by_order(self, others: SeenCalls) -> None:
        """Measure the distances of all tensors of B, paired by their order and kind.

        ``others`` has the calls of B as its own calls of A.
        """
        self.b = others.a
        roots, layers = [], []
        for calls in (self.a, self.b):
            roots.append([key for key, each in calls.items() if not each.call.layer.module_path])
            layers.append({key: each.tensor for key, each in calls.items() if key not in roots[-1]})
        self.partners = dict(zip(roots[1], roots[0], strict=False)) | pair_by_order(*layers)
        for call_id, partner in self.partners.items():
            self._measure_pair(partner, call_id, self.values[partner], others.values[call_id])

    def _measure_pair(self, partner: str, call_id: str, a: Values, b: Values) -> None:
        """Measure a pair; an export may change the shape, and B may be A with its axes permuted."""
        if self.merges_calls and a.shape != b.shape and is_same(a, b):
            b = b.reshape(a.shape)  # exporters merge several reshapes
        axis = self.axis_of(partner)
        pair = (self.a[partner].tensor, self.b[call_id].tensor)
        floor = find_floor(pair, of_channels=True)
        distance = measure_arrays(a, b, axis, floor) if a.shape == b.shape else None
        if (distance is None or distance.rel_l2 > _FAR) and (axes := find_axes(a, b)):
            self.axes[partner] = axes
        if distance is not None:
            self.distances[partner] = distance
            if self.show is not None:
                self.show(SeenPair(self.a[partner], self.b[call_id], distance), a, b)

    def axis_of(self, call_id: str) -> int | None:
        """Return the axis of the channels in a tensor of A; None if it is unknown."""
        seen = self.a[call_id]
        return seen.call.layout_of(seen.tensor.shape, self.size).channel_axis

    def _find_in_export(self, call: Call, partner: str, tensor: Tensor) -> str | None:
        """Return A's call that an export computes, if any; ``partner`` has its path and index."""
        merged = self._find_merged(partner, tensor)
        if call.layer.is_operation and merged == partner:
            return self._find_same(call, partner, to_array(tensor))
        return merged if merged in self.values else None

    def _find_same(self, call: Call, partner: str, values: Values) -> str | None:
        """Compare values: an export may have fewer or more calls, so that indices differ."""
        is_free = partner not in self.partners.values()
        if is_free and is_same(self.values[partner], values, _FAR):
            return partner
        path = call.layer.module_path
        for call_id, each in self.a.items():
            if each.call.layer.module_path == path and call_id in self.values:
                is_new = call_id not in self.partners.values()
                if is_new and is_same(self.values[call_id], values):
                    return call_id
        return partner if is_free else None

    def _find_merged(self, partner: str, tensor: Tensor) -> str:
        """Return the ReLU after ``partner`` in A if B merged it, as quantized files do."""
        ids = [*self.a]
        place = ids.index(partner) + 1
        follower = ids[place] if place < len(ids) else ""
        values = self.values.get(partner)
        if not follower or values is None or values.shape != tuple(tensor.shape):
            return partner
        is_relu = self.a[follower].tensor.module_type.lower() in _RELUS
        if (
            is_relu
            and follower in self.values
            and np.any(np.less(values, 0))
            and not (tensor < 0).any()
        ):
            return follower
        return partner

    def _find_partner(self, call: Call) -> str | None:
        """If the output keys differ, as between a dictionary and a graph, match by order."""
        if call.id in self.a:
            return call.id
        ids = self._outputs.get((call.layer.module_path, call.call_index, call.side), [])
        left = [call_id for call_id in ids if call_id not in self.partners.values()]
        return left[0] if left else None


def _describe(
    call: Call,
    tensor: Tensor,
    before: dict[str, SeenCall],
    origins: Mapping[str, tuple[str, str]],
) -> SeenCall:
    """Describe a call after the calls ``before``, which may be on the way to it."""
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    last = next((each.tensor.coarsest for each in reversed(before.values())), "")
    coarsest, operator = origins.get(call.id, (last, ""))
    described = CallTensor(call.id, call.layer.module_type, shape, dtype)
    described = replace(described, coarsest=coarser(dtype, coarsest), operator=operator)
    return SeenCall(call, described, len(before))
