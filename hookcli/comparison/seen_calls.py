"""Pair the calls of two models for an image, by id or similar values, and measure distances."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hookcli.comparison.left_out import may_be_idle
from hookcli.comparison.pair_by_order import NORM, find_norm, pair_by_order
from hookcli.comparison.side import to_array
from hookcli.distance.judge import CallTensor, find_floor
from hookcli.distance.metrics import FAR, SAME, find_axes, is_same, measure_arrays, measure_flat
from hookcli.distance.tolerance import coarser, is_gate
from hookcli.records.calls import FOLDED, OPERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from hookcli.distance.metrics import Distance, TensorArray
    from hookcli.passes.graph import Graph
    from hookcli.records.calls import Call

    Rerun = Callable[[Callable[[str], TensorArray | None], Callable[[Call, Tensor], None]], None]

_MOST_RUNS = 4  # each run corrects the pairs of calls after those that the run before corrected
_RELUS = ("relu", "relu6")
_FOLDING = ("Conv", "Linear")  # the starts of the types into which exporters fold a BatchNorm
_UNTOLD = "the names in the file do not tell its calls apart: try `match='order'`"
_INTEGERS = "B has quantized integers there, and not what they stand for"


@dataclass(frozen=True, slots=True)
class SeenCall:
    call: Call
    tensor: CallTensor
    index: int  # the position of the call in the order in which the calls complete, from 0


@dataclass(slots=True)
class SeenCalls:
    """Pairs the calls of models A and B for one image, and measures how far their tensors differ.

    hookcli passes each call of A to ``keep``, which stores a copy of the tensor, and later each
    call of B to ``measure``, which finds the call's partner in A and stores the distance of the two
    tensors. ``measure_by_order`` pairs all calls at once instead.
    """

    keeps_values: bool = False  # if False, ``measure`` removes A's tensor of each pair
    graph: Graph | None = None  # B's graph if B is an export, which may compute calls of A in one
    a: dict[str, SeenCall] = field(default_factory=dict)  # by call id, in running order
    b: dict[str, SeenCall] = field(default_factory=dict)  # by call id, in running order
    values: dict[str, TensorArray] = field(default_factory=dict)  # A's tensors, by A's call id
    distances: dict[str, Distance] = field(default_factory=dict)  # of the pairs, by A's call id
    # if B's tensor is A's transposed tensor: the order in which B has A's axes, by A's call id
    axes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    partners: dict[str, str] = field(default_factory=dict)  # maps ids of B's calls to ids of A's
    # why hookcli cannot find the partner of a call of A in B's graph, by A's call id
    untold: dict[str, str] = field(default_factory=dict)
    size: tuple[int, int] | None = None  # the height and width of the layers' input in A
    # for A and for B: the dtype and operator that computed each call, from ``Runner.list_origins``
    origins: tuple[Mapping[str, tuple[str, str]], ...] = ({}, {})
    # called after each pair was measured, with its ids in A and B, and its tensors in A and B
    show: Callable[[str, str, TensorArray, TensorArray], None] | None = None
    # the ids of A's calls: by module path and side (such as ``output``), then by call index
    _outputs: dict[tuple[str, str], dict[int, list[str]]] = field(default_factory=dict)
    # maps the module path and call index of a call of B to the call index that ``_align`` found
    _aligned: dict[tuple[str, int], int] = field(default_factory=dict)
    # the id and tensor of B's last call, if B names no module for it and it has no partner yet
    _waiting: tuple[str, TensorArray] | None = None

    def keep(self, call: Call, tensor: Tensor) -> None:
        calls = self._outputs.setdefault((call.layer.module_path, call.side), {})
        calls.setdefault(call.call_index, []).append(call.id)
        array = np.array(to_array(tensor))
        last = next(reversed(self.a.values()), None)
        seen = _describe(call, tensor, self.a, self.origins[0])
        operator, kind = seen.tensor.operator, seen.tensor.module_type
        is_saturated = is_gate(kind) and not np.any(np.greater(array, 0))
        if last is not None and np.array_equal(self.values[last.call.id].ravel(), array.ravel()):
            operator = last.tensor.operator or last.tensor.module_type  # a block passes it on
            is_saturated = last.tensor.is_saturated
        known = replace(seen.tensor, operator=operator, is_saturated=is_saturated)
        self.a[call.id], self.values[call.id] = replace(seen, tensor=known), array

    def measure(self, call: Call, tensor: Tensor) -> None:
        self.b[call.id] = _describe(call, tensor, self.b, self.origins[1])
        partner = self._find_partner(call, to_array(tensor))
        if partner is not None and not self._is_comparable(partner, tensor):
            self.untold[partner], partner = _INTEGERS, None
        if self.graph is not None and partner is not None:
            partner = self._find_in_export(call, partner, tensor)
        if self.graph is not None and call.layer.module_path in self.graph.untold:
            is_free = partner is None and tensor.is_floating_point()
            self._waiting = (call.id, np.array(to_array(tensor))) if is_free else None
        elif self.graph is not None and partner is not None:
            self._pair_waiting(self.graph, partner)
        if partner is None:
            return
        self.partners[call.id] = partner
        plain = self.values[partner] if self.keeps_values else self.values.pop(partner)
        self._measure_pair(partner, call.id, plain, to_array(tensor))

    def _is_comparable(self, partner: str, tensor: Tensor) -> bool:
        is_integer = str(tensor.dtype) in ("torch.int8", "torch.uint8")
        return self.graph is None or not is_integer or "float" not in self.a[partner].tensor.dtype

    def has_layer(self, path: str) -> bool:
        """Return whether A called a layer or operation, or the leaf module of the operation."""
        outer = path.rpartition(f"/{OPERATION}")[0]
        leaves = itertools.chain(*self._outputs.get((outer, "output"), {}).values())
        is_part = any(self.a[each].call.layer.is_leaf for each in leaves)
        return is_part or (path, "output") in self._outputs

    def measure_by_order(self, others: SeenCalls, rerun: Rerun | None = None) -> None:
        """Pair the calls of A and B by order and type instead of by name, and measure all pairs.

        ``others`` has stored the calls of B with its ``keep``. If paired tensors differ, hookcli
        calls ``rerun(feed, observer)`` up to four times, to run B on the tensors of A: a call that
        only inherits an error then has its counterpart's values, so hookcli can pair the two.
        """
        self.b = others.a
        roots, layers = [], []
        for calls in (self.a, self.b):
            roots.append([key for key, each in calls.items() if not each.call.layer.module_path])
            layers.append({key: each.tensor for key, each in calls.items() if key not in roots[-1]})
        own = others
        for _ in range(_MOST_RUNS):
            pairs = pair_by_order(layers[0], layers[1], (self.values, own.values))
            near = (is_same(self.values[one], own.values[n], FAR) for n, one in pairs.items())
            if rerun is None or pairs == self.partners or all(near):
                break
            self.partners, own = pairs, SeenCalls()
            rerun(lambda call_id: self.values.get(self.partners.get(call_id, "")), own.keep)
        for call_id, partner in pairs.items():
            merged = self._find_merged(partner, own.values[call_id])
            pairs[call_id] = partner if merged in pairs.values() else merged
        self.partners = dict(zip(roots[1], roots[0], strict=False)) | pairs
        for call_id, partner in self.partners.items():
            self._measure_pair(partner, call_id, self.values[partner], others.values[call_id])

    def _measure_pair(self, partner: str, call_id: str, a: TensorArray, b: TensorArray) -> None:
        if self.graph is not None and a.shape != b.shape and is_same(a, b):
            b = b.reshape(a.shape)  # exporters merge several reshapes
        axis = self.axis_of(partner)
        floor = find_floor((self.a[partner].tensor, self.b[call_id].tensor), of_channels=True)
        distance = measure_arrays(a, b, axis, floor) if a.shape == b.shape else None
        if (distance is None or distance.rel_l2 > FAR) and (axes := find_axes(a, b)):
            self.axes[partner] = axes
        if distance is not None:
            self.distances[partner] = distance
            if self.show is not None:
                self.show(partner, call_id, a, b)

    def axis_of(self, call_id: str) -> int | None:
        seen = self.a[call_id]
        return seen.call.layout_of(seen.tensor.shape, self.size).channel_axis

    def _find_in_export(self, call: Call, partner: str, tensor: Tensor) -> str | None:
        """Return the id of the call of A that ``call`` of an exported B computes, or None."""
        # ``partner`` has the same path and index as ``call``, which may also compute a later call
        # of A, such as a BatchNorm or ReLU. Operations are paired by their values.
        merged = self._find_merged(self._find_folded_norm(partner, tensor), to_array(tensor))
        if call.layer.is_operation and merged == partner:
            return self._find_same(call, partner, to_array(tensor))
        return merged if merged in self.values else None

    def _find_folded_norm(self, partner: str, tensor: Tensor) -> str:
        """Return A's BatchNorm after ``partner`` if B's call computes both, else ``partner``."""
        norm = find_norm([each.tensor for each in self.a.values()], partner)
        is_layer = self.a[partner].tensor.module_type.startswith(_FOLDING)
        if not norm or not is_layer or self.graph is None or norm in self.partners.values():
            return partner
        if self.a[norm].call.layer.module_path in self.graph.paths:
            return partner
        return min((partner, norm), key=lambda each: self._distance(each, to_array(tensor)))

    def _find_same(self, call: Call, partner: str, values: TensorArray) -> str | None:
        """Return the id of A's call in the layer of ``call`` with a tensor close to ``values``."""
        # If none is close: ``partner``, or None if ``partner`` is paired already.
        is_free = partner not in self.partners.values()
        if is_free and is_same(self.values[partner], values, FAR):
            return partner
        same = self._find_equal(lambda path: path == call.layer.module_path, values)
        return same or (partner if is_free else None)

    def _find_merged(self, partner: str, other: TensorArray) -> str:
        """Return A's ReLU after ``partner`` if B's call computes both, else ``partner``."""
        # B computes both if A's output has negative values and B's ``other`` has none.
        follower = dict(itertools.pairwise(self.a)).get(partner, "")
        values = self.values.get(partner)
        if not follower or values is None or values.shape != other.shape:
            return partner
        is_relu = self.a[follower].tensor.module_type.lower() in _RELUS
        is_merged = is_relu and follower in self.values and np.any(np.less(values, 0))
        return follower if is_merged and not np.any(np.less(other, 0)) else partner

    def _find_partner(self, call: Call, values: TensorArray) -> str | None:
        path, index = call.layer.module_path, call.call_index
        calls = self._outputs.get((path, call.side), {})
        folded = self._find_folded(call)
        if folded is not None:
            return folded or None
        if self.graph is None:
            ids = [call.id] if call.id in self.a else calls.get(index, [])
            return next((each for each in ids if each not in self.partners.values()), None)
        if path in self.graph.untold:
            left = self._list_unnamed(self.graph)
            return next((each for each in left if self._distance(each, values) < FAR), None)
        others = self.graph.list_calls(path)
        told = 1 + max((each.call_index for each in others), default=-1)
        if self.graph.is_inferred and path and len(calls) != told:
            self.untold |= dict.fromkeys(itertools.chain(*calls.values()), _UNTOLD)
            owner = path.rpartition(OPERATION)[0] or path
            return self._find_equal(lambda p: (p.rpartition(OPERATION)[0] or p) == owner, values)
        if any(each.is_counted for each in others):
            index = self._align((path, index), calls, len(calls) - len(others), values)
        ids = calls.get(index, [])
        left = [each for each in ids if each not in self.partners.values()]
        if call.layer.is_operation and ids:
            return (left or ids)[0]
        values_of = {each.call_index: each.values for each in others}
        number = len(values_of.get(call.call_index, ()) if path else self.graph.returned)
        if len(ids) == number and (number == 1 or not path):  # a model returns them in this order
            return left[0] if left else None
        near = [(self._distance(each, values), each) for each in left]
        if near and min(near)[0] < FAR:
            return min(near)[1]
        alike = [each for each in left if self.a[each].tensor.shape == values.shape]
        if len(ids) == 1:  # the last value of a graph is the output
            alike = alike if call.output_key == str(number - 1) else []
        return alike[0] if len(alike) == 1 or (alike and len(ids) == number) else None

    def _find_folded(self, call: Call) -> str | None:
        """Return the id of A's counterpart of ``call`` if only one side folded a BatchNorm."""
        # "" if A has no counterpart, and None if folding does not concern the call
        lost = call.layer.module_type == FOLDED
        if call.id in self.a and lost != (self.a[call.id].tensor.module_type == FOLDED):
            return find_norm([each.tensor for each in self.a.values()], call.id) if lost else ""
        last = next(itertools.islice(reversed(self.b), 1, None), "")
        is_norm = call.layer.module_type.startswith(NORM) and last in self.a
        is_after = is_norm and self.a[last].tensor.module_type == FOLDED
        return last if is_after and last not in self.partners.values() else None

    def _find_equal(self, is_near: Callable[[str], bool], values: TensorArray) -> str | None:
        free = (key for key in self.a if key not in self.partners.values())
        near = (key for key in free if is_near(self.a[key].call.layer.module_path))
        return next((key for key in near if self._distance(key, values) < SAME), None)

    def _distance(self, call_id: str, values: TensorArray) -> float:
        known = self.values.get(call_id)
        return float("inf") if known is None else measure_flat(known, values)

    def _align(
        self, key: tuple[str, int], calls: Mapping[int, list[str]], absent: int, values: TensorArray
    ) -> int:
        """Return which call of a layer in A, by index, is the counterpart of a call of B."""
        # ``key``: the path and index in B. B lacks ``absent`` of ``calls``, A's ids by call index.
        # The values decide, since tools reorder nodes. If none are similar, hookcli assumes that B
        # lacks A's first calls, since exporters fold calls that do not depend on the input.
        path, index = key
        if key not in self._aligned:
            taken = {found for (other, _), found in self._aligned.items() if other == path}
            free = [each for each in calls if each not in taken]
            near = [(min(self._distance(one, values) for one in calls[n]), n) for n in free]
            distance, nearest = min(near, default=(FAR, 0))
            self._aligned[key] = nearest if distance < FAR else index + absent
        return self._aligned[key]

    def _list_unnamed(self, graph: Graph) -> list[str]:
        """List the ids of those calls after A's last paired call whose layers B does not name."""
        ids, taken, named = [*self.a], {*self.partners.values()}, graph.paths
        start = max((index for index, each in enumerate(ids) if each in taken), default=-1) + 1
        types = [self.a[each].tensor.module_type for each in ids]
        # a convolution that was merged into its norm is compared there
        merged = {n for n, kind in enumerate(types[1:]) if kind.startswith("BatchNorm")}
        return [
            each
            for index, each in enumerate(ids)
            if index >= start
            and index not in merged
            and self.a[each].call.layer.module_path not in named
            and not may_be_idle(types[index])
        ]

    def _pair_waiting(self, graph: Graph, partner: str) -> None:
        """Pair the call of B in ``_waiting``, if any, with a call of A, and empty ``_waiting``."""
        # B names no module for the call. Its counterpart is A's last call before ``partner`` whose
        # layer B does not name, unless the two tensors differ in shape.
        if self._waiting is not None:
            (call_id, values), self._waiting = self._waiting, None
            left = [*itertools.takewhile(lambda each: each != partner, self.a)]
            left = [each for each in self._list_unnamed(graph) if each in left]
            if left and self.a[left[-1]].tensor.shape == values.shape:
                self.partners[call_id] = left[-1]
                self._measure_pair(left[-1], call_id, self.values[left[-1]], values)


def _describe(
    call: Call, tensor: Tensor, before: dict[str, SeenCall], origins: Mapping[str, tuple[str, str]]
) -> SeenCall:
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    last = next((each.tensor.coarsest for each in reversed(before.values())), "")
    coarsest, operator = origins.get(call.id, (last, ""))
    described = CallTensor(call.id, call.layer.module_type, shape, dtype)
    described = replace(described, coarsest=coarser(dtype, coarsest), operator=operator)
    return SeenCall(call, described, len(before))
