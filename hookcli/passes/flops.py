"""Count floating-point operations in PyTorch (two per multiply-add); list operators not counted.

torch's formulas count most operators. The formulas here count recurrent layers, deformable
convolutions, quantized layers, and products of vectors. All other operators that multiply matrices,
and all operators that hookcli does not know, are listed as not counted.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from hookcli.hooks.parameters import unpack
from hookcli.networks.without_compiler import call_without_compiler, importing_flop_counter

if TYPE_CHECKING:
    from collections.abc import Callable

    _Arguments: TypeAlias = dict[str, Any]
    _Rule: TypeAlias = Callable[[_Arguments, Any], int | None]

with importing_flop_counter():
    from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode, flop_registry

_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
_ATTENTION_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd  # runs as other operators
_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
_KNOWN = {"aten", "quantized", "torchvision", "prim", "prims", "profiler", "quantized_decomposed"}
# Operators of these libraries that multiply matrices or compute another linear transform
_PRODUCTS = re.compile(
    r"mm(_|$)|mv(_|$)|dot(_|$)|matmul|conv(?!ert)|rnn|lstm|gru|linear|attention"
    r"|multi_head|_fft_|encoder_layer|_trilinear|[cp]dist"
    r"|euclidean_dist|cholesky|geqrf|ormqr|solve|linalg_(?!vector_norm|cross|_powsum|check)"
)
_LINEAR = re.compile(
    r"(mkldnn_)?linear\w*|mkldnn_rnn_layer|(_cudnn|miopen)_rnn|quantized_(lstm|gru|rnn)\w*"
)
_CONVOLUTION = re.compile(r"(deform_)?conv(_transpose)?\dd(_add|_relu|_dynamic)*")
_NO_PRODUCTS = re.compile(r"upsample|(pre|un|m_)pack|reorder|flatten|thnn_fused")
_WEIGHTS = re.compile(r"(packed_)?weight\d?|W_prepack|params|w_[ih]h")
_OPERANDS = {  # the positions of the two tensors that an operator multiplies
    **dict.fromkeys(("mv", "dot", "vdot", "_int_mm", "_grouped_mm", "matmul"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation"), (1, 2)),
}


class FlopCounter(_FlopCounterMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations that run inside its ``with`` block.

    This class replaces torch's ``FlopCounterMode``, which counts an operator without a formula as
    0, rejects higher-order operators without a formula, and runs both branches of ``torch.cond``.
    ``_should_skip_dynamo`` returns False because torch otherwise wraps ``__torch_dispatch__`` in a
    function that imports torch's compiler (1 to 1.5 s).
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__(FlopCounterMode(display=False))
        self.uncounted: list[str] = []  # operators without a formula, in running order
        self.is_blind = False  # such an operator is running, which hides those that it calls
        self._own = 0
        formulas = self.counter.flop_registry
        formulas.setdefault(_ATTENTION_ON_CPU, flop_registry[_ATTENTION])  # torch < 2.15 lacks it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @property
    def total(self) -> int:
        return int(self.counter.get_total_flops()) + self._own

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        is_plain = isinstance(func, torch._ops.OpOverload)
        if (func._overloadpacket if is_plain else func) in self.counter.flop_registry:
            is_sparse = any(isinstance(each, Tensor) and each.layout in _SPARSE for each in args)
            rule: _Rule | None = _count_nothing if is_sparse else None
        else:
            rule = _find_rule(func) if is_plain else _count_nothing
        call = partial(func, *args, **kwargs)
        if rule is None:
            call = partial(super().__torch_dispatch__, func, types, args, kwargs)
        before, self.is_blind = self.is_blind, rule is _count_nothing
        try:
            output = call_without_compiler(call) if is_plain else call()
        finally:
            self.is_blind = before
        if rule is not None:
            names = (each.name for each in func._schema.arguments) if is_plain else ()
            flops = rule(dict(zip(names, args, strict=False)) | kwargs, output)
            self.uncounted += [func.name()] if flops is None else []
            self._own += flops or 0
        return output


def _find_rule(operator: torch._ops.OpOverload) -> _Rule | None:
    # For operators that torch cannot count. None: the operator multiplies nothing, or only runs
    # others, which are counted. ``_count_nothing``: it may multiply, but hookcli has no formula.
    library, _, name = operator._schema.name.partition("::")
    if library in _KNOWN and (not _PRODUCTS.search(name) or _NO_PRODUCTS.search(name)):
        return None
    if operator.has_kernel_for_dispatch_key(_COMPOSITE):
        return None
    if library not in _KNOWN or "backward" in name:
        return _count_nothing
    if operands := _OPERANDS.get(name.rstrip("_")):
        return partial(_count_product, operands)
    if _CONVOLUTION.fullmatch(name):
        return partial(_count_layer, axis=1, of_output="transpose" not in name)
    if _LINEAR.fullmatch(name):
        return partial(_count_layer, axis=-1)
    return _count_bilinear if name == "_trilinear" else _count_nothing


def _count_nothing(_named: _Arguments, _output: object) -> None:
    return None


def _count_product(operands: tuple[int, int], named: _Arguments, _output: object) -> int:
    left, right = (list(named.values())[position] for position in operands)
    return 2 * int(left.numel() * (right.shape[-1] if right.dim() > 1 else 1))


def _count_layer(
    named: _Arguments, output: Any, *, axis: int, of_output: bool = False
) -> int | None:
    # Counts 2 FLOPs for each weight at each position of the data: the output if ``of_output``, and
    # otherwise the first argument. ``axis`` is the data's channel axis. None if there is no weight.
    # A convolution counts the output's positions, and a transposed one those of the input. The
    # interpolation of a deformable one (https://arxiv.org/abs/1703.06211) is not counted.
    data = output if of_output else next(iter(named.values()))
    given = [value for name, value in named.items() if _WEIGHTS.fullmatch(name)]
    weights = sum(each.numel() for each in unpack(given) if each.dim() > 1)
    return 2 * weights * (data.numel() // max(1, data.shape[axis])) if weights else None


def _count_bilinear(named: _Arguments, _output: object) -> int:
    data, weight = named["i1"], named["i2"]  # (…, M), (O, M, N)
    return 2 * int(data.numel() // data.shape[-1] * (weight.numel() + weight[:, 0].numel()))
