"""The attention of the forwards of a run: what each head looks at, computed aside.

The probabilities are computed call by call from the queries and keys that the model uses, and are
reduced while the call is running, so that at most those of one call of one image take memory.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from hookcli.activations.attention import image_probabilities
from hookcli.activations.attention_figures import (
    CLASS_TOKEN,
    cell_of,
    measure_attention,
    query_map,
)
from hookcli.activations.attention_maps import (
    choose_side,
    refuse_rollout,
    roll_out,
    thin_map,
    thin_queries,
)
from hookcli.activations.image_attention import ImageAttention
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.operations import listen_to_operations
from hookcli.passes.find_attention import FUNCTIONS, find_attention

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

    from hookcli.activations.token_places import TokenPlaces
    from hookcli.hooks.operations import OperationCall
    from hookcli.models.inputs import ModelInputs
    from hookcli.passes.find_attention import AttentionCall, FoundAttention
    from hookcli.records.calls import LayerInfo


@dataclass(frozen=True, slots=True)
class AttentionSettings:
    """What is computed of the attention in all forwards of a run.

    Attributes:
        model: the model.
        feed: how the model is called with pixels.
        layers: the layers whose attention is wanted, and that of all modules inside them.
        point: the point whose patch is the query that is drawn, from the left and the top as shares
            of what the network sees; None for the class token.
        draws: pictures are drawn.
        rollout: the attention is rolled out over all calls.
        keeps: the probabilities are saved.
        limit: the most bytes of the maps of one image for the page.
        found: the attention of forwards of the shapes of pixels that were seen so far, without the
            leading axis.
    """

    model: nn.Module
    feed: ModelInputs
    layers: tuple[LayerInfo, ...]
    point: tuple[float, float] | None = None
    draws: bool = True
    rollout: bool = False
    keeps: bool = False
    limit: int = 4_000_000
    found: dict[tuple[int, ...], FoundAttention] = field(default_factory=dict)

    def find(self, pixels: Tensor) -> FoundAttention:
        """Return the attention in forwards of pixels (N, …) of this shape.

        Raises:
            RequestError: the model is not given one tensor of pictures or clips.
            ForwardError: the model raised an exception.
        """
        shape = tuple(pixels.shape[1:])
        if shape not in self.found:
            blank = torch.zeros_like(pixels[:1])
            self.found[shape] = find_attention(self.model, self.feed, self.layers, blank)
        return self.found[shape]

    def attend(self, keys: Sequence[str], pixels: Tensor) -> AbstractContextManager[Attending]:
        """Return a block around the forward of images that have these keys and pixels."""
        return _attend(self, Attending(self, self.find(pixels), tuple(keys)))


@dataclass(slots=True)
class Attending:
    """The listener of one forward of the run.

    Attributes:
        results: what each call does with each image, so far.
    """

    settings: AttentionSettings
    found: FoundAttention
    keys: tuple[str, ...]
    results: list[ImageAttention] = field(default_factory=list)
    _wanted: dict[tuple[str, int], AttentionCall] = field(init=False)
    _counts: Counter[str] = field(default_factory=Counter)
    _side: int | None = None
    _rollouts: dict[str, Tensor] = field(default_factory=dict)
    _can_roll_out: bool = False

    def __post_init__(self) -> None:
        calls = self.found.calls
        self._wanted = {(each.path, each.place): each for each in calls}
        visible = [each.places for each in calls if each.places.key_grid]
        sizes = [
            (places.heads, places.query_grid, places.key_grid[-2:])
            for places in visible
            if places.query_grid
        ]
        self._side = choose_side(sizes, self.settings.limit)
        self._can_roll_out = not refuse_rollout([each.places for each in calls])

    def begin(self, operation: OperationCall) -> tuple[AttentionCall, OperationCall] | None:
        """Note that an operation is called; None if it is no attention that is wanted."""
        if not operation.path.endswith(FUNCTIONS):
            return None
        place = self._counts[operation.path]
        self._counts[operation.path] += 1
        wanted = self._wanted.get((operation.path, place))
        return None if wanted is None else (wanted, operation)

    def end(self, begun: object, output: object) -> None:
        """Compute the probabilities of a call that has returned, image by image."""
        if output is None:
            return
        wanted, operation = cast("tuple[AttentionCall, OperationCall]", begun)
        for index, key in enumerate(self.keys):
            raw = image_probabilities(
                wanted.function,
                operation.args,
                operation.kwargs,
                output,
                index,
                len(self.keys),
            )
            self._take(key, wanted, wanted.places.arrange(raw))

    def finish(self) -> tuple[ImageAttention, ...]:
        """Return what was seen of all images, and their rollouts."""
        hidden = [
            ImageAttention(key, row=row) for key in self.keys for row in self.found.hidden_rows
        ]
        rollouts = []
        for key, rolled in self._rollouts.items():
            query = self._query_map(rolled[None, None], self.found.calls[0].places)
            rollouts.append(ImageAttention(key, query=query[0], mark=query[1]))
        return (*self.results, *hidden, *rollouts)

    def _take(self, key: str, wanted: AttentionCall, probabilities: Tensor) -> None:
        """Reduce the probabilities (windows, heads, queries, keys) of one call for one image."""
        settings, places = self.settings, wanted.places
        row = measure_attention(wanted.call, wanted.function, probabilities, places)
        values = mark = levels = None
        query_grid: tuple[int, ...] = ()
        map_grid: tuple[int, ...] = ()
        if settings.draws:
            values, mark = self._query_map(probabilities, places)
            if len(places.query_grid) == 2 and len(places.key_grid) == 2:
                levels, query_grid, map_grid = self._all_maps(probabilities, places)
        if settings.rollout and self._can_roll_out:
            self._rollouts[key] = roll_out(self._rollouts.get(key), probabilities)
        kept = probabilities[None].cpu().clone() if settings.keeps else None
        self.results.append(
            ImageAttention(
                key,
                wanted.call,
                row,
                values,
                mark,
                levels,
                query_grid,
                map_grid,
                (query_grid, map_grid) != (places.query_grid, places.key_grid),
                kept,
            )
        )

    def _query_map(
        self, probabilities: Tensor, places: TokenPlaces
    ) -> tuple[Tensor | None, tuple[float, float, float, float] | None]:
        """Return the map of the query that is drawn, and the place of its patch."""
        point = self.settings.point
        if point is None:
            values = query_map(probabilities, places, CLASS_TOKEN)
            if values is not None:
                return _one_frame(values), None
            point = (0.5, 0.5)
        if not places.query_grid:
            return None, None
        cell = cell_of(places, *point)
        values = query_map(probabilities, places, cell)
        rows, columns = places.query_grid[-2:]
        row, column = cell // columns, cell % columns
        mark = (column / columns, row / rows, 1 / columns, 1 / rows)
        return (None if values is None else _one_frame(values)), mark

    def _all_maps(
        self, probabilities: Tensor, places: TokenPlaces
    ) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
        """Return the maps of all queries that are kept as one picture, and both its grids."""
        tiles = []
        for cell in thin_queries(places.query_grid, self._side):
            values = query_map(probabilities, places, cell)
            if values is None:  # a patch that no query stands for
                values = torch.zeros(places.heads, *places.key_grid)
            tiles.append(thin_map(values, self._side)[0])
        together = torch.stack(tiles)  # (queries, heads, h, w)
        _, heads, height, width = together.shape
        side = self._side
        rows, columns = (
            length if side is None else min(length, side) for length in places.query_grid
        )
        blocks = together.reshape(rows, columns, heads * height, width)
        picture = blocks.transpose(1, 2).reshape(rows * heads * height, columns * width)
        return picture.cpu(), (rows, columns), (height, width)


def _one_frame(values: Tensor) -> Tensor:
    """Return a map (heads, h, w) on the host; of a clip it is the mean over the frames."""
    values = values.float()
    return (values.mean(1) if values.dim() == 4 else values).cpu()


@contextmanager
def _attend(settings: AttentionSettings, attending: Attending) -> Iterator[Attending]:
    watchable = list_watchable(settings.model)
    with listen_to_operations(settings.model, watchable, attending):
        yield attending


def attend(
    settings: AttentionSettings | None, keys: Sequence[str], pixels: Tensor
) -> AbstractContextManager[Attending | None]:
    """Return a block around a forward, in which its attention is computed if it is wanted."""
    return nullcontext() if settings is None else settings.attend(keys, pixels)
