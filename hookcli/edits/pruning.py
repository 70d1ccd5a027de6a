"""Prune weights for ``--prune`` with ``torch.nn.utils.prune``; measure sparsity; undo pruning."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.nn.utils import prune

from hookcli.edits.grammar import Prune, read_prune
from hookcli.errors import RequestError
from hookcli.hooks.filter import select_layers
from hookcli.hooks.gradients import PRUNED
from hookcli.networks.modules import find_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

_PRUNE: dict[str, Callable[..., object]] = {
    "l1": prune.l1_unstructured,
    "random": prune.random_unstructured,
    "ln": prune.ln_structured,
}
_TRANSPOSED = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)


@dataclass(slots=True)
class Pruning:
    modules: dict[str, nn.Module] = field(default_factory=dict)
    # by the module's ``id``, the names of its own parameters in their original order
    parameters: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.modules)

    @property
    def sparsities(self) -> dict[str, float]:
        masks = {path: _mask(module) for path, module in self.modules.items()}
        return {path: 1 - float(mask.double().mean()) for path, mask in masks.items()}

    @contextmanager
    def without_pruning(self) -> Iterator[None]:
        masks = [(module, _mask(module)) for module in self.modules.values()]
        try:
            for module, mask in masks:
                module.weight_mask = torch.ones_like(mask)
            yield
        finally:
            for module, mask in masks:
                module.weight_mask = mask

    def recompute_weights(self) -> None:
        """Recompute the pruned weights now, because torch does so only when a module is called."""
        for module in self.modules.values():
            module.weight = module.get_parameter(f"weight{PRUNED}") * _mask(module)

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.callback(self.undo)
            yield
            stack.pop_all()

    def undo(self) -> None:
        for module in self.modules.values():
            hooks = module._forward_pre_hooks
            for key, hook in [*hooks.items()]:
                if isinstance(hook, prune.BasePruningMethod):
                    del hooks[key]
            weight = module._parameters.pop(f"weight{PRUNED}")
            del module._buffers["weight_mask"], module.weight
            module.register_parameter("weight", weight)
            for name in self.parameters[id(module)]:  # registers them in their former order
                module._parameters[name] = module._parameters.pop(name)
        self.modules = {}

    def make_permanent(self, model: nn.Module) -> dict[str, Tensor]:
        state = model.state_dict()
        pruned = set(self.modules.values())
        for path, module in model.named_modules(remove_duplicate=False):
            if module in pruned:
                name = f"{path}.weight" if path else "weight"
                state[name] = state.pop(f"{name}_orig") * state.pop(f"{name}_mask")
        return state


def prune_model(model: nn.Module, texts: Sequence[str], seed: int = 0) -> Pruning:
    pruning = Pruning()
    with pruning.undone_on_error():
        for text in texts:
            _prune(model, read_prune(text), pruning, seed)
    return pruning


def _prune(model: nn.Module, asked: Prune, pruning: Pruning, seed: int) -> None:
    chosen = select_layers(model, [asked.layers])
    found = find_modules(model)
    with_weight = {
        path: found[path]
        for path in (layer.module_path for layer in chosen)
        if found[path]._parameters.get("weight") is not None or path in pruning.modules
    }
    if not with_weight:
        what = f"`prunes` {asked.text!r}: none of its layers has a weight of its own"
        raise RequestError(what, "prune conv or linear")
    for module in with_weight.values():
        pruning.parameters.setdefault(id(module), tuple(module._parameters))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for path, module in with_weight.items():
            _prune_module(path, module, asked)
            pruning.modules[path] = module


def _prune_module(path: str, module: nn.Module, asked: Prune) -> None:
    if asked.method != "ln":
        _PRUNE[asked.method](module, "weight", asked.amount)
        return
    weight = module.weight
    if isinstance(weight, torch.Tensor) and weight.dim() < 2:
        raise RequestError(f"`prunes` {asked.text!r}: the weight of {path} has one axis", "use l1")
    axis = int(isinstance(module, _TRANSPOSED))  # the axis of the output channels
    _PRUNE["ln"](module, "weight", asked.amount, n=2, dim=axis)


def _mask(module: nn.Module) -> Tensor:
    return module.get_buffer("weight_mask")
