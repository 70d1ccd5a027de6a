"""Observing the inputs and outputs of modules inside their hooks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from hookcli.config import DEFAULTS, SIDES
from hookcli.errors import NestedTensorError, RequestError
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.watch import ignore, watch
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hookcli.records.calls import Call, LayerInfo

    Observer: TypeAlias = Callable[[Call, Tensor], None]


@contextmanager
def observe(
    model: nn.Module,
    layers: Sequence[LayerInfo],
    observer: Observer,
    at: str = DEFAULTS.at,
    called: set[str] | None = None,
) -> Iterator[None]:
    """Call ``observer(call, tensor)`` for inputs or outputs of ``layers`` while the block lasts.

    The observer runs inside the hook, and must reduce or copy the tensor before the observer
    returns: in-place code, such as torchvision's ``ReLU(inplace=True)`` and ``out += identity``,
    overwrites the tensor right afterwards. When the block ends, even with an error, hookcli removes
    the hooks. Calls are counted from the start of the block.

    Args:
        model: the model, which must be neither compiled nor scripted; see
            :func:`refuse_unhookable`.
        layers: the modules and operations of the model to observe.
        observer: called once for each tensor. In a nested value, ``call.output_key`` is the
            tensor's name.
        at: what to observe: ``output``, ``input`` (including keyword arguments) or ``both``.
        called: a set to which hookcli adds the module path of every layer that ran, even if the
            layer returned no tensor. If ``layers`` has any operation, hookcli also adds the paths
            of other operations that compute values.

    Raises:
        RequestError: ``at`` is not one of the three values.
        NestedTensorError: inside the block, a layer took or returned a nested tensor.
    """
    if at not in SIDES:
        raise RequestError(f"nothing can be observed at {at!r}", f"one of: {', '.join(SIDES)}")
    sides = SIDES[at]

    def show(side: str, call: Call, value: object) -> None:
        if called is not None:
            called.add(call.layer.module_path)
        if isinstance(value, Tensor) and side == "output":
            see(call, value)  # the common case, without a search for tensors in a container
            return
        for key, tensor in named_tensors(value):
            named = replace(call, side=side, output_key=key) if key or side != "output" else call
            see(named, tensor)

    def see(call: Call, tensor: Tensor) -> None:
        if tensor.is_nested:
            raise NestedTensorError
        observer(call, tensor)

    started = partial(show, "input") if "input" in sides else None
    finished = partial(show, "output") if "output" in sides else ignore
    with watch(model, layers, started, finished, others=called):
        yield


def refuse_unhookable(model: nn.Module) -> None:
    """Raise an error if hooks that are registered on ``model`` now would never fire.

    Raises:
        RequestError: a part of the model is compiled (torch traced the compiled graph without the
            hooks, https://github.com/pytorch/pytorch/issues/117758) or scripted (TorchScript has no
            Python hooks).
    """
    for path, module in model.named_modules():
        name = path or type(module).__name__
        if isinstance(module, torch.jit.ScriptModule):
            raise RequestError(
                f"{name} is a scripted module, on which hooks do not fire",
                "observe the model before torch.jit.script or torch.jit.trace",
            )
        compiled = ask(module, "_compiled_call_impl") is not None
        if compiled or type(module).__name__ == "OptimizedModule":
            raise RequestError(
                f"{name} is compiled, and hooks registered after torch.compile never fire",
                "observe the model that was compiled: compiled._orig_mod, "
                "or before model.compile()",
            )
