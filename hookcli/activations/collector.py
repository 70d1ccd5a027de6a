"""The observer of a run, which takes statistics, pictures and copies of each image's tensors."""

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
from hookcli.hooks.dense import to_dense
from hookcli.records.edit_effects import EditEffects
from hookcli.records.layouts import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookcli.activations.image_attention import ImageAttention
    from hookcli.config import GridStyle, HeatOf, SaveStyle
    from hookcli.records.calls import Call
    from hookcli.records.images import ImageResult, Score
    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.layouts import Layout


@dataclass(frozen=True, slots=True)
class Heat:
    """A map of one image, drawn over the network's input.

    Attributes:
        kind: ``cam``, ``saliency``, or what the map shows of the channels (``config.HeatOf``).
        call: the call whose channels the map shows; None for a saliency map of the pixels.
        values: the map, (h, w). Grad-CAM and saliency have no negative values.
        layout: the layout of the call's tensor; None for Grad-CAM and saliency.
        shape: the shape of one image's part of the tensor; empty for Grad-CAM and saliency.
    """

    image: str
    kind: str
    call: Call | None
    values: Tensor
    layout: Layout | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one forward pass, or of a forward and a backward pass.

    Attributes:
        records: one record per image and observed tensor.
        called: the module paths of the observed layers that ran, each with a text as in
            ``hooks.observe``.
        output: the output of the model; None if it raised an exception.
        alone: whether images of this model cannot share a forward pass, because the leading axis of
            some tensor is not the batch.
        kept: the tensors to save, each as (call id, image, tensor). The tensors (1, …) are on the
            host.
        unedited: the output of the model without edits; None in a run without edits.
        score: the number from which the backward pass started; None without a backward pass.
        attention: the rows and maps of the attention calls; None if attention was not requested.
        overwritten: the module that overwrote the output of a call, by call id; hookcli checks only
            the first forward pass of a run.
        images: the results of the images; empty until the output has been read.
        not_finite: which of ``NaN`` and ``Inf`` the output has.
    """

    records: tuple[LayerRecord, ...] = ()
    pictures: tuple[Picture, ...] = ()
    called: Mapping[str, str] = field(default_factory=dict)
    output: object = None
    keys: tuple[str, ...] = ()
    alone: bool = False
    kept: tuple[tuple[str, str, Tensor], ...] = ()
    unedited: object = None
    score: Score | None = None
    unedited_score: Score | None = None
    heats: tuple[Heat, ...] = ()
    attention: ImageAttention | None = None
    effects: EditEffects = field(default_factory=EditEffects)
    overwritten: Mapping[str, str] = field(default_factory=dict)
    images: tuple[ImageResult, ...] = ()
    not_finite: frozenset[str] = frozenset()


class LeadingAxisError(Exception):
    """The leading axis of a tensor is neither 1 nor the number of images in the batch."""


@dataclass(slots=True)
class Collector:
    """The observer of one forward pass, or of its backward pass.

    Attributes:
        pixels: the height and width of the network's input.
        sample: whether to keep some values of each tensor for histograms.
        save: which parts of the tensors to save; None saves none.
        unedited: the tensors of the same calls without edits, by call id; None in a run without
            edits.
        drawn: the sides that get pictures, such as ``output``.
        activations: the outputs with which gradients are multiplied before they are drawn, by call
            id; None draws the gradients alone.
        heat: which maps over the image are made of each tensor with places; None makes none.
        has_other_leading_axis: whether at least one tensor had a leading axis other than the batch.
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
    heat: HeatOf | None = None
    heats: list[Heat] = field(default_factory=list)
    kept: list[tuple[Call, Tensor]] = field(default_factory=list)
    has_other_leading_axis: bool = False
    seen: list[Observation] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        """Reduce one tensor, and copy the parts to keep."""
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
        """Return all observations so far, as plain numbers on the host."""
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
        """Return rows, one per image or just one, their layout, shape and channel axis."""
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
        """Reduce rows (rows, …) with channels along ``axis``, and store the observation."""
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
            tensor = tensor * self.activations[replace(call, side="output").id]
        for index, key in enumerate(self.keys):
            part = of_image(tensor, index) if len(self.keys) > 1 else tensor
            content = take_tiles(part, layout, self.style, self.focus)
            if isinstance(content, Tiles) and not len(content.channels):
                continue  # none of the requested channels exists here
            self.pictures.append(Picture(key, call, layout, shape=shape, content=content))


def keep_tensor(kept: dict[str, Tensor], call: Call, tensor: Tensor) -> None:
    """Store a copy of a tensor in ``kept`` under the id of its call.

    ``functools.partial(keep_tensor, kept)`` is an observer.
    """
    kept[call.id] = to_dense(tensor).clone()


def measure_change(rows: Tensor, plain: Tensor) -> Tensor:
    """Return the relative change of each row, (rows,).

    The relative change is the L2 norm of the difference between a row and the same row of
    ``plain``, divided by the L2 norm of the row of ``plain``. It is 0 if both rows are equal, Inf
    if only the row of ``plain`` is all zero, and NaN if ``rows`` and ``plain`` have different
    numbers of values.
    """
    if rows.numel() != plain.numel():
        return torch.full((len(rows),), torch.nan)
    shape = (len(rows), math.prod(rows.shape[1:]))  # a row can be one number
    one, two = rows.reshape(shape).double(), plain.reshape(shape).double()
    distance = (one - two).norm(dim=1)
    return torch.where(distance == 0, 0, distance / two.norm(dim=1))


def of_image(batched: Tensor, index: int) -> Tensor:
    """Return one image's part (1, …) of a tensor.

    A tensor with a leading axis of 1 belongs to all images, and is returned whole.
    """
    row = index if batched.shape[0] > 1 else 0
    return batched[row : row + 1]


def _on_host(content: Tiles | Bars) -> Tiles | Bars:
    values = {each.name: getattr(content, each.name) for each in fields(content)}
    tensors: dict[str, Any] = {
        name: value.cpu() for name, value in values.items() if isinstance(value, Tensor)
    }
    return replace(content, **tensors)
