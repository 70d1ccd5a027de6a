"""A forward pass that leaves no trace of itself in the model."""

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
    """Restore a model and the random number generators when the block ends.

    This restores the modules' classes, submodules, parameters, buffers, hooks and other attributes,
    at any depth inside lists, dictionaries, sets, arrays and objects, the modules' own random
    number generators, and the values of all tensors except parameters. It does not restore
    iterators, open files, and objects of Python's standard library.
    """
    of_python = partial(random.setstate, random.getstate())
    of_numpy = partial(np.random.set_state, np.random.get_state())
    with restoring(model, [of_python, of_numpy, *_list_restorers(model)]):
        yield


def throw_dice() -> None:
    """Make all later random numbers differ from the earlier ones.

    This reseeds the generators. A few extra draws would not do: NumPy's permutation rejects some of
    its draws, so that one permutation in 3,000 is the same two draws later.
    """
    torch.manual_seed(int(torch.randint(2**62, ())))
    random.seed(random.random())  # noqa: S311
    np.random.seed(np.random.randint(2**31))


def goes_through(loaded: LoadedModel, pixels: Tensor) -> bool:
    """Return whether the model accepts pixels (1, …); the model is left as it was."""
    with suppress(ForwardError), unchanged(loaded.module):
        run_model(loaded, loaded.convert(pixels))
        return True
    return False


def _list_restorers(model: nn.Module) -> Iterator[Callable[[], object]]:
    """Yield a function for each object in the model that restores the object's present state."""
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
    """Return the names of a value's attributes that are slots of its classes."""
    if _is_of_python(value):
        return []
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    return [name for name in names if not name.startswith("__") and hasattr(value, name)]


def _has_attributes(value: object) -> bool:
    """Return whether a value's attributes can change its state."""
    return not _is_of_python(value) and type(ask(value, "__dict__")) is dict


def _is_of_python(value: object) -> bool:
    """Return whether a value belongs to Python, such as a logger, or holds no state of a model.

    Objects of Python's standard library refer to many objects outside the model.
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
