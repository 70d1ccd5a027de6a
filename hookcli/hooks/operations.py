"""Functional operations: what a model computes between its modules.

``out += identity``, ``torch.cat`` and ``F.relu`` are not modules, so no hook fires on them. A
``TorchFunctionMode`` sees every torch function that a model calls
(https://docs.pytorch.org/docs/stable/torch.overrides.html), and hooks on all modules show which
module calls it.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hookcli.hooks.nested import named_tensors
from hookcli.hooks.placed import PlacedHooks
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
# These may return existing values, as views or as copies, depending on their inputs.
_COPIES = frozenset(
    {"clone", "contiguous", "flatten", "getitem", "reshape", "reshape_as", "to", "type", "type_as"}
    | {"float", "double", "half", "bfloat16", "int", "long", "bool", "cpu", "cuda"}
)
_SAME = {
    "absolute": "abs",
    "arccos": "acos",
    "arcsin": "asin",
    "arctan": "atan",
    "arctan2": "atan2",
    "bitwise_left_shift": "lshift",
    "bitwise_right_shift": "rshift",
    "and": "bitwise_and",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "divide": "div",
    "fix": "trunc",
    "floordiv": "floor_divide",
    "greater": "gt",
    "greater_equal": "ge",
    "invert": "bitwise_not",
    "less": "lt",
    "less_equal": "le",
    "mod": "remainder",
    "multiply": "mul",
    "moveaxis": "movedim",
    "negative": "neg",
    "not_equal": "ne",
    "or": "bitwise_or",
    "rsub": "sub",
    "special_expit": "sigmoid",
    "special_log_softmax": "log_softmax",
    "special_softmax": "softmax",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "true_divide": "div",
    "truediv": "div",
    "xor": "bitwise_xor",
}


@dataclass(frozen=True, slots=True)
class FoundOperation:
    """An operation that a forward pass called.

    Attributes:
        layer: the operation as a layer.
        moments: the position of each of its calls among all calls of operations.
        computes: it computed new values from tensors. Otherwise it returned views or copies, as
            ``flatten`` does, or created tensors without any input, as ``zeros`` does.
    """

    layer: LayerInfo
    moments: tuple[int, ...]
    computes: bool

    def is_view_of(self, paths: Collection[str]) -> bool:
        """Return whether this operation is among ``paths`` and returns existing values."""
        return not self.computes and self.layer.module_path in paths


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A call of a torch function that is about to run.

    Attributes:
        path: the module that calls it, and its name: ``layer1.0/op:add``.
        in_torch: a leaf module of torch itself calls it, as ``Conv2d`` calls ``conv2d``.
    """

    path: str
    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    in_torch: bool


class Listener(Protocol):
    """A pair of functions that hookcli calls around each operation."""

    def begin(self, operation: OperationCall) -> object:
        """Receive an operation that is about to run; return a value for ``end``, or None."""

    def end(self, call: object, output: object) -> object:
        """Receive the output of an operation (None if it raised); return a replacement or None.

        hookcli calls it only if ``begin`` did not return None.
        """


@contextmanager
def listen_to_operations(
    model: nn.Module, watchable: Iterable[LayerInfo], listener: Listener
) -> Iterator[None]:
    """Call ``listener`` around each torch function that the model calls while the block lasts.

    In the block, ``nn.MultiheadAttention`` does not take its fast path, because torch never takes
    it while functions are watched. To compare another forward pass with this one, run it
    ``without_fast_path``. The listener receives the calls of this thread, except those that hooks
    of hookcli make; a mode of torch does not see other threads. ``watchable`` are the modules on
    which hooks fire.

    Raises:
        ForwardError: the block ended without an error, but the model has removed a hook.
    """
    mode = _Mode(listener)
    placed = PlacedHooks()
    modules = dict(model.named_modules())
    try:
        for layer in watchable:
            module = modules[layer.module_path]
            place = _Place(layer.module_path, is_torch_leaf(module))
            placed.put_before(layer.label, module, mode.entered(place))
            placed.put_after(layer.label, module, mode.left, always=True)
        with mode:
            yield
        placed.check()
    finally:
        placed.remove()


