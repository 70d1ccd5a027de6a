"""Keep torch's compiler and triton from being loaded where nothing is compiled.

Importing ``torch._dynamo`` also imports ``torch._inductor``, sympy and triton, and takes 1 to 1.5
seconds. Four steps of hookcli would load a part of this without compiling anything:

* ``import torchvision``: as of 0.29, ``ops/roi_align.py`` imports ``is_compile_supported``, which
  it calls only with deterministic algorithms on a GPU, or without compiled operators.
* Operators on the meta device and ``import timm`` (1.0.31), which exclude functions from compiling.
* ``import torch.utils.flop_counter``: torch 2.15 imports triton's class of kernels in it.

During each step, ``sys.modules`` has a stand-in for the module, with the only name that the step
needs. If code asks for any other name, the real module replaces the stand-in. After the step,
hookcli removes the stand-in.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from hookcli.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

T = TypeVar("T")
_Function = TypeVar("_Function", bound="Callable[..., object]")

_COMPILER = "torch._dynamo"
_UTILITIES = "torch._dynamo.utils"
_KERNELS = "triton.runtime.jit"


def importing_torchvision() -> AbstractContextManager[None]:
    return _stand_in(_UTILITIES, is_compile_supported=_is_compile_supported)


def importing_flop_counter() -> AbstractContextManager[None]:
    return _stand_in(_KERNELS, JITFunction=_Kernel)


def call_without_compiler(function: Callable[[], T]) -> T:
    # If the compiler is loaded later, it may compile what ``function`` declared not compilable.
    try:
        with _declaring_not_compilable():
            return function()
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(_COMPILER):
            raise
    return function()


def import_library(module: str, install: str, name: str) -> Any:
    try:
        return call_without_compiler(lambda: import_module(module))
    except ImportError as error:
        hint = f"install it: pip install {install}"
        raise RequestError(f"{name} needs {module}", hint) from error


@contextmanager
def _declaring_not_compilable() -> Iterator[None]:
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


def _is_compile_supported(device_type: object) -> object:  # loads torch's compiler
    return import_module(_UTILITIES).is_compile_supported(device_type)


class _KernelType(type):
    def __instancecheck__(cls, thing: object) -> bool:
        kernel = getattr(sys.modules.get(_KERNELS), "JITFunction", cls)
        return kernel is not cls and isinstance(thing, kernel)


class _Kernel(metaclass=_KernelType):
    """Stands in for triton's ``JITFunction`` in ``isinstance``, without importing triton."""


@contextmanager
def _stand_in(module: str, **offered: Callable[..., object]) -> Iterator[None]:
    """Replace ``module`` in a ``with`` block by a stand-in that has only the names ``offered``."""
    if _package_of(module) in sys.modules:
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
    def leave(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system does not need these
            raise AttributeError(name)
        self.leave()
        return getattr(import_module(self.__name__), name)


class _StandInRemover:
    def __init__(self, stand_in: _StandIn) -> None:
        self._stand_in = stand_in
        self._package = _package_of(stand_in.__name__)

    def find_spec(self, name: str, *_where: object) -> None:
        if name == self._package:
            self._stand_in.leave()


def _package_of(module: str) -> str:
    return _COMPILER if module.startswith(_COMPILER) else module.partition(".")[0]
