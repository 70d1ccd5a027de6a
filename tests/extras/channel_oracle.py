"""Where the channels of every output of a model are, found without hookcli.

Every tensor of a forward pass carries paint: a number for each value, which says from which channel
the value comes. A convolution or a linear layer paints its output afresh, since its own weights
make the channels. An operation that only moves values (a permutation, a reshape, a window) moves
the paint in the same way, because the operation itself runs on the paint. A product of matrices
loses the paint of the axis that it sums over. The channel axis is the axis along which the paint
varies. If a module has parameters of its own, one element of a parameter is moved and the module
runs again: the axis on which a single index changes is the channel axis, whatever the paint says.

    python -m tests.extras.channel_oracle convnext_tiny timm:davit_tiny

prints the outputs for which hookcli states another axis, or states one where there are no channels.
``-v`` prints every output, and ``--json FILE`` saves the counts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from hookcli.config import (
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
)
from hookcli.networks.load import load_model
from hookcli.run.pipeline import inspect_images
from tests.conftest import PHOTOS


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOVES = words(
    "view _unsafe_view reshape permute transpose transpose_ t squeeze squeeze_ unsqueeze unsqueeze_"
    " expand slice select narrow split split_with_sizes chunk unbind tensor_split roll flip repeat"
    " repeat_interleave index index_select gather unfold im2col pixel_shuffle pixel_unshuffle"
    " channel_shuffle diagonal movedim swapaxes flatten unflatten tile rot90 reflection_pad1d"
    " reflection_pad2d replication_pad1d replication_pad2d take_along_dim expand_as view_as"
    " numpy_T mT adjoint split_copy masked_select _reshape_alias"
)
_SAME = words(
    "_softmax softmax _log_softmax log_softmax dropout native_dropout native_layer_norm layer_norm"
    " native_group_norm group_norm native_batch_norm batch_norm _native_batch_norm_legit"
    " _native_batch_norm_legit_no_training cudnn_batch_norm instance_norm rms_norm _fused_rms_norm"
    " cumsum _to_copy to clone contiguous detach alias lift_fresh lift copy_ fill_ masked_fill"
    " masked_fill_ quantize_per_tensor quantize_per_channel dequantize int_repr _safe_softmax"
    " feature_dropout alpha_dropout index_put index_put_ scatter scatter_ quantized_batch_norm"
    " rrelu prelu _prelu_kernel mish celu batch_norm2d batch_norm3d relu6 hardswish sigmoid"
    " leaky_relu elu add_relu mul add mul_scalar add_scalar"
)
_POOLS = words(
    "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices"
    " max_pool3d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"
    " _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d mkldnn_max_pool2d"
    " quantized_max_pool2d upsample_nearest1d upsample_nearest2d _upsample_nearest_exact2d"
    " upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d"
    " upsample_nearest3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler_2d"
    " grid_sampler grid_sampler_3d roi_align roi_pool lp_pool2d"
)
_CONVS = words(
    "conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d"
    " conv_transpose3d mkldnn_convolution deform_conv2d conv2d_relu conv3d_relu conv1d_relu"
    " conv2d_add conv2d_add_relu"
)
_LINEARS = words("linear linear_relu linear_dynamic embedding linear_leaky_relu")
_REDUCTIONS = words(
    "mean sum amax amin max min var std var_mean std_mean logsumexp linalg_vector_norm norm topk"
    " sort any all prod nansum median"
)
_PRODUCTS = {"matmul": (0, 1), "bmm": (0, 1), "mm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}
_ATTENTIONS = words(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu"
    " _scaled_dot_product_attention_math"
)


@dataclass(eq=False)
class Paint:
    """What is known of the channels of a tensor.

    Attributes:
        labels: paintings that are possible, each with as many axes as the tensor, and of length 1
            along each axis on which the paint does not vary.
        pairs: whether the values belong to pairs of places or of channels, as attention weights do.
        bias: whether this constant is added to values of pairs, as a relative-position bias is.
        split: whether an axis of pairs was split into rows and columns, as maps of queries are.
        constant: whether the values depend on parameters alone.
        origin: for a constant tensor, the paint of the tensor from which it was moved.
        own: whether an operation with weights has painted it afresh.
    """

    labels: tuple[Tensor, ...] = ()
    pairs: bool = False
    bias: bool = False
    split: bool = False
    constant: bool = False
    origin: Paint | None = None
    own: bool = False

    def mark_bias(self) -> None:
        """Note that this tensor, if it is constant, was added to values of pairs."""
        paint: Paint | None = self
        while paint is not None and paint.constant and not paint.own:
            paint.bias = True
            paint = paint.origin


@dataclass(frozen=True)
class Truth:
    """The channel axis of one output.

    Attributes:
        axes: the axes that may be called the channels; empty where there are none.
        known: whether the oracle can tell.
        why: how it knows.
    """

    shape: tuple[int, ...]
    axes: frozenset[int] = frozenset()
    known: bool = True
    why: str = ""


def varies(label: Tensor) -> frozenset[int]:
    """The axes along which a painting varies."""
    return frozenset(axis for axis, length in enumerate(label.shape) if length > 1)


def fresh(length: int, axis: int, ndim: int) -> Tensor:
    """A painting with a number for each index of an axis."""
    shape = [1] * ndim
    shape[axis] = length
    return torch.arange(length, dtype=torch.float32).view(shape)


def compress(label: Tensor) -> Tensor:
    """Shorten every axis on which a painting is constant to length 1."""
    for axis, length in enumerate(label.shape):
        if length > 1 and bool((label == label.narrow(axis, 0, 1)).all()):
            label = label.narrow(axis, 0, 1)
    return label.clone()


def distinct(labels: list[Tensor]) -> tuple[Tensor, ...]:
    """One painting for each set of axes; those that vary nowhere only if there are no others."""
    found = {varies(label): label for label in reversed(labels)}
    if len(found) > 1:
        found.pop(frozenset(), None)
    return tuple(reversed(found.values()))


def merge(operands: list[tuple[Tensor, ...]], ndim: int) -> tuple[Tensor, ...]:
    """The paintings of a value computed elementwise: those on which its operands agree."""
    aligned = [
        [label.view([1] * (ndim - label.dim()) + list(label.shape)) for label in labels]
        for labels in operands
    ]
    told = [[each for each in labels if varies(each)] for labels in aligned]
    told = [labels for labels in told if labels] or [labels for labels in aligned if labels]
    if not told:
        return ()
    kept = told[0]
    for labels in told[1:]:
        axes = {varies(label) for label in labels}
        agreed = [label for label in kept if varies(label) in axes]
        kept = agreed or kept + labels
    return distinct(kept)


def paint_of(tensor: Tensor) -> Paint:
    """The paint of a tensor; a parameter, a buffer or a new tensor is constant and has none."""
    found = getattr(tensor, "_paint", None)
    if found is None or found[0] != tensor.dim():
        return Paint(constant=True)
    return found[1]


def set_paint(tensor: Tensor, paint: Paint) -> None:
    tensor.__dict__["_paint"] = (tensor.dim(), paint)


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in tensors_in(part)]
    return []


class Painter(TorchDispatchMode):
    """Paints the results of all operations of a forward pass.

    Attributes:
        unknown: how often an operation lost the paint of its inputs, by name.
        bare: tensors that the model had before, such as parameters, to clean at the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unknown: Counter[str] = Counter()
        self.bare: list[Tensor] = []

    def remember(self, tensor: Tensor) -> Paint:
        """The paint of a tensor, which gets one if it has none."""
        paint = paint_of(tensor)
        if not hasattr(tensor, "_paint"):
            set_paint(tensor, paint)
            self.bare.append(tensor)
        return paint

    def clean(self) -> None:
        for tensor in self.bare:
            del tensor.__dict__["_paint"]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        rule = self._rule(name, func)
        if rule is None:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        inputs = tensors_in([*args, *kwargs.values()])
        paints = [self.remember(each) for each in inputs]
        constant = all(each.constant for each in paints)
        known = any(each.labels or each.pairs for each in paints)
        moved = None
        if rule == "move" and known:  # before it runs, since it may change its input in place
            moved = self._move(func, name, args, kwargs)
        origin_dim = inputs[0].dim() if inputs else 0
        result = func(*args, **kwargs)
        outputs = tensors_in(result)
        if rule == "move":
            origin = paints[0]
            for index, each in enumerate(outputs):
                labels = tuple(compress(label[index]) for label in moved or ())
                paint = Paint(
                    labels,
                    pairs=origin.pairs,
                    split=origin.split or (name == "view" and each.dim() > origin_dim),
                    constant=constant,
                    origin=origin if constant else None,
                )
                set_paint(each, paint)
            return result
        for each in outputs:
            paint = self._paint(rule, func, name, args, kwargs, each, inputs, paints, known)
            paint.constant = constant
            if any(each is tensor for tensor in inputs) and not (paint.labels or paint.pairs):
                paint = paint_of(each)  # written in place by something unknown
            set_paint(each, paint)
        return result

    @staticmethod
    def _rule(name, func):
        groups = {
            "move": _MOVES, "same": _SAME, "pool": _POOLS, "conv": _CONVS, "linear": _LINEARS,
            "reduce": _REDUCTIONS, "product": _PRODUCTS, "attention": _ATTENTIONS,
            "special": ("cat", "stack", "constant_pad_nd", "view_as_complex", "view_as_real"),
        }  # fmt: skip
        for rule, names in groups.items():
            if name in names:
                return rule
        if torch.Tag.pointwise in func.tags or name.endswith("_"):
            return "same"
        return None

    @staticmethod
    def _move(func, name, args, kwargs):
        """The paintings of all results: for each possible painting, a list of tensors."""
        tensor = args[0]
        moved = []
        chosen = _list_chosen_axes(name, args)
        with _disable_current_modes():
            for label in paint_of(tensor).labels:
                if varies(label) & chosen:
                    continue
                full = label.expand(tensor.shape).contiguous()
                if name in ("view", "_unsafe_view", "_reshape_alias"):
                    if isinstance(args[1], torch.dtype):
                        return []
                    result = full.reshape(args[1])
                else:
                    result = func(full, *args[1:], **kwargs)
                moved.append(tensors_in(result))
        return moved

    def _paint(self, rule, func, name, args, kwargs, output, inputs, paints, known):
        ndim = output.dim()
        with _disable_current_modes():
            if rule in ("conv", "linear"):
                return self._own(rule, name, args, output)
            if rule == "product":
                first, second = (args[index] for index in _PRODUCTS[name])
                return _multiply(first, second, output)
            if rule == "attention":
                if len(args) > 3 or "attn_mask" in kwargs:
                    mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
                    if isinstance(mask, Tensor):
                        paint_of(mask).mark_bias()
                value = args[2]
                if output.dim() < value.dim():
                    return Paint(pairs=True)
                return Paint(tuple(each for each in paint_of(value).labels if each.shape[-2] == 1))
            if not known:
                origin = paints[0] if paints and output.shape == inputs[0].shape else None
                return Paint(constant=True, origin=origin)
            if rule == "same":
                return _elementwise(inputs, paints, output)
            if rule == "pool":
                return Paint(_resize(paints[0].labels, inputs[0], output))
            if rule == "reduce":
                return _reduce(func, name, args, kwargs, inputs[0], paints[0], output)
            if rule == "special":
                labels = getattr(self, f"_{name}")(args, output)
                return Paint(labels, pairs=all(each.pairs for each in paints))
            labels = ()
            if output.is_floating_point() or output.is_complex():
                labels = _probe_operation(func, args, kwargs, inputs, paints, output)
            if not labels:
                self.unknown[name] += 1
            same = [
                each
                for each, tensor in zip(paints, inputs, strict=True)
                if tensor.shape == output.shape
            ]
            return Paint(labels, pairs=bool(same) and same[0].pairs and ndim > 0)

    @staticmethod
    def _own(rule, name, args, output):
        """New channels, made by weights; and the old ones if the weights mix something else."""
        tensor = args[0]
        if rule == "conv":
            axis = output.dim() - (_weight_dim(args, tensor) - 1)  # 0 without a batch
        else:
            axis = output.dim() - 1
        labels = [fresh(output.shape[axis], axis, output.dim())]
        if name != "embedding" and tensor.dim() == output.dim():
            for label in paint_of(tensor).labels:
                fits = all(
                    length in (1, size)
                    for length, size in zip(label.shape, output.shape, strict=True)
                )
                if label.shape[axis] == 1 and varies(label) and fits:
                    labels.append(label)
        return Paint(tuple(labels), own=True)

    @staticmethod
    def _cat(args, output):
        dim = (args[1] if len(args) > 1 else 0) % output.dim()
        parts = [each for each in args[0] if each.dim() == output.dim()]
        painted = [(each, paint_of(each).labels) for each in parts if paint_of(each).labels]
        along = [labels for _, labels in painted if any(label.shape[dim] > 1 for label in labels)]
        if not along:
            return merge([labels for _, labels in painted], output.dim())
        full = []
        for each in parts:
            labels = [label for label in paint_of(each).labels if varies(label)]
            full.append(labels[0].expand(each.shape) if labels else torch.full(each.shape, -1.0))
        return (compress(torch.cat(full, dim)),)

    @staticmethod
    def _stack(args, output):
        dim = (args[1] if len(args) > 1 else 0) % output.dim()
        moved = [tuple(x.unsqueeze(dim) for x in paint_of(each).labels) for each in args[0]]
        return merge([labels for labels in moved if labels], output.dim())

    @staticmethod
    def _constant_pad_nd(args, output):
        pads = args[1]
        labels = []
        for label in paint_of(args[0]).labels:
            own = []
            for index in range(len(pads) // 2):
                is_constant = label.shape[label.dim() - 1 - index] == 1
                own += (0, 0) if is_constant else pads[2 * index : 2 * index + 2]
            labels.append(torch.constant_pad_nd(label, own, -1.0))
        return tuple(labels)

    @staticmethod
    def _view_as_complex(args, _output):
        return tuple(compress(label[..., 0]) for label in paint_of(args[0]).labels)

    @staticmethod
    def _view_as_real(args, _output):
        return tuple(label.unsqueeze(-1) for label in paint_of(args[0]).labels)


def _list_chosen_axes(name, args):
    """The axes along which an operation picks values by what it has computed, as NMS does."""
    if name == "index":
        indices = dict(enumerate(args[1]))
    elif name in ("index_select", "gather"):
        indices = {args[1] % args[0].dim(): args[2]}
    elif name == "masked_select":
        indices = dict.fromkeys(range(args[0].dim()), args[1])
    else:
        return frozenset()
    return frozenset(
        axis for axis, each in indices.items() if each is not None and not paint_of(each).constant
    )


def _weight_dim(args, tensor):
    """The number of axes of the weights of a convolution, which may be packed."""
    for each in args[1:]:
        if isinstance(each, Tensor) and each.dim() > 2:
            return each.dim()
    return tensor.dim()


def _elementwise(inputs, paints, output):
    whole = [
        each for each, tensor in zip(paints, inputs, strict=True) if tensor.shape == output.shape
    ]
    pairs = [each for each in whole if each.pairs]
    if pairs:
        for each in paints:
            if each.constant:
                each.mark_bias()
        return Paint(pairs[0].labels, pairs=True)
    if output.dim() < max(tensor.dim() for tensor in inputs):
        return Paint()
    operands = [each.labels for each, tensor in zip(paints, inputs, strict=True) if not each.pairs]
    origin = whole[0] if whole and whole[0].constant else None
    return Paint(merge([each for each in operands if each], output.dim()), origin=origin)


def _resize(labels, tensor, output):
    """The paintings after an operation on places, which may change their number."""
    if tensor.dim() != output.dim():
        return ()
    return tuple(
        label
        for label in labels
        if all(tensor.shape[axis] == output.shape[axis] for axis in varies(label))
    )


def _reduce(func, name, args, kwargs, tensor, paint, output):
    named = {each.name: index for index, each in enumerate(func._schema.arguments)}
    value = kwargs.get("dim")
    if value is None and "dim" in named and len(args) > named["dim"]:
        value = args[named["dim"]]
    if value is None and name in ("topk", "sort"):
        value = -1
    if value is None or output.dim() == 0:
        return Paint()
    dims = {each % tensor.dim() for each in ([value] if isinstance(value, int) else value)}
    dims = dims or set(range(tensor.dim()))
    labels = []
    for label in paint.labels:
        summed = varies(label) & dims
        if summed:
            kept = varies(label) - dims
            lengths = [math.prod(label.shape[axis] for axis in axes) for axes in (summed, kept)]
            if not kept or lengths[0] >= lengths[1]:
                continue
            for axis in summed:  # a sum over a few groups of channels
                label = label.narrow(axis, 0, 1)
        if output.dim() < tensor.dim():
            label = label.view([n for axis, n in enumerate(label.shape) if axis not in dims])
        labels.append(label)
    return Paint(tuple(labels), pairs=paint.pairs)


def _multiply(first, second, output):
    """The paint of a product of matrices, which sums over the last axis of ``first``."""
    left, right = paint_of(first), paint_of(second)
    if min(first.dim(), second.dim()) < 2 or output.dim() < max(first.dim(), second.dim()):
        return Paint()
    ndim = output.dim()

    def align(label):
        return label.view([1] * (ndim - label.dim()) + list(label.shape))

    rows = [align(each) for each in left.labels if each.shape[-1] == 1 and varies(each)]
    columns = [align(each) for each in right.labels if each.shape[-2] == 1 and varies(each)]
    if any(each.shape[-1] > 1 for each in columns):  # heads alone are no rows
        rows = [each for each in rows if each.shape[-2] > 1]
    if rows and columns:
        return Paint(distinct(rows + columns), pairs=True)
    if rows or columns:
        if not (left.labels or right.labels) or not _is_weight(first, left, second, right):
            return Paint(distinct(rows + columns))
        own = fresh(output.shape[-1], ndim - 1, ndim)
        return Paint(distinct([own, *rows, *columns]), own=True)
    summed = any(each.shape[-1] > 1 for each in left.labels)
    if summed and any(each.shape[-2] > 1 for each in right.labels):
        return Paint(pairs=True)
    if right.constant and not right.labels and summed and not left.pairs:
        return Paint((fresh(output.shape[-1], ndim - 1, ndim),), own=True)
    return Paint()


def _is_weight(_first, left, second, right):
    """Whether the second matrix is a parameter, so that the product is a linear layer."""
    return right.constant and not right.labels and second.dim() == 2 and not left.pairs


def _probe_operation(func, args, kwargs, inputs, paints, output):
    """The painting of an unknown operation: move the values of one channel of an input."""
    for tensor, paint in zip(inputs, paints, strict=True):
        for label in paint.labels:
            is_number = tensor.is_floating_point() or tensor.is_complex()
            if len(varies(label)) != 1 or not is_number:
                continue
            (axis,) = varies(label)
            results = []
            for index in (0, tensor.shape[axis] - 1):
                moved = tensor.clone()
                moved.select(axis, index).add_(torch.rand(()) + 1)
                swapped = _replace(args, tensor, moved)
                found = [x for x in tensors_in(func(*swapped, **kwargs)) if x.shape == output.shape]
                results.append(found[0] if found else output)
            landed = find_axis(output, results)
            if landed is not None:
                return (fresh(output.shape[landed], landed, output.dim()),)
    return ()


def _replace(value, old, new):
    if value is old:
        return new
    if isinstance(value, (list, tuple)):
        return type(value)(_replace(each, old, new) for each in value)
    return value


def find_axis(before: Tensor, after: list[Tensor]) -> int | None:
    """The only axis on which each change shows at a single index, and at different ones."""
    indices: list[dict[int, int]] = []
    for each in after:
        if each.shape != before.shape:
            return None
        changed = (each != before) & ~(each.isnan() & before.isnan())
        if not bool(changed.any()):
            return None
        single = {}
        for axis, length in enumerate(changed.shape):
            others = [other for other in range(changed.dim()) if other != axis]
            seen = changed.any(others[0]) if len(others) == 1 else changed
            if len(others) > 1:
                seen = changed.sum(others) > 0
            if length > 1 and int(seen.sum()) == 1:
                single[axis] = int(seen.nonzero()[0])
        indices.append(single)
    found = [
        axis
        for axis in indices[0]
        if all(axis in each for each in indices)
        and len({each[axis] for each in indices}) == len(indices)
    ]
    return found[0] if len(found) == 1 else None


def probe_module(module: nn.Module, args: Any, kwargs: Any) -> dict[str, int]:
    """The channel axis of each output of a module, found by moving its parameters.

    Parameters of one axis come first, of which one element moves; then slices of the others.
    """
    parameters = sorted(
        ((n, p) for n, p in module.named_parameters() if p.is_floating_point()),
        key=lambda each: (each[1].dim() != 1, "bias" not in each[0]),
    )
    plain = dict(walk(_again(module, args, kwargs)))
    found: dict[str, set[int]] = {}
    for (_, parameter), is_line in ((each, each[1].dim() == 1) for each in parameters):
        if not is_line and found:
            break
        for axis, length in enumerate(parameter.shape):
            if length < 2 or parameter.dim() > 5:
                continue
            results = []
            for index in (0, length - 1):
                part = parameter.data.select(axis, index)
                old = part.clone()
                part.add_(torch.rand(part.shape) + 3)
                results.append(dict(walk(_again(module, args, kwargs))))
                part.copy_(old)
            for key, tensor in plain.items():
                landed = find_axis(tensor, [each[key] for each in results if key in each])
                if landed is not None and tensor.shape[landed] == length:
                    found.setdefault(key, set()).add(landed)
    return {key: axes.pop() for key, axes in found.items() if len(axes) == 1}


def _again(module, args, kwargs):
    return module.forward(*_clone(args), **_clone(kwargs))


def _clone(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (list, tuple):
        return type(value)(_clone(each) for each in value)
    if type(value) is dict:
        return {key: _clone(each) for key, each in value.items()}
    return value


def walk(value: Any, key: str = "") -> list[tuple[str, Tensor]]:
    """Every tensor of an output with its key, as hookcli names them."""

    def join(name):
        return f"{key}.{name}" if key else str(name)

    if isinstance(value, Tensor):
        return [(key, value)]
    if isinstance(value, dict):
        return [each for name, part in value.items() for each in walk(part, join(name))]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = zip(value._fields, value, strict=True)
        return [each for name, part in pairs for each in walk(part, join(name))]
    if isinstance(value, (list, tuple)):
        return [each for index, part in enumerate(value) for each in walk(part, join(index))]
    inner = getattr(value, "tensors", None)
    return walk(inner, join("tensors")) if isinstance(inner, Tensor) else []


@dataclass
class Follower:
    """The hooks on all modules of a model during one forward pass."""

    painter: Painter = field(default_factory=Painter)
    calls: Counter[str] = field(default_factory=Counter)
    waiting: list[tuple[str, Any]] = field(default_factory=list)
    seen: list[tuple[str, tuple[tuple[int, ...], torch.dtype, Paint, int | None]]] = field(
        default_factory=list
    )
    axis_of: dict[int, tuple[Paint, int]] = field(default_factory=dict)
    busy: bool = False

    def before(self, path, module, args, kwargs):
        if self.busy:
            return
        index = self.calls[path]
        self.calls[path] += 1
        with _disable_current_modes():
            copies = (_clone(args), _clone(kwargs)) if has_own_weights(module) else None
        self.waiting.append(
            (f"{path or '(model)'}#{index}" if index else path or "(model)", copies)
        )

    def after(self, path, module, args, kwargs, output):
        if self.busy:
            return
        name, copies = self.waiting.pop()
        found: dict[str, int] = {}
        if copies is not None:
            with _disable_current_modes():
                self.busy = True
                try:
                    found = probe_module(module, *copies)
                except (RuntimeError, TypeError, ValueError):
                    found = {}
                self.busy = False
        for key, tensor in walk(output):
            paint = self.painter.remember(tensor)
            axis = found.get(key)
            if axis is not None:
                if not any(axis in varies(label) for label in paint.labels):
                    label = fresh(tensor.shape[axis], axis, tensor.dim())
                    paint = Paint((label,), constant=paint.constant, own=True)
                    set_paint(tensor, paint)
                self.axis_of[id(paint)] = (paint, axis)
            elif id(paint) in self.axis_of:  # the output of a part, passed on as it is
                axis = self.axis_of[id(paint)][1]
            call = f"{name}[{key}]" if key else name
            self.seen.append((call, (tuple(tensor.shape), tensor.dtype, paint, axis)))

    def truths(self) -> dict[str, Truth]:
        return {call: judge(*rest) for call, rest in self.seen}


def has_own_weights(module: nn.Module) -> bool:
    """Whether a module is a leaf with parameters, or its parts have none."""
    if not any(True for _ in module.parameters(recurse=False)):
        return isinstance(module, nn.MultiheadAttention)
    parts = (each for child in module.children() for each in child.parameters())
    return isinstance(module, nn.MultiheadAttention) or not any(True for _ in parts)


def judge(shape, dtype, paint: Paint, axis: int | None) -> Truth:
    """What the paint of an output says of its channels."""
    if axis is not None:
        return Truth(shape, frozenset({axis}), why="its parameters")
    is_quantized = dtype in (torch.quint8, torch.qint8, torch.qint32)
    if not (dtype.is_floating_point or is_quantized):
        return Truth(shape, why=f"{dtype} has no channels")
    if paint.pairs and paint.split:
        return Truth(shape, known=False, why="pairs of queries and places")
    if paint.pairs or (paint.bias and not paint.labels):
        return Truth(shape, why="values of pairs")
    if not paint.labels or not all(map(varies, paint.labels)):
        return Truth(shape, known=False, why="no paint" if not paint.labels else "one channel")
    return Truth(shape, frozenset().union(*map(varies, paint.labels)), why="its paint")


def follow(model: nn.Module, *arguments: Any) -> dict[str, Truth]:
    """Return where the channels are in every output of every module, by call id.

    The arguments are what the model is called with; every tensor among them is (N, C, H, W), or a
    list of (C, H, W), as detectors take.
    """
    return follow_with(model, *arguments).truths()


def follow_with(model: nn.Module, *arguments: Any) -> Follower:
    follower = Follower()
    handles = []
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    for path, module in model.named_modules():
        handles.append(
            module.register_forward_pre_hook(partial(follower.before, path), with_kwargs=True)
        )
        handles.append(
            module.register_forward_hook(partial(follower.after, path), with_kwargs=True)
        )
    try:
        with torch.inference_mode():
            copies = _clone(arguments)
            for each in _deep_tensors(copies):
                axis = {3: 0, 4: 1, 5: 1}.get(each.dim())
                if axis is not None and each.is_floating_point():
                    set_paint(each, Paint((fresh(each.shape[axis], axis, each.dim()),)))
                else:
                    set_paint(each, Paint())
            with follower.painter:
                model(*copies)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        follower.painter.clean()
        for handle in handles:
            handle.remove()
    return follower


def _deep_tensors(value: Any) -> list[Tensor]:
    if isinstance(value, dict):
        return [each for part in value.values() for each in _deep_tensors(part)]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _deep_tensors(part)]
    return [value] if isinstance(value, Tensor) else []


@dataclass(frozen=True)
class Wrong:
    """An output for which hookcli states a wrong channel axis."""

    call_id: str
    module_type: str
    shape: tuple[int, ...]
    stated: str
    truth: Truth

    def __str__(self) -> str:
        axes = " or ".join(map(str, sorted(self.truth.axes))) or "none"
        shape = "x".join(map(str, self.shape))
        return (
            f"{self.call_id} ({self.module_type}) {shape}: hookcli says {self.stated}, "
            f"the channels are axis {axes} ({self.truth.why})"
        )


@dataclass(frozen=True)
class Verdict:
    """How hookcli's layouts of one model compare with the truth.

    Attributes:
        wrong: the outputs with a wrong axis.
        right: the number of outputs whose axis hookcli states, rightly.
        unstated: the number of outputs that have channels, of which hookcli states no axis.
        without: the number of outputs without channels, of which hookcli states no axis.
        undecided: the number of outputs of which the oracle cannot tell.
    """

    name: str
    wrong: tuple[Wrong, ...]
    right: int = 0
    unstated: int = 0
    without: int = 0
    undecided: int = 0
    unseen: int = 0
    details: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        names = ("right", "unstated", "without", "undecided", "unseen")
        return {"wrong": len(self.wrong)} | {name: getattr(self, name) for name in names}


def state_layouts(request: ModelRequest, photo: Path) -> dict[str, Any]:
    """Return hookcli's row of every output of every module, as ``inspect --layers all`` has it."""
    run = RunRequest(request, ImageRequest((str(photo),)), layers=("all",))
    config = InspectConfig(run, FolderRequest(None), GridStyle("none"))
    return {row.call_id: row for row in inspect_images(config).rows}


def compare(request: ModelRequest, photo: Path = PHOTOS / "cat.png") -> Verdict:
    """Compare what hookcli states of a model with the truth."""
    rows = state_layouts(request, photo)
    loaded = load_model(request)
    with Image.open(photo) as image:
        pixels = loaded.convert(loaded.prepare.to_pixels([image.convert("RGB")])[None])
    follower = follow_with(loaded.module, *loaded.inputs.arguments_of(pixels))
    return weigh(request.name, rows, follower.truths())


def weigh(name: str, rows: dict[str, Any], truths: dict[str, Truth]) -> Verdict:
    counts: Counter[str] = Counter()
    wrong = []
    details = []
    for call_id, row in rows.items():
        truth = truths.get(call_id)
        layout = row.layout.removesuffix(" (inferred)")
        axis = layout.index("C") if "C" in layout else None
        shape = tuple(row.shape or ())
        if truth is None or truth.shape != shape:
            counts["unseen"] += 1
            details.append(f"unseen {call_id} {shape} {truth and truth.shape}")
            continue
        if not truth.known:
            counts["undecided"] += 1
            details.append(
                f"undecided {call_id} ({row.module_type}) {shape} {row.layout} {truth.why}"
            )
        elif axis is None:
            counts["unstated" if truth.axes else "without"] += 1
            details.append(f"unstated {call_id} ({row.module_type}) {shape} {sorted(truth.axes)}")
        elif axis in truth.axes:
            counts["right"] += 1
            details.append(f"right {call_id} {shape} {row.layout} {sorted(truth.axes)} {truth.why}")
        else:
            wrong.append(Wrong(call_id, row.module_type, shape, row.layout, truth))
    return Verdict(name, tuple(wrong), **counts, details=tuple(details))


def main() -> int:
    """Print the outputs of the models on the command line whose channel axis is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="names as hookcli takes them")
    parser.add_argument("--size", type=int, help="the side of the image")
    parser.add_argument("--json", type=Path, help="add the counts and the wrong outputs to a file")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every output")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    for name in options.models:
        verdict = compare(ModelRequest(name, weights="random", device="cpu", size=options.size))
        print(f"{name}: " + ", ".join(f"{n} {word}" for word, n in verdict.counts.items()))
        lines = (*map(str, verdict.wrong), *(verdict.details if options.verbose else ()))
        for line in lines:
            print(f"  {line}")
        failed |= bool(verdict.wrong)
        if options.json:
            saved = json.loads(options.json.read_text()) if options.json.exists() else {}
            saved[name] = verdict.counts | {"outputs": list(map(str, verdict.wrong))}
            options.json.write_text(json.dumps(saved, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
