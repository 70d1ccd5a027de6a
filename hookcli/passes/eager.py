"""Run a model with eager PyTorch: with hooks on its modules, edits, pruning and attention."""

from __future__ import annotations

import itertools
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Self

import torch
from torch import nn

from hookcli.edits.pruning import Pruning
from hookcli.edits.resolve import Edits
from hookcli.errors import RequestError
from hookcli.hooks.change import Change, change
from hookcli.hooks.layers import explain_uncalled, is_quantized, list_watchable
from hookcli.hooks.observe import observe
from hookcli.hooks.operations import FoundOperation, depth_of, split_path, without_fast_path
from hookcli.hooks.watch import WriteWatcher, watch
from hookcli.networks.device import use_threads
from hookcli.networks.inputs import PLAIN
from hookcli.networks.task import COLOURS
from hookcli.outside.foreign import ask
from hookcli.passes.attention_run import attend
from hookcli.passes.call import call_model
from hookcli.passes.runner import ForwardOutcome, Runner
from hookcli.passes.unchanged import unchanged
from hookcli.records.calls import OPERATION, LayerInfo
from hookcli.records.edit_effects import EditEffects

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from hookcli.hooks.observe import Observer
    from hookcli.networks.inputs import ModelInputs
    from hookcli.networks.load import LoadedModel
    from hookcli.passes.attention_run import AttentionSettings
    from hookcli.passes.runner import Batch, Feed
    from hookcli.records.calls import Call

_WIDTHS = ("out_channels", "num_features", "out_features", "embed_dim")  # attributes of modules


