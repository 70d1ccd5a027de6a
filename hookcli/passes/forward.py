"""Run images through a runner, and collect records and pictures of the observed tensors.

hookcli reduces each tensor during the forward pass. This module decides whether the images of a
batch share a forward pass. If a runner has edits or pruning, every batch also runs without them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from hookcli.activations.collector import BatchResult, Collector, LeadingAxisError, keep_tensor
from hookcli.errors import ForwardError, ModelError
from hookcli.passes.runner import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from hookcli.config import GridStyle, HeatOf, SaveStyle
    from hookcli.passes.runner import Runner


class BrokenForwardError(ForwardError):
    """The model raised an exception during its forward or backward pass.

    Attributes:
        partial: the observations before the exception.
        alone: whether images of this model cannot share a forward pass, as far as hookcli noticed.
    """

    def __init__(self, message: str, hint: str, partial: BatchResult) -> None:
        super().__init__(message, hint)
        self.partial = partial
        self.alone = False


@contextmanager
def broken_forwards() -> Iterator[None]:
    """Turn another ModelError of the block into a BrokenForwardError without observations."""
    try:
        yield
    except BrokenForwardError:
        raise
    except ModelError as error:
        raise BrokenForwardError(error.message, error.hint, BatchResult()) from error


@contextmanager
def observed_until(collector: Collector) -> Iterator[None]:
    """Turn an exception that the model raises in the block into a BrokenForwardError.

    A ForwardError without ``__cause__`` comes from hookcli itself, for example because the model
    removed hooks, and passes through unchanged.
    """
    try:
        yield
    except ForwardError as error:
        if error.__cause__ is None:
            raise
        raise BrokenForwardError(error.message, error.hint, collector.result()) from error.__cause__


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """What hookcli collects in all forward passes of a run.

    Attributes:
        runner: runs the model; with edits or pruning, every batch also runs without them.
        focus: (2, H, W): the share of each pixel inside the box of ``--focus``, and that outside.
        save: which parts of the tensors are saved; None saves nothing.
        sketch: whether to take a sketch of every tensor (see ``hookcli.distance.sketch``).
        heat: which maps over the image are made of each tensor with places; None makes none.
    """

    runner: Runner
    style: GridStyle
    focus: Tensor | None = None
    save: SaveStyle | None = None
    sketch: bool = False
    heat: HeatOf | None = None


def run_forward(
    settings: ForwardSettings, keys: Sequence[str], pixels: Tensor, *, first_image: bool = False
) -> list[BatchResult]:
    """Run images through the model under hooks, in one forward pass if possible.

    Begin a run with a single image, because its forward pass shows whether the leading axis of
    every tensor is the batch. If not, images cannot share a forward pass, and ``alone`` of the
    results is True. Of the ``first_image`` of a run, hookcli also keeps samples of all tensors for
    histograms, and finds the modules that overwrite the outputs of other modules. ``pixels``
    (N, …) are as ``Runner.place`` returns them.
    """
    if len(keys) == 1:
        return [_run_batch(settings, Batch(keys, pixels, first_image))]
    alone = False
    if not settings.runner.alone:
        try:
            # cloned: a model may overwrite its input, and the images may have to run again
            return [_run_batch(settings, Batch(keys, pixels.clone(), first_image))]
        except LeadingAxisError:
            alone = True
    results = []
    for i, key in enumerate(keys):
        try:
            result = _run_batch(settings, Batch([key], pixels[i : i + 1], first_image and i == 0))
        except BrokenForwardError as error:
            error.alone |= alone
            raise
        results.append(replace(result, alone=result.alone or alone))
    return results


@broken_forwards()
def _run_batch(settings: ForwardSettings, batch: Batch) -> BatchResult:
    runner = settings.runner
    plain = runner.plain
    unedited_output: object = None
    unedited: dict[str, Tensor] = {}
    collector = Collector(
        keys=tuple(batch.keys),
        pixels=runner.size_of(batch.pixels),
        style=settings.style,
        sample=batch.is_first,
        focus=settings.focus,
        save=settings.save,
        unedited=None if plain is None else unedited,
        sketch=settings.sketch,
        heat=settings.heat,
    )
    with observed_until(collector):
        if plain is not None:
            same = Batch(batch.keys, batch.pixels.clone())
            unedited_output = plain.run(same, partial(keep_tensor, unedited)).output
        outcome = runner.run(batch, collector)
    return replace(
        collector.result(),
        called=outcome.called,
        output=outcome.output,
        unedited=unedited_output,
        attention=outcome.attention,
        effects=outcome.effects,
        overwritten=outcome.overwritten,
    )
