"""The interface through which runs and comparisons run a model.

``passes/eager`` implements this interface for modules of PyTorch. Code that receives a ``Runner``
can ask for layers, tensors and the model's output, but not for modules.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from hookcli.edits.resolve import Edits
from hookcli.hooks.layers import NOT_CALLED
from hookcli.networks.inputs import last_two_axes
from hookcli.networks.task import COLOURS
from hookcli.passes.environment import list_versions
from hookcli.records.edit_effects import EditEffects

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.activations.attention_maps import ImageAttention
    from hookcli.config import VariantRequest
    from hookcli.hooks.observe import Observer
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.networks.description import ModelDescription
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.images import SkippedImage
    from hookcli.records.runs import ModelInfo

    Feed: TypeAlias = Callable[[str], NDArray[np.generic] | None]  # values by the id of a call


@dataclass(frozen=True, slots=True)
class Batch:
    keys: Sequence[str]
    pixels: Tensor  # (N, …), as ``Runner.to_device`` returns them; the model may overwrite them
    # whether the run begins with this batch. If so, a runner that can look inside the model also
    # finds out which modules overwrite the outputs of other modules.
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class ForwardOutcome:
    output: object
    # the module paths of the layers that ran, each with a text as in ``hooks.observe``
    called: Mapping[str, str] = field(default_factory=dict)
    effects: EditEffects = field(default_factory=EditEffects)
    # the module that overwrote the output of a call, by call id; empty unless the batch is the
    # run's first
    overwritten: Mapping[str, str] = field(default_factory=dict)
    attention: ImageAttention | None = None


class Runner:
    """Runs a model in one particular way; a subclass for each way overrides some methods.

    The methods of this class suit a runner that changes no object of the user and cannot look
    inside the model.
    """

    # whether the model may compute several calls of the original model in one, and leave out calls
    # that change nothing
    merges_calls: ClassVar[bool] = False
    # how observing the layers may change what the model computes; empty if it does not
    note: ClassVar[str] = ""
    layers: Sequence[LayerInfo]
    device: torch.device | str = "cpu"
    edits: Edits = Edits()

    @property
    def names_modules(self) -> bool:
        return True

    # Running a batch

    @property
    def alone(self) -> bool:
        """Whether images must go through the model one at a time."""
        return False

    @property
    def plain(self) -> Runner | None:
        """A runner of the same model without edits and pruning; None if this runner has neither."""
        return None

    def list_origins(self) -> Mapping[str, tuple[str, str]]:
        """Return each call's coarsest dtype on the way to its tensor, and its operator."""
        return {}

    def name_nodes(self, call_ids: Iterable[str]) -> tuple[str, ...] | None:
        """Return the names of the nodes that compute calls; None if nodes have no names."""
        return None

    def size_of(self, pixels: Tensor) -> tuple[int, int]:
        """Return the height and width of the layers' input."""
        return last_two_axes(pixels)

    def to_device(self, pixels: Tensor) -> Tensor:
        return pixels

    def run(self, batch: Batch, observer: Observer) -> ForwardOutcome:
        """Call ``observer(call, tensor)`` for every tensor, before the model can overwrite it."""
        raise NotImplementedError

    def run_fed(self, batch: Batch, feed: Feed, observer: Observer) -> None:
        """Run a batch in which calls pass on what ``feed`` returns for their ids, unless None.

        ``observer`` gets the own output of every call. Neither applies to tensors of integers.
        """
        raise NotImplementedError

    # The objects that the runner was made from

    @property
    def parts(self) -> Mapping[int, bool]:
        return {}

    def ready(self) -> AbstractContextManager[None]:
        """Return a ``with`` block in which this runner and another one can run batches in turn."""
        return nullcontext()

    def unchanged(self) -> AbstractContextManager[None]:
        """Restore the state of the model when the block ends; pruning stays until ``close``."""
        return nullcontext()

    def close(self) -> None:
        """Restore the weights that were pruned, and delete temporary files."""

    # Facts about the inside of the model

    def versions(self) -> dict[str, str]:
        return list_versions(None, self.device, self.libraries())

    def libraries(self) -> Mapping[str, str]:
        return {}

    def guess_widths(self) -> list[int]:
        """Estimate the number of channels of each layer without running the model."""
        return [COLOURS] * len(self.layers)

    def explain_uncalled(self, layer: LayerInfo) -> str:
        return NOT_CALLED

    def find_late(self, called: Collection[str]) -> Sequence[LayerInfo]:
        """Return the operations that were called, but not for the first image."""
        return ()

    def list_quantized(self) -> Mapping[str, bool]:
        """Return the layers that compute with few bits, by path: whether their outputs have few."""
        return {}

    @property
    def sparsities(self) -> Mapping[str, float]:
        """The share of zeros in the weight of each pruned layer, by module path."""
        return {}

    def norm_of(self, call: Call) -> float | None:
        """Return the L2 norm of the parameter of a ``param`` call; None if it is unknown."""
        return None


@dataclass(frozen=True, slots=True)
class Side:
    request: VariantRequest
    model: ModelDescription
    runner: Runner
    layers: Sequence[LayerInfo]  # that are listed; to judge them, the runner may observe more
    sources: list[ImageSource]
    skipped: list[SkippedImage]
    fitter: Fitter

    @property
    def info(self) -> ModelInfo:
        return self.model.info
