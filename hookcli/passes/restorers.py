"""Make functions that, when called later, restore the present state of a model's objects."""

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
    """When the block ends, call the functions in ``undo`` and restore torch's generators."""
    devices = {value.device for value in (*model.parameters(), *model.buffers())}
    try:
        with torch.random.fork_rng(device for device in devices if device.type == "cuda"):
            yield
    finally:
        waiting, stop = list(undo), None
        while waiting:
            try:
                with torch.inference_mode(False), torch.no_grad():
                    while waiting:
                        waiting[0]()
                        del waiting[0]
            except KeyboardInterrupt as error:  # a second Ctrl-C: finish, and then stop
                stop = error
        if stop is not None:
            raise stop


def tensor_restorers(tensor: Tensor, memories: set[int | None]) -> Iterator[Callable[[], object]]:
    """Yield functions that restore a tensor's memory, shape, gradient and values.

    ``memories`` has the identities of the memories whose values need no further function. This adds
    the identity of the memory of ``tensor``. If ``memory_of`` returns None, this yields nothing.
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
        yield partial(_copy_back, storage, storage.clone())  # type: ignore[no-untyped-call]


def value_restorer(value: Any) -> Callable[[], object] | None:
    """Return a function that restores the present content of ``value``, but not of what is inside.

    The content is the items of a container, the numbers of a NumPy array, or the state of a random
    number generator. Return None for any other object and for a read-only array.
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

    None on the meta device, and for a tensor that consists of several, such as a sparse one.
    """
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):
        return None
    return None if storage.device.type == "meta" else int(storage._cdata)


def _put_back(tensor: Tensor, before: Tensor, needs_gradient: bool) -> None:  # noqa: FBT001
    if _place(tensor) != _place(before):
        tensor.data = before
    if not needs_gradient and tensor.grad_fn is not None and not tensor._is_view():
        tensor.detach_()  # the model wrote a computed value into a buffer
    if tensor.is_leaf and tensor.requires_grad != needs_gradient:
        tensor.requires_grad_(needs_gradient)


def _copy_back(storage: torch.UntypedStorage, values: torch.UntypedStorage) -> None:
    if storage.nbytes() != values.nbytes():  # the model has resized a tensor in place
        storage.resize_(values.nbytes())
    storage.copy_(values)


def _place(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _refill(kind: Any, container: Any, items: Any) -> None:
    if kind is set and set.__eq__(container, items) is True:
        return  # refilling the set might change the order of its items
    kind.clear(container)
    (kind.update if hasattr(kind, "update") else kind.extend)(container, items)
