"""Count floating-point operations: two per multiply-add.

torch's formulas count most operators. The formulas here count recurrent layers, deformable
convolutions, quantized layers, and products of vectors. All other operators that multiply matrices,
and all operators that hookcli does not know, are listed as not counted.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from hookcli.hooks.parameters import unpack
from hookcli.models.without_compiler import call_without_compiler, importing_flop_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Arguments: TypeAlias = dict[str, Any]
    _Rule: TypeAlias = Callable[[_Arguments, Any], int | None]

with importing_flop_counter():
    from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode, flop_registry

_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
_ATTENTION_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd  # runs as other operators
_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
# The libraries of operators whose names show whether an operator multiplies matrices
_KNOWN = frozenset(
    {"aten", "quantized", "_quantized", "onednn", "mkldnn", "sparse", "torchvision", "image"}
    | {"prim", "prims", "rngprims", "quantized_decomposed", "profiler", "streams"}
    | {"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
)
# Operators of these libraries that multiply matrices, or compute another linear transform
_PRODUCTS = re.compile(
    r"mm(_|$)|mv(_|$)|dot(_|$)|matmul|conv(?!ert)|rnn|lstm|gru|linear|attention|multi_head|_fft_"
    r"|encoder_layer|_trilinear|[cp]dist|euclidean_dist|cholesky|geqrf|ormqr|solve"
    r"|linalg_(?!vector_norm|cross|_powsum|check)"
)
_NO_PRODUCTS = re.compile(
    r"upsample|pack(_|$)|reorder|flatten|thnn_fused"
    r"|d_(stride|padding|output_padding|dilation|groups|transpose)$"
)
_LINEAR = re.compile(
    r"(mkldnn_)?linear\w*|mkldnn_rnn_layer|(_cudnn|miopen)_rnn|quantized_(lstm|gru|rnn)\w*"
)
_CONVOLUTION = re.compile(r"(deform_)?conv(_transpose)?\dd\w*")
_LAYERS = ("aten", "quantized", "torchvision")  # whose layers the patterns above describe
_WEIGHTS = re.compile(r"(packed_)?weight\d?|W_prepack|params|w_[ih]h")
_OPERANDS = {  # the positions of the two tensors that an operator multiplies
    **dict.fromkeys(("mv", "dot", "vdot", "_int_mm", "_grouped_mm", "matmul"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation"), (1, 2)),
}


class FlopCounter(_FlopCounterMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations that run inside its ``with`` block.

    torch's ``FlopCounterMode`` loads torch's compiler (1 to 1.5 s): torch wraps the dispatch
    function of a mode in a function that imports the compiler. Here, ``_should_skip_dynamo``
    returns False to avoid this. ``FlopCounterMode`` also counts an operator without a formula as 0,
    rejects higher-order operators without a formula, and runs both branches of ``torch.cond``. This
    class has more formulas, and lists the operators that it cannot count.

    Attributes:
        uncounted: the names of the operators that ran and could not be counted, in running order.
        is_blind: whether such an operator is running, which hides the operators that it calls.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__(FlopCounterMode(display=False))
        self.uncounted: list[str] = []
        self.is_blind = False
        self._own = 0
        formulas = self.counter.flop_registry
        formulas.setdefault(_ATTENTION_ON_CPU, flop_registry[_ATTENTION])  # torch < 2.15 lacks it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @property
    def total(self) -> int:
        """The number of floating-point operations counted so far."""
        return int(self.counter.get_total_flops()) + self._own

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run one operator, and count its floating-point operations."""
        kwargs = kwargs or {}
        is_plain = isinstance(func, torch._ops.OpOverload)
        formulas = self.counter.flop_registry
        if (func._overloadpacket if is_plain else func) in formulas:
            is_sparse = any(isinstance(each, Tensor) and each.layout in _SPARSE for each in args)
            rule = _count_nothing if is_sparse else None
        else:
            rule = _find_rule(func) if is_plain else _count_nothing
        if rule is None:
            run = partial(super().__torch_dispatch__, func, types, args, kwargs)
            return call_without_compiler(run) if is_plain else run()
        run = partial(func, *args, **kwargs)
        if rule is _count_nothing:
            with self._unable_to_count(func.name()):
                return call_without_compiler(run) if is_plain else run()
        output = call_without_compiler(run)
        names = (argument.name for argument in func._schema.arguments)
        flops = rule(dict(zip(names, args, strict=False)) | kwargs, output)
        if flops is None:
            self.uncounted.append(func.name())
        self._own += flops or 0
        return output

    @contextmanager
    def _unable_to_count(self, name: str) -> Iterator[None]:
        self.uncounted.append(name)
        before, self.is_blind = self.is_blind, True
        try:
            yield
        finally:
            self.is_blind = before


def _find_rule(operator: torch._ops.OpOverload) -> _Rule | None:
    """Return the formula of an operator for which torch has no formula.

    It is None for an operator that multiplies no matrices, or that runs as other operators; and
    ``_count_nothing`` if hookcli has no formula either.
    """
    library, _, name = operator._schema.name.partition("::")
    if operator.has_kernel_for_dispatch_key(_COMPOSITE):
        return None
    if library not in _KNOWN:
        return _count_nothing
    if not _PRODUCTS.search(name) or _NO_PRODUCTS.search(name):
        return None
    if name == "_trilinear":
        return _count_trilinear
    if operands := _OPERANDS.get(name.rstrip("_")):
        return partial(_count_product, operands)
    if library in _LAYERS and _CONVOLUTION.fullmatch(name):
        return partial(_count_layer, axis=1, of_output="transpose" not in name)
    if library in _LAYERS and _LINEAR.fullmatch(name):
        return partial(_count_layer, axis=-1)
    return _count_nothing


def _count_nothing(_named: _Arguments, _output: object) -> None:
    return None


def _count_product(operands: tuple[int, int], named: _Arguments, _output: object) -> int:
    """Count a product of two tensors: of vectors, of matrices, or of batches of matrices."""
    left, right = (list(named.values())[position] for position in operands)
    return 2 * left.numel() * (right.shape[-1] if right.dim() > 1 else 1)


def _count_layer(
    named: _Arguments, output: Any, *, axis: int, of_output: bool = False
) -> int | None:
    """Count an operator with weights: each weight is used once for each place, step or row.

    A convolution, also a deformable one, uses its weights once for each place of its output, and a
    transposed one for each place of its input (https://arxiv.org/abs/1703.06211: the samples of a
    deformable convolution differ in their places alone; the interpolation is not counted).
    ``axis`` is the axis of the channels. The result is None if the weights cannot be read.
    """
    data = output if of_output else next(iter(named.values()))
    given = [value for name, value in named.items() if _WEIGHTS.fullmatch(name)]
    weights = sum(each.numel() for each in unpack(given) if each.dim() > 1)
    return 2 * weights * (data.numel() // max(1, data.shape[axis])) if weights else None


def _count_trilinear(named: _Arguments, _output: object) -> int:
    """Count the two products of ``nn.Bilinear``: first input with weight, then with the second."""
    shapes = []
    for number in "123":
        shapes.append(list(named[f"i{number}"].shape))
        for axis in named[f"expand{number}"]:
            shapes[-1].insert(axis, 1)
    first = torch.broadcast_shapes(*shapes[:2])
    summed = {*named["sumdim"]} & {*named["expand3"]}
    left = [1 if axis in summed else size for axis, size in enumerate(first)]
    return 2 * (math.prod(first) + math.prod(torch.broadcast_shapes(left, shapes[2])))
