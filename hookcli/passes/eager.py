"""Eager PyTorch as a way of running a model: hooks on its modules, edits, pruning and attention."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import torch

from hookcli.edits.pruning import Pruning
from hookcli.edits.resolve import Edits
from hookcli.errors import RequestError
from hookcli.hooks.change import change
from hookcli.hooks.layers import explain_uncalled, list_watchable
from hookcli.hooks.observe import observe
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.overwrite import WriteWatcher
from hookcli.hooks.watch import watch
from hookcli.models.device import use_threads
from hookcli.models.inputs import PLAIN
from hookcli.passes.attention import attend
from hookcli.passes.call import call_model, device_of
from hookcli.passes.runner import Ran
from hookcli.records.edit_effects import EditEffects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from hookcli.hooks.change import Change
    from hookcli.hooks.observe import Observer
    from hookcli.models.inputs import ModelInputs
    from hookcli.models.load import LoadedModel
    from hookcli.passes.attention import AttentionSettings
    from hookcli.passes.runner import Batch
    from hookcli.records.calls import LayerInfo


@dataclass(frozen=True, slots=True)
class EagerRunner:
    """Runs a module under hooks: a ``Runner`` that can do all that hookcli offers.

    Attributes:
        module: the model, in the mode that was asked for and on its device.
        layers: the modules that are observed.
        at: ``output``, ``input`` or ``both``.
        feed: how the model is called with pixels.
        edits: changes to the tensors that pass through the model.
        pruning: the pruned weights.
        attention: what is computed of the attention; None for nothing.
        device: the device of the pixels.
        dtype: the dtype of the pixels.
        channels_last: the pixels are laid out channels last in memory.
        threads: how many threads torch uses on the CPU; None for as many as before.
        seed: the seed of the random numbers that every batch draws; None if they go on from batch
            to batch.
        is_plain: edits are not made, the weights are not pruned, and no attention is computed.
    """

    module: nn.Module
    layers: Sequence[LayerInfo]
    at: str = "output"
    feed: ModelInputs = PLAIN
    edits: Edits = field(default_factory=Edits)
    pruning: Pruning = field(default_factory=Pruning)
    attention: AttentionSettings | None = None
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    threads: int | None = None
    seed: int | None = None
    is_plain: bool = False

    @classmethod
    def of(cls, loaded: LoadedModel, layers: Sequence[LayerInfo], at: str = "output") -> Self:
        """Return the runner of a loaded model."""
        dtype = getattr(torch, loaded.info.dtype)
        return cls(loaded.module, layers, at, loaded.feed, device=device_of(loaded), dtype=dtype)

    @property
    def alone(self) -> bool:
        """Whether images must go through the model one at a time, as attention is computed."""
        return self.feed.alone or self.attention is not None

    @property
    def plain(self) -> EagerRunner | None:
        """The same runner without making its changes; None if it has none.

        It still knows the edits: both must take the same path through attention.
        """
        return replace(self, is_plain=True) if self.edits or self.pruning else None

    @property
    def uses_operations(self) -> bool:
        """Whether any functional operation is observed or changed."""
        is_operation = any(layer.is_operation for layer in self.layers)
        return is_operation or self.edits.has_operations or self.attention is not None

    def size_of(self, pixels: Tensor) -> tuple[int, int]:
        """Return the height and width of what the layers see, given pixels (N, …)."""
        return self.feed.size_of(pixels)

    def place(self, pixels: Tensor) -> Tensor:
        """Return pixels (N, …) on the device, in the dtype and the memory format of the model."""
        pixels = pixels.to(device=self.device, dtype=self.dtype)
        if not self.channels_last:
            return pixels
        if pixels.dim() != 4:
            raise _no_channels_last()
        return pixels.contiguous(memory_format=torch.channels_last)

    def run(
        self,
        batch: Batch,
        observer: Observer,
        called: set[str] | None = None,
        seen: Callable[[], Sequence[str]] = tuple,
    ) -> Ran:
        """Run a batch, and call ``observer(call, tensor)`` inside the hooks."""
        effects, overwritten = EditEffects(), dict[str, str]()
        size = self.size_of(batch.pixels)
        changes = () if self.is_plain else self.edits.changes(effects, size, len(batch.keys))
        wanted = None if self.is_plain else self.attention
        block = attend(wanted, batch.keys[0], batch.pixels)
        with (
            self.changed(changes),
            self._find_overwriting(overwritten) if batch.is_first else torch.inference_mode(),
            observe(self.module, self.layers, observer, self.at, called),
            block as attending,
        ):
            output = self.call(batch.pixels, seen)
        attention = None if attending is None else attending.finish()
        return Ran(output, effects, overwritten, attention)

    @contextmanager
    def changed(self, changes: Sequence[Change]) -> Iterator[None]:
        """Make ``changes`` while the block lasts; a plain runner also has its unpruned weights."""
        weights = self.pruning.without_pruning() if self.is_plain else nullcontext()
        with weights, change(self.module, changes):
            yield

    def call(self, pixels: Tensor, seen: Callable[[], Sequence[str]] = tuple) -> object:
        """Return what the model returns for ``pixels`` (N, …), under the hooks of the caller."""
        self.pruning.recompute_weights()
        arguments = self.feed.arguments_of(pixels)
        with (
            use_threads(self.threads),
            _seeded(self.seed),
            without_fast_path(unless=not self.uses_operations),
        ):
            return call_model(self.module, arguments, seen, self.feed.seed)

    def explain_uncalled(self, layer: LayerInfo) -> str:
        """Return why a layer did not run."""
        return explain_uncalled(self.module, layer)

    @property
    def parts(self) -> frozenset[int]:
        """The modules and the parameters of the model, by their ``id``."""
        return frozenset(map(id, (*self.module.modules(), *self.module.parameters())))

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Lay out the weights in memory, and let no fast path hide operations while it lasts."""
        if self.channels_last:
            if any(parameter.dim() == 5 for parameter in self.module.parameters()):
                raise _no_channels_last()
            self.module.to(memory_format=torch.channels_last)
        with without_fast_path(unless=not self.uses_operations):
            yield

    def close(self) -> None:
        """Give the model its unpruned weights back."""
        with self.pruning.restored_on_exit():
            pass

    @contextmanager
    def _find_overwriting(self, overwritten: dict[str, str]) -> Iterator[None]:
        """Note which modules write over the outputs of others, in a forward without gradients.

        This needs the version counters of tensors, which do not exist in inference mode.
        """
        watcher = WriteWatcher(overwritten)
        operations = (layer for layer in self.layers if layer.is_operation)
        layers = [*list_watchable(self.module), *operations]
        with torch.no_grad(), watch(self.module, layers, watcher.started, watcher.finished):
            yield


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Draw the random numbers of ``seed`` while the block lasts; None changes nothing."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _no_channels_last() -> RequestError:
    return RequestError(
        "only pictures can be laid out channels last, not clips or pairs", "leave out channels-last"
    )
