"""What is taken of each tensor inside its hook: figures, pictures, copies; and to which image it belongs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hookcli.activations.feature_maps import Bars, Picture, Tiles, take_tiles
from hookcli.activations.observation import Observation, read_records, take_sample
from hookcli.activations.pooling import take_activation
from hookcli.activations.sketch import take_sketches
from hookcli.activations.stats import reduce_rows, to_dense
from hookcli.records.layouts import UNKNOWN, resolve_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookcli.config import GridStyle, SaveStyle
    from hookcli.records.calls import Call
    from hookcli.records.images import Score
    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.layouts import Layout


@dataclass(frozen=True, slots=True)
class Heat:
    """A map of one image that lies over what the network saw.

    Attributes:
        image: the image's key.
        kind: ``cam`` or ``saliency``.
        call: whose Grad-CAM it is; None for the pixels.
        values: (h, w), 0 or more.
    """

    image: str
    kind: str
    call: Call | None
    values: Tensor


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one forward, or a forward and its backward, gave.

    Attributes:
        records: one an image and observed tensor.
        pictures: what is to be drawn.
        called: module paths of the observed layers that ran.
        output: the model's own; None if it raised.
        keys: the images that went through.
        kept: call id, image and (1, …) tensor of what is saved, on the host.
        unedited: what the model returns without edits; None without any.
        score: what the backward started at.
        unedited_score: the same without edits.
        heats: maps that lie over the image.
    """

    records: tuple[LayerRecord, ...] = ()
    pictures: tuple[Picture, ...] = ()
    called: frozenset[str] = frozenset()
    output: object = None
    keys: tuple[str, ...] = ()
    kept: tuple[tuple[str, str, Tensor], ...] = ()
    unedited: object = None
    score: Score | None = None
    unedited_score: Score | None = None
    heats: tuple[Heat, ...] = ()


class LeadingAxisError(Exception):
    """A tensor of a batch has a leading axis that is neither N nor 1."""


