"""The only place where hooks are put on a model, and always as a ``with`` block that takes them off.

A tensor is handed to the observer inside the hook and never kept here: the model may write over it
as soon as the hook returns. Nothing here reads values, resolves layouts or knows about images.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from hookcli.config import DEFAULTS, SIDES
from hookcli.errors import RequestError
from hookcli.records import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.utils.hooks import RemovableHandle

    from hookcli.records import LayerInfo

    Observer: TypeAlias = Callable[[Call, Tensor], None]
    Listener: TypeAlias = Callable[[Call, object], None]


@contextmanager
def observe(
    model: nn.Module,
    layers: Sequence[LayerInfo],
    observer: Observer,
    at: str = DEFAULTS.at,
    called: set[str] | None = None,
) -> Iterator[None]:
    """Call ``observer(call, tensor)`` for every tensor of ``layers``, while the block lasts.

    The observer runs inside the hook and must reduce or copy the tensor before it returns:
    torchvision's ``ReLU(inplace=True)`` and ``out += identity`` write over it right after. The hooks
    go when the block ends, however it ends. Calls are counted from the beginning of the block.

    Args:
        model: must not be compiled or scripted; see :func:`refuse_unhookable`.
        layers: modules of this model.
        observer: gets every tensor of a nested output, each with its output key.
        at: ``output``, ``input`` (keyword arguments too) or ``both``.
        called: gets the module path of every layer that ran, whether or not a tensor came out.

    Raises:
        RequestError: ``at`` is none of the three.
    """
    if at not in SIDES:
        raise RequestError(f"nothing can be observed at {at!r}", f"one of: {', '.join(SIDES)}")
    sides = SIDES[at]

    def show(side: str, call: Call, value: object) -> None:
        if called is not None:
            called.add(call.layer.module_path)
        if isinstance(value, Tensor) and side == "output":
            observer(call, value)  # the common case, without the walk
            return
        for key, tensor in named_tensors(value):
            named = replace(call, side=side, output_key=key) if key or side != "output" else call
            observer(named, tensor)

    started = partial(show, "input") if "input" in sides else None
    finished = partial(show, "output") if "output" in sides else _ignore
    with watch(model, layers, started, finished):
        yield


@contextmanager
def watch(
    model: nn.Module, layers: Sequence[LayerInfo], started: Listener | None, finished: Listener
) -> Iterator[None]:
    """Call ``started(call, inputs)`` and ``finished(call, output)`` around every call of ``layers``.

    ``call.order`` counts the calls by their start, so that a block stands before its parts. Inputs
    are what :func:`named_tensors` can walk: positional and keyword arguments together.
    """
    counts: Counter[str] = Counter()
    order = itertools.count(1)
    running: list[Call] = []

    def begin(layer: LayerInfo) -> Call:
        call = Call(layer, counts[layer.module_path], next(order))
        counts[layer.module_path] += 1
        return call

    def before(layer: LayerInfo, _module: nn.Module, args: Any, kwargs: Any) -> None:
        call = begin(layer)
        running.append(call)
        if started:
            started(call, _arguments(args, kwargs))

    def after(layer: LayerInfo, _module: nn.Module, _inputs: Any, output: Any) -> None:
        if running and running[-1].layer is layer:  # else a hook before ours raised: no call began
            finished(running.pop(), output)

    def after_alone(layer: LayerInfo, _module: nn.Module, _inputs: Any, output: Any) -> None:
        finished(begin(layer), output)  # nothing can start inside, so this keeps the order

    modules = dict(model.named_modules())
    handles: list[RemovableHandle] = []
    try:
        for layer in layers:
            module = modules[layer.module_path]
            if started is None and not module._modules and _is_torch_own(module):
                handles.append(module.register_forward_hook(partial(after_alone, layer)))
                continue
            pre = module.register_forward_pre_hook(partial(before, layer), with_kwargs=True)
            handles.append(pre)
            # always_call: a call that raised ends too (with None), so that ``running`` stays in step
            post = module.register_forward_hook(partial(after, layer), always_call=True)
            handles.append(post)
        yield
    finally:
        for handle in handles:
            handle.remove()


def named_tensors(
    value: object, key: str = "", inside: tuple[int, ...] = ()
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in a nested value with its output key, in order.

    Tuples and lists give ``0``, ``1``, …, named tuples and mappings their names, an ``ImageList``
    its ``tensors``; levels are joined with dots. A value that is one tensor has the key "". A container
    inside itself is walked once: ``inside`` holds those that are being walked.
    """
    if isinstance(value, Tensor):
        yield key, value
        return
    parts: list[tuple[object, object]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = list(zip(value._fields, value, strict=True))
    elif isinstance(value, (tuple, list)):
        parts = list(enumerate(value))
    elif isinstance(tensors := getattr(value, "tensors", None), Tensor):
        parts = [("tensors", tensors)]
    if id(value) in inside:
        return
    for name, part in parts:
        yield from named_tensors(part, f"{key}.{name}" if key else str(name), (*inside, id(value)))


def refuse_unhookable(model: nn.Module) -> None:
    """Raise RequestError if hooks put on ``model`` now would never fire.

    Raises:
        RequestError: a part of the model is compiled (the compiled graph was traced without these
            hooks, https://github.com/pytorch/pytorch/issues/117758) or scripted (TorchScript takes
            no Python hooks).
    """
    for path, module in model.named_modules():
        name = path or type(module).__name__
        if isinstance(module, torch.jit.ScriptModule):
            raise RequestError(
                f"{name} is a scripted module, on which hooks do not fire",
                "observe the model before torch.jit.script or torch.jit.trace",
            )
        compiled = getattr(module, "_compiled_call_impl", None) is not None
        if compiled or type(module).__name__ == "OptimizedModule":
            raise RequestError(
                f"{name} is compiled, and hooks put on after torch.compile never fire",
                "observe the model that was compiled: compiled._orig_mod, or before model.compile()",
            )


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """One value from positional and keyword arguments; the only argument stands for itself."""
    if len(args) == 1 and not kwargs:
        return args[0]
    return {str(index): value for index, value in enumerate(args)} | kwargs


def _is_torch_own(module: nn.Module) -> bool:
    """Whether a module's code is known to call no module, not even itself."""
    return type(module).__module__.startswith("torch.nn.modules.")


def _ignore(_call: Call, _value: object) -> None:
    pass
