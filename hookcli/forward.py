"""Images through a model under hooks: records, and what is to be drawn.

The tensors of a batch are reduced inside the hooks. Here it is decided which part of a tensor is
which image's, and what is said when the model raises.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli import hooks
from hookcli.errors import ForwardError
from hookcli.failures import ModelFailure, describe_failure
from hookcli.feature_maps import Bars, Picture, Tiles, take_tiles
from hookcli.feed import PLAIN
from hookcli.layers import list_watchable
from hookcli.layouts import resolve_layout
from hookcli.observed import Observed, read_records, take_sample
from hookcli.overwriting import WriteWatcher
from hookcli.pooling import take_activation
from hookcli.stats import reduce_rows, to_dense

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.config import GridStyle, SaveStyle
    from hookcli.feed import Feed
    from hookcli.records import Call, LayerInfo, LayerRecord, Layout


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one forward gave.

    Attributes:
        records: one an image and observed tensor.
        pictures: what is to be drawn.
        called: module paths of the observed layers that ran.
        output: the model's own; None if it raised.
        keys: the images that went through.
        kept: call id, image and (1, …) tensor of what is saved, on the host.
    """

    records: tuple[LayerRecord, ...] = ()
    pictures: tuple[Picture, ...] = ()
    called: frozenset[str] = frozenset()
    output: object = None
    keys: tuple[str, ...] = ()
    kept: tuple[tuple[str, str, Tensor], ...] = ()


class BrokenForwardError(ForwardError):
    """The model raised while it ran; ``partial`` holds what was observed until then."""

    def __init__(self, message: str, hint: str, partial: BatchResult) -> None:
        super().__init__(message, hint)
        self.partial = partial


class _LeadingAxisError(Exception):
    """A tensor of a batch has a leading axis that is neither N nor 1."""


@dataclass(slots=True)
class HookedForward:
    """A model whose chosen layers are observed in every forward.

    Attributes:
        model: in evaluation mode, on its device.
        layers: which modules are observed.
        at: ``output``, ``input`` or ``both``.
        style: how feature maps are drawn.
        focus: what of the network's view is inside a box and what outside, (2, H, W) from 0 to 1.
        save: which tensors are kept; None for none.
        sample: keep some values of every tensor, for histograms.
        one_at_a_time: some tensor's leading axis is not the batch, so images may not share a forward.
        feed: how the model is called with pixels.
        find_writes: the next forward also finds out who writes over what.
        written: what it found: the module that wrote over what a call returned, by call id.
    """

    model: nn.Module
    layers: Sequence[LayerInfo]
    at: str
    style: GridStyle
    focus: Tensor | None = None
    save: SaveStyle | None = None
    sample: bool = False
    one_at_a_time: bool = False
    feed: Feed = PLAIN
    find_writes: bool = False
    written: dict[str, str] = field(default_factory=dict)

    def run(self, keys: Sequence[str], pixels: Tensor) -> list[BatchResult]:
        """Run the images ``keys`` with pixels (N, …); one result a forward that was needed.

        The first forward of a run should hold one image: it shows whether every tensor has the
        leading axis 1, without which images run one at a time from then on.

        Raises:
            BrokenForwardError: the model raised.
        """
        if len(keys) == 1 or not (self.one_at_a_time or self.feed.alone):
            try:
                shared = pixels.clone() if len(keys) > 1 else pixels  # a model may write over them
                return [self._forward(keys, shared)]
            except _LeadingAxisError:
                self.one_at_a_time = True
        return [self._forward([key], pixels[i : i + 1]) for i, key in enumerate(keys)]

    def _forward(self, keys: Sequence[str], pixels: Tensor) -> BatchResult:
        collector = _Collector(
            tuple(keys), self.feed.size_of(pixels), self.style, self.sample, self.focus, self.save
        )
        arguments = self.feed.arguments_of(pixels)
        output = None
        with (
            ModelFailure() as failure,
            self._without_gradients(),
            hooks.observe(self.model, self.layers, collector, self.at, collector.called),
        ):
            output = self.model(*arguments)
        if failure.error is not None:
            last = [observed.call.id for observed in collector.seen]
            message, hint = describe_failure(self.model, failure.error, last)
            raise BrokenForwardError(message, hint, collector.result(None)) from failure.error
        self.one_at_a_time |= collector.has_other_leading_axis
        return collector.result(output)

    @contextmanager
    def _without_gradients(self) -> Iterator[None]:
        """The mode a forward runs in; the one that finds writes needs the counters of tensors."""
        if not self.find_writes:
            with torch.inference_mode():
                yield
            return
        self.find_writes = False
        watcher = WriteWatcher(self.written)
        everything = list_watchable(self.model)
        with (
            torch.no_grad(),
            hooks.watch(self.model, everything, watcher.started, watcher.finished),
        ):
            yield


@dataclass(slots=True)
class _Collector:
    """The observer of one forward."""

    keys: tuple[str, ...]
    pixels: tuple[int, int]
    style: GridStyle
    sample: bool = False
    focus: Tensor | None = None
    save: SaveStyle | None = None
    kept: list[tuple[Call, Tensor]] = field(default_factory=list)
    has_other_leading_axis: bool = False
    seen: list[Observed] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    called: set[str] = field(default_factory=set)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        tensor = to_dense(tensor)
        count = len(self.keys)
        lead = tensor.shape[0] if tensor.dim() else 0
        if count > 1 and lead not in (1, count):
            raise _LeadingAxisError
        layout = resolve_layout(tuple(tensor.shape), call.layer.channels, self.pixels)
        if lead in (1, count):
            shape, reduced = (1, *tensor.shape[1:]), reduce_rows(tensor, layout.channel_axis)
        else:
            self.has_other_leading_axis = True
            layout = replace(layout, height=0, width=0)
            axis = None if layout.channel_axis is None else layout.channel_axis + 1
            shape, reduced = tuple(tensor.shape), reduce_rows(tensor.unsqueeze(0), axis)
        sample = None
        if self.sample and tensor.numel():
            sample = take_sample(tensor if lead in (1, count) else tensor.unsqueeze(0))
        self.seen.append(Observed(call, layout, shape, tensor.dtype, reduced, sample))
        if self.save is not None:
            rows = tensor if lead in (1, count) else tensor.unsqueeze(0)
            self.kept.append((call, take_activation(rows, layout, self.save)))
        if self.style.mode != "none" and tensor.numel():
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

    def _draw(self, call: Call, tensor: Tensor, layout: Layout, shape: tuple[int, ...]) -> None:
        for index, key in enumerate(self.keys):
            part = of_image(tensor, index) if len(self.keys) > 1 else tensor
            content = take_tiles(part, layout, self.style, self.focus)
            if isinstance(content, Tiles) and not len(content.channels):
                continue  # none of the channels that were asked for exists here
            self.pictures.append(Picture(key, call, layout, shape, content))


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
