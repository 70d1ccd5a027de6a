"""Watching every call of chosen modules: its inputs at the start and its output at the end."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from torch import nn

from hookcli.errors import ForwardError
from hookcli.foreign import ForeignCode, ask
from hookcli.records.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.utils.hooks import RemovableHandle

    from hookcli.records.calls import LayerInfo

    _Positional: TypeAlias = tuple[object, ...]
    _Keyword: TypeAlias = dict[str, object]
    Listener: TypeAlias = Callable[[Call, object], object]
    """Called with a call and its inputs or output; what it returns, unless None, replaces them."""


@contextmanager
def watch(
    model: nn.Module,
    layers: Sequence[LayerInfo],
    started: Listener | None,
    finished: Listener,
    *,
    ends_first: bool = False,
) -> Iterator[None]:
    """Call ``started(call, inputs)`` and ``finished(call, output)`` around each call of ``layers``.

    What a listener returns, unless it is None, replaces the inputs or the output of the module.

    ``call.order`` counts the calls by their start, so that a block comes before its children. The
    inputs are one value that :func:`named_tensors` can walk, with the positional and the keyword
    arguments. With ``ends_first``, ``finished`` is called before that of all other watchers.

    Raises:
        ForwardError: the block ended without an error, but the model has removed a hook.
    """
    with ForeignCode("named_modules of the model"):
        modules = dict(model.named_modules())
    watched = _Watched(started, finished)
    placed: list[_Placed] = []
    try:
        for layer in layers:
            module = _find(modules, layer)
            if started is None and not module._modules and _is_torch_own(module):
                alone = nn.Module.register_forward_hook(module, partial(watched.after_alone, layer))
                placed.append(_Placed(layer, module, "_forward_hooks", alone))
                continue
            pre = nn.Module.register_forward_pre_hook(
                module, partial(watched.before, layer), with_kwargs=True
            )
            placed.append(_Placed(layer, module, "_forward_pre_hooks", pre))
            # always_call: a call that raised ends too (with None), so ``running`` stays correct
            post = nn.Module.register_forward_hook(
                module, partial(watched.after, layer), always_call=True, prepend=ends_first
            )
            placed.append(_Placed(layer, module, "_forward_hooks", post))
        yield
        _check_in_place(placed)
    finally:
        for each in placed:
            each.handle.remove()


def _find(modules: Mapping[str, nn.Module], layer: LayerInfo) -> nn.Module:
    """Return the module of a layer.

    Raises:
        ForwardError: the model has removed the module since it was chosen.
    """
    if layer.module_path in modules:
        return modules[layer.module_path]
    raise ForwardError(
        f"the model took {layer.label} ({layer.module_type}) away while it ran",
        "keep all its modules: one that is not needed need not be called",
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A hook that was put on a module, and the dictionary of the module in which torch keeps it."""

    layer: LayerInfo
    module: nn.Module
    dictionary: str
    handle: RemovableHandle


def _check_in_place(placed: Sequence[_Placed]) -> None:
    """Check that every hook is still in place; the calls of a module without it are not observed.

    Raises:
        ForwardError: a hook has been removed.
    """
    for each in placed:
        hooks = ask(each.module, each.dictionary)
        if not isinstance(hooks, dict) or each.handle.id not in hooks:
            raise ForwardError(
                f"the model took the hooks off {each.layer.label} ({each.layer.module_type}) "
                "while it ran, so its outputs were not observed",
                "let it remove the hooks that it has put on itself, by their handles",
            )


@dataclass(slots=True)
class _Watched:
    """The hooks of one ``watch``, and the calls that are running."""

    started: Listener | None
    finished: Listener
    counts: Counter[str] = field(default_factory=Counter)
    order: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    running: list[Call] = field(default_factory=list)

    def before(
        self, layer: LayerInfo, _module: nn.Module, args: _Positional, kwargs: _Keyword
    ) -> tuple[_Positional, _Keyword] | None:
        call = self._begin(layer)
        self.running.append(call)
        changed = self.started(call, _arguments(args, kwargs)) if self.started else None
        return None if changed is None else _as_given(args, kwargs, changed)

    def after(
        self, layer: LayerInfo, _module: nn.Module, _inputs: object, output: object
    ) -> object:
        if self.running and self.running[-1].layer is layer:
            return self.finished(self.running.pop(), output)
        return None  # a hook before ours raised, so no call began

    def after_alone(
        self, layer: LayerInfo, _module: nn.Module, _inputs: object, output: object
    ) -> object:
        # Its call is counted only now: the order holds, since nothing starts inside it.
        return self.finished(self._begin(layer), output)

    def _begin(self, layer: LayerInfo) -> Call:
        call = Call(layer, self.counts[layer.module_path], next(self.order))
        self.counts[layer.module_path] += 1
        return call


def _arguments(args: _Positional, kwargs: _Keyword) -> object:
    """Return positional and keyword arguments as one value; a single argument is returned as is."""
    if len(args) == 1 and not kwargs:
        return args[0]
    return {str(index): value for index, value in enumerate(args)} | kwargs


def _as_given(args: _Positional, kwargs: _Keyword, changed: object) -> tuple[_Positional, _Keyword]:
    """Return the positional and keyword arguments of a value that ``_arguments`` made."""
    if len(args) == 1 and not kwargs:
        return (changed,), {}
    named = cast("Mapping[str, object]", changed)
    places = [str(index) for index in range(len(args))]
    return tuple(named[place] for place in places), {name: named[name] for name in kwargs}


def _is_torch_own(module: nn.Module) -> bool:
    """Return whether a module's code is torch's own, which calls no module, not even itself."""
    return type(module).__module__.startswith("torch.nn.modules.")
