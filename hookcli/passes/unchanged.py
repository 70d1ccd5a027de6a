"""Run forward passes that leave no trace in the model."""

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

    from hookcli.networks.load import LoadedModel

_TOOLS = ("torch._dynamo.", "torch.fx.", "sympy.")  # of modules that were compiled or exported
_WITHOUT_STATE = (type, ModuleType, FunctionType, torch.jit.ScriptModule)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore a model and all random number generators when the ``with`` block ends.

    For each module, this restores the class, submodules, parameters, buffers, hooks and other
    attributes, including lists, dictionaries, sets, arrays and objects inside them at any depth.
    This also restores the values of all tensors except parameters. It does not restore iterators,
    open files, and objects of Python's standard library.
    """
    of_python = partial(random.setstate, random.getstate())
    of_numpy = partial(np.random.set_state, np.random.get_state())
    with restoring(model, [of_python, of_numpy, *list_restorers(model)]):
        yield


def throw_dice() -> None:
    """Reseed the generators of torch, Python and NumPy, so that no random numbers repeat.

    The generators draw the new seeds. A few extra draws would not be enough: NumPy's permutation
    rejects some, so one in 3,000 would be the same after two extra draws.
    """
    torch.manual_seed(int(torch.randint(2**62, ())))
    random.seed(random.random())  # noqa: S311
    np.random.seed(np.random.randint(2**31))


def goes_through(loaded: LoadedModel, pixels: Tensor) -> bool:
    """Return whether the model runs on ``pixels`` (1, …) without an error."""
    with suppress(ForwardError), unchanged(loaded.module):
        run_model(loaded, loaded.convert(pixels))
        return True
    return False


def list_restorers(model: nn.Module) -> Iterator[Callable[[], object]]:
    """Yield functions that restore the present state of a model, as often as they are called."""
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
    if _is_of_python(value):
        return []
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    return [name for name in names if not name.startswith("__") and hasattr(value, name)]


def _has_attributes(value: object) -> bool:
    return not _is_of_python(value) and type(ask(value, "__dict__")) is dict


def _is_of_python(value: object) -> bool:
    """Return whether hookcli leaves a value alone, because it holds no state of the model."""
    # These are classes, modules, functions, scripted modules, the tools that compiled or exported a
    # module, and objects of the standard library, such as loggers, which refer to much outside the
    # model.
    if isinstance(value, _WITHOUT_STATE):
        return True
    if type(value).__module__.startswith(_TOOLS) and not isinstance(value, nn.Module):
        return True
    package = type(value).__module__.partition(".")[0]
    return package in sys.stdlib_module_names and not isinstance(value, SimpleNamespace)


def _restore_attributes(value: Any, kind: type, attributes: dict[str, Any]) -> None:
    if type(value) is not kind:  # a parametrization changes the class
        value.__class__ = kind
    vars(value).clear()
    vars(value).update(attributes)
