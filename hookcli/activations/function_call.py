"""Describe how a call of a torch function moves values, and which axes a product sums over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hookcli.hooks.nested import tensors_in
from hookcli.hooks.operations import own_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

JOINING = {"cat", "concat", "concatenate", "hstack", "stack", "vstack"}
MOVING = {
    "H", "__getitem__", "adjoint", "broadcast_to", "chunk", "expand", "expand_as", "flatten",
    "flip", "fliplr", "flipud", "gather", "index_select", "moveaxis", "mH", "movedim", "mT",
    "narrow", "permute", "pixel_unshuffle", "ravel", "repeat", "repeat_interleave", "reshape",
    "roll", "rot90", "select", "split", "squeeze", "swapaxes", "swapdims", "t", "T",
    "take_along_dim", "tensor_split", "tile", "transpose", "unbind", "unflatten", "unfold",
    "unsafe_chunk", "unsafe_split", "unsqueeze", "view",
}  # fmt: skip
REDUCING = {"amax", "amin", "mean", "sum"}
_CHOOSING = {"__getitem__", "gather", "index_select", "repeat_interleave", "take_along_dim"}
REPLACING = {"__setitem__", "copy_", "fill_", "zero_"}
# Functions that move values, or mix values of all positions, in a way that is not followed.
_SCATTERING = {
    "argsort", "as_strided", "diag_embed", "diagonal", "grid_sample", "masked_scatter",
    "masked_select", "put", "scatter", "scatter_add", "scatter_reduce", "sort", "take",
    "tril_indices", "index_add", "index_copy", "index_put", "channel_shuffle",
}  # fmt: skip
_PAIRING = {"cdist", "inner", "tensordot"}  # products of tokens with tokens, if both are tokens
_SPECTRAL = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")  # also fft2 and the like
# Other functions that write over a tensor, but not elementwise as add_ and relu_ do.
_WRITING = {
    "addbmm_", "addmm_", "addmv_", "addr_", "as_strided_", "baddbmm_", "index_add_", "index_copy_",
    "index_fill_", "index_put_", "index_reduce_", "masked_scatter_", "put_", "resize_",
    "resize_as_", "scatter_", "scatter_add_", "scatter_reduce_", "set_", "squeeze_", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unsqueeze_",
}  # fmt: skip
SAMPLING = ("conv1d", "conv2d", "conv3d", "interpolate", "pool1d", "pool2d", "pool3d")
_SAME = {"__matmul__": "matmul", "special_softmax": "softmax"}
FUSED = {"multi_head_attention_forward", "scaled_dot_product_attention"}  # whole attentions
# The names of both factors of a product, if the caller passes them by name.
FACTORS = {
    "addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"), "bmm": ("input", "mat2"),
    "einsum": ("", ""), "matmul": ("input", "other"), "mm": ("input", "mat2"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FunctionCall:
    function: Callable[..., Any]
    name: str  # as torch calls it, such as ``add_``, or the name of a property such as ``T``
    args: Sequence[Any]  # with the first argument, even if it was passed by name
    kwargs: Mapping[str, Any]
    output: object  # None if the function raised

    @property
    def tensors(self) -> list[Tensor]:
        return tensors_in((self.args, self.kwargs))

    @property
    def outputs(self) -> list[Tensor]:
        return tensors_in(self.args[:1] if self.name == "__setitem__" else self.output)

    def loses_places(self, given: Sequence[Tensor]) -> bool:
        name = self.name
        is_lost = name in _WRITING or name.rstrip("_") in _SCATTERING or name.startswith(_SPECTRAL)
        pairs = name in _PAIRING and len(given) > 1
        chooses = name in _CHOOSING and any(part is not self.args[0] for part in given)
        return is_lost or pairs or chooses or self.kwargs.get("out") is not None


def read_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], output: object
) -> FunctionCall:
    first = next((word for word in ("input", "tensors") if not args and word in kwargs), None)
    if first is not None:  # the caller passed it by name
        args, kwargs = (kwargs[first],), {k: part for k, part in kwargs.items() if k != first}
    name = own_name(function)
    if function is torch.nn.functional.unfold:
        name = "im2col"  # unlike Tensor.unfold, it mixes places and channels in one axis
    return FunctionCall(function, _SAME.get(name, name), args, kwargs=kwargs, output=output)


def letters_of(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor
) -> tuple[tuple[Tensor, list[str]], tuple[Tensor, list[str]], list[str]] | None:
    """Name the axes of a matrix product as ``einsum`` does: matching axes have the same name.

    The product ``output`` is the result of the call ``name(*args, **kwargs)``. Return the left
    factor with its axes, such as ``["row", "summed"]``, the right factor with its axes, and the
    axes of the product. Return None if a factor is a vector, unless the function is ``einsum``.
    """
    # A ValueError means that there are not two factors.
    if name == "einsum":
        equation, *operands = args
        factors = operands[0] if isinstance(operands[0], (list, tuple)) else operands
        inside, arrow, out = equation.replace(" ", "").partition("->")
        if not arrow:
            once = [each for each in sorted(set(inside) - set(",.")) if inside.count(each) == 1]
            out = ("..." if "..." in inside else "") + "".join(once)
        terms = [*inside.split(","), out]
        tensors = (*factors, output)
        left, right, made = (_letters_in(*pair) for pair in zip(terms, tensors, strict=True))
        return (factors[0], left), (factors[1], right), made
    first = 1 if name in ("addmm", "baddbmm") else 0  # the first argument is the summand
    left, right = (
        kwargs[word] if word in kwargs else args[index]
        for index, word in enumerate(FACTORS[name], first)
    )
    if left.dim() < 2 or right.dim() < 2:
        return None
    lead = [str(axis) for axis in range(output.dim() - 2)]
    return (
        (left, [*lead[len(lead) + 2 - left.dim() :], "row", "summed"]),
        (right, [*lead[len(lead) + 2 - right.dim() :], "summed", "column"]),
        [*lead, "row", "column"],
    )


def _letters_in(term: str, tensor: Tensor) -> list[str]:
    before, dots, after = term.partition("...")
    count = tensor.dim() - len(before) - len(after)
    return [*before, *(f"{dots}{index}" for index in range(count, 0, -1)), *after]
