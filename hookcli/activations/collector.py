"""Collect statistics, pictures and copies of tensors in hooks; measure what edits changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hookcli.activations.feature_maps import Bars, Picture, Tiles, take_heat, take_tiles
from hookcli.activations.observation import Observation, read_records, take_sample
from hookcli.activations.pooling import take_activation
from hookcli.activations.sketch import take_sketches
from hookcli.activations.stats import reduce_rows
from hookcli.hooks.nested import to_dense
from hookcli.records.edit_effects import EditEffects
from hookcli.records.layouts import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.activations.attention_maps import ImageAttention
    from hookcli.config import GridStyle, HeatOf, SaveStyle
    from hookcli.records.calls import Call
    from hookcli.records.images import ImageResult, Score
    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.layouts import Layout
    from hookcli.records.pictures import CamTest


@dataclass(frozen=True, slots=True)
class Heat:
    image: str
    kind: str  # ``cam``, ``saliency``, or one of ``config.HeatOf``
    call: Call | None  # None for a saliency map of the pixels
    values: Tensor  # (h, w); of a Grad-CAM, only the positive values count
    layout: Layout | None = None  # of the call's tensor; None for saliency
    shape: tuple[int, ...] = ()  # of one image's part of the tensor
    score: Score | None = None  # that the map explains, if it comes from a backward pass
    target: str = ""  # as in ``Call``
    test: CamTest | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    records: tuple[LayerRecord, ...] = ()
    pictures: tuple[Picture, ...] = ()
    called: Mapping[str, str] = field(default_factory=dict)  # as in ``hooks.observe``
    output: object = None  # of the model; None if it raised
    keys: tuple[str, ...] = ()
    alone: bool = False  # whether images cannot share a pass: the leading axis is not the batch
    kept: tuple[tuple[str, str, Tensor], ...] = ()  # (call id, image, tensor (1, …) on the host)
    unedited: object = None
    scores: tuple[Score, ...] = ()  # of each target
    unedited_scores: tuple[Score, ...] = ()
    heats: tuple[Heat, ...] = ()
    attention: ImageAttention | None = None
    effects: EditEffects = field(default_factory=EditEffects)
    overwritten: Mapping[str, str] = field(default_factory=dict)
    unsteady: Sequence[str] = ()  # the calls that return other values in a second pass
    images: tuple[ImageResult, ...] = ()
    not_finite: frozenset[str] = frozenset()


class LeadingAxisError(Exception):
    """Raised for a tensor whose leading axis is neither 1 nor the number of images in the batch."""


@dataclass(slots=True)
class Collector:
    keys: tuple[str, ...]
    pixels: tuple[int, int]  # the height and width of the network's input
    style: GridStyle
    sample: bool = False
    focus: Tensor | None = None
    save: SaveStyle | None = None
    unedited: Mapping[str, Tensor] | None = None  # the same calls without edits
    drawn: tuple[str, ...] = ("output", "input")  # the sides that get pictures
    activations: Mapping[str, Tensor] | None = None  # outputs to multiply drawn gradients by
    sketch: bool = False
    heat: HeatOf | None = None
    heats: list[Heat] = field(default_factory=list)
    kept: list[tuple[Call, Tensor]] = field(default_factory=list)
    has_other_leading_axis: bool = False  # whether the leading axis of any tensor was not the batch
    seen: list[Observation] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        tensor = to_dense(tensor)
        if call.side == "param":
            self._observe(call, tensor.unsqueeze(0), UNKNOWN, shape=tuple(tensor.shape), axis=None)
            return
        rows, layout, shape, axis = self._divide(call, tensor)
        self._observe(call, rows, layout, shape=shape, axis=axis)
        if self.save is not None:
            self.kept.append((call, take_activation(rows, layout, self.save)))
        if self.style.mode != "none" and tensor.numel() and call.side in self.drawn:
            self._draw(call, tensor, layout, shape)
        if self.heat is not None and layout.is_spatial and tensor.numel():
            for index, key in enumerate(self.keys):
                values = take_heat(of_image(tensor, index), layout, self.heat)
                self.heats.append(Heat(key, self.heat, call, values, layout, shape))

    def result(self) -> BatchResult:
        pictures = tuple(replace(p, content=_on_host(p.content)) for p in self.pictures)
        records = read_records(self.seen, self.keys)
        on_host = [(call.id, tensor.cpu()) for call, tensor in self.kept if tensor.numel()]
        kept = tuple(
            (call_id, key, of_image(tensor, index))
            for call_id, tensor in on_host
            for index, key in enumerate(self.keys)
        )
        return BatchResult(
            records,
            pictures,
            keys=self.keys,
            alone=self.has_other_leading_axis,
            kept=kept,
            heats=tuple(replace(heat, values=heat.values.cpu()) for heat in self.heats),
        )

    def _divide(
        self, call: Call, tensor: Tensor
    ) -> tuple[Tensor, Layout, tuple[int, ...], int | None]:
        count = len(self.keys)
        lead = tensor.shape[0] if tensor.dim() else 0
        if count > 1 and lead not in (1, count):
            raise LeadingAxisError
        layout = call.layout_of(tuple(tensor.shape), self.pixels)
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
        plain = None if self.unedited is None else self.unedited.get(call.id)
        with_sample = self.sample and rows.numel() and call.side != "param"
        self.seen.append(
            Observation(
                call,
                layout,
                shape,
                dtype=rows.dtype,
                reduced=reduce_rows(rows, axis),
                sample=take_sample(rows) if with_sample else None,
                change=None if plain is None else measure_change(rows, plain),
                sketch=take_sketches(rows) if self.sketch else None,
            )
        )

    def _draw(self, call: Call, tensor: Tensor, layout: Layout, shape: tuple[int, ...]) -> None:
        if self.activations is not None:
            tensor = tensor * self.activations[replace(call, side="output", target="").id]
        for index, key in enumerate(self.keys):
            part = of_image(tensor, index) if len(self.keys) > 1 else tensor
            content = take_tiles(part, layout, self.style, self.focus)
            if isinstance(content, Tiles) and not len(content.channels):
                continue  # none of the requested channels exists here
            self.pictures.append(Picture(key, call, layout, shape=shape, content=content))


def keep_tensor(kept: dict[str, Tensor], call: Call, tensor: Tensor) -> None:
    kept[call.id] = to_dense(tensor).clone()


def measure_change(rows: Tensor, plain: Tensor) -> Tensor:
    """Return each row's change: its L2 distance from ``plain``, divided by the norm of ``plain``.

    If a row of ``plain`` is all zero and the other row is not, the change is Inf. If ``rows`` and
    ``plain`` do not have the same number of values, all changes are NaN.
    """
    if rows.numel() != plain.numel():
        return torch.full((len(rows),), torch.nan)
    shape = (len(rows), math.prod(rows.shape[1:]))  # a row can be one number
    one, two = rows.reshape(shape).double(), plain.reshape(shape).double()
    distance = (one - two).norm(dim=1)
    return torch.where(distance == 0, 0, distance / two.norm(dim=1))


def of_image(batched: Tensor, index: int) -> Tensor:
    """Return row ``index`` as (1, …), or the only row if all images of the batch share it."""
    row = index if batched.shape[0] > 1 else 0
    return batched[row : row + 1]


def _on_host(content: Tiles | Bars) -> Tiles | Bars:
    values = ((each.name, getattr(content, each.name)) for each in fields(content))
    tensors: dict[str, Any] = {name: v.cpu() for name, v in values if isinstance(v, Tensor)}
    return replace(content, **tensors)
