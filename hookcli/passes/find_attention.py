"""Find a model's attention calls, and which part of the image each of their tokens covers.

If hookcli cannot show an attention call, this module finds the reason. Two forward passes are
enough for all images of one shape: one with an image, and one with the noisy, flipped negative of
the image. If a token covers different parts in the two passes, the model chooses tokens at random
or by the content of the image, so the parts are not valid for other images.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import torch

from hookcli.activations.attention_maps import refuse_rollout
from hookcli.activations.token_trails import TokenTrails
from hookcli.errors import ForwardError, RequestError
from hookcli.hooks.filter import is_inside
from hookcli.hooks.layers import list_layers
from hookcli.hooks.operations import split_path
from hookcli.networks.modules import find_modules
from hookcli.passes.find_operations import run_watched
from hookcli.passes.unchanged import throw_dice, unchanged
from hookcli.records.attention_records import AttentionRow
from hookcli.records.calls import Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from hookcli.activations.token_places import TokenPlaces
    from hookcli.hooks.operations import OperationCall
    from hookcli.networks.inputs import ModelInputs
    from hookcli.records.calls import LayerInfo

FUNCTIONS = ("scaled_dot_product_attention", "multi_head_attention_forward", "softmax")
_CHOSEN = "its tokens are chosen at random, or depend on the image"
_HIDDEN = "it has no visible softmax over a product of queries and keys"
_NO_SOFTMAX = "it multiplies tokens with tokens, but has no visible softmax over the product"
_LOST = "its softmax is over values that could not be followed from the pixels"
_MIXED = "its softmax is added to other weights before it weighs the values"
_CHANGED = "its softmax is changed before it weighs the values"
_OVER_QUERIES = (
    "its softmax is taken over queries, so that the weights of a query do not add up to 1"
)
_PROJECTED = "its heads are mixed with each other before they weigh the values"


@dataclass(frozen=True, slots=True)
class AttentionCall:
    call: Call  # its index counts the attention calls of the module
    path: str  # of the torch function: ``blocks.0.attn/op:softmax``
    index: int  # the index of this call among the calls of that operation, from 0
    function: str  # one of ``FUNCTIONS``
    places: TokenPlaces  # the parts of the image that the queries and the keys cover


@dataclass(frozen=True, slots=True)
class FoundAttention:
    calls: tuple[AttentionCall, ...]  # whose attention hookcli can compute, in running order
    # other calls, and modules without a visible attention call, with the reasons
    hidden: tuple[tuple[Call, str], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # calls of ``FUNCTIONS``, by path

    def refuse_rollout(self) -> str:
        return refuse_rollout([call.places for call in self.calls])


def hidden_row(call: Call, reason: str) -> AttentionRow:
    path, kind = call.layer.module_path, call.layer.module_type
    return AttentionRow(call.order, call.id, path, kind, images=1, reason=reason)


def find_attention(
    model: nn.Module, inputs: ModelInputs, layers: Sequence[LayerInfo], pixels: Tensor
) -> FoundAttention:
    arguments = inputs.arguments_of(pixels)
    if not any(argument is pixels for argument in arguments) or pixels.dim() not in (4, 5):
        raise RequestError(
            "`attention` follows the pixels of one picture or clip, and this model takes others"
        )
    # As for a second image, the second pass starts from the state that the first pass left.
    with unchanged(model):
        finder = _follow(model, inputs, pixels)
        throw_dice()
        with suppress(ForwardError):
            finder.compare(_follow_other(model, inputs, pixels))
    chosen = [call for call in finder.calls if _is_chosen(call, layers)]
    reasons = {call: finder.explain_change(call) for call in chosen}
    calls = tuple(call for call, why in reasons.items() if not why)
    changed = [(call.call, why) for call, why in reasons.items() if why]
    orders = itertools.count(len(finder.calls) + 1)
    unseen = (
        (Call(layer, order=next(orders), side="attention"), why)
        for layer, why in _list_hidden(model, layers, finder)
    )
    return FoundAttention(calls, (*changed, *unseen), finder.counts)


def _follow_other(model: nn.Module, inputs: ModelInputs, pixels: Tensor) -> _Finder:
    noise = torch.rand(pixels.shape).to(pixels) * (pixels.amax() - pixels.amin() + 1)
    with suppress(ForwardError):
        return _follow(model, inputs, noise - pixels.flip(-1, -2))
    return _follow(model, inputs, pixels)


def _follow(model: nn.Module, inputs: ModelInputs, pixels: Tensor) -> _Finder:
    arguments = inputs.arguments_of(pixels)
    trails = TokenTrails(pixels, [arguments, *map(vars, model.modules())])
    finder = _Finder({layer.module_path: layer for layer in list_layers(model)}, trails)
    run_watched(model, arguments, finder)
    return finder


def _is_chosen(call: AttentionCall, layers: Sequence[LayerInfo]) -> bool:
    own = call.call.layer.module_path
    return any(
        layer.module_path == call.path
        and (not layer.chosen_calls or call.index in layer.chosen_calls)
        if layer.is_operation
        else is_inside(own, layer.module_path)
        for layer in layers
    )


def _list_hidden(
    model: nn.Module, layers: Sequence[LayerInfo], finder: _Finder
) -> Iterator[tuple[LayerInfo, str]]:
    # The innermost modules count that are named like attention, multiplied tokens with tokens, or
    # weighed values with a softmax over tensors that hookcli could not follow.
    modules, shown = find_modules(model), finder.multipliers | finder.blind
    attentions = [p for p, m in modules.items() if p in shown or _has_name_of_attention(p, m)]
    seen = [call.call.layer.module_path for call in finder.calls]
    wanted = [layer.module_path for layer in layers if not layer.is_operation]
    for path in attentions:
        inner = any(other != path and is_inside(other, path) for other in attentions)
        is_seen = any(is_inside(each, path) or is_inside(path, each) for each in seen)
        has_run = any(is_inside(each, path) for each in finder.ran)
        if has_run and not inner and not is_seen and any(is_inside(path, each) for each in wanted):
            evidence = {_LOST: finder.blind, _NO_SOFTMAX: finder.multipliers, _HIDDEN: {path}}
            found = (
                why for why, paths in evidence.items() for each in paths if is_inside(each, path)
            )
            yield finder.layers[path], next(found)


def _has_name_of_attention(path: str, module: nn.Module) -> bool:
    kind, name = type(module).__name__, path.rpartition(".")[2].lower()
    return "Attention" in kind or "Attn" in kind or name in ("attn", "attention", "self_attn")


@dataclass(slots=True)
class _Finder:
    layers: Mapping[str, LayerInfo]
    trails: TokenTrails
    calls: list[AttentionCall] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)
    multipliers: set[str] = field(default_factory=set)  # modules that multiplied tokens with tokens
    blind: set[str] = field(default_factory=set)  # modules with a softmax over lost tensors
    counts: Counter[str] = field(default_factory=Counter)  # by operation path
    _of_modules: Counter[str] = field(default_factory=Counter)

    def explain_change(self, call: AttentionCall) -> str:
        index = call.call.order - 1
        shares = self.trails.shares
        reasons = {
            _PROJECTED: shares.projected,
            _MIXED: shares.added,
            _CHANGED: shares.changed,
            _OVER_QUERIES: shares.over_queries,
        }
        return next((reason for reason, indices in reasons.items() if index in indices), "")

    def compare(self, other: _Finder) -> None:
        others = {(call.path, call.index): call.places for call in other.calls}
        self.calls = [
            replace(call, places=call.places.unlike(others.get((call.path, call.index)), _CHOSEN))
            for call in self.calls
        ]

    def begin(self, operation: OperationCall) -> OperationCall:
        return operation

    def end(self, call: object, output: object) -> None:
        operation = cast("OperationCall", call)
        module_path, name = split_path(operation.path)
        self.ran.add(module_path)
        places = self.trails.follow(operation.function, operation.args, operation.kwargs, output)
        if self.trails.saw_product:
            self.multipliers.add(module_path)
        if self.trails.saw_softmax:
            self.blind.add(module_path)
        if name not in FUNCTIONS or output is None:
            return
        own_index = self.counts[operation.path]
        self.counts[operation.path] += 1
        if places is not None:
            index = self._of_modules[module_path]
            self._of_modules[module_path] += 1
            call = Call(self.layers[module_path], index, len(self.calls) + 1, "attention")
            self.calls.append(AttentionCall(call, operation.path, own_index, name, places))
