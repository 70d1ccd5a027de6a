"""Listen to functional operations (``+``, ``F.relu``) between modules; name them (``op:add``).

``out += identity``, ``torch.cat`` and ``F.relu`` are not modules, so no hook fires on them. A
``TorchFunctionMode`` sees every torch function that a model calls
(https://docs.pytorch.org/docs/stable/torch.overrides.html), and hooks on all modules show which
module calls the function.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hookcli.hooks.nested import memory_of, tensors_in
from hookcli.hooks.register import PlacedHooks
from hookcli.networks.modules import find_modules
from hookcli.records.calls import OPERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from hookcli.records.calls import LayerInfo

_P = ParamSpec("_P")
_R = TypeVar("_R")

_OPERATORS = frozenset(
    {"add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul"}
    | {"and", "or", "xor", "lshift", "rshift"}
)
# Functions that may return existing values, as views or as copies, depending on the inputs.
_COPIES = frozenset(
    {"clone", "contiguous", "flatten", "getitem", "reshape", "reshape_as", "to", "type", "type_as"}
    | {"float", "double", "half", "bfloat16", "int", "long", "bool", "cpu", "cuda"}
)
_SAME = {
    "absolute": "abs", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "arctan2": "atan2",
    "bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift", "and": "bitwise_and",
    "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div", "fix": "trunc",
    "floordiv": "floor_divide", "greater": "gt", "greater_equal": "ge", "invert": "bitwise_not",
    "less": "lt", "less_equal": "le", "mod": "remainder", "multiply": "mul", "moveaxis": "movedim",
    "negative": "neg", "not_equal": "ne", "or": "bitwise_or", "rsub": "sub",
    "special_expit": "sigmoid", "special_log_softmax": "log_softmax", "special_softmax": "softmax",
    "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose", "true_divide": "div",
    "truediv": "div", "xor": "bitwise_xor",
}  # fmt: skip
# The torch functions of operators of ATen that have other names.
_ATEN = {
    "_native_batch_norm_legit_no_training": "batch_norm", "_softmax": "softmax",
    "_log_softmax": "log_softmax", "addmm": "linear", "col2im": "fold", "convolution": "conv2d",
    "grid_sampler": "grid_sample", "grid_sampler_2d": "grid_sample", "im2col": "unfold",
    "linalg_vector_norm": "norm", "native_group_norm": "group_norm",
    "native_layer_norm": "layer_norm",
} | dict.fromkeys([
    "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "upsample_bicubic2d",
    "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "upsample_trilinear3d",
], "interpolate")  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoundOperation:
    layer: LayerInfo
    moments: tuple[int, ...]  # the positions of its calls among those of all operations, from 1
    computes: bool  # whether it made new values from tensors, unlike ``flatten``

    def is_view_of(self, paths: Collection[str]) -> bool:
        return not self.computes and self.layer.module_path in paths


@dataclass(frozen=True, slots=True)
class OperationCall:
    path: str  # of the calling module, and the function's name: ``layer1.0/op:add``
    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    in_torch: bool  # whether a leaf of torch calls it, as ``Conv2d`` calls ``conv2d``


class Listener(Protocol):
    # returns a value for ``end``, or None for no ``end``
    def begin(self, operation: OperationCall) -> object: ...
    # gets the output, None if the operation raised; returns a tensor to replace it, or None
    def end(self, call: object, output: object) -> object: ...


@contextmanager
def listen_to_operations(
    model: nn.Module, watchable: Iterable[LayerInfo], listener: Listener
) -> Iterator[None]:
    # While functions are watched, torch does not take the fast path of ``nn.MultiheadAttention``;
    # to compare with a forward pass outside the block, run that ``without_fast_path``.
    mode = _Mode(listener)
    placed = PlacedHooks()
    modules = find_modules(model)
    try:
        for layer in watchable:
            module = modules[layer.module_path]
            running = layer.module_path, is_torch_leaf(module)
            placed.put_before(layer.label, module, partial(mode.entered, running))
            placed.put_after(layer.label, module, mode.left)
        with mode:
            yield
        placed.check()
    finally:
        placed.remove()


@contextmanager
def without_fast_path(*, unless: bool = False) -> Iterator[None]:
    """Disable the fast path of ``nn.MultiheadAttention`` in the block, unless ``unless`` is set."""
    # In evaluation mode, it hides all intermediate tensors, and differs in the last digits.
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled and unless)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def is_torch_leaf(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return False
    inside = module._modules.keys() - {"parametrizations"}
    is_leaf = not inside or isinstance(module, nn.MultiheadAttention)
    return is_leaf and type(module).forward.__module__.startswith("torch.")


def name_operation(function: Callable[..., object]) -> str:
    return name_spelling(own_name(function))


def own_name(function: Callable[..., object]) -> str:
    owner = getattr(function, "__self__", None)
    name: str = getattr(function, "__name__", "")
    return getattr(owner, "__name__", "") if name == "__get__" else name


def name_spelling(name: str) -> str:
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name[:1] in ("i", "r") and name[1:] in _OPERATORS:
            name = name[1:]
    elif name.endswith("_"):
        name = name[:-1]
    return _SAME.get(name, name)


def name_aten(target: str) -> str:
    name = target.replace("::", ".").split(".")[:2][-1].removesuffix("_")
    return _ATEN.get(name) or _SAME.get(name, name)


class _Own(threading.local):
    """Records whether this thread is running hookcli's own code, which listeners ignore."""

    runs = False


