"""A forward that leaves no trace of itself in the model."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore a model and the random number generators when the block ends.

    Restored are the buffers of the model, which batch norms change in training, and the attributes
    of its modules. A list or a dict that the model writes into is not.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    with torch.random.fork_rng(device for device in devices if device.type == "cuda"):
        yield from _restore(model)


def _restore(model: nn.Module) -> Iterator[None]:
    modules = list(model.modules())
    kinds = [type(module) for module in modules]  # a parametrization changes the class
    attributes = [vars(module).copy() for module in modules]
    names = ("_buffers", "_parameters", "_modules")
    registered = [[vars(module)[name].copy() for name in names] for module in modules]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for module, kind, before, inside in zip(
            modules, kinds, attributes, registered, strict=True
        ):
            if type(module) is not kind:
                module.__class__ = kind
            vars(module).clear()
            vars(module).update(before)
            for name, given in zip(names, inside, strict=True):
                before[name].clear()
                before[name].update(given)
        for buffer, value in buffers:
            with torch.no_grad():
                buffer.copy_(value)