@dataclass(slots=True)
class Collector:
    """The observer of one forward, or of its backward.

    Attributes:
        keys: the images of the batch.
        pixels: height and width of what the layers see.
        style: how feature maps are drawn.
        sample: keep some values, for histograms.
        focus: what is inside a box and what outside.
        save: which tensors are kept.
        unedited: what the same calls gave without edits, by call id; None in a run without edits.
        drawn: sides of which pictures are made.
        activations: by the id of the call's output, what its gradient is multiplied by in pictures.
        sketch: a sketch of every tensor is taken.
    """

    keys: tuple[str, ...]
    pixels: tuple[int, int]
    style: GridStyle
    sample: bool = False
    focus: Tensor | None = None
    save: SaveStyle | None = None
    unedited: Mapping[str, Tensor] | None = None
    drawn: tuple[str, ...] = ("output", "input")
    activations: Mapping[str, Tensor] | None = None
    sketch: bool = False
    kept: list[tuple[Call, Tensor]] = field(default_factory=list)
    has_other_leading_axis: bool = False
    seen: list[Observation] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    called: set[str] = field(default_factory=set)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        """Reduce one tensor, and copy what is kept of it.

        Raises:
            LeadingAxisError: images cannot be told apart in it.
        """
        tensor = to_dense(tensor)
        if call.side == "param":
            self._observe(call, tensor.unsqueeze(0), UNKNOWN, tuple(tensor.shape), None)
            return
        rows, layout, shape, axis = self._divide(call, tensor)
        self._observe(call, rows, layout, shape, axis)
        if self.save is not None:
            self.kept.append((call, take_activation(rows, layout, self.save)))
        if self.style.mode != "none" and tensor.numel() and call.side in self.drawn:
            self._draw(call, tensor, layout, shape)

    def result(self, output: object) -> BatchResult:
        """Everything seen, as plain numbers on the host."""
        pictures = tuple(replace(p, content=_on_host(p.content)) for p in self.pictures)
        records = read_records(self.seen, self.keys)
        kept = tuple(
            (call.id, key, of_image(tensor, index))
            for call, tensor in [(call, tensor.cpu()) for call, tensor in self.kept]
            for index, key in enumerate(self.keys)
            if tensor.numel()
        )
        return BatchResult(records, pictures, frozenset(self.called), output, self.keys, kept)

    def _divide(
        self, call: Call, tensor: Tensor
    ) -> tuple[Tensor, Layout, tuple[int, ...], int | None]:
        """One row per image, or one for all where the leading axis is another.

        Returns:
            The rows, the layout of the tensor, the shape of one image's part (or of all), and the axis
            of the rows that holds channels.

        Raises:
            LeadingAxisError: images cannot be told apart in it.
        """
        count = len(self.keys)
        lead = tensor.shape[0] if tensor.dim() else 0
        if count > 1 and lead not in (1, count):
            raise LeadingAxisError
        layout = resolve_layout(tuple(tensor.shape), call.layer.channels, self.pixels)
        axis = layout.channel_axis
        if lead in (1, count):
            return tensor, layout, (1, *tensor.shape[1:]), axis
        self.has_other_leading_axis = True
        layout = replace(layout, height=0, width=0)
        axis = None if axis is None else axis + 1
        return tensor.unsqueeze(0), layout, tuple(tensor.shape), axis

    def _observe(
        self, call: Call, rows: Tensor, layout: Layout, shape: tuple[int, ...], axis: int | None
    ) -> None:
        """Reduce (rows, …), whose channels lie along ``axis``, to what is told of them in numbers."""
        with_sample = self.sample and rows.numel() and call.side != "param"
        self.seen.append(
            Observation(
                call,
                layout,
                shape,
                rows.dtype,
                reduce_rows(rows, axis),
                take_sample(rows) if with_sample else None,
                self._measure(call, rows),
                take_sketches(rows) if self.sketch else None,
            )
        )

    def _measure(self, call: Call, rows: Tensor) -> Tensor | None:
        """How far each row is from the one without edits; None where there is none to compare with."""
        plain = None if self.unedited is None else self.unedited.get(call.id)
        return None if plain is None else measure_change(rows, plain)

    def _draw(self, call: Call, tensor: Tensor, layout: Layout, shape: tuple[int, ...]) -> None:
        if self.activations is not None:
            tensor = tensor * self.activations[replace(call, side="output").id]
        for index, key in enumerate(self.keys):
            part = of_image(tensor, index) if len(self.keys) > 1 else tensor
            content = take_tiles(part, layout, self.style, self.focus)
            if isinstance(content, Tiles) and not len(content.channels):
                continue  # none of the channels that were asked for exists here
            self.pictures.append(Picture(key, call, layout, shape, content))


def keep_tensor(kept: dict[str, Tensor], call: Call, tensor: Tensor) -> None:
    """An observer that copies, by call id."""
    kept[call.id] = to_dense(tensor).clone()


def measure_change(rows: Tensor, plain: Tensor) -> Tensor:
    """(rows,) L2 norm of the difference over that of ``plain``; NaN where the two have different shapes.

    0 where both are the same, Inf where only ``plain`` is zero.
    """
    if rows.numel() != plain.numel():
        return torch.full((len(rows),), torch.nan)
    shape = (len(rows), math.prod(rows.shape[1:]))  # a row can be one number
    one, two = rows.reshape(shape).double(), plain.reshape(shape).double()
    apart = (one - two).norm(dim=1)
    return torch.where(apart == 0, 0, apart / two.norm(dim=1))


def of_image(batched: Tensor, index: int) -> Tensor:
    """One image's part, (1, …), of a tensor whose leading axis is N, or 1 for what all images share."""
    row = index if batched.shape[0] > 1 else 0
    return batched[row : row + 1]


def _on_host(content: Tiles | Bars) -> Tiles | Bars:
    if isinstance(content, Bars):
        return replace(content, values=content.values.cpu())
    return replace(
        content,
        levels=content.levels.cpu(),
        channels=content.channels.cpu(),
        figures=content.figures.cpu(),
        scores=None if content.scores is None else content.scores.cpu(),
    )
