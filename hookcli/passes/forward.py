"""Images through a model under hooks: records, and the channels that are to be drawn.

The tensors of a batch are reduced inside the hooks. This module decides how many images share a
forward, and runs the images without edits too where there are any.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from hookcli.activations.collector import BatchResult, Collector, LeadingAxisError, keep_tensor
from hookcli.edits.pruning import Pruning
from hookcli.edits.resolve import Edits
from hookcli.errors import ForwardError, ModelError
from hookcli.hooks.change import change
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.observe import observe
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.overwrite import WriteWatcher
from hookcli.hooks.watch import watch
from hookcli.models.inputs import PLAIN
from hookcli.passes.attention import attend
from hookcli.passes.call import call_model
from hookcli.records.edit_effects import EditEffects

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.config import GridStyle, SaveStyle
    from hookcli.models.inputs import ModelInputs
    from hookcli.passes.attention import AttentionSettings
    from hookcli.records.calls import LayerInfo


class BrokenForwardError(ForwardError):
    """The model raised while it ran.

    Attributes:
        partial: what was observed until then.
        one_at_a_time: it was noticed before that images of this model may not share a forward.
    """

    def __init__(self, message: str, hint: str, partial: BatchResult) -> None:
        super().__init__(message, hint)
        self.partial = partial
        self.one_at_a_time = False


@contextmanager
def broken_forwards() -> Iterator[None]:
    """Turn any ModelError of the block into a BrokenForwardError.

    Raises:
        BrokenForwardError: the block raised a ModelError; nothing counts as observed, unless the
            error already was a BrokenForwardError.
    """
    try:
        yield
    except BrokenForwardError:
        raise
    except ModelError as error:
        raise BrokenForwardError(error.message, error.hint, BatchResult()) from error


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """The settings that all forwards of a run share.

    Attributes:
        model: the model, in evaluation mode and on its device.
        layers: the modules that are observed.
        at: ``output``, ``input`` or ``both``.
        style: how feature maps are drawn.
        focus: (2, H, W) from 0 to 1: the share of each pixel that is inside a box, and the share
            that is outside; None without a box.
        save: which tensors are kept; None for none.
        sketch: take a sketch of every tensor.
        feed: how the model is called with pixels.
        edits: changes to the tensors that pass through the model; with any, every batch is also run
            without them.
        pruning: the pruned weights; with any, every batch is also run without pruning.
        attention: what is computed of the attention; None for nothing.
    """

    model: nn.Module
    layers: Sequence[LayerInfo]
    at: str
    style: GridStyle
    focus: Tensor | None = None
    save: SaveStyle | None = None
    sketch: bool = False
    feed: ModelInputs = PLAIN
    edits: Edits = field(default_factory=Edits)
    pruning: Pruning = field(default_factory=Pruning)
    attention: AttentionSettings | None = None

    @property
    def uses_operations(self) -> bool:
        """Whether any functional operation is observed or changed."""
        is_operation = any(layer.is_operation for layer in self.layers)
        return is_operation or self.edits.has_operations or self.attention is not None


@dataclass(frozen=True, slots=True)
class PassResult:
    """The results of a batch of images.

    Attributes:
        results: one result per forward that was needed, in the order of the images.
        one_at_a_time: images of this model may not share a forward, because the leading axis of
            some tensor is not that of the images.
        overwritten: the module that wrote over what a call returned, by call id; looked for only in
            the first image.
    """

    results: tuple[BatchResult, ...]
    one_at_a_time: bool = False
    overwritten: Mapping[str, str] = field(default_factory=dict)


class Pass(Protocol):
    """Runs images through a model: ``run_forward`` or ``run_backward`` with its settings."""

    def __call__(
        self, keys: Sequence[str], pixels: Tensor, *, first_image: bool = False
    ) -> PassResult:
        """Run the images that have these keys and pixels (N, …)."""


def run_forward(
    settings: ForwardSettings, keys: Sequence[str], pixels: Tensor, *, first_image: bool = False
) -> PassResult:
    """Run images through the model under hooks.

    A run should begin with one image alone, which shows whether the leading axis of every tensor is
    that of the images. If it is not, images must not share a forward.

    Args:
        settings: the settings of the run.
        keys: the keys of the images.
        pixels: the pixels of the images, (N, …).
        first_image: also keep samples of all values for histograms, and find out which modules
            write over the outputs of others.

    Raises:
        BrokenForwardError: the model raised an exception.
    """
    if len(keys) == 1:
        return _run_batch(settings, keys, pixels, first_image=first_image)
    cannot_share = False
    # what one image attends to is told apart from that of others only in a forward of its own
    if not (settings.feed.alone or settings.attention is not None):
        try:
            # cloned since a model may write over its input, and the images may have to run again
            return _run_batch(settings, keys, pixels.clone(), first_image=first_image)
        except LeadingAxisError:
            cannot_share = True
    passes = []
    for i, key in enumerate(keys):
        try:
            is_first = first_image and i == 0
            passes.append(_run_batch(settings, [key], pixels[i : i + 1], first_image=is_first))
        except BrokenForwardError as error:
            error.one_at_a_time |= cannot_share
            raise
    return PassResult(
        tuple(result for each in passes for result in each.results),
        cannot_share or any(each.one_at_a_time for each in passes),
        passes[0].overwritten,
    )


def _run_batch(
    settings: ForwardSettings, keys: Sequence[str], pixels: Tensor, *, first_image: bool
) -> PassResult:
    with broken_forwards():
        return _observe_batch(settings, keys, pixels, first_image=first_image)


def _observe_batch(
    settings: ForwardSettings, keys: Sequence[str], pixels: Tensor, *, first_image: bool
) -> PassResult:
    model, is_changed = settings.model, bool(settings.edits or settings.pruning)
    size = settings.feed.size_of(pixels)
    unedited: dict[str, Tensor] = {}
    collector = Collector(
        keys=tuple(keys),
        pixels=size,
        style=settings.style,
        sample=first_image,
        focus=settings.focus,
        save=settings.save,
        unedited=unedited if is_changed else None,
        sketch=settings.sketch,
    )
    unedited_output = None
    if is_changed:
        keep = partial(keep_tensor, unedited)
        with (
            torch.inference_mode(),
            settings.pruning.without_pruning(),
            observe(model, settings.layers, keep, settings.at),
        ):
            unedited_output = call_observed(settings, pixels.clone(), collector)
    overwritten: dict[str, str] = {}
    effects = EditEffects()
    block = attend(settings.attention, keys[0], pixels)
    with (
        change(model, settings.edits.changes(effects, size, len(keys))),
        _find_overwriting(settings, overwritten) if first_image else torch.inference_mode(),
        observe(model, settings.layers, collector, settings.at, collector.called),
        block as attending,
    ):
        output = call_observed(settings, pixels, collector)
    result = replace(
        collector.result(output),
        unedited=unedited_output,
        attention=None if attending is None else attending.finish(),
        effects=effects,
    )
    return PassResult((result,), collector.has_other_leading_axis, overwritten)


class _PassSettings(Protocol):
    """The settings of a pass that determine how the model is called."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def uses_operations(self) -> bool: ...
    @property
    def feed(self) -> ModelInputs: ...
    @property
    def pruning(self) -> Pruning: ...


def call_observed(settings: _PassSettings, pixels: Tensor, collector: Collector) -> object:
    """Return what the model returns for ``pixels``.

    Raises:
        BrokenForwardError: the model raised an exception; the error holds what ``collector`` had
            observed.
    """
    settings.pruning.recompute_weights()
    try:
        with without_fast_path(unless=not settings.uses_operations):
            return call_model(
                settings.model,
                settings.feed.arguments_of(pixels),
                lambda: [observed.call.id for observed in collector.seen],
                settings.feed.seed,
            )
    except ForwardError as error:
        raise BrokenForwardError(
            error.message, error.hint, collector.result(None)
        ) from error.__cause__


@contextmanager
def _find_overwriting(settings: ForwardSettings, overwritten: dict[str, str]) -> Iterator[None]:
    """Note which modules write over the outputs of others, in a forward without gradients.

    This needs the version counters of tensors, which do not exist in inference mode.
    """
    watcher = WriteWatcher(overwritten)
    operations = (layer for layer in settings.layers if layer.is_operation)
    layers = [*list_watchable(settings.model), *operations]
    with (
        torch.no_grad(),
        watch(settings.model, layers, watcher.started, watcher.finished),
    ):
        yield
