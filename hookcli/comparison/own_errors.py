"""Measure each call's own error (B runs again on A's tensors), and how much rounding explains.

hookcli replaces the output of each call of B by A's output, so that each call gets A's inputs. The
own error of a call is the distance of its own output from A's. To know how much of the error is
rounding, hookcli also runs A once more, with all inputs moved to neighbouring numbers of the
coarser dtype of A and B. In that run, numbers that B's dtype cannot hold become Inf, so that no
call is blamed for an Inf that it receives. If B is quantized, A runs a third time, with random
errors as large as those of quantizing.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from hookcli.comparison.among import Part
from hookcli.comparison.left_out import may_be_idle
from hookcli.comparison.pair_by_order import NORM
from hookcli.comparison.quantizing import QuantizingNoise, find_changed_weights
from hookcli.comparison.side import naming, to_array
from hookcli.distance.culprits import ROUNDING, OwnError, find_culprits, owner_of
from hookcli.distance.judge import find_floor
from hookcli.distance.metrics import is_same, measure_arrays
from hookcli.distance.tolerance import EPSILON, coarser, error_of_sum
from hookcli.passes.eager import EagerRunner
from hookcli.passes.onnx_file import OnnxRunner
from hookcli.passes.runner import Batch
from hookcli.records.calls import OPERATION, ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from torch import Tensor

    from hookcli.comparison.seen_calls import SeenCalls
    from hookcli.distance.culprits import Blame
    from hookcli.distance.metrics import TensorArray
    from hookcli.passes.runner import Runner, Side
    from hookcli.records.calls import Call

_QUANTIZED = ("Conv", "Linear")  # a quantizer changes these, with what it merges into them
_FUSED = ("BatchNorm", "ReLU", "relu")  # what PyTorch computes together with such a layer
_QUANTIZERS = ("quantize", "quantize_per_tensor")  # functions that are no fault by themselves
_RELUS = ("ReLU", "ReLU6")
_PARTS = ("Slice", "Split")  # operators of ONNX; the model has views instead
_QUANTIZED_TYPES = ("int8", "uint8", "int16", "uint16")


@dataclass(slots=True)
class Blamer:
    a: Side  # the reference
    b: Side  # the side whose calls are judged
    # by the key of the image and the call's id
    own: dict[tuple[str, str], OwnError] = field(default_factory=dict)
    _dtypes: set[str] = field(default_factory=set)
    # of each call for its worst image, by call id
    _worst: dict[str, OwnError] = field(default_factory=dict)
    _types: dict[str, str] = field(default_factory=dict)
    # the calls that only one side has, as ``_find_lone`` returns them
    _lone: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    # the calls that follow quantized values whose layers B does not name
    _vague: set[str] = field(default_factory=set)
    # the calls whose own error may come from several layers that B does not name
    _unclear: set[str] = field(default_factory=set)
    _kinds: dict[str, str] = field(default_factory=dict)  # the types of A's modules, in order

    @property
    def dtype(self) -> str:
        return coarser(self.a.dtype, self.b.dtype, *self._dtypes)

    def add(self, image: str, pixels: tuple[Tensor, Tensor], seen: SeenCalls) -> None:
        values, graph = seen.values, seen.graph
        self._dtypes.update(each.tensor.coarsest for each in seen.b.values())
        untold = () if graph is None else graph.untold if graph.names_modules else graph.paths
        partners = seen.partners | self._find_fused(seen)
        own = _Measured(seen, partners, self.b.runner.merges_calls, untold)
        if untold and all(each.startswith(ROOT_LABEL) for each in partners.values()):
            own.vague.update(partners.values())  # the file tells nothing but its outputs
        part = Part(len(pixels[1]), values)
        with naming(self.b):
            run_again(self.b.runner, image, pixels[1], part.feeding(own.feed), part.observing(own))
        moved = _Measured(seen, {call_id: call_id for call_id in values}, has_floor=False)
        move = _Mover(EPSILON[self.dtype])
        near = torch.from_numpy(move(to_array(pixels[0])))
        held = {one: seen.b[two].tensor.dtype for two, one in seen.partners.items()}
        if not self.b.request.repeats:  # two runs of one model round alike
            run_again(self.a.runner, image, near, partial(_feed_moved, moved, move, held), moved)
        own.types |= {call_id: each.tensor.module_type for call_id, each in seen.a.items()}
        noise = self._measure_noise(image, pixels[0], own)
        dtypes = {call_id: each.tensor.coarsest for call_id, each in seen.a.items()}
        models = self.a.dtype, self.b.dtype
        for call_id, partner in seen.partners.items():
            dtypes[partner] = coarser(dtypes[partner], seen.b[call_id].tensor.coarsest, *models)
        for error in own.list_errors(moved.errors, dtypes, self.dtype):
            each = replace(error, noise=noise.get(error.call_id, 0.0))
            each = replace(each, rounding=0.0) if self.b.request.repeats else each
            self.own[image, each.call_id] = each
            known = self._worst.get(each.call_id)
            if known is None or each.score > known.score:
                self._worst[each.call_id] = each
        self._types |= own.types
        self._lone |= self._find_lone(values, own)
        self._vague |= own.vague
        self._kinds |= {call_id: each.tensor.module_type for call_id, each in seen.a.items()}

    def _find_fused(self, seen: SeenCalls) -> dict[str, str]:
        """Map each convolution and linear layer of a quantized B to A's last call it computes."""
        # If ``conv1`` of B also computes the ReLU, ``conv1`` is mapped to ``relu`` of A, and the
        # ``Identity`` that B has in place of this ReLU to "".
        if self.b.runner.merges_calls or not self.b.runner.list_quantized():
            return {}
        kinds = {key: each.tensor.module_type for key, each in seen.a.items()}
        pairs, types = seen.partners, {key: each.tensor.module_type for key, each in seen.b.items()}
        idle = [two for two in pairs if types[two] == "Identity"]
        found = {two: "" for two in idle if kinds[pairs[two]].startswith(_FUSED)}
        kept = {one for two, one in pairs.items() if two not in found}
        fused = {one for one, kind in kinds.items() if kind.startswith(_FUSED)} - kept
        for two, one in pairs.items():
            if kinds[one].startswith(_QUANTIZED):
                later = itertools.islice(kinds, [*kinds].index(one) + 1, None)
                found[two] = [one, *itertools.takewhile(fused.__contains__, later)][-1]
        return found

    def _measure_noise(self, image: str, pixels: Tensor, own: _Measured) -> dict[str, float]:
        outputs, seen = self.b.runner.list_quantized(), own.seen
        if not outputs or outputs.keys() == self.a.runner.list_quantized().keys():
            return {}
        pairs = {one: two for two, one in own.partners.items() if one}
        noise = QuantizingNoise(self.a.runner, seen, pairs)
        run_again(self.a.runner, image, noise.move_pixels(pixels), noise.feed, noise)
        paths = {one: seen.b[two].call.layer.module_path for one, two in pairs.items()}
        known = {one: path for one, path in paths.items() if path in outputs}
        return {one: noise.find(one, has_output=outputs[path]) for one, path in known.items()}

    def blame(self, rtol: float | None) -> Blame:
        """Find the culprits: calls whose own error exceeds ``rtol`` and is unusual for such calls.

        An own error is the distance from A when the call gets A's inputs. If ``rtol`` is None, the
        limit is the error that rounding explains. A call that only one side has gets no own
        error, so hookcli blames it in place of a culprit directly after it. hookcli blames no call
        of B, such as an exported file, if B does not show which layers cause the error.
        """
        is_alone = [*self._worst] == [ROOT_LABEL] and not any(self._lone.get(ROOT_LABEL, ()))
        if is_alone or any(each.startswith(ROOT_LABEL) for each in self._vague):
            self._unclear.update(n for n in self._worst if n.startswith(ROOT_LABEL))
        self._add_changed_weights()
        found = find_culprits(
            [*self._worst.values()], self.dtype, rtol, judges_alike=not self.b.request.repeats
        )
        named = tuple(n for n in found.culprits if n.call_id not in self._unclear or n.weights)
        if found.culprits and not named:
            worst = max(found.culprits, key=lambda each: each.own)
            return replace(found, culprits=(), spread=(), worst=worst)
        culprits = (one for each in named for one in self._trace_back(each))
        return replace(found, culprits=tuple({each.call_id: each for each in culprits}.values()))

    def _add_changed_weights(self) -> None:
        a, b, kinds = self.a.runner, self.b.runner, self._kinds
        if not (isinstance(a, EagerRunner) and isinstance(b, OnnxRunner)):
            return
        norms = {one: two for one, two in itertools.pairwise(kinds) if kinds[two].startswith(NORM)}
        ids, seen = [*kinds], {*self._worst}
        for path, change in find_changed_weights(a.module, b.read_weights(), norms).items():
            later = ids[ids.index(path) :] if path in ids else []
            for call_id in [each for each in later if each in seen][:1]:
                error = replace(self._worst[call_id], weights=change)
                if call_id != path and call_id in self._unclear:
                    error = replace(error, call_id=path, module_type=kinds[path], before=call_id)
                self._worst[error.call_id] = error
        self._worst = {each: self._worst[each] for each in ids if each in self._worst}

    def _trace_back(self, culprit: OwnError) -> Iterator[OwnError]:
        of_a, of_b = self._lone.get(culprit.call_id, ([], []))
        if not (of_a or of_b):
            yield culprit
            return
        side, lacks = ("B", tuple(of_a)) if of_b else ("A", ())
        lone = replace(culprit, before=culprit.call_id, only_in=side, lacks=lacks)
        for call_id in of_b or of_a:
            yield replace(lone, call_id=call_id, module_type=self._types[call_id])

    def _find_lone(
        self, values: Mapping[str, TensorArray], own: _Measured
    ) -> dict[str, tuple[list[str], list[str]]]:
        """Map the id of each shared call to the ids of the unshared calls directly before it."""
        # The pairs are the calls that only A has and those that only B has; both sides have shared
        # ones. ``values`` is in running order. This also updates ``_unclear``.
        found: dict[str, tuple[list[str], list[str]]] = {}
        quantized = self.b.runner.list_quantized()
        of_b: list[str] = []
        for call_id, error in own.errors.items():
            if error is None:
                of_b.append(call_id)
            else:  # nodes of a tool are parts of the layer that the last of them completes
                lone = [each for each in of_b if each not in own.untold]
                is_part = call_id in own.untold or owner_of(call_id) in quantized
                tools = [] if is_part else [each for each in of_b if each not in lone]
                found[call_id] = ([], lone + tools[-1:])
                of_b = []
        of_a: list[str] = []
        pairs = own.seen.partners
        fused = {pairs[two] for two, one in own.partners.items() if one != pairs.get(two, one)}
        has_all = not (own.untold or quantized)  # exporters merge norms, and only tools ReLUs
        is_fused, weighted = False, 0  # so many layers may be in the error of the next common call
        for call_id in values:
            weighted += own.types.get(call_id, "").startswith(_QUANTIZED)
            is_fused = call_id in fused or (is_fused and call_id not in found)
            if call_id in found:
                self._unclear |= {call_id} if weighted > 1 and own.untold else set()
                weighted = 0
                found[call_id][0].extend(() if call_id in own.vague else of_a)
                of_a = []
            elif not (is_fused or own.is_idle(call_id, values[call_id])) and (
                not self.b.runner.merges_calls
                or OPERATION in call_id
                or (has_all and own.seen.a[call_id].tensor.module_type in _RELUS)
            ):
                of_a.append(call_id)
        return found


