"""Call listeners before and after each call of layers; find which module wrote in place."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from hookcli.errors import ForwardError
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.operations import (
    OpenOperation,
    begin_operation,
    hidden,
    listen_to_operations,
    may_compute,
    split_path,
)
from hookcli.hooks.register import PlacedHooks
from hookcli.networks.modules import find_modules, run_eagerly
from hookcli.outside.foreign import ForeignCode
from hookcli.records.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from hookcli.hooks.operations import OperationCall
    from hookcli.records.calls import LayerInfo

    _Positional: TypeAlias = tuple[object, ...]
    _Keyword: TypeAlias = dict[str, object]
    Listener: TypeAlias = Callable[[Call, object], object]
    """Takes a call, and its inputs or its output; returns what replaces them, or None."""


@contextmanager
def watch(
    model: nn.Module,
    layers: Sequence[LayerInfo],
    started: Listener | None,
    finished: Listener,
    *,
    ends_first: bool = False,
    others: dict[str, str] | None = None,
) -> Iterator[None]:
    """Call ``started`` before and ``finished`` after each call of ``layers`` while the block lasts.

    ``started`` gets all arguments of a call as one value. ``finished`` gets the output, or None
    after a call that raised. If a listener does not return None, its return value replaces the
    inputs or the output; an operation's inputs cannot be replaced. ``call.order`` counts the calls
    by their start, so that a block comes before its children. With ``ends_first``, ``finished`` is
    called before the ``finished`` of all other watchers. If ``layers`` has any operation, hookcli
    adds the paths of unwatched operations that compute values to ``others``.
    """
    with ForeignCode("named_modules of the model"):
        modules = find_modules(model)
    operations = {layer.module_path: layer for layer in layers if layer.is_operation}
    watched = _Watched(started and hidden(started), hidden(finished), operations, others)
    placed = PlacedHooks()
    try:
        for layer in (each for each in layers if not each.is_operation):
            if (module := modules.get(layer.module_path)) is None:
                what = f"the model removed {layer.label} ({layer.module_type}) in its forward pass"
                hint = "keep the module in place; an unused module need not be called"
                raise ForwardError(what, hint)
            placed.put_before(layer.label, module, partial(watched.before, layer))
            # even a call that raised ends (with None), so ``running`` stays correct
            placed.put_after(layer.label, module, partial(watched.after, layer), first=ends_first)
        with run_eagerly(), ExitStack() as stack:
            if operations:
                stack.enter_context(listen_to_operations(model, list_watchable(model), watched))
            yield
        placed.check()
    finally:
        placed.remove()


def ignore(_call: Call, _value: object) -> None:
    """Do nothing; callers of ``watch`` that need only the inputs pass this as ``finished``."""


@dataclass(slots=True)
class _Watched:
    started: Listener | None
    finished: Listener
    operations: Mapping[str, LayerInfo]  # the watched ones, by path
    others: dict[str, str] | None = None
    settled: set[str] = field(default_factory=set)  # unwatched operations that were called before
    counts: Counter[str] = field(default_factory=Counter)  # the calls so far, by path
    order: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # counts all calls
    running: list[Call] = field(default_factory=list)  # outermost first

    def before(
        self, layer: LayerInfo, _module: nn.Module, args: _Positional, kwargs: _Keyword
    ) -> tuple[_Positional, _Keyword] | None:
        call = self._begin(layer)
        changed = self.started(call, _arguments(args, kwargs)) if self.started else None
        self.running.append(call)  # only now: if ``started`` raises, the call never ends
        return None if changed is None else _as_given(args, kwargs, changed)

    def after(
        self, layer: LayerInfo, _module: nn.Module, _inputs: object, output: object
    ) -> object:
        if self.running and self.running[-1].layer is layer:
            return self.finished(self.running.pop(), output)
        return None  # a hook before ours raised, so no call began

    def begin(self, operation: OperationCall) -> Call | OpenOperation | None:
        if (layer := self.operations.get(operation.path)) is None:
            # none if it is part of a torch module, is settled or cannot compute values
            if self.others is None or operation.in_torch or operation.path in self.settled:
                return None
            self.settled.add(operation.path)
            name = split_path(operation.path)[1]
            return begin_operation(operation) if may_compute(name) else None
        call = self._begin(layer)
        if not layer.has_call(call.call_index):
            return None
        if self.started:
            self.started(call, _arguments(operation.args, operation.kwargs))
        return call

    def end(self, call: object, output: object) -> object:
        if isinstance(call, OpenOperation):
            if self.others is not None and call.computes(output):
                self.others[call.path] = ""
            return None
        return self.finished(cast("Call", call), output)

    def _begin(self, layer: LayerInfo) -> Call:
        call = Call(layer, self.counts[layer.module_path], next(self.order))
        self.counts[layer.module_path] += 1
        return call


def _arguments(args: _Positional, kwargs: _Keyword) -> object:
    if len(args) == 1 and not kwargs:
        return args[0]
    return {str(index): value for index, value in enumerate(args)} | kwargs


def _as_given(args: _Positional, kwargs: _Keyword, changed: object) -> tuple[_Positional, _Keyword]:
    if len(args) == 1 and not kwargs:
        return (changed,), {}
    named = cast("Mapping[str, object]", changed)
    numbers = [str(index) for index in range(len(args))]
    return tuple(named[number] for number in numbers), {name: named[name] for name in kwargs}


@dataclass(frozen=True, slots=True)
class _Output:
    call_id: str
    tensor: weakref.ref[Tensor]
    version: int


@dataclass(slots=True)
class WriteWatcher:
    # Every write to a tensor increments a counter, which is read at the start and end of every
    # call. Tensors have none under ``torch.inference_mode``, so the forward pass must run under
    # ``torch.no_grad``. References to tensors are weak, so that they need no additional memory.

    # by id of the call: ``by relu (ReLU)``, or ``inside layer1.0 (BasicBlock)``
    written: dict[str, str] = field(default_factory=dict)
    _intact: list[_Output] = field(default_factory=list)
    _running: list[Call] = field(default_factory=list)

    def started(self, call: Call, _inputs: object) -> None:
        self._blame()
        self._running.append(call)

    def finished(self, call: Call, output: object) -> None:
        self._blame()
        self._running.pop()
        self._intact += [
            _Output(replace(call, output_key=key).id, weakref.ref(tensor), tensor._version)
            for key, tensor in named_tensors(output)
            if not tensor.is_inference()  # created in the model's own inference mode: no counter
        ]

    def _blame(self) -> None:
        intact = []
        for returned in self._intact:
            tensor = returned.tensor()
            if tensor is not None and tensor._version == returned.version:
                intact.append(returned)
            elif tensor is not None:
                layer = self._running[-1].layer
                how = "by" if layer.is_leaf else "inside"
                self.written[returned.call_id] = f"{how} {layer.label} ({layer.module_type})"
        self._intact = intact
