"""A count of floating-point operations by torch's own formulas: two per multiply-add."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hookcli.outside.without_compiler import call_without_compiler, importing_flop_counter

if TYPE_CHECKING:
    from collections.abc import Callable

with importing_flop_counter():
    from torch.utils.flop_counter import flop_registry

_ATEN, _PRIM = torch.ops.aten, torch.ops.prim

# These operators ask a subclass of Tensor for its shape and memory, so a mode must not answer.
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
    """Counts the floating-point operations that run inside its ``with`` block.

    ``torch.utils.flop_counter.FlopCounterMode`` returns the same count but loads torch's compiler
    (1 to 1.5 s): torch wraps a mode's dispatch function in one that imports the compiler, unless
    the mode declines. Operations inside a higher-order operator (``torch.cond``) are not counted.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        _types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run one operator and count it; decompose an operator without a formula if possible."""
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
        result = call_without_compiler(partial(func, *args, **kwargs))
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result


def _find_formula(operator: object) -> Callable[..., int] | None:
    """Return an operator's formula; a model's own code may have registered further formulas."""
    if operator is _ATEN._scaled_dot_product_flash_attention_for_cpu:
        operator = _ATEN._scaled_dot_product_flash_attention  # torch has no CPU formula before 2.15
    return flop_registry.get(operator)
