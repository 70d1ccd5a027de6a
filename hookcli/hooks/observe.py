"""Pass the tensors that layers take or return to an observer; note layers that return no tensor."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from hookcli.config import DEFAULTS, SIDES
from hookcli.errors import NestedTensorError, RequestError
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.watch import ignore, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from hookcli.records.calls import Call, LayerInfo

    Observer: TypeAlias = Callable[[Call, Tensor], None]

_VERBS = {"input": "took", "output": "returned"}


@contextmanager
def reading(model: nn.Module, read: Call | None) -> Iterator[Callable[[object], object]]:
    """Yield a function that returns the tensor of the call ``read`` in the last forward pass.

    The function takes the model's output, and returns it if ``read`` is None.
    """
    kept: list[Tensor] = []

    def keep(call: Call, tensor: Tensor) -> None:
        if read is not None and call.id == read.id:
            kept.append(tensor)

    layers, at = ([], DEFAULTS.at) if read is None else ([read.layer], read.side)
    with observe(model, layers, keep, at):
        yield lambda output: output if read is None else kept.pop()


@contextmanager
def observe(
    model: nn.Module,
    layers: Sequence[LayerInfo],
    observer: Observer,
    at: str = DEFAULTS.at,
    called: dict[str, str] | None = None,
) -> Iterator[None]:
    """Call ``observer(call, tensor)`` in the block for each tensor that ``layers`` take or return.

    ``at`` chooses inputs, outputs or both. hookcli adds each layer that ran to ``called``, under
    its module path, with a text that says what the layer took or returned instead of a tensor; the
    text is empty if it was a tensor. If ``layers`` has any operation, ``called`` also gets the
    paths of other operations that compute values.
    """
    # The observer runs inside the hook, and must reduce or copy the tensor before it returns:
    # torchvision's ``ReLU(inplace=True)`` and ``out += identity`` overwrite it right afterwards.
    if at not in SIDES:
        raise RequestError(f"nothing can be observed at {at!r}", f"one of: {', '.join(SIDES)}")
    sides = SIDES[at]

    def show(side: str, call: Call, value: object) -> None:
        if called is not None:
            called.setdefault(call.layer.module_path, "")
        key = None
        for key, tensor in named_tensors(value):
            if tensor.is_nested:
                raise NestedTensorError
            observer(replace(call, side=side, output_key=key), tensor)
        if key is None and called is not None:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            what = "None" if value is None else kind.removeprefix("builtins.")
            called[call.layer.module_path] = f"{_VERBS[side]} no tensor: {what}"

    started = partial(show, "input") if "input" in sides else None
    finished = partial(show, "output") if "output" in sides else ignore
    with watch(model, layers, started, finished, others=called):
        yield
