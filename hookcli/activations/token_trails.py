"""Follow values from the pixels on, to recognize attention and find each token's pixels.

Each tensor that is computed from the pixels gets a *trail*: the pixel of origin of every value.
hookcli calls a function that moves values (``reshape``, ``roll``, ``cat``) again on the trail;
others, such as ``relu`` or ``linear``, keep the positions of their input. The trail of a product of
two tensors, such as queries and keys, has a part for the rows and one for the columns. Only a
softmax over such a product, or a fused attention function, is an attention. Tensors that are
computed from parameters and buffers alone are *learned*: they cover no part of the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from hookcli.activations.attention_probabilities import MULTI_HEAD_ARGUMENTS
from hookcli.activations.function_call import (
    FACTORS,
    FUSED,
    JOINING,
    MOVING,
    REDUCING,
    REPLACING,
    SAMPLING,
    letters_of,
    read_call,
)
from hookcli.activations.token_places import (
    LEARNED,
    LOST,
    OUTSIDE,
    WEIGHTS,
    Trail,
    everywhere,
    find_places,
    has_places,
    reduce,
    sample,
    spread,
    spreads_to,
    varies,
)
from hookcli.hooks.nested import memory_of, tensors_in
from hookcli.hooks.operations import name_operation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence

    from hookcli.activations.function_call import FunctionCall
    from hookcli.activations.token_places import TokenPlaces

_ADDING = {"add", "addcmul", "lerp", "sub"}
_CHANGING = {"div", "mul"}
_PROJECTING = {"conv1d", "conv2d", "linear"}
_UNKNOWN = -1  # the result of a softmax that is an attention if it weighs values


@dataclass(slots=True)
class Shares:
    added: set[int] = field(default_factory=set)  # attentions whose probabilities are added up
    projected: set[int] = field(default_factory=set)  # attentions whose heads are mixed
    changed: set[int] = field(default_factory=set)  # attentions changed in another way
    over_queries: set[int] = field(default_factory=set)  # attentions with a softmax over queries
    weighs_unknown: bool = False  # whether the last call weighed values by ``begin_unknown``
    _of: MutableMapping[Tensor, frozenset[int]] = field(default_factory=WeakIdKeyDictionary)
    _keys: list[int] = field(default_factory=list)

    def begin(self, probabilities: Iterable[Tensor], keys: int) -> None:
        # ``keys`` is the part of their ``Trail`` with the softmax: 0 for ``own``, 1 for
        # ``columns``.
        self._of.update(dict.fromkeys(probabilities, frozenset({len(self._keys)})))
        self._keys.append(keys)

    def begin_unknown(self, probabilities: Iterable[Tensor]) -> None:
        self._of.update(dict.fromkeys(probabilities, frozenset({_UNKNOWN})))

    def follow(
        self,
        operation: str,
        tensors: Sequence[Tensor],
        outputs: Sequence[Tensor],
        summed: Collection[int],
    ) -> None:
        # ``summed``: the parts of their ``Trail`` over which a product sums; none for a sum over
        # heads
        shares = frozenset[int]().union(*(self._of.get(part, ()) for part in tensors))
        weighs = operation in FACTORS and bool(summed)
        self.weighs_unknown = weighs and _UNKNOWN in shares
        if weighs:
            known = shares - {_UNKNOWN}
            self.over_queries |= {each for each in known if self._keys[each] not in summed}
        if weighs or not shares:
            return
        if operation in FACTORS or operation in _PROJECTING:
            self.projected |= shares
        given = {part.shape[-2:] for part in tensors if part in self._of}
        for part in outputs:
            if operation == "mul" and part.shape[-2:] not in given:
                continue  # the call multiplies each of them with all numbers of a value
            self._of[part] = shares
            self._note_change(operation, tensors, part)

    def _note_change(self, operation: str, tensors: Sequence[Tensor], output: Tensor) -> None:
        shares, lengths = self._of[output], output.shape[-2:]
        alike = [each for each in tensors if each.shape[-2:] == lengths]
        if min(lengths, default=0) < 2 or not alike:
            return
        if operation in REDUCING and output.numel() < alike[0].numel():
            (self.added if len(shares) > 1 else self.projected).update(shares)
        elif operation in _ADDING and len(alike) > 1:
            self.added |= shares
        elif operation == "pow" or (operation in _CHANGING and len(alike) > 1):
            self.changed |= shares


class TokenTrails:
    """Finds the pixel from which each value comes, in one forward pass of one image.

    The caller passes every call of a torch function to ``follow``. A trail has the pixel index of
    each value of a tensor. ``learned`` holds the tensors that come from no pixel, such as
    parameters.
    """

    # ``pixels`` are (1, C, H, W), or (1, C, T, H, W) for a clip
    def __init__(self, pixels: Tensor, learned: Sequence[object]) -> None:
        self._sizes = tuple(pixels.shape[2:])
        self._trails: MutableMapping[Tensor, Trail] = WeakIdKeyDictionary()
        each = torch.arange(1, math.prod(self._sizes) + 1, dtype=torch.int32, device=pixels.device)
        self._learned: MutableMapping[Tensor, None] = WeakIdKeyDictionary()
        self._learned.update({part: None for part in tensors_in(learned) if part is not pixels})
        self._collapsed: set[int] = set()
        self.shares = Shares()
        self.saw_product = False  # whether the last function multiplied tokens with tokens
        self.saw_softmax = False  # whether it weighed values by tokens that could not be followed
        self._summed, self._keys = {0, 1}, 1  # in the last call; 0: Trail.own, 1: Trail.columns
        self._trails[pixels] = Trail(each.view(1, 1, *self._sizes).expand(pixels.shape))

    def follow(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: object,
    ) -> TokenPlaces | None:
        """Record from which pixels the output of the call ``function(*args, **kwargs)`` comes.

        Return the image cells of queries and keys if the function computed attention, else None.
        """
        self.saw_product, self._summed, self._keys = False, {0, 1}, 1
        call = read_call(function, args, kwargs, output)
        places = self._follow(call)
        if call.name not in FUSED:
            self.shares.follow(name_operation(function), call.tensors, call.outputs, self._summed)
        self.saw_softmax = self.shares.weighs_unknown
        if places is not None:
            self.shares.begin([] if call.name in FUSED else call.outputs, self._keys)
        elif call.name == "softmax" and any((self._own(t) == LOST).any() for t in call.tensors):
            self.shares.begin_unknown(call.outputs)
        return places

    def _follow(self, call: FunctionCall) -> TokenPlaces | None:
        if call.name in FUSED:
            return self._follow_fused(call)
        tensors, outputs = call.tensors, call.outputs
        if not outputs or call.name.startswith("new_") or self._are_learned(tensors):
            self._learned.update(dict.fromkeys(outputs))
            return None
        given = [part for part in tensors if part in self._trails]
        try:
            trails = self._trails_of(call, given)
        except (IndexError, RuntimeError, TypeError, ValueError):  # such as for integers
            trails = [Trail(everywhere(LOST, part)) for part in outputs]
        for part, trail in zip(outputs, trails, strict=True):
            if any(part is each for each in tensors):
                self._write(part, trail)
            self._trails[part] = trail
        return self._find_softmax(call) if call.name == "softmax" else None

    def _write(self, target: Tensor, trail: Trail) -> None:
        # ``trail`` is the new one of ``target``. All tensors that share its memory are lost.
        if torch.equal(self._own(target), trail.own):
            return
        memory = memory_of(target)
        for part in [*self._trails, *self._learned]:
            if memory_of(part) == memory:
                self._trails[part] = Trail(everywhere(LOST, part))

    def _follow_fused(self, call: FunctionCall) -> TokenPlaces | None:
        args, kwargs, output = call.args, call.kwargs, call.output
        query, key = (*args, *(kwargs[word] for word in ("query", "key") if word in kwargs))[:2]
        mixed = output[0] if isinstance(output, tuple) else output
        if not isinstance(mixed, Tensor):
            return None
        if varies(self._own(query), -1):  # channels have different pixels: attention to channels
            self._trails[mixed] = self._keep([query], mixed)
            return None
        queries, keys = self._own(query)[..., 0], self._own(key)[..., 0]
        self._trails[mixed] = Trail(queries.unsqueeze(-1).expand(mixed.shape))
        if call.name == "multi_head_attention_forward":  # (tokens, N), or (tokens,) without a batch
            given = MULTI_HEAD_ARGUMENTS.bind(*args, **kwargs).arguments
            heads, added = given["num_heads"], (given["bias_k"] is not None, given["add_zero_attn"])
            queries, keys = (part.reshape(len(part), -1).T[:, None] for part in (queries, keys))
            keys = torch.nn.functional.pad(keys, (0, sum(added)), value=LEARNED)
            return self._places(*(part.expand(-1, heads, -1) for part in (queries, keys)))
        if kwargs.get("enable_gqa"):  # groups of heads share their keys
            keys = keys[..., :1, :]
        shape = (queries[..., 0] + keys[..., 0]).shape  # all windows may share queries or keys
        return self._places(*(part.expand(*shape, part.shape[-1]) for part in (queries, keys)))

    def _find_softmax(self, call: FunctionCall) -> TokenPlaces | None:
        own, columns = self._trails.get(call.args[0], Trail(self._own(call.args[0])))
        axis = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim")
        if columns is None or axis is None or axis % own.dim() < own.dim() - 2:
            return None
        if varies(own, -1):  # the product was transposed: its columns are queries
            own, columns = columns, own
            self._keys = 0
        if own.dim() == 2 and not (varies(own, 0) and varies(columns, 1)):
            return None  # the softmax is over scores of classes, not over tokens
        rows, columns = own[..., 0], columns[..., 0, :]
        if axis % own.dim() == own.dim() - 1:
            return self._places(rows, columns)
        self._keys = 1 - self._keys
        return replace(self._places(columns, rows), is_turned=True)

    def _places(self, queries: Tensor, keys: Tensor) -> TokenPlaces:
        return find_places(queries, keys, self._sizes, self._collapsed)

    def _note_collapsed(self, before: Tensor, after: Tensor) -> None:
        # An axis counts only if the input extends over at least half of the image along it.
        for axis, size in enumerate(self._sizes):
            stride = math.prod(self._sizes[axis + 1 :])
            first, last = _ends_of(after, stride, size)
            if axis not in self._collapsed and first == last:
                first, last = _ends_of(before, stride, size)
                if 2 * (last - first) >= size:
                    self._collapsed.add(axis)

    def _trails_of(self, call: FunctionCall, given: Sequence[Tensor]) -> list[Trail]:
        if call.name in REPLACING:
            return [self._replace(call.name, *call.args, *call.kwargs.values())]
        is_lost = call.loses_places(given)
        if isinstance(call.output, Tensor) and not is_lost:
            return [self._trail_of(call, given, call.output)]
        if call.name in MOVING and not is_lost:
            moved = call.function(self._trails[given[0]].own, *call.args[1:], **call.kwargs)
            return [Trail(own) for own in tensors_in(moved)]
        return [Trail(everywhere(LOST, part)) for part in call.outputs]

    def _trail_of(self, call: FunctionCall, given: Sequence[Tensor], output: Tensor) -> Trail:
        if call.name in JOINING:
            parts = _join_channels([self._own(part) for part in call.args[0]], call, output)
            return Trail(torch.as_tensor(call.function(parts, *call.args[1:], **call.kwargs)))
        if call.name in FACTORS and (product := self._multiply(call, output)):
            return product
        if call.args and call.args[0] is given[0]:
            trail = self._trails[given[0]]
            changed = _change(trail, call, output)
            if changed is not None:
                if call.name.endswith(SAMPLING):  # all channels have the same positions
                    self._note_collapsed(trail.own[:, :1], changed.own[:, :1])
                elif call.name in REDUCING:
                    self._note_collapsed(trail.own, changed.own)
                return changed
        is_elementwise = name_operation(call.function) == "mul"
        if is_elementwise and (product := self._multiply_all(given, output)):
            return product
        return self._keep(given, output)

    def _replace(self, name: str, target: Tensor, *options: Any) -> Trail:
        # ``options``: an index and a value for ``__setitem__``, a value for ``copy_`` and
        # ``fill_``.
        index, value = options if name == "__setitem__" else (..., (*options, 0)[0])
        own, columns = self._trails.get(target, Trail(self._own(target)))
        given = self._trails.get(value) if isinstance(value, Tensor) else None
        is_learned = self._are_learned(tensors_in(value))
        is_mask = isinstance(index, Tensor) and index.shape == own.shape
        if is_learned and (columns is not None or is_mask):
            return Trail(own, columns)  # a token keeps its position if some of its values are set
        if any(part in self._trails for part in tensors_in(index)) or not (is_learned or given):
            return Trail(everywhere(LOST, own))
        if given is None:
            written = torch.zeros_like(own, dtype=torch.bool)
            written[index] = True
            axes = (axis for axis in range(own.dim()) if varies(written, axis))
            if any(not varies(own, axis) for axis in axes):  # such as a few channels of all tokens
                return Trail(own)
            return Trail(own.masked_fill(written & (own > OUTSIDE), LEARNED))
        own = own.clone()
        if given.columns is not None:
            columns = torch.full_like(own, LEARNED) if columns is None else columns.clone()
            columns[index] = given.columns
        own[index] = given.own
        return Trail(own, columns)

    def _multiply(self, call: FunctionCall, output: Tensor) -> Trail | None:
        # A product that sums over tokens computes weights that mix channels: its trail is
        # ``WEIGHTS`` everywhere. Other products, such as those with learned weights, give None.
        letters = letters_of(call.name, call.args, call.kwargs, output)
        if letters is None:
            return None
        (left, in_left), (right, in_right), in_output = letters
        summed = (set(in_left) & set(in_right)) - set(in_output)
        left_trail, right_trail = self._trails.get(left), self._trails.get(right)
        own, columns = (
            spread(self._own(tensor), inside, in_output, output.shape)
            for tensor, inside in ((left, in_left), (right, in_right))
        )
        if left_trail is not None and left_trail.columns is not None:
            self._summed = _parts_summed(left_trail, in_left, summed)
            return Trail(own)  # probabilities times values have the positions of the queries
        if right_trail is not None and right_trail.columns is not None:
            self._summed = _parts_summed(right_trail, in_right, summed)
            return Trail(columns)
        weighted = any(trail.is_weights for trail in (left_trail, right_trail) if trail)
        if weighted or right_trail is None or (left_trail is None and left.dim() != right.dim()):
            return None
        across = any(
            varies(self._own(tensor), inside.index(letter))
            for tensor, inside in ((left, in_left), (right, in_right))
            for letter in summed
        )
        if across:
            return Trail(everywhere(WEIGHTS, output))
        self.saw_product = any(map(has_places, (own, columns)))
        return Trail(own, columns)

    def _multiply_all(self, given: Sequence[Tensor], output: Tensor) -> Trail | None:
        # A broadcast product of all queries (…, queries, 1, channels) with all keys (…, 1, keys,
        # channels), in any order. For other shapes, return None.
        if len(given) != 2 or output.dim() < 3:
            return None
        own, columns = (self._trails[part].own for part in given)
        if own.shape[-3:-1] != (output.shape[-3], 1):
            own, columns = columns, own
        lengths = (own.shape[-3:-1], columns.shape[-3:-1])
        if lengths != ((output.shape[-3], 1), (1, output.shape[-2])) or 1 in output.shape[-3:-1]:
            return None
        self.saw_product = has_places(own) or has_places(columns)
        return Trail(own.expand(output.shape), columns.expand(output.shape))

    def _keep(self, given: Sequence[Tensor], output: Tensor) -> Trail:
        # The trail of an elementwise result, or of new channels for each token; ``LOST`` if none
        # fits the shape of ``output``, or each value depends on all tokens.
        trails = [self._trails[tensor] for tensor in given]
        trails = [trail for trail in trails if not trail.is_weights] or trails
        if same := [trail for trail in trails if trail.own.shape == output.shape]:
            return max(same, key=lambda trail: trail.columns is not None)
        for trail in trails:
            if trail.own.shape[:-1] == output.shape[:-1]:
                axes = range(trail.own.dim())
                if [axis for axis in axes if varies(trail.own, axis)] == [axes[-1]]:
                    return Trail(everywhere(LOST, output))  # each value depends on all tokens
                return trail.change(lambda part: part[..., :1].expand(output.shape))
        for trail in trails:
            if spreads_to(trail.own.shape, output.shape):
                return trail.change(lambda part: part.expand(output.shape))
        return Trail(everywhere(LOST, output))

    def _are_learned(self, tensors: Iterable[Tensor]) -> bool:
        return all(part in self._learned and part not in self._trails for part in tensors)

    def _own(self, tensor: Tensor) -> Tensor:
        if tensor in self._trails:
            return self._trails[tensor].own
        return everywhere(LEARNED if tensor in self._learned else LOST, tensor)


def _join_channels(trails: list[Tensor], call: FunctionCall, output: Tensor) -> list[Tensor]:
    # If ``call``, such as ``cat``, gives tokens more channels by appending tensors that come from
    # no pixel, these tensors get the tokens' pixel indices.
    axis = (*call.args[1:], *call.kwargs.values(), 0)[0] % output.dim()
    placed = next((part for part in trails if has_places(part)), None)
    is_channel = axis == output.dim() - 1 or (axis, output.dim()) == (1, 4)
    if call.name == "stack" or not is_channel or placed is None or varies(placed, axis):
        return trails
    if not varies(placed.reshape(-1), 0):  # a single token: the others may be tokens, too
        return trails
    return [
        placed.narrow(axis, 0, 1).expand(part.shape) if bool((part == LEARNED).all()) else part
        for part in trails
    ]


def _change(trail: Trail, call: FunctionCall, output: Tensor) -> Trail | None:
    options = call.args[1:]
    if call.name in MOVING:
        move = Tensor.reshape if call.name == "view" else call.function  # a trail's strides differ
        return trail.change(lambda part: move(part, *options, **call.kwargs))
    if call.name == "pad":
        sides = options[0] if options else call.kwargs["pad"]
        return Trail(torch.nn.functional.pad(trail.own, sides, value=OUTSIDE))
    if call.name.endswith(SAMPLING) and output.dim() == trail.own.dim():
        return trail.change(lambda part: sample(part, output.shape))
    if call.name in REDUCING and output.dim() > 1:
        reduced = trail.change(lambda part: reduce(part, *options[:1], **call.kwargs))
        # for example, a sum over the keys is no product any more
        return reduced if reduced.is_product else Trail(reduced.own)
    return None


def _parts_summed(trail: Trail, inside: Sequence[str], summed: Collection[str]) -> set[int]:
    # The parts are 0 for ``own``, 1 for ``columns``. A part counts if its pixels differ along one
    # of the ``summed`` axes, or if hookcli cannot know whether they do.
    # The set is empty if the product sums over heads. It has both parts if the trail is lost or a
    # summed axis has the length 1, so that hookcli cannot tell. Learned tokens all have the same
    # trail; hookcli assumes that they are on the last two axes.
    parts = [part for part in trail if part is not None]
    axes = [inside.index(letter) for letter in summed]
    is_lost = any(bool((part == LOST).any()) for part in parts)
    if is_lost or any(trail.own.shape[axis] == 1 for axis in axes):
        return {0, 1}
    found = {index for index, part in enumerate(parts) if any(varies(part, axis) for axis in axes)}
    if found or max(axes, default=0) < trail.own.dim() - 2:
        return found
    return {index for index, part in enumerate(parts) if not varies(part.reshape(-1), 0)}


def _ends_of(trail: Tensor, stride: int, size: int) -> tuple[int, int]:
    lines = (trail[trail > OUTSIDE] - 1).div(stride, rounding_mode="floor") % size
    return (int(lines.amin()), int(lines.amax())) if len(lines) else (0, 0)
