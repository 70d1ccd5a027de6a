"""Count a module's parameters, even if torch's ``parameters()`` does not return them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.weight_norm import WeightNorm

if TYPE_CHECKING:
    from collections.abc import Iterator


def count_parameters(module: nn.Module) -> int:
    # A weight counts once, with as many values as the layer uses, whatever a parametrization,
    # ``weight_norm`` or an adapter of peft computes it from. The packed weights of quantized
    # modules count, and parameters without a shape do not.
    modules = list(module.modules())
    parts = {id(part) for each in modules for part in _list_parts(each)}
    own = (p.numel() for p in module.parameters() if id(p) not in parts and not is_lazy(p))
    held = (value for each in modules for value in vars(each).values())
    packed = [value for value in held if isinstance(value, torch.ScriptObject)]
    return sum(own) + sum(tensor.numel() for tensor in unpack(packed))


def is_adapter(module: nn.Module) -> bool:
    return "base_layer" in module._modules and any(
        base.__name__ == "BaseTunerLayer" and base.__module__.startswith("peft.")
        for base in type(module).__mro__
    )


def unpack(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from unpack(each)
    elif isinstance(value, torch.ScriptObject):
        held: Any = value
        kind = str(held._type())
        if "PackedParams" in kind:
            yield from unpack(held.unpack())
        elif "CellParams" in kind:  # of a recurrent layer; its state ends with its packed matrices
            yield from unpack(held.__getstate__()[0][-1])


def _list_parts(module: nn.Module) -> Iterator[Tensor]:
    """Yield the parameters that only modify a weight, such as the ``g`` of ``weight_norm``."""
    if is_adapter(module):
        base = {id(parameter) for parameter in module.get_submodule("base_layer").parameters()}
        yield from (each for each in module.parameters() if id(each) not in base)
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm):
            yield module.get_parameter(f"{hook.name}_g")
    if "parametrizations" in module._modules and is_parametrized(module):
        for parts in module.get_submodule("parametrizations").children():
            weight = max([*parts.parameters(recurse=False)], key=torch.numel, default=None)
            yield from (each for each in parts.parameters() if each is not weight)