_OWN = _Own()


def hidden(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a function so that listeners ignore the torch functions that it calls."""

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before, _OWN.runs = _OWN.runs, True
        try:
            return function(*args, **kwargs)
        finally:
            _OWN.runs = before

    return call


class _Mode(TorchFunctionMode):
    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._begin, self._end = hidden(listener.begin), hidden(listener.end)
        self._running: list[tuple[str, bool]] = []  # module path, and ``is_torch_leaf``
        self._thread = threading.get_ident()

    def entered(
        self, running: tuple[str, bool], _module: nn.Module, _args: object, _kwargs: object
    ) -> None:
        if threading.get_ident() == self._thread:
            self._running.append(running)

    def left(self, _module: nn.Module, _args: object, _output: object) -> None:
        if self._running and threading.get_ident() == self._thread:
            self._running.pop()

    def __torch_function__(
        self,
        func: Callable[..., object],
        _types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        call = None
        # inside torch.vmap and the like, a tensor represents many tensors and has no values
        is_transformed = torch._C._functorch.peek_interpreter_stack() is not None
        if self._running and not (_OWN.runs or is_transformed):
            module_path, in_torch = self._running[-1]
            path = operation_path(module_path, name_operation(func))
            call = self._begin(OperationCall(path, func, args, kwargs, in_torch))
        if call is None:
            return func(*args, **kwargs)
        output = changed = None
        try:
            output = func(*args, **kwargs)
        finally:
            changed = self._end(call, output)
        if changed is None or changed is output:
            return output
        if isinstance(output, Tensor) and writes_in_place(func, args, kwargs):
            # The model may continue to use the tensor that it passed, not the returned tensor.
            return hidden(output.copy_)(cast("Tensor", changed))
        return changed


def operation_path(module_path: str, name: str) -> str:
    return f"{module_path}/{OPERATION}{name}" if module_path else f"{OPERATION}{name}"


def depth_of(module_path: str) -> int:
    return module_path.count(".") + 2 if module_path else 1


def split_path(path: str) -> tuple[str, str]:
    module_path, _, name = path.rpartition("/")
    return module_path, name.removeprefix(OPERATION)


def writes_in_place(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> bool:
    name: str = getattr(function, "__name__", "")
    if "out" in kwargs or kwargs.get("inplace"):
        return True
    if name.startswith("__"):
        return name[2:3] == "i" and name[3:-2] in _OPERATORS
    if name.endswith("_"):
        return True
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount]
    return "inplace" in names and args[names.index("inplace") :][:1] == (True,)


@dataclass(frozen=True, slots=True)
class OpenOperation:
    path: str
    inputs: list[Tensor]
    writes: int  # to the inputs, before the call; torch counts none in inference mode
    in_place: bool  # by the operation's name, or by an argument

    def computes(self, output: object) -> bool:
        tensors = tensors_in(output)
        if not (tensors and self.inputs):
            return False
        given = {memory_of(tensor) for tensor in self.inputs}
        is_written = self.in_place or _count_writes(self.inputs) > self.writes
        return is_written or any(memory_of(tensor) not in given for tensor in tensors)


def begin_operation(operation: OperationCall) -> OpenOperation:
    inputs = tensors_in((operation.args, operation.kwargs))
    in_place = writes_in_place(operation.function, operation.args, operation.kwargs)
    return OpenOperation(operation.path, inputs, _count_writes(inputs), in_place)


def may_compute(name: str) -> bool:
    return not (name in _COPIES or name.startswith("new_") or name.endswith("_like"))


def _count_writes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor._version for tensor in tensors if not tensor.is_inference())
