"""The interface of a way of running a model, with only what runs and comparisons need.

``passes/eager`` is PyTorch itself. Only a runner's own file knows what it runs: all other code asks
a ``Runner`` for layers, tensors and the output, and never for a module.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli.edits.resolve import Edits
from hookcli.hooks.layers import NOT_CALLED
from hookcli.models.inputs import last_two_axes
from hookcli.models.task import COLOURS
from hookcli.passes.environment import list_versions
from hookcli.records.edit_effects import EditEffects

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor

    from hookcli.activations.image_attention import ImageAttention
    from hookcli.config import VariantRequest
    from hookcli.hooks.observe import Observer
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.models.scores import ScoreTensor
    from hookcli.records.calls import LayerInfo
    from hookcli.records.images import SkippedImage
    from hookcli.records.rows import LayerRow
    from hookcli.records.runs import ModelInfo


@dataclass(frozen=True, slots=True)
class Batch:
    """Images that go through a model together.

    Attributes:
        keys: the keys of the images.
        pixels: the pixels of the images, (N, …), as ``Runner.place`` returns them; the model may
            write over them.
        is_first: the run begins with these images, so the runner also finds out, if it can, which
            modules overwrite the outputs of others.
    """

    keys: Sequence[str]
    pixels: Tensor
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class ForwardOutcome:
    """The outcome of a batch, besides the tensors that the observer received.

    Attributes:
        output: the model's output.
        effects: what the edits did.
        overwritten: the module that overwrote the output of a call, by call id.
        attention: what the attention calls do with the image; None if it was not requested.
    """

    output: object
    effects: EditEffects = field(default_factory=EditEffects)
    overwritten: Mapping[str, str] = field(default_factory=dict)
    attention: ImageAttention | None = None


class Runner:
    """One way of running a model; a subclass overrides the methods that differ.

    Abilities that only ``passes/eager`` has belong to ``plan.prepared.EagerModel``. The defaults
    fit a runner that changes none of the user's objects and cannot look inside its model.

    Attributes:
        layers: the observed layers.
        device: the device of the pixels.
        edits: changes to the tensors that pass through the model.
    """

    layers: Sequence[LayerInfo]
    device: torch.device | str = "cpu"
    edits: Edits = Edits()

    # A batch

    @property
    def alone(self) -> bool:
        """Whether images must go through the model one at a time."""
        return False

    @property
    def plain(self) -> Runner | None:
        """The runner of the same model without edits and pruning; None if it has none of them."""
        return None

    def size_of(self, pixels: Tensor) -> tuple[int, int]:
        """Return the height and width of the input that the layers see, given pixels (N, …)."""
        return last_two_axes(pixels)

    def place(self, pixels: Tensor) -> Tensor:
        """Return pixels (N, …) ready for the model: on its device, in its dtype."""
        return pixels

    def run(
        self,
        batch: Batch,
        observer: Observer,
        called: set[str] | None = None,
        seen: Callable[[], Sequence[str]] = tuple,
    ) -> ForwardOutcome:
        """Run a batch, and call ``observer(call, tensor)`` while the tensor has its true values.

        Args:
            batch: the images.
            observer: receives every tensor of every call of the layers; it must reduce or copy the
                tensor before it returns.
            called: a set that receives the module path of every layer that ran, even if the layer
                returned no tensor.
            seen: returns the ids of the calls observed so far; if the model raises, the error names
                the last ones.

        Raises:
            ForwardError: the model raised an exception, which is the cause of the error.
        """
        raise NotImplementedError

    # What it was made from

    @property
    def parts(self) -> frozenset[int]:
        """The ``id`` of each of the user's objects that another runner could share."""
        return frozenset()

    def ready(self) -> AbstractContextManager[None]:
        """Return a block in which this runner may run between the batches of another.

        Raises:
            RequestError: the model cannot run in the requested way.
        """
        return nullcontext()

    def unchanged(self) -> AbstractContextManager[None]:
        """Return a block that restores the model at its end, except for what ``close`` restores."""
        return nullcontext()

    def close(self) -> None:
        """Restore the objects that the runner was made from."""

    # What is known about the inside of the model

    def versions(self) -> dict[str, str]:
        """Return the versions and settings that the figures depend on, by name."""
        return list_versions(None, self.device, {})

    def guess_sizes(self, area: float) -> list[tuple[int, float]]:
        """Return estimates of each layer's number of channels, and of the values in a channel.

        Nothing runs. ``area`` is the number of values in a channel of the pixels.
        """
        return [(COLOURS, area)] * len(self.layers)

    def explain_uncalled(self, layer: LayerInfo) -> str:
        """Return why a layer did not run."""
        return NOT_CALLED

    def find_late(self, called: Collection[str]) -> Sequence[LayerInfo]:
        """Return the layers that hookcli would also observe if the first image had called them.

        ``called`` has the paths of all layers and operations that any image has called.
        """
        return ()

    def find_nan_origin(
        self,
        pixels: Tensor,
        made_by: Mapping[str, str],
        score: Callable[[object], ScoreTensor] | None,
    ) -> dict[str, str]:
        """Return sentences that name the known origins, under the keys ``NaN`` and ``Inf``.

        The arguments are the pixels (1, …) of an image, the text of the edit that is known to have
        made each of the two, and the function that computes the score of a backward pass, if any.
        """
        return {}

    def complete_rows(self, rows: Iterable[LayerRow]) -> tuple[LayerRow, ...]:
        """Return rows with the figures that need the weights: the ratio and the sparsity."""
        return tuple(rows)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sides of a comparison: its runner and its images.

    Attributes:
        request: the request for this side.
        info: the facts about the model.
        runner: runs the model.
        sources: the images in order.
        skipped: the inputs that cannot be used.
        fitter: prepares images for the model.
    """

    request: VariantRequest
    info: ModelInfo
    runner: Runner
    sources: list[ImageSource]
    skipped: list[SkippedImage]
    fitter: Fitter
