"""A way of running a model: what a run and a comparison need of it, and no more.

``passes/eager`` is PyTorch itself. Only a runner's own file knows what it runs: whoever has a
``Runner`` asks it for layers, tensors and the output, and never for a module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hookcli.edits.resolve import Edits
from hookcli.records.edit_effects import EditEffects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from hookcli.activations.image_attention import ImageAttention
    from hookcli.config import VariantRequest
    from hookcli.hooks.observe import Observer
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.records.calls import LayerInfo
    from hookcli.records.images import SkippedImage
    from hookcli.records.runs import ModelInfo


@dataclass(frozen=True, slots=True)
class Batch:
    """Images that go through a model together.

    Attributes:
        keys: the keys of the images.
        pixels: the pixels of the images, (N, …), as ``Runner.place`` returns them; the model may
            write over them.
        is_first: the run begins with these images, so the runner also finds out which modules write
            over the outputs of others, if it can.
    """

    keys: Sequence[str]
    pixels: Tensor
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a batch, besides what its observer saw.

    Attributes:
        output: what the model returned.
        effects: what the edits did.
        overwritten: the module that wrote over what a call returned, by call id.
        attention: what the attention calls do with the image; None if that was not asked for.
    """

    output: object
    effects: EditEffects = field(default_factory=EditEffects)
    overwritten: Mapping[str, str] = field(default_factory=dict)
    attention: ImageAttention | None = None


class Runner(Protocol):
    """One way of running a model. What a runner cannot do is refused where the runner is made."""

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """The layers that are observed."""

    @property
    def alone(self) -> bool:
        """Whether images must go through the model one at a time."""

    @property
    def plain(self) -> Runner | None:
        """The runner of the same model without edits and pruning; None if it has none of them."""

    def size_of(self, pixels: Tensor) -> tuple[int, int]:
        """Return the height and width of what the layers see, given pixels (N, …)."""

    def place(self, pixels: Tensor) -> Tensor:
        """Return pixels (N, …) as they go into the model: on its device, in its dtype."""

    def run(
        self,
        batch: Batch,
        observer: Observer,
        called: set[str] | None = None,
        seen: Callable[[], Sequence[str]] = tuple,
    ) -> Ran:
        """Run a batch, and call ``observer(call, tensor)`` while the tensor has its true values.

        Args:
            batch: the images.
            observer: receives every tensor of every call of the layers; it must reduce or copy the
                tensor before it returns.
            called: the module path of every layer that ran is added to it, even if no tensor came
                out.
            seen: returns the ids of the calls that were observed, to name the last ones if the
                model raises.

        Raises:
            ForwardError: the model raised an exception, which is the cause of the error.
        """

    def explain_uncalled(self, layer: LayerInfo) -> str:
        """Return why a layer did not run."""

    @property
    def parts(self) -> frozenset[int]:
        """The ``id`` of each object of the user's that another runner could hold too."""

    def ready(self) -> AbstractContextManager[None]:
        """Return a block in which this runner takes turns with another.

        Raises:
            RequestError: the model cannot run as it was asked to.
        """

    def close(self) -> None:
        """Restore what the runner was made from."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runners that are compared, and the images for it.

    Attributes:
        request: what was asked of this side.
        info: the facts about the model.
        runner: runs the model.
        sources: the images in order.
        skipped: what was named but cannot be used.
        fitter: makes images ready for the model.
        edits: the edits that the runner makes, each of which must change something.
    """

    request: VariantRequest
    info: ModelInfo
    runner: Runner
    sources: list[ImageSource]
    skipped: list[SkippedImage]
    fitter: Fitter
    edits: Edits = field(default_factory=Edits)
