"""How many floating point operations a forward takes, two a multiply-add, by torch's own formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from hookcli.without_compiler import running_on_meta

if TYPE_CHECKING:
    from collections.abc import Callable

_Shape: TypeAlias = tuple[int, ...]


def _count_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_more: object, **_words: object
) -> int:
    """The operations of scaled dot-product attention, from the shapes of its tensors."""
    return sdpa_flop_count(query.shape, key.shape, value.shape)  # type: ignore[no-any-return, no-untyped-call]


# Attention on a CPU is an operator of its own, which torch has a formula for from 2.15 on.
_ON_CPU: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_FORMULAS: dict[Any, Callable[..., int]] = {_ON_CPU: _count_attention} | flop_registry


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating point operations of what runs inside its ``with`` block.

    ``torch.utils.flop_counter.FlopCounterMode`` gives the same count, but loads torch's compiler: torch
    wraps what a mode does in a function that imports it (1 to 1.5 s), unless the mode says no.

    Attributes:
        total: the count until now.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one operator and count it; one that has no formula is taken apart, if it can be."""
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = _run(func, args, kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operator returns; the compiler is loaded only for one that imports a part of it."""
    try:
        with running_on_meta():
            return func(*args, **kwargs)
    except ImportError:
        return func(*args, **kwargs)
