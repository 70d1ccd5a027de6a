"""Functions that restore a model's objects to their state when the function was made."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import nn

_KINDS = (OrderedDict, dict, list, set, deque, bytearray)  # subclasses before their base classes


@contextmanager
def restoring(model: nn.Module, undo: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Call ``undo`` and restore torch's random number generators when the block ends."""
    devices = {value.device for value in (*model.parameters(), *model.buffers())}
    try:
        with torch.random.fork_rng(device for device in devices if device.type == "cuda"):
            yield
    finally:
        with torch.inference_mode(False), torch.no_grad():
            for restore in undo:
                restore()


def tensor_restorers(tensor: Tensor, memories: set[int | None]) -> Iterator[Callable[[], object]]:
    """Yield functions that restore a tensor: its memory, shape, gradient and values.

    The values in ``memories`` are already restored or need not be; the tensor's memory is added.
    """
    memory = memory_of(tensor)
    if memory is None:
        return
    yield partial(_put_back, tensor, tensor.detach(), tensor.requires_grad)
    if tensor.is_leaf:
        yield partial(setattr, tensor, "grad", tensor.grad)
    if memory not in memories:
        memories.add(memory)
        storage = tensor.untyped_storage()
        yield partial(storage.copy_, storage.clone())  # type: ignore[no-untyped-call]


def value_restorer(value: Any) -> Callable[[], object] | None:
    """Return a function that restores the items of a container, an array, or random numbers.

    For other objects it returns None. Values inside the items are not restored.
    """
    own = type(value)  # an object's __class__ may lie
    for kind in _KINDS:  # the user's own class may override these methods
        if issubclass(own, kind):
            items: Any = kind(value)
            return partial(_refill, kind, value, items)
    if issubclass(own, np.ndarray):
        return partial(np.copyto, value, value.copy()) if value.flags.writeable else None
    if issubclass(own, torch.Generator):
        return partial(value.set_state, value.get_state())
    if issubclass(own, random.Random):
        return partial(value.setstate, value.getstate())
    if issubclass(own, np.random.RandomState):
        return partial(value.set_state, value.get_state())
    if issubclass(own, np.random.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    return None


def memory_of(tensor: Tensor) -> int | None:
    """Return the identity of the memory that a tensor shares with its views.

    It is None if the tensor has no values, or no single piece of memory, like sparse tensors.
    """
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):
        return None
    return None if storage.device.type == "meta" else int(storage._cdata)


def _put_back(tensor: Tensor, before: Tensor, needs_gradient: bool) -> None:  # noqa: FBT001
    if _place(tensor) != _place(before):
        tensor.data = before
    if tensor.is_leaf and tensor.requires_grad != needs_gradient:
        tensor.requires_grad_(needs_gradient)


def _place(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _refill(kind: Any, container: Any, items: Any) -> None:
    if kind is set and set.__eq__(container, items) is True:
        return  # if refilled, its items might have a different order
    kind.clear(container)
    (kind.update if hasattr(kind, "update") else kind.extend)(container, items)