def run_again(
    runner: Runner,
    image: str,
    pixels: Tensor,
    feed: Callable[[str], TensorArray | None],
    observer: Callable[[Call, Tensor], None],
) -> None:
    """Run a model on one image, and replace the outputs of calls by the arrays of ``feed``.

    ``feed(call_id)`` returns the array, or None to keep the output. The observer gets each call
    with its original output. ``image`` is the image's key, and ``pixels`` (N, …) end with its own.
    """
    batch = Batch([image] * len(pixels), runner.to_device(pixels.contiguous()))
    runner.run_fed(batch, feed, observer)


@dataclass(slots=True)
class _Measured:
    """Measures the own error of each call while a model runs again with A's outputs."""

    # The object is the observer of that run. For a call without a partner, it looks for a call of A
    # with the same values, between A's last measured call and A's next paired call.

    seen: SeenCalls  # the calls of both sides, with the outputs of A
    partners: Mapping[str, str]  # maps the ids of the running model's calls to ids of A's calls
    reshapes: bool = False  # whether shapes may differ from those in A, as exports merge reshapes
    tools: Collection[str] = ()  # the paths of nodes that name no module, as tools add them
    # the next four have the id of the call in A, or the call's own id if A lacks the call
    errors: dict[str, OwnError | None] = field(default_factory=dict)  # None if A lacks the call
    types: dict[str, str] = field(default_factory=dict)  # the class names of the modules
    untold: set[str] = field(default_factory=set)  # the calls that are nodes in ``tools``
    vague: set[str] = field(default_factory=set)  # the calls after values that a tool quantized
    has_floor: bool = True  # whether distances that rounding explains (``find_floor``) count as 0
    _last: str = ""  # the call that was measured last
    _last_array: TensorArray = field(default_factory=lambda: np.empty(0))  # its original output
    _is_vague: bool = False  # whether a tool quantized a value since the last measured call

    def feed(self, call_id: str) -> TensorArray | None:
        return self.seen.values.get(self.partners.get(call_id, ""))

    def __call__(self, call: Call, tensor: Tensor) -> None:
        """Store in ``errors`` the own error of ``call``, whose output is ``tensor``."""
        # If A lacks the call: None, or nothing if the call only quantizes or passes values on.
        array = to_array(tensor)
        partner = self.partners.get(call.id, "") or self._find_replaced(array)
        if not partner and call.id in self.seen.values:
            return  # the same id in A, but another call
        partner = partner or call.id
        values = self.seen.values.get(partner)
        self.types[partner] = call.layer.module_type
        self.untold |= {partner} if call.layer.module_path in self.tools else set()
        if values is None:  # integers are quantized values, which A cannot have
            self._is_vague |= partner in self.untold and array.dtype.name in _QUANTIZED_TYPES
            is_known = array.dtype.kind in "iu" or call.layer.module_type.endswith(_QUANTIZERS)
            is_known |= self.seen.has_layer(call.layer.module_path)
            if not is_known and not self.is_idle(partner, array):
                self.errors[partner] = None
            return
        error = self._measure(partner, call, values, array)
        has_weights = call.layer.is_leaf and call.layer.params
        if error.own < math.inf and not has_weights and self._passes_on(values, array):
            error = replace(error, own=0.0, channels=tuple(0.0 for _ in error.channels))
        self.errors[partner] = error
        self.vague |= {partner} if self._is_vague else set()
        self._is_vague = False
        self._last, self._last_array = partner, np.array(array)

    def _passes_on(self, a: TensorArray, b: TensorArray) -> bool:
        pairs = ((a, self.seen.values.get(self._last, b)), (b, self._last_array))
        return bool(self._last) and all(np.array_equal(n.ravel(), o.ravel()) for n, o in pairs)

    def _measure(self, partner: str, call: Call, a: TensorArray, b: TensorArray) -> OwnError:
        """Return the own error of ``call``: the distance of its output ``b`` from ``a`` in A."""
        # A distance up to ``find_floor`` counts as 0. The distance is Inf if the shapes differ, or
        # the places of NaN or Inf. Exports may merge reshapes, though: these keep all values.
        one, two = self.seen.a[partner].tensor, self.seen.b.get(call.id)
        found = OwnError(partner, one.module_type, math.inf, 0.0)
        if a.shape != b.shape:
            if not (self.reshapes and is_same(a, b)):
                return found
            b = b.reshape(a.shape)
        pair = (one, two.tensor) if two else (one,)
        floor, axis = find_floor(pair, of_channels=True), self.seen.axis_of(partner)
        distance = measure_arrays(a, b, axis, floor * self.has_floor)
        if distance.misplaced:
            return found
        least = find_floor(pair) * self.has_floor
        own = distance.rel_l2 if distance.difference.rms > least else 0.0
        has_maps = axis is not None and a.size > a.shape[axis]  # a channel of one number may be 0
        return replace(found, own=own, channels=distance.channels or () if has_maps else ())

    def _find_replaced(self, array: TensorArray) -> str:
        """Return the id of an unpaired call of A with values like ``array``, or "" if none has."""
        # Only the calls before A's next paired call are searched.
        ids = [*self.seen.values]
        taken = {*self.partners.values(), *self.errors}
        start = ids.index(self._last) + 1 if self._last else 0
        gap = itertools.takewhile(lambda call_id: call_id not in taken, ids[start:])
        return next((each for each in gap if self._is_same(each, array)), "")

    def _is_same(self, call_id: str, array: TensorArray) -> bool:
        values = self.seen.values[call_id]
        return (self.reshapes or values.shape == array.shape) and is_same(values, array)

    def is_idle(self, call_id: str, array: TensorArray) -> bool:
        """Return whether a call only slices its input, or returns another call's output again."""
        others = (each for each in self.seen.values if each != call_id)
        kind = self.types.get(call_id) or self.seen.a[call_id].tensor.module_type
        is_idle = self.reshapes or may_be_idle(kind)
        return kind in _PARTS or (is_idle and any(self._is_same(each, array) for each in others))

    def list_errors(
        self, moved: Mapping[str, OwnError | None], dtypes: Mapping[str, str], dtype: str
    ) -> Iterator[OwnError]:
        """Yield the own error of each measured call, with the error that rounding can cause."""
        # ``moved`` has the errors of A's calls in a run with all inputs moved to neighbouring
        # numbers of ``dtype``, the coarsest of the models; ``dtypes`` has those in which the calls
        # round.
        # by shared call: the errors of the calls just before it that B lacks
        merged: dict[str, list[OwnError | None]] = defaultdict(list)
        waiting: list[OwnError | None] = []
        for call_id in self.seen.values:
            if self.errors.get(call_id) is None:
                waiting.append(moved.get(call_id))
            else:
                merged[call_id], waiting = waiting, []
        # An operation may use the output of a layer anywhere in A that B does not show.
        hidden = [e.module_type for n, e in moved.items() if e and self.errors.get(n) is None]
        for call_id, error in self.errors.items():
            if error is not None:
                epsilon = EPSILON[dtypes.get(call_id) or dtype]
                near = [each for each in (moved.get(call_id), *merged[call_id]) if each]
                missing = [0.0 if each.own < math.inf else math.inf for each in near]
                pads = [[e.own, *e.channels, n, n][:3] for e, n in zip(near, missing, strict=True)]
                rounded = [max(figures) for figures in zip([0.0] * 3, *pads, strict=True)]
                summed = error_of_sum(error.module_type, self._count_summands(call_id), dtype)
                least = max(epsilon / 2, summed / ROUNDING)
                scaled = (max(each * epsilon / EPSILON[dtype], least) for each in rounded)
                whole, *channels = itertools.islice(scaled, 1 + len(error.channels))
                types = [each.module_type for each in near]
                if OPERATION in call_id and error.own > ROUNDING * whole:
                    types += hidden
                kind = next((n for n in types if n.startswith(_QUANTIZED)), error.module_type)
                yield replace(error, rounding=whole, channel_rounding=tuple(channels), kind=kind)

    def _count_summands(self, call_id: str) -> float:
        sizes = {key: values.size for key, values in self.seen.values.items()}
        before = {two: sizes[one] for one, two in itertools.pairwise(sizes)}
        return before.get(call_id, 0) / max(1, sizes[call_id])


class _Mover:
    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon
        self._random = np.random.default_rng(0)

    def __call__(self, values: TensorArray) -> TensorArray:
        if values.dtype.kind != "f":
            return values
        _, exponents = np.frexp(values)
        steps = np.array(np.ldexp(values.dtype.type(self._epsilon), exponents - 1))
        up = self._random.random(values.shape, dtype=np.float32) < 0.5
        steps[values == 0] = 0  # the neighbours of zero are too close to matter
        moved: TensorArray = np.asarray(values + np.where(up, steps, -steps))  # not a scalar
        return moved


def _feed_moved(
    own: _Measured, move: _Mover, held: Mapping[str, str], call_id: str
) -> TensorArray | None:
    """Return A's output of a call with its values moved to neighbouring numbers, or None."""
    # None if A lacks the call. ``held`` has the dtypes of B's outputs, by ids of A's calls: numbers
    # that are too large for them become Inf.
    values = own.feed(call_id)
    if values is None:
        return None
    moved, dtype = move(values), held.get(call_id, "")
    if moved.dtype.kind != "f" or dtype not in ("float16", "float32"):
        return moved
    with np.errstate(over="ignore"):
        narrow = moved.astype(dtype)
    return np.where(np.isinf(narrow), narrow, moved)
