"""Torch's compiler, kept out where torch or torchvision would load it and does not need it.

Importing ``torch._dynamo`` brings ``torch._inductor`` and sympy along and takes 1 to 1.5 seconds. Two
things that hookcli does would load it, without compiling anything:

* ``import torchvision``: as of 0.29, ``ops/roi_align.py`` imports ``is_compile_supported`` from
  ``torch._dynamo.utils`` at its top. It calls it only where boxes are pooled on a GPU by deterministic
  algorithms, or where torchvision has no compiled operators.
* operators on the meta device: many are functions in Python that ``torch._compile._disable_dynamo``
  has wrapped, which imports ``torch._dynamo`` at the first call, to say that they are not to be compiled.

For as long as such a thing lasts, a stand-in for the module is in ``sys.modules``. It offers the one
function that is asked for. Whoever asks it for another name gets the real module's, and from then on the
real module stands there. Nothing of the stand-in is left afterwards.
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
    """While the block lasts, torchvision can be imported without the compiler."""
    with _stand_in(_UTILITIES, is_compile_supported=_is_compile_supported):
        yield


@contextmanager
def running_operators() -> Iterator[None]:
    """While the block lasts, an operator of torch can run on the meta device without the compiler.

    Raises:
        ModuleNotFoundError: inside the block, where a module inside ``torch._dynamo`` is imported, which
            the stand-in does not have; the operator may be run again outside.
    """
    wrapped: list[Callable[..., object]] = []

    def disable(function: _Function, *_how: object, **_options: object) -> _Function:
        wrapped.append(function)
        return function

    try:
        with _stand_in(_COMPILER, disable=disable):
            yield
    finally:
        for function in wrapped:  # torch keeps the answer on it; later the real one is asked
            vars(function).pop("__dynamo_disable", None)


def _is_compile_supported(device_type: object) -> object:
    """Ask the real function, which loads the compiler."""
    answer: object = import_module(_UTILITIES).is_compile_supported(device_type)
    return answer


@contextmanager
def _stand_in(module: str, **offered: Callable[..., object]) -> Iterator[None]:
    """Have a module in place that offers the functions ``offered``, unless the compiler is loaded."""
    if _COMPILER in sys.modules:
        yield
        return
    stand_in = _StandIn(module)
    vars(stand_in).update(offered)
    finder = _MakeWay(stand_in)
    sys.modules[module] = stand_in
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        stand_in.leave()


class _StandIn(ModuleType):
    """Stands for a module for as long as nobody asks for more than it offers."""

    def leave(self) -> None:
        """Give the place up, if it is still held."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> object:
        """Hand on to the real module, which takes this one's place."""
        if name.startswith("__"):  # the import system asks for such, and can do without
            raise AttributeError(name)
        self.leave()
        value: object = getattr(import_module(self.__name__), name)
        return value


class _MakeWay:
    """A finder of modules that finds nothing: when the real package begins to load, the stand-in for a part of it leaves."""

    def __init__(self, stand_in: _StandIn) -> None:
        self._stand_in = stand_in

    def find_spec(self, name: str, *_where: object) -> None:
        if name == _COMPILER:
            self._stand_in.leave()