@dataclass(frozen=True, slots=True)
class EagerRunner(Runner):
    module: nn.Module
    layers: Sequence[LayerInfo]
    at: str = "output"
    inputs: ModelInputs = PLAIN
    edits: Edits = field(default_factory=Edits)
    pruning: Pruning = field(default_factory=Pruning)
    attention: AttentionSettings | None = None
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    channels_last: bool = False  # the memory format of pixels and weights
    threads: int | None = None  # None leaves torch's own number
    seed: int | None = None  # of every batch; None continues the sequence from batch to batch
    keeps_state: bool = False  # whether a pass in training mode may change the model's buffers
    autocast: str = ""  # the dtype of ``torch.autocast``; "" runs without it
    is_plain: bool = False  # runs without edits, pruning and attention
    operations: Sequence[FoundOperation] = ()  # that the first image calls, if any is requested
    choose: Callable[[Sequence[FoundOperation]], Sequence[LayerInfo]] = lambda _: ()
    libraries: Callable[[], Mapping[str, str]] = dict  # returns versions

    @classmethod
    def of(cls, loaded: LoadedModel, layers: Sequence[LayerInfo], at: str = "output") -> Self:
        device = next((each.device for each in loaded.module.parameters()), loaded.info.device)
        dtype = getattr(torch, loaded.info.dtype)
        versions = partial(loaded.source.list_versions, loaded.module)
        return cls(
            loaded.module, layers, at, loaded.inputs, device=device, dtype=dtype, libraries=versions
        )

    @property
    def alone(self) -> bool:
        return self.inputs.alone or self.attention is not None

    @property
    def plain(self) -> EagerRunner | None:
        # It keeps the edits, so that both runners decide alike about the fast path of attention.
        return replace(self, is_plain=True) if self.edits or self.pruning else None

    def judging_all(self) -> EagerRunner:
        leaves = (layer for layer in list_watchable(self.module) if layer.is_leaf)
        operations = (each.layer for each in self.operations if each.computes)
        whole = (replace(layer, chosen_calls=()) for layer in self.layers)
        layers = {layer.module_path: layer for layer in (*whole, *leaves, *operations)}
        return replace(self, layers=tuple(layers.values()))

    @property
    def uses_operations(self) -> bool:
        is_operation = any(layer.is_operation for layer in self.layers)
        return is_operation or self.edits.has_operations or self.attention is not None

    def size_of(self, pixels: Tensor) -> tuple[int, int]:
        return self.inputs.size_of(pixels)

    def to_device(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(device=self.device, dtype=self.dtype)
        if not self.channels_last:
            return pixels
        if pixels.dim() != 4:
            raise _no_channels_last()
        return pixels.contiguous(memory_format=torch.channels_last)

    def run(self, batch: Batch, observer: Observer) -> ForwardOutcome:
        effects, overwritten, called = EditEffects(), dict[str, str](), dict[str, str]()
        seen: list[Call] = []

        def see(call: Call, tensor: Tensor) -> None:
            observer(call, tensor)
            seen.append(call)

        size = self.size_of(batch.pixels)
        changes = () if self.is_plain else self.edits.changes(effects, size, len(batch.keys))
        wanted = None if self.is_plain else self.attention
        with (
            self.changed(changes),
            self._find_overwriting(overwritten) if batch.is_first else torch.inference_mode(),
            observe(self.module, self.layers, see, at=self.at, called=called),
            attend(wanted, batch.keys[0], batch.pixels) as attending,
        ):
            output = self.call(batch.pixels, seen)
        attention = None if attending is None else attending.finish()
        return ForwardOutcome(output, called, effects, overwritten, attention)

    def run_fed(self, batch: Batch, feed: Feed, observer: Observer) -> None:
        edits = self.edits.changes(EditEffects(), self.size_of(batch.pixels), len(batch.keys))
        pass_on = Change("output", tuple(self.layers), (), partial(_pass_on, feed, observer), True)
        with self.changed([*edits, pass_on]), torch.inference_mode():
            self.call(batch.pixels)

    @contextmanager
    def changed(self, changes: Sequence[Change]) -> Iterator[None]:
        weights = self.pruning.without_pruning() if self.is_plain else nullcontext()
        with weights, change(self.module, changes):
            yield

    def call(self, pixels: Tensor, seen: Sequence[Call] = ()) -> object:
        self.pruning.recompute_weights()
        arguments = self.inputs.arguments_of(pixels)
        with (
            use_threads(self.threads),
            _seeded(self.seed),
            _casting(torch.device(self.device).type, self.autocast),
            without_fast_path(unless=not self.uses_operations),
        ):
            seed = None if self.keeps_state else self.inputs.seed
            return call_model(self.module, arguments, seen, seed)

    @property
    def parts(self) -> Mapping[int, bool]:
        """Map the ``id`` of each parameter or module to whether it has values (a ReLU has none)."""
        found = {id(each): True for each in self.module.parameters()}
        for each in self.module.modules():
            found[id(each)] = any(True for _ in itertools.chain(each.parameters(), each.buffers()))
        return found

    @contextmanager
    def ready(self) -> Iterator[None]:
        if self.channels_last:  # the weights stay converted
            if any(parameter.dim() == 5 for parameter in self.module.parameters()):
                raise _no_channels_last()
            self.module.to(memory_format=torch.channels_last)
        with without_fast_path(unless=not self.uses_operations):
            yield

    def unchanged(self) -> AbstractContextManager[None]:
        return unchanged(self.module)

    def close(self) -> None:
        self.pruning.undo()

    def versions(self) -> dict[str, str]:
        has_mha = any(isinstance(each, nn.MultiheadAttention) for each in self.module.modules())
        return Runner.versions(self) | {
            "memory_format": "channels last" if self.channels_last else "contiguous",
            "mha_fast_path": "off" if self.uses_operations and has_mha else "",
        }

    def guess_widths(self) -> list[int]:
        # A module without such an attribute gets the width of the module before it; a block gets
        # the width of its last layer.
        width, widths = COLOURS, dict[str, int]()
        for path, module in self.module.named_modules():
            own = _width_of(module)
            width = width if own is None else own
            around = itertools.accumulate(path.split("."), "{}.{}".format)
            widths |= dict.fromkeys(("", *around), width)
        return [widths.get(layer.module_path, width) for layer in self.layers]

    def explain_uncalled(self, layer: LayerInfo) -> str:
        return explain_uncalled(self.module, layer)

    def find_late(self, called: Collection[str]) -> Sequence[LayerInfo]:
        known = {each.layer.module_path for each in self.operations}
        operations = list(self.operations)
        last = max((moment for each in operations for moment in each.moments), default=0)
        new = sorted(path for path in called if OPERATION in path and path not in known)
        for moment, path in enumerate(new, last + 1):
            module_path, name = split_path(path)
            layer = LayerInfo(path, name, depth_of(module_path))
            operations.append(FoundOperation(layer, (moment,), computes=True))
        chosen = self.choose(operations) if len(operations) > len(known) else ()
        return [each for each in chosen if each.is_operation and each.module_path not in known]

    def list_quantized(self) -> Mapping[str, bool]:
        modules = self.module.named_modules()
        found = {path: type(each).__module__ for path, each in modules if is_quantized(each)}
        return {path: ".dynamic" not in name for path, name in found.items()}

    @property
    def sparsities(self) -> Mapping[str, float]:
        return self.pruning.sparsities

    def norm_of(self, call: Call) -> float | None:
        name = ".".join(filter(None, (call.layer.module_path, call.output_key)))
        try:
            return float(attrgetter(name)(self.module).detach().double().norm())
        except AttributeError:  # the model removed the parameter during its forward
            return None

    def find_idle_norms(self) -> dict[str, bool]:
        """Map each module path to whether it is a batch norm in eval mode without statistics."""
        found = {k: (m, getattr(m, "running_var", None)) for k, m in self.module.named_modules()}
        return {  # the type of an uninitialized variance is not Tensor
            path: type(var) is torch.Tensor and not module.training and bool((var == 1).all())
            for path, (module, var) in found.items()
        }

    @contextmanager
    def _find_overwriting(self, overwritten: dict[str, str]) -> Iterator[None]:
        # Tensors of inference mode lack the version counters that hookcli reads here.
        watcher = WriteWatcher(overwritten)
        layers = [*list_watchable(self.module), *(e for e in self.layers if e.is_operation)]
        with torch.no_grad(), watch(self.module, layers, watcher.started, watcher.finished):
            yield


def _width_of(module: nn.Module) -> int | None:
    widths = (ask(module, name) for name in _WIDTHS)
    width = next((width for width in widths if width is not None), None)
    shape = ask(module, "normalized_shape")
    width = shape[-1] if isinstance(shape, tuple) and shape else width
    return width if isinstance(width, int) else None


def _pass_on(feed: Feed, observer: Observer, call: Call | None, tensor: Tensor) -> Tensor:
    assert call is not None  # noqa: S101  only the change of a parameter has no call
    observer(call, tensor)
    values = feed(call.id)
    if values is None:
        return tensor
    given = torch.from_numpy(values)
    if tensor.is_quantized:
        step, zero = tensor.q_scale(), tensor.q_zero_point()
        return torch.quantize_per_tensor(given, step, zero, tensor.dtype)
    fed = torch.empty_like(tensor) if given.shape == tensor.shape else tensor.new_empty(given.shape)
    return fed.copy_(given)


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


@contextmanager
def _casting(device: str, dtype: str) -> Iterator[None]:
    with warnings.catch_warnings(action="ignore"):  # torch warns, and then runs without autocast
        block = torch.autocast(device, getattr(torch, dtype)) if dtype else nullcontext()
    with block:
        if dtype and not torch.is_autocast_enabled(device):
            raise RequestError(f"torch has no autocast to {dtype} on {device}", "another dtype")
        yield


def _no_channels_last() -> RequestError:
    return RequestError(
        "only pictures can be laid out channels last, not clips or pairs", "leave out channels-last"
    )
