"""Record attention in forward passes, with an attention map of one query.

The query is the class token, a patch that the user names, or else the patch in the middle. hookcli
recomputes the probabilities of each attention call from the model's own queries and keys, and
reduces the probabilities right after the call, so the device holds the probabilities of only one
call and one image at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional

from hookcli.activations.attention_maps import (
    CLASS_TOKEN,
    CallAttention,
    ImageAttention,
    QueryMap,
    QueryMaps,
    cell_of,
    choose_side,
    measure_attention,
    query_map,
    roll_out,
    thin_map,
    thin_queries,
)
from hookcli.activations.attention_probabilities import call_probabilities
from hookcli.hooks.filter import is_inside
from hookcli.hooks.layers import list_layers, list_watchable
from hookcli.hooks.operations import listen_to_operations, split_path
from hookcli.passes.find_attention import FUNCTIONS, find_attention, hidden_row
from hookcli.records.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from hookcli.activations.token_places import TokenPlaces
    from hookcli.hooks.operations import OperationCall
    from hookcli.networks.inputs import ModelInputs
    from hookcli.passes.find_attention import AttentionCall, FoundAttention
    from hookcli.records.attention_records import AttentionRow
    from hookcli.records.calls import LayerInfo

_OTHER_TOKENS = "its queries and keys differ from those for the first image"
_NOT_CALLED = "it was called for the first image, but not for this one"
_NOT_FOUND = "it was not called for the first image, whose tokens were followed"


@dataclass(frozen=True, slots=True)
class AttentionSettings:
    model: nn.Module
    inputs: ModelInputs
    first: Callable[[], Tensor]  # returns the pixels (1, …) of the first image of the run
    layers: tuple[LayerInfo, ...]  # attention is recorded in these and in the modules inside them
    # the query to draw is the patch at this point, in shares of width and height; None: the class
    # token or, without a class token, the patch in the middle
    point: tuple[float, float] | None = None
    draws: bool = True
    rollout: bool = False
    keeps: bool = False  # whether to keep the probabilities of every call
    limit: int = 4_000_000  # the maximum size of the maps of one image on the page, in bytes
    # by the shape of the pixels without the leading axis
    found: dict[tuple[int, ...], FoundAttention] = field(default_factory=dict)

    def find(self, pixels: Tensor) -> FoundAttention:
        # once for each shape, hookcli runs the model on the run's first image, resized
        shape = tuple(pixels.shape[1:])
        if shape not in self.found:
            first = self.first()
            if first.shape[1:] != shape:
                first = functional.interpolate(first.float(), shape[1:])
            self.found[shape] = find_attention(
                self.model, self.inputs, self.layers, first.to(pixels)
            )
        return self.found[shape]


class _AttentionListener:
    def __init__(self, settings: AttentionSettings, key: str, found: FoundAttention) -> None:
        self.settings, self.key, self.found = settings, key, found
        places = [call.places for call in found.calls]
        self._wanted = {(call.path, call.index): call for call in found.calls}
        self._can_roll_out = not found.refuse_rollout()
        sizes = [(each.heads, each.query_grid, each.key_grid) for each in places if _is_drawn(each)]
        self._side = choose_side(sizes, settings.limit)
        self._counts = Counter[str]()
        self._calls: list[CallAttention] = []
        self._other: list[AttentionRow] = []
        self._rollout: Tensor | None = None

    def begin(self, operation: OperationCall) -> tuple[AttentionCall, OperationCall] | None:
        if split_path(operation.path)[1] not in FUNCTIONS:
            return None
        index = self._counts[operation.path]
        self._counts[operation.path] += 1
        if index >= self.found.counts.get(operation.path, 0):
            self._note_other(operation.path, index)
        wanted = self._wanted.pop((operation.path, index), None)
        return None if wanted is None else (wanted, operation)

    def end(self, call: object, output: object) -> None:
        if output is None:  # the operation raised
            return
        wanted, operation = cast("tuple[AttentionCall, OperationCall]", call)
        places = wanted.places
        raw = call_probabilities(wanted.function, operation.args, operation.kwargs, output)
        raw = raw.transpose(-2, -1) if places.is_turned else raw
        tokens = (places.queries.shape[1], places.keys.shape[1])
        if raw.shape[-2:] == tokens and math.prod(raw.shape[:-2]) == math.prod(places.shape):
            self._take(wanted, places.arrange(raw))
        else:
            self._other.append(hidden_row(wanted.call, _OTHER_TOKENS))

    def finish(self) -> ImageAttention:
        uncalled = (hidden_row(each.call, _NOT_CALLED) for each in self._wanted.values())
        unseen = (hidden_row(call, reason) for call, reason in self.found.hidden)
        hidden = (*self._other, *uncalled, *unseen)
        rollout = None
        if self._rollout is not None:
            rollout = self._query_map(self._rollout[None, None], self.found.calls[0].places)
        return ImageAttention(self.key, tuple(self._calls), hidden, rollout)

    def _note_other(self, path: str, index: int) -> None:
        module_path = split_path(path)[0]
        wanted = [layer.module_path for layer in self.settings.layers if not layer.is_operation]
        if any(is_inside(module_path, each) for each in wanted):
            layers = {layer.module_path: layer for layer in list_layers(self.settings.model)}
            order = len(self.found.calls) + len(self.found.hidden) + len(self._other) + 1
            call = Call(layers[module_path], index, order, "attention")
            self._other.append(hidden_row(call, _NOT_FOUND))

    def _take(self, wanted: AttentionCall, probabilities: Tensor) -> None:
        settings, places = self.settings, wanted.places
        query = maps = kept = None
        if settings.draws:
            query = self._query_map(probabilities, places)
            if _is_drawn(places):
                maps = self._all_maps(probabilities, places)
        if settings.rollout and self._can_roll_out:
            self._rollout = roll_out(self._rollout, probabilities)
        if settings.keeps:
            kept = probabilities[None].cpu().clone()
        row = measure_attention(wanted.call, wanted.function, probabilities, places)
        self._calls.append(CallAttention(wanted.call, row, query, maps=maps, kept=kept))

    def _query_map(self, probabilities: Tensor, places: TokenPlaces) -> QueryMap | None:
        point = self.settings.point
        if point is None:
            values = query_map(probabilities, places, CLASS_TOKEN)
            if values is not None:
                return QueryMap(_one_frame(values), None)
            point = (0.5, 0.5)
        if not places.query_grid:
            return None
        cell = cell_of(places, *point)
        values = query_map(probabilities, places, cell)
        if values is None:
            return None
        rows, columns = places.query_grid[-2:]
        row, column = cell // columns, cell % columns
        return QueryMap(_one_frame(values), (column / columns, row / rows, 1 / columns, 1 / rows))

    def _all_maps(self, probabilities: Tensor, places: TokenPlaces) -> QueryMaps:
        tiles = []
        for cell in thin_queries(places.query_grid, self._side):
            values = query_map(probabilities, places, cell)
            if values is None:  # no query has this patch
                values = torch.zeros(places.heads, *places.key_grid)
            tiles.append(thin_map(values, self._side))
        together = torch.stack(tiles)  # (queries, heads, h, w)
        _, heads, height, width = together.shape
        rows, columns = (min(length, self._side or length) for length in places.query_grid)
        blocks = together.reshape(rows, columns, heads * height, width)
        levels = blocks.transpose(1, 2).reshape(rows * heads * height, columns * width)
        grids = ((rows, columns), (height, width))
        is_thinned = grids != (places.query_grid, places.key_grid)
        token = query_map(probabilities, places, CLASS_TOKEN)
        if token is not None:
            block = thin_map(token, self._side).flatten(0, 1)
            levels = torch.cat([levels, functional.pad(block, (0, levels.shape[1] - width))])
        return QueryMaps(levels.cpu(), *grids, is_thinned, token is not None)


def _is_drawn(places: TokenPlaces) -> bool:
    return len(places.query_grid) == 2 == len(places.key_grid)


def _one_frame(values: Tensor) -> Tensor:
    values = values.float()  # (heads, h, w), or (heads, frames, h, w) of a clip
    return (values.mean(1) if values.dim() == 4 else values).cpu()


@contextmanager
def attend(
    settings: AttentionSettings | None, key: str, pixels: Tensor
) -> Iterator[_AttentionListener | None]:
    if settings is None:
        yield None
        return
    listener, model = _AttentionListener(settings, key, settings.find(pixels)), settings.model
    with listen_to_operations(model, list_watchable(model), listener):
        yield listener
