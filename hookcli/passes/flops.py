"""Count floating-point operations with torch's own formulas: two per multiply-add."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from hookcli.models.without_compiler import call_without_compiler, importing_flop_counter

if TYPE_CHECKING:
    from collections.abc import Callable

with importing_flop_counter():
    from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode, flop_registry

_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
_ATTENTION_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class FlopCounter(_FlopCounterMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations that run inside its ``with`` block.

    torch's ``FlopCounterMode`` returns the same count, but loads torch's compiler (1 to 1.5 s):
    torch wraps the dispatch function of a mode in a function that imports the compiler. Here,
    ``_should_skip_dynamo`` returns False to avoid this. ``FlopCounterMode`` also rejects
    higher-order operators without a formula, and runs both branches of ``torch.cond``. This class
    runs higher-order operators as the model calls them, and does not count the operations inside
    them.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__(FlopCounterMode(display=False))
        formulas = self.counter.flop_registry
        formulas.setdefault(_ATTENTION_ON_CPU, flop_registry[_ATTENTION])  # torch < 2.15 lacks it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @property
    def total(self) -> int:
        """The number of floating-point operations counted so far."""
        return int(self.counter.get_total_flops())

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run one operator, and count its floating-point operations."""
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        return call_without_compiler(partial(super().__torch_dispatch__, func, types, args, kwargs))
