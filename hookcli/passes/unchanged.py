"""Restore a model's objects and the random number generators after a forward pass."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, deque
from contextlib import contextmanager
from functools import partial
from types import FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_TOOLS = ("torch._dynamo.", "torch.fx.", "sympy.")  # of modules that were compiled or exported
_WITHOUT_STATE = (type, ModuleType, FunctionType, torch.jit.ScriptModule)
_KINDS = (OrderedDict, dict, list, set, deque)  # subclasses before their base classes


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    # Restores the attributes of all modules and objects inside them, and the values of all tensors
    # except parameters; not iterators, open files, and objects of Python's standard library.
    of_python = partial(random.setstate, random.getstate())
    of_numpy = partial(np.random.set_state, np.random.get_state())
    with restoring(model, [of_python, of_numpy, *list_restorers(model)]):
        yield


def throw_dice() -> None:
    # reseeds, because a few extra draws are not enough: NumPy's permutation rejects some draws
    torch.manual_seed(int(torch.randint(2**62, ())))
    random.seed(random.random())  # noqa: S311
    np.random.seed(np.random.randint(2**31))


def list_restorers(model: nn.Module) -> Iterator[Callable[[], object]]:
    """Yield functions that restore the model's present state, except the values of parameters."""
    # A caller may call each function several times.
    memories = {memory_of(parameter) for parameter in model.parameters()}
    seen = set[int]()
    waiting: list[Any] = [model]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            yield from tensor_restorers(value, memories)
            continue
        if (restorer := value_restorer(value)) is not None:
            yield restorer
        if issubclass(type(value), dict):
            waiting += dict.values(value)
        elif issubclass(type(value), (list, set, tuple, deque)):
            waiting += value
        if not _is_of_python(value) and type(ask(value, "__dict__")) is dict:
            yield partial(_restore_attributes, value, type(value), vars(value).copy())
            waiting += vars(value).values()
        for slot in _slots_of(value):
            attribute = getattr(value, slot)
            yield partial(object.__setattr__, value, slot, attribute)
            waiting.append(attribute)


def _slots_of(value: object) -> list[str]:
    if _is_of_python(value):
        return []
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    return [name for name in names if not name.startswith("__") and hasattr(value, name)]


def _is_of_python(value: object) -> bool:
    if isinstance(value, _WITHOUT_STATE):
        return True
    home = type(value).__module__
    if home.startswith(_TOOLS) and not isinstance(value, nn.Module):
        return True
    # objects of the standard library, such as loggers, refer to much outside the model
    package = home.partition(".")[0]
    return package in sys.stdlib_module_names and not isinstance(value, SimpleNamespace)


def _restore_attributes(value: Any, kind: type, attributes: dict[str, Any]) -> None:
    if type(value) is not kind:  # a parametrization changes the class
        value.__class__ = kind
    vars(value).clear()
    vars(value).update(attributes)


@contextmanager
def restoring(model: nn.Module, undo: Iterable[Callable[[], object]]) -> Iterator[None]:
    devices = {value.device for value in (*model.parameters(), *model.buffers())}
    try:
        with torch.random.fork_rng(device for device in devices if device.type == "cuda"):
            yield
    finally:
        with torch.inference_mode(False), torch.no_grad():
            for restore in undo:
                restore()


def tensor_restorers(tensor: Tensor, memories: set[int | None]) -> Iterator[Callable[[], object]]:
    # ``memories`` has the ids (``memory_of``) of memory whose values need no further function.
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
    """Return what restores a container, writable array or random generator now; None for others."""
    own = type(value)  # an object's __class__ may lie
    for kind in _KINDS:  # the user's own class may override these methods
        if issubclass(own, kind):
            items: Any = kind(value)
            return partial(_refill, kind, value, items)
    if issubclass(own, np.ndarray):
        return partial(np.copyto, value, value.copy()) if value.flags.writeable else None
    if issubclass(own, (torch.Generator, np.random.RandomState)):
        return partial(value.set_state, value.get_state())
    if issubclass(own, random.Random):
        return partial(value.setstate, value.getstate())
    if issubclass(own, np.random.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    return None


def memory_of(tensor: Tensor) -> int | None:
    """Return a number that identifies the memory of a tensor, or None if it cannot be known."""
    # None on the meta device, and for a tensor that consists of several, such as a sparse one.
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):
        return None
    return None if storage.device.type == "meta" else int(storage._cdata)


def _put_back(tensor: Tensor, before: Tensor, needs_gradient: bool) -> None:  # noqa: FBT001
    if _memory_of(tensor) != _memory_of(before):
        tensor.data = before
    if not needs_gradient and tensor.grad_fn is not None and not tensor._is_view():
        tensor.detach_()  # the model wrote a computed value into a buffer
    if tensor.is_leaf and tensor.requires_grad != needs_gradient:
        tensor.requires_grad_(needs_gradient)


def _copy_back(storage: torch.UntypedStorage, values: torch.UntypedStorage) -> None:
    if storage.nbytes() != values.nbytes():  # the model has resized a tensor in place
        storage.resize_(values.nbytes())
    storage.copy_(values)


def _memory_of(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _refill(kind: Any, container: Any, items: Any) -> None:
    if kind is set and set.__eq__(container, items) is True:
        return  # refilling the set might change the order of its items
    kind.clear(container)
    (kind.update if hasattr(kind, "update") else kind.extend)(container, items)
