"""A forward that leaves no trace of itself in the model."""

from __future__ import annotations

import random
import sys
from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hookcli.errors import ForwardError
from hookcli.outside.foreign import ask
from hookcli.passes.call import run_model
from hookcli.passes.restorers import memory_of, restoring, tensor_restorers, value_restorer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookcli.models.load import LoadedModel

_WITHOUT_STATE = (type, ModuleType, FunctionType, torch.jit.ScriptModule)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore a model and the generators of random numbers when the block ends.

    Restored are the classes of the modules and what they hold: submodules, parameters, buffers,
    hooks and other attributes, what is in lists, dictionaries, sets, arrays and objects among them
    however deep, their generators of random numbers, and the values of all tensors but parameters.
    Iterators, open files, and objects of Python's own library are not.
    """
    of_python = partial(random.setstate, random.getstate())
    of_numpy = partial(np.random.set_state, np.random.get_state())
    with restoring(model, [of_python, of_numpy, *_list_restorers(model)]):
        yield


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
        restorer = value_restorer(value)
        if restorer is not None:
            yield restorer
        if issubclass(type(value), dict):
            waiting += dict.values(value)
        elif issubclass(type(value), (list, set, tuple, deque)):
            waiting += value
        if _has_attributes(value):
            yield partial(_restore_attributes, value, type(value), vars(value).copy())
            waiting += vars(value).values()
        for slot in _slots_of(value):
            attribute = getattr(value, slot)
            yield partial(object.__setattr__, value, slot, attribute)
            waiting.append(attribute)


def _slots_of(value: object) -> list[str]:
    """Return the names of the attributes of a value that its classes have slots for."""
    if _is_of_python(value):
        return []
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    return [name for name in names if not name.startswith("__") and hasattr(value, name)]


def _has_attributes(value: object) -> bool:
    """Return whether a value may be changed by its attributes."""
    return not _is_of_python(value) and type(ask(value, "__dict__")) is dict


def _is_of_python(value: object) -> bool:
    """Return whether a value is of Python itself, such as a logger, or has no state of a model.

    Objects of Python's own library lead to much that is no part of a model.
    """
    if isinstance(value, _WITHOUT_STATE):
        return True
    package = type(value).__module__.partition(".")[0]
    return package in sys.stdlib_module_names and not isinstance(value, SimpleNamespace)


def _restore_attributes(value: Any, kind: type, attributes: dict[str, Any]) -> None:
    if type(value) is not kind:  # a parametrization changes the class
        value.__class__ = kind
    vars(value).clear()
    vars(value).update(attributes)