@contextmanager
def without_fast_path(*, unless: bool = False) -> Iterator[None]:
    """Keep ``nn.MultiheadAttention`` from its fast path in evaluation while the block lasts.

    The fast path computes the whole attention in one step that hides all intermediate tensors, and
    its results differ in the last digits. The setting belongs to the process; it is restored at the
    end. With ``unless``, nothing is changed.
    """
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled and unless)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def is_torch_leaf(module: nn.Module) -> bool:
    """Return whether a module is a leaf with a forward of torch's own, as ``Conv2d`` is.

    The functions that it calls are part of it. Parametrizations, such as weight norm, do not count
    as its submodules.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return False
    inside = module._modules.keys() - {"parametrizations"}
    is_leaf = not inside or isinstance(module, nn.MultiheadAttention)
    return is_leaf and type(module).forward.__module__.startswith("torch.")


def name_operation(function: Callable[..., object]) -> str:
    """Return the name of a torch function, the same for all its spellings.

    ``torch.add``, ``Tensor.add``, ``+``, ``add_`` and ``+=`` are all ``add``. A property keeps its
    own name: ``Tensor.T`` is ``T``.
    """
    name: str = getattr(function, "__name__", "")
    if name == "__get__":
        owner: object = getattr(function, "__self__", None)
        name = getattr(owner, "__name__", "")
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name[:1] in ("i", "r") and name[1:] in _OPERATORS:
            name = name[1:]
    elif name.endswith("_"):
        name = name[:-1]
    return _SAME.get(name, name)


class _Own(threading.local):
    """Whether hookcli's own code runs inside a model's forward; its operations do not count."""

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


@dataclass(frozen=True, slots=True)
class _Place:
    """A module that is running."""

    module_path: str
    in_torch: bool


class _Mode(TorchFunctionMode):
    """Passes every torch function that is called while a module runs to a listener."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._begin, self._end = hidden(listener.begin), hidden(listener.end)
        self._running: list[_Place] = []
        self._thread = threading.get_ident()

    def entered(self, place: _Place) -> Callable[..., None]:
        """Return a hook that marks a module as running."""

        def hook(_module: nn.Module, _args: object, _kwargs: object) -> None:
            if threading.get_ident() == self._thread:
                self._running.append(place)

        return hook

    def left(self, _module: nn.Module, _args: object, _output: object) -> None:
        """Remove the innermost running module, which has returned or raised."""
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
            place = self._running[-1]
            path = operation_path(place.module_path, name_operation(func))
            call = self._begin(
                OperationCall(path, func, args, kwargs=kwargs, in_torch=place.in_torch)
            )
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
            # The model may go on using the tensor that it passed, and not the returned one.
            return hidden(output.copy_)(cast("Tensor", changed))
        return changed


def operation_path(module_path: str, name: str) -> str:
    """Return the path of an operation as a layer: ``layer1.0/op:add``, or ``op:add`` at the top."""
    return f"{module_path}/{OPERATION}{name}" if module_path else f"{OPERATION}{name}"


def depth_of(module_path: str) -> int:
    """Return the depth of an operation that this module calls."""
    return module_path.count(".") + 2 if module_path else 1


def split_path(path: str) -> tuple[str, str]:
    """Return the module path and the name of an operation, given its path as a layer."""
    module_path, _, name = path.rpartition("/")
    return module_path, name.removeprefix(OPERATION)


def writes_in_place(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> bool:
    """Return whether a call of a torch function writes its result over one of its inputs."""
    name: str = getattr(function, "__name__", "")
    if "out" in kwargs or kwargs.get("inplace"):
        return True
    if name.startswith("__"):
        return name[2:3] == "i" and name[3:-2] in _OPERATORS
    return name.endswith("_") or _is_inplace(function, args)


def _is_inplace(function: Callable[..., object], args: tuple[object, ...]) -> bool:
    """Return whether ``inplace`` is set by position, as in ``F.relu(x, True)``."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount]
    return "inplace" in names and args[names.index("inplace") :][:1] == (True,)


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """A call of an operation that has not returned, with the state of its inputs at its start.

    Attributes:
        path: the operation, as in ``OperationCall``.
        writes: how often its inputs had been written.
        in_place: its name or an argument says that it writes to its inputs. Tensors of inference
            mode do not count their writes.
    """

    path: str
    inputs: tuple[Tensor, ...]
    writes: int
    in_place: bool

    def computes(self, output: object) -> bool:
        """Return whether the call computed values: it wrote to its inputs or created a tensor."""
        tensors = [tensor for _, tensor in named_tensors(output)]
        if not (tensors and self.inputs):
            return False
        given = {_memory(tensor) for tensor in self.inputs}
        is_written = self.in_place or _count_writes(self.inputs) > self.writes
        return is_written or any(_memory(tensor) not in given for tensor in tensors)


def begin_operation(operation: OperationCall) -> OpenOperation:
    """Return the state of a call's inputs before it runs."""
    inputs = tuple(tensor for _, tensor in named_tensors((operation.args, operation.kwargs)))
    in_place = writes_in_place(operation.function, operation.args, operation.kwargs)
    return OpenOperation(operation.path, inputs, _count_writes(inputs), in_place)


def may_compute(name: str) -> bool:
    """Return whether an operation of this name may compute new values from tensors.

    All others return views or copies of values, or create tensors without any input.
    """
    return not (name in _COPIES or name.startswith("new_") or name.endswith("_like"))


def _count_writes(tensors: Iterable[Tensor]) -> int:
    """Return how often the tensors were written; tensors of inference mode do not count this."""
    return sum(tensor._version for tensor in tensors if not tensor.is_inference())


def _memory(tensor: Tensor) -> int:
    """Return the identity of the memory that a tensor shares with its views.

    A sparse tensor, or one inside ``torch.vmap``, has no memory that identifies it.
    """
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor)
