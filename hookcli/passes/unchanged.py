"""A forward that leaves no trace of itself in the model."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict, deque
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hookcli.errors import ForwardError
from hookcli.foreign import ask
from hookcli.passes.call import run_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookcli.models.load import LoadedModel

_CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque)
_WITHOUT_STATE = (type, ModuleType, FunctionType, torch.jit.ScriptModule)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore a model and the generators of random numbers when the block ends.

    Restored are the classes of the modules and all that they hold: submodules, parameters, buffers,
    hooks and other attributes, what is in lists, dictionaries, sets and objects among them however
    deep, and the values of all tensors but parameters.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    undo = list(_list_restorers(model))
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(device for device in devices if device.type == "cuda"):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        with torch.inference_mode(False), torch.no_grad():
            for restore in undo:
                restore()


def throw_dice() -> None:
    """Let all random numbers that are drawn from here on be others than before.

    Generators begin anew. A few draws would not do: a permutation of NumPy's rejects some of what
    it draws, so that one in 3,000 is the same two draws later.
    """
    torch.manual_seed(int(torch.randint(2**62, ())))
    random.seed(random.random())  # noqa: S311
    np.random.seed(np.random.randint(2**31))


def goes_through(loaded: LoadedModel, pixels: Tensor) -> bool:
    """Return whether the model takes pixels (1, …) without an error; it is left as it was."""
    with suppress(ForwardError), unchanged(loaded.module):
        run_model(loaded, loaded.convert(pixels))
        return True
    return False


def _list_restorers(model: nn.Module) -> Iterator[Callable[[], object]]:
    """Yield a function for each thing that the model holds, which makes it what it is now."""
    seen = {id(parameter) for parameter in model.parameters()}
    memories = {_memory(parameter) for parameter in model.parameters()}
    waiting: list[Any] = [model]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            memory = _memory(value)
            if memory is None:
                continue
            yield partial(_put_back, value, value.detach())
            if memory not in memories:
                memories.add(memory)
                storage = value.untyped_storage()
                yield partial(storage.copy_, storage.clone())  # type: ignore[no-untyped-call]
        elif isinstance(value, torch.Generator):
            yield partial(value.set_state, value.get_state())
        elif type(value) in _CONTAINERS:
            yield partial(_refill, value, value.copy())
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, tuple):
            waiting += value
        elif _has_attributes(value):
            yield partial(_restore_attributes, value, type(value), vars(value).copy())
            waiting += vars(value).values()


def _memory(tensor: Tensor) -> int | None:
    """Return the identity of the memory that a tensor shares with its views.

    It is None if the tensor has no values, or none in one piece, as sparse ones.
    """
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):
        return None
    return None if storage.device.type == "meta" else int(storage._cdata)


def _has_attributes(value: object) -> bool:
    """Return whether a value may be changed by its attributes, and is not of Python itself.

    Objects of Python's own library, such as loggers, lead to much that is no part of a model.
    """
    if isinstance(value, _WITHOUT_STATE) or type(ask(value, "__dict__")) is not dict:
        return False
    package = type(value).__module__.partition(".")[0]
    return package not in sys.stdlib_module_names or isinstance(value, SimpleNamespace)


def _put_back(tensor: Tensor, before: Tensor) -> None:
    """Give a tensor the memory and the shape that it had."""
    if tensor.data_ptr() != before.data_ptr() or tensor.shape != before.shape:
        tensor.data = before


def _refill(container: Any, items: Any) -> None:
    if isinstance(container, set) and container == items:
        return  # filled again, it might have another order
    container.clear()
    (container.update if isinstance(container, (dict, set)) else container.extend)(items)


def _restore_attributes(value: Any, kind: type, attributes: dict[str, Any]) -> None:
    if type(value) is not kind:  # a parametrization changes the class
        value.__class__ = kind
    vars(value).clear()
    vars(value).update(attributes)
