"""Images through a model under hooks: records, and what is to be drawn.

The tensors of a batch are reduced inside the hooks. Here it is decided which part of a tensor is
which image's, and what is said when the model raises.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli.activations.collector import BatchResult, Collector, LeadingAxisError, keep_tensor
from hookcli.edits.resolve import Edits
from hookcli.errors import ForwardError, ModelError
from hookcli.hooks.change import change
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.observe import observe
from hookcli.hooks.overwrite import WriteWatcher
from hookcli.hooks.watch import watch
from hookcli.models.inputs import PLAIN
from hookcli.passes.call import call_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.config import GridStyle, SaveStyle
    from hookcli.models.inputs import ModelInputs
    from hookcli.records.calls import LayerInfo


class BrokenForwardError(ForwardError):
    """The model raised while it ran; ``partial`` holds what was observed until then."""

    def __init__(self, message: str, hint: str, partial: BatchResult) -> None:
        super().__init__(message, hint)
        self.partial = partial


@contextmanager
def broken_forwards() -> Iterator[None]:
    """What ends the forward of an image becomes a BrokenForwardError.

    Raises:
        BrokenForwardError: of a ModelError, without anything observed if that cannot be trusted.
    """
    try:
        yield
    except BrokenForwardError:
        raise
    except ModelError as error:
        raise BrokenForwardError(error.message, error.hint, BatchResult()) from error


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
        sketch: take a sketch of every tensor.
        one_at_a_time: some tensor's leading axis is not the batch, so images may not share a forward.
        feed: how the model is called with pixels.
        find_writes: the next forward also finds out who writes over what.
        written: what it found: the module that wrote over what a call returned, by call id.
        edits: what is changed on the way; every batch is then run without them too.
    """

    model: nn.Module
    layers: Sequence[LayerInfo]
    at: str
    style: GridStyle
    focus: Tensor | None = None
    save: SaveStyle | None = None
    sample: bool = False
    sketch: bool = False
    one_at_a_time: bool = False
    feed: ModelInputs = PLAIN
    find_writes: bool = False
    written: dict[str, str] = field(default_factory=dict)
    edits: Edits = field(default_factory=Edits)

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
                return [self._run_batch(keys, shared)]
            except LeadingAxisError:
                self.one_at_a_time = True
        return [self._run_batch([key], pixels[i : i + 1]) for i, key in enumerate(keys)]

    def _run_batch(self, keys: Sequence[str], pixels: Tensor) -> BatchResult:
        with broken_forwards(), self.edits.forgotten_on_error():
            return self._observe_batch(keys, pixels)

    def _observe_batch(self, keys: Sequence[str], pixels: Tensor) -> BatchResult:
        unedited: dict[str, Tensor] = {}
        size = self.feed.size_of(pixels)
        collector = Collector(
            tuple(keys), size, self.style, self.sample, self.focus, self.save,
            unedited if self.edits else None, sketch=self.sketch,
        )  # fmt: skip
        plain = None
        if self.edits:
            keep = partial(keep_tensor, unedited)
            with (
                torch.inference_mode(),
                self.edits.without_pruning(),
                observe(self.model, self.layers, keep, self.at),
            ):
                plain = self._call(pixels.clone(), collector)
        self.edits.size, self.edits.images = size, len(keys)
        written: dict[str, str] = {}
        with (
            self._without_gradients(written),
            change(self.model, self.edits.changes),
            observe(self.model, self.layers, collector, self.at, collector.called),
        ):
            output = self._call(pixels, collector)
        self.find_writes = False
        self.written |= written
        self.one_at_a_time |= collector.has_other_leading_axis
        return replace(collector.result(output), unedited=plain)

    def _call(self, pixels: Tensor, collector: Collector) -> object:
        """What the model returns.

        Raises:
            BrokenForwardError: it raised.
        """
        self.edits.recompute_weights()
        try:
            return call_model(
                self.model,
                self.feed.arguments_of(pixels),
                lambda: [observed.call.id for observed in collector.seen],
            )
        except ForwardError as error:
            partial = collector.result(None)
            raise BrokenForwardError(error.message, error.hint, partial) from error.__cause__

    @contextmanager
    def _without_gradients(self, written: dict[str, str]) -> Iterator[None]:
        """The mode a forward runs in; the one that finds what is ``written`` needs the counters of tensors."""
        if not self.find_writes:
            with torch.inference_mode():
                yield
            return
        watcher = WriteWatcher(written)
        everything = list_watchable(self.model)
        with (
            torch.no_grad(),
            watch(self.model, everything, watcher.started, watcher.finished),
        ):
            yield
