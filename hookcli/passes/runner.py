"""Define ``Runner``, which runs a model for a command, and ``Side``, one of two compared models.

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
    is_first: bool = False  # whether to find the modules that overwrite outputs of others


@dataclass(frozen=True, slots=True)
class ForwardOutcome:
    output: object
    called: Mapping[str, str] = field(default_factory=dict)  # as in ``hooks.observe``
    effects: EditEffects = field(default_factory=EditEffects)
    # the module that overwrote the output of a call, by call id; only of the first batch
    overwritten: Mapping[str, str] = field(default_factory=dict)
    attention: ImageAttention | None = None


class Runner:
    """Runs a model. The default methods suit a runner that cannot see the model's modules."""

    # whether the model may merge calls of the original model, and leave out those without effect
    merges_calls: ClassVar[bool] = False
    note: ClassVar[str] = ""  # how observing the layers may change what the model computes
    layers: Sequence[LayerInfo]  # the layers to observe
    device: torch.device | str = "cpu"
    edits: Edits = Edits()

    @property
    def names_modules(self) -> bool:
        return True

    @property
    def alone(self) -> bool:
        """Whether images must go through the model one at a time."""
        return False

    @property
    def plain(self) -> Runner | None:
        """The same model in a runner without edits and pruning; None if this runner has neither."""
        return None

    def list_origins(self) -> Mapping[str, tuple[str, str]]:
        """Map the id of each call to ``(dtype, operator)``.

        The operator computes the call's tensor. The dtype is the least precise dtype of the values
        from which the tensor is computed.
        """
        return {}

    def name_nodes(self, call_ids: Iterable[str]) -> tuple[str, ...] | None:
        """Return the names of the nodes that compute these calls; None if nodes have no names."""
        return None

    def size_of(self, pixels: Tensor) -> tuple[int, int]:
        return last_two_axes(pixels)

    def to_device(self, pixels: Tensor) -> Tensor:
        return pixels

    def run(self, batch: Batch, observer: Observer) -> ForwardOutcome:
        """Run a batch; call ``observer(call, tensor)`` before the model can overwrite a tensor."""
        raise NotImplementedError

    def run_fed(self, batch: Batch, feed: Feed, observer: Observer) -> None:
        """Run a batch in which the arrays of ``feed`` replace outputs of layers.

        ``feed`` takes a call id and returns an array, or None to keep the output. The observer gets
        the original output.
        """
        raise NotImplementedError

    @property
    def parts(self) -> Mapping[int, bool]:
        return {}

    def ready(self) -> AbstractContextManager[None]:
        return nullcontext()

    def unchanged(self) -> AbstractContextManager[None]:
        """Restore the state of the model when the block ends; only ``close`` undoes pruning."""
        return nullcontext()

    def close(self) -> None:
        """Restore the weights that were pruned, and delete temporary files."""

    def versions(self) -> dict[str, str]:
        return list_versions(self.device, self.libraries())

    def libraries(self) -> Mapping[str, str]:
        return {}

    def guess_widths(self) -> list[int]:
        return [64] * len(self.layers)  # an estimate is enough

    def explain_uncalled(self, layer: LayerInfo) -> str:
        return NOT_CALLED

    def find_late(self, called: Collection[str]) -> Sequence[LayerInfo]:
        """Return the chosen operations that ran for a later image, but not for the first one.

        ``called`` has the paths of all layers and operations that ran for any image.
        """
        return ()

    def list_quantized(self) -> Mapping[str, bool]:
        """Map the path of each quantized layer to whether its output is quantized, too."""
        return {}

    @property
    def sparsities(self) -> Mapping[str, float]:
        return {}

    def norm_of(self, call: Call) -> float | None:
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
    note: str = ""  # what hookcli found when it made the model

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    @property
    def dtype(self) -> str:
        return self.request.autocast or self.info.dtype
