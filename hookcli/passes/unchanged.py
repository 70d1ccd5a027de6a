"""A forward that leaves no trace of itself in the model."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

_REGISTERED = ("_buffers", "_parameters", "_modules")


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore a model and the generators of random numbers when the block ends.

    Restored are the buffers of the model, which batch norms change in training, the attributes of
    its modules, and what was in lists, dicts and sets among them. What these hold in turn is not.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    modules = [
        _Before.of(module)
        for module in model.modules()
        if not isinstance(module, torch.jit.ScriptModule)  # it has no attributes of its own
    ]
    of_python = random.getstate()
    try:
        with torch.random.fork_rng(device for device in devices if device.type == "cuda"):
            yield
    finally:
        random.setstate(of_python)
        for module in modules:
            module.restore()
        _write_back(buffers)


def _write_back(buffers: list[tuple[Tensor, Tensor]]) -> None:
    with torch.inference_mode(False), torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)


@dataclass(frozen=True, slots=True)
class _Before:
    """A module as it was: its class, its attributes, and the items of its containers."""

    module: nn.Module
    kind: type
    attributes: dict[str, Any]
    items: dict[str, Any]

    @classmethod
    def of(cls, module: nn.Module) -> _Before:
        attributes = vars(module).copy()
        items = {
            name: value.copy()
            for name, value in attributes.items()
            if name in _REGISTERED or type(value) in (list, dict, set)
        }
        return cls(module, type(module), attributes, items)

    def restore(self) -> None:
        if type(self.module) is not self.kind:  # a parametrization changes the class
            self.module.__class__ = self.kind
        vars(self.module).clear()
        vars(self.module).update(self.attributes)
        for name, items in self.items.items():
            container = self.attributes[name]
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(items)
