"""Observing the inputs and outputs of modules inside their hooks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor, nn

from hookcli.config import DEFAULTS, SIDES
from hookcli.errors import NestedTensorError, RequestError
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.watch import ignore, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hookcli.records.calls import Call, LayerInfo

    Observer: TypeAlias = Callable[[Call, Tensor], None]

_VERBS = {"input": "took", "output": "returned"}


@contextmanager
def observe(
    model: nn.Module,
    layers: Sequence[LayerInfo],
    observer: Observer,
    at: str = DEFAULTS.at,
    called: dict[str, str] | None = None,
) -> Iterator[None]:
    """Call ``observer(call, tensor)`` for inputs or outputs of ``layers`` while the block lasts.

    The observer runs inside the hook, and must reduce or copy the tensor before the observer
    returns: in-place code, such as torchvision's ``ReLU(inplace=True)`` and ``out += identity``,
    overwrites the tensor right afterwards. When the block ends, even with an error, hookcli removes
    the hooks. Calls are counted from the start of the block.

    Args:
        model: the model. Parts that torch.compile made run in eager mode while the block lasts.
        layers: the modules and operations of the model to observe.
        observer: called once for each tensor. In a nested value, ``call.output_key`` is the
            tensor's name.
        at: what to observe: ``output``, ``input`` (including keyword arguments) or ``both``.
        called: a dictionary to which hookcli adds the module path of every layer that ran. The
            value says what the layer took or returned if that held no tensor, and is empty
            otherwise. If ``layers`` has any operation, hookcli also adds the paths of other
            operations that compute values.

    Raises:
        RequestError: ``at`` is not one of the three values.
        NestedTensorError: inside the block, a layer took or returned a nested tensor.
    """
    if at not in SIDES:
        raise RequestError(f"nothing can be observed at {at!r}", f"one of: {', '.join(SIDES)}")
    sides = SIDES[at]

    def show(side: str, call: Call, value: object) -> None:
        if called is not None:
            called.setdefault(call.layer.module_path, "")
        if isinstance(value, Tensor) and side == "output":
            see(call, value)  # the common case, without a search for tensors in a container
            return
        key = None
        for key, tensor in named_tensors(value):
            named = replace(call, side=side, output_key=key) if key or side != "output" else call
            see(named, tensor)
        if key is None and called is not None:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            what = "None" if value is None else kind.removeprefix("builtins.")
            called[call.layer.module_path] = f"{_VERBS[side]} no tensor: {what}"

    def see(call: Call, tensor: Tensor) -> None:
        if tensor.is_nested:
            raise NestedTensorError
        observer(call, tensor)

    started = partial(show, "input") if "input" in sides else None
    finished = partial(show, "output") if "output" in sides else ignore
    with watch(model, layers, started, finished, others=called):
        yield
