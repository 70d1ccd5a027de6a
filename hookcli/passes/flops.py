"""How many floating point operations a forward takes, two a multiply-add, by torch's own formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from hookcli.without_compiler import running_operators

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_ATEN, _PRIM = torch.ops.aten, torch.ops.prim

# What a subclass of tensors is asked for its shape and place with; a mode leaves that to the subclass.
_ASKED_OF_SUBCLASSES = {
    _ATEN.dim.default,
    _ATEN.is_contiguous.default,
    _ATEN.is_contiguous.memory_format,
    _ATEN.is_non_overlapping_and_dense.default,
    _ATEN.is_strides_like_format.default,
    _ATEN.numel.default,
    _ATEN.size.default,
    _ATEN.storage_offset.default,
    _ATEN.stride.default,
    _ATEN.sym_numel.default,
    _ATEN.sym_size.default,
    _ATEN.sym_storage_offset.default,
    _ATEN.sym_stride.default,
    _PRIM.layout.default,
}


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating point operations of what runs inside its ``with`` block.

    ``torch.utils.flop_counter.FlopCounterMode`` gives the same count, but loads torch's compiler: torch
    wraps what a mode does in a function that imports it (1 to 1.5 s), unless the mode says no. What runs
    inside a higher-order operator (``torch.cond``) is not counted.

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
        if func in _ASKED_OF_SUBCLASSES:
            return NotImplemented
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        formula = _find_formula(func._overloadpacket)
        if formula is None and func is not _PRIM.device.default:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = _run(func, args, kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result


def _find_formula(operator: Any) -> Callable[..., int] | None:
    """How an operator is counted; a model's own code may have registered its operators."""
    if operator is _ATEN._scaled_dot_product_flash_attention_for_cpu:
        return _count_attention  # torch has a formula for it from 2.15 on
    return flop_registry.get(operator)


def _count_attention(
    query: Tensor, key: Tensor, value: Tensor, *_more: object, **_words: object
) -> int:
    """The operations of scaled dot-product attention, from the shapes of its tensors."""
    return sdpa_flop_count(query.shape, key.shape, value.shape)  # type: ignore[no-any-return, no-untyped-call]


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operator returns; the compiler is loaded only for one that imports a part of it."""
    try:
        with running_operators():
            return func(*args, **kwargs)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("torch._dynamo"):
            raise
        return func(*args, **kwargs)
