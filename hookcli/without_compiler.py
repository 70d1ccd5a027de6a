"""Torch's compiler, kept from being loaded where torch or torchvision would load it needlessly.

Importing ``torch._dynamo`` also imports ``torch._inductor`` and sympy, and takes 1 to 1.5 seconds.
Two things that hookcli does would load it without compiling anything:

* ``import torchvision``: as of 0.29, ``ops/roi_align.py`` imports ``is_compile_supported`` from
  ``torch._dynamo.utils`` at its top. It calls the function only where boxes are pooled on a GPU by
  deterministic algorithms, or where torchvision has no compiled operators.
* Operators on the meta device: many are Python functions that ``torch._compile._disable_dynamo``
  has wrapped, which imports ``torch._dynamo`` at the first call to declare them not compilable.

In the meantime a stand-in for the module is in ``sys.modules``. It has the one function that is
needed. If any other name is asked for, the real module is imported, takes the stand-in's place, and
provides it. Nothing of the stand-in is left afterwards.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Function = TypeVar("_Function", bound="Callable[..., object]")

_COMPILER = "torch._dynamo"
_UTILITIES = "torch._dynamo.utils"


@contextmanager
def importing_torchvision() -> Iterator[None]:
    """Return a ``with`` block in which torchvision is imported without the compiler."""
    with _stand_in(_UTILITIES, is_compile_supported=_is_compile_supported):
        yield


@contextmanager
def running_operators() -> Iterator[None]:
    """Return a ``with`` block in which operators run on the meta device without the compiler.

    Raises:
        ModuleNotFoundError: code in the block imported a module inside ``torch._dynamo``, which the
            stand-in does not have; the operator can be run again outside the block.
    """
    wrapped: list[Callable[..., object]] = []

    def disable(function: _Function, *_how: object, **_options: object) -> _Function:
        wrapped.append(function)
        return function

    try:
        with _stand_in(_COMPILER, disable=disable):
            yield
    finally:
        for function in wrapped:  # torch caches the result on it; the real one must be called
            vars(function).pop("__dynamo_disable", None)


def _is_compile_supported(device_type: object) -> object:
    """Call the real function, which loads the compiler."""
    answer: object = import_module(_UTILITIES).is_compile_supported(device_type)
    return answer


@contextmanager
def _stand_in(module: str, **offered: Callable[..., object]) -> Iterator[None]:
    """Return a ``with`` block in which a module with the functions ``offered`` replaces ``module``.

    If the compiler is loaded already, nothing is changed.
    """
    if _COMPILER in sys.modules:
        yield
        return
    stand_in = _StandIn(module)
    vars(stand_in).update(offered)
    finder = _StandInRemover(stand_in)
    sys.modules[module] = stand_in
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        stand_in.leave()


class _StandIn(ModuleType):
    """Stands in for a module until a name is asked for that it does not have."""

    def leave(self) -> None:
        """Remove the stand-in from ``sys.modules`` if it is still there."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the real module, which takes the stand-in's place."""
        if name.startswith("__"):  # the import system can do without these
            raise AttributeError(name)
        self.leave()
        value: object = getattr(import_module(self.__name__), name)
        return value


class _StandInRemover:
    """A finder of modules that only removes the stand-in when the real package is loaded."""

    def __init__(self, stand_in: _StandIn) -> None:
        self._stand_in = stand_in

    def find_spec(self, name: str, *_where: object) -> None:
        if name == _COMPILER:
            self._stand_in.leave()
