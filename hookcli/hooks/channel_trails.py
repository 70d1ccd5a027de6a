"""Follow channels through a forward pass, to find which axis of each tensor holds the channels.

A layer's class may not show this: ``ConvNextLayerNorm`` of transformers works on NCHW and on NHWC.
So each tensor gets a *trail*: the channel index of every value. If an ATen operation moves values
(``permute``, ``view``, ``cat``), hookcli applies it to the trail, too. Convolutions, linear layers
and embeddings make new channels, and elementwise operations keep the channels of their inputs. The
output of an operation that hookcli does not know has no trail.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from hookcli.hooks.nested import memory_of, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence

    from torch import nn

    # None for attention weights, and for what is made of them alone
    _Trails = dict[Tensor, Tensor | None]

_MOVES = {
    "_unsafe_view", "channel_shuffle", "clone", "contiguous", "flip", "gather", "index",
    "index_select", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "repeat", "roll",
}  # fmt: skip
# The first output has the axes of the first input, though torch does not tag them as pointwise.
_KEEPS = {
    "_fused_rms_norm", "_log_softmax", "_prelu_kernel", "_safe_softmax", "_softmax", "_to_copy",
    "copy", "copy_", "cumsum", "dequantize", "hardswish", "log_sigmoid_forward", "masked_fill",
    "native_dropout", "native_group_norm", "native_layer_norm", "quantize_per_tensor",
    "rrelu_with_noise", "tril", "triu", "where",
}  # fmt: skip
_REDUCES = {
    "amax", "amin", "linalg_vector_norm", "logsumexp", "max", "mean", "median", "min", "norm",
    "prod", "std", "sum", "var",
}  # fmt: skip
_PRODUCTS = {"addbmm", "addmm", "baddbmm", "bmm", "mm"}
# What an operation may raise when it is called on a trail: its index may be on another device.
_FAILURES = (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)
_SAMPLES = ("pool", "upsample", "grid_sampler", "pad")
_NOTHING: Mapping[Tensor, int] = {}


class ChannelTrails(TorchDispatchMode):  # type: ignore[no-untyped-call]
    supports_higher_order_operators = True

    def __init__(
        self, inputs: Mapping[Tensor, int] = _NOTHING, learned: Iterable[Tensor] = ()
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trails: MutableMapping[Tensor, Tensor | None] = WeakIdKeyDictionary()
        self._learned: MutableMapping[Tensor, None] = WeakIdKeyDictionary()
        self._shares: MutableMapping[Tensor, None] = WeakIdKeyDictionary()  # made by a softmax
        self._learned.update({each: None for each in learned if each not in inputs})
        for tensor, axis in inputs.items():
            self._trails.update(_new(tensor, axis))

    def axes_of(self, tensor: Tensor) -> tuple[int, ...] | None:
        """Return the axes that hold channels; () if no axis holds any, and None if this is unknown.

        If there are several, such as the heads and the channels of a head, the first one is the
        axis along which neighbouring values belong to consecutive channels.
        """
        if tensor not in self._trails:
            return None
        if (trail := self._trails[tensor]) is None:
            return ()
        axes = _axes(trail)
        if 0 in tensor.shape or _is_mixed(trail) or (axes in ((), (0,)) and 1 in tensor.shape[1:]):
            return None  # an axis of length 1 may hold a single channel
        lines = {axis: trail[_line(trail, axis)].tolist() for axis in axes}
        # pixels that PixelShuffle made of channels repeat an index
        clear = [axis for axis, line in lines.items() if len(set(line)) == len(line)]
        steps = {axis: abs(lines[axis][1] - lines[axis][0]) or math.inf for axis in clear or axes}
        return tuple(sorted(steps, key=lambda axis: steps[axis]))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler (see FlopCounter)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        kwargs = dict(kwargs or {})
        output = func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload):
            return output
        outputs = tensors_in(output)
        tensors = tensors_in((args, kwargs))
        trails: _Trails = {}
        with suppress(*_FAILURES):
            trails = self._follow(func, args, kwargs, outputs)
        if func._schema.is_mutable:
            self._forget(outputs, trails)
        if all(part in self._learned for part in tensors):
            self._learned.update(dict.fromkeys(outputs))
        for part in outputs:
            self._trails.pop(part, None)
        self._trails.update(trails)
        return output

    def _forget(self, written: Sequence[Tensor], trails: _Trails) -> None:
        for part in written:
            known = self._trails.get(part), trails.get(part)
            before, after = (None if each is None else _axes(each) for each in known)
            if before == after and (part in self._trails) is (part in trails):
                continue
            for other in [*self._learned, *self._trails]:
                if memory_of(other) == memory_of(part):
                    self._learned.pop(other, None)
                    self._trails.pop(other, None)

    def _follow(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Tensor]
    ) -> _Trails:
        name: str = func._schema.name.partition("::")[2]
        plain = name if name == "copy_" else name.strip("_") if name.endswith("_") else name
        if not outputs:
            return {}
        output = outputs[0]
        tensors = tensors_in(args)
        if "conv" in name or name in ("roi_align", "roi_pool"):
            return self._convolve(args[0], args[1], output)
        if name == "embedding" or name.startswith("linear"):
            return _new(output, -1)
        if plain in _PRODUCTS:
            return self._multiply(tensors[-2], tensors[-1], output)
        if name.startswith("_scaled_dot_product"):
            value = self._trails.get(args[2])
            return {} if value is None else {output: value[..., :1, :].expand(output.shape)}
        if not any(part in self._trails for part in tensors):
            return _of_norm(name, args, output)
        if name in ("cat", "stack"):
            parts = self._align(args[0])
            return {} if parts is None else {output: _shrink(func(parts, *args[1:], **kwargs))}
        if name in ("im2col", "col2im"):
            return self._unfold(args[0], output)
        if plain in _MOVES or _is_view(func):
            return self._move(func, args, kwargs, outputs)
        if plain in _REDUCES and not (name in ("max", "min") and len(tensors) > 1):
            return self._reduce(func, args, kwargs, output)
        if any(word in name for word in _SAMPLES):
            return self._sample(func, args, outputs)
        is_pointwise = torch.Tag.pointwise in func.tags or func.namespace == "quantized"
        if is_pointwise or plain in _KEEPS or "batch_norm" in name:
            if "softmax" in name and self._weighs(*args[:2]):
                return {output: None}
            if "softmax" in name:
                self._shares[output] = None
            kept = self._keep(tensors, output)
            is_split = any(trail is not None and len(_axes(trail)) > 1 for trail in kept.values())
            of_norm = _of_norm(name, args, output)
            return of_norm if of_norm and is_split else kept or of_norm
        return {}

    def _convolve(self, given: Tensor, weight: object, output: Tensor) -> _Trails:
        trail = self._trails.get(given)
        is_small = isinstance(weight, Tensor) and weight[0, 0].numel() == 1
        if given in self._trails and trail is None and is_small:
            return {output: None}  # it mixes heads
        if trail is not None and _axes(trail) and 1 not in _axes(trail):
            return {output: _fit(_mixed(trail), output.shape)}
        return _new(output, 1)

    def _unfold(self, given: Tensor, output: Tensor) -> _Trails:
        trail = self._trails.get(given)
        if trail is None or _axes(trail) != (1,):
            return {}
        channels = trail[_line(trail, 1)][:: -(-given.shape[1] // output.shape[1])]
        channels = channels.repeat_interleave(output.shape[1] // len(channels))
        return {output: _along(channels, output, 1)}

    def _move(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Tensor]
    ) -> _Trails:
        given, *options = args
        if given in self._shares:
            self._shares.update(dict.fromkeys(outputs))
        if given not in self._trails:
            return {}
        if (trail := self._trails[given]) is None:
            return dict.fromkeys(outputs)
        if func is torch.ops.aten.as_strided.default and outputs[0].shape == given.shape:
            return {outputs[0]: trail}  # after pooling to one place, in channels-last memory
        views = func in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
        moved = tensors_in((torch.reshape if views else func)(trail, *options, **kwargs))
        return {part: _shrink(each) for part, each in zip(outputs, moved, strict=True)}

    def _align(self, parts: Sequence[Tensor]) -> list[Tensor] | None:
        pairs = [(part, self._trails.get(part)) for part in parts]
        known = [trail for _, trail in pairs if trail is not None]
        if not known or any(t is None and part not in self._learned for part, t in pairs):
            return None
        return [_fit(known[0], part.shape) if t is None else t for part, t in pairs]

    def _weighs(self, given: Tensor, axis: int) -> bool:
        trail = self._trails.get(given)
        axes = () if trail is None else _axes(trail)
        return len(axes) > 1 and axis % given.dim() in axes

    def _keep(self, tensors: Sequence[Tensor], output: Tensor) -> _Trails:
        given = [self._trails[part] for part in tensors if part in self._trails]
        if None in given:  # a table of learned values that is added to attention has none, either
            data = [part for part in tensors if part in self._trails and part not in self._learned]
            given = [self._trails[part] for part in data]
        known = [trail.expand(output.shape) for trail in given if trail is not None]
        several = [trail for trail in known if _axes(trail)]
        several = [trail for trail in several if not _is_mixed(trail)] or several
        if not several:
            if known and output.shape not in [p.shape for p in tensors if p in self._trails]:
                return {}  # a learned vector may give it channels
            return {output: known[0] if known else None}
        fewest = min(several, key=lambda trail: len(_axes(trail)))
        agree = all(set(_axes(fewest)) <= set(_axes(trail)) for trail in several)
        return {output: fewest} if agree else {}

    def _sample(self, func: Any, args: Sequence[Any], outputs: Sequence[Tensor]) -> _Trails:
        if (trail := self._trails.get(args[0])) is None:
            return {}
        if any(trail.shape[axis] != outputs[0].shape[axis] for axis in _axes(trail)):
            if func is not torch.ops.aten.constant_pad_nd.default:
                return {}
            return {outputs[0]: _shrink(func(trail, args[1], float(trail.max()) + 1))}
        return {part: _fit(trail, part.shape) for part in outputs if part.dim() == trail.dim()}

    def _reduce(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor
    ) -> _Trails:
        given = args[0]
        if (trail := self._trails.get(given)) is None:
            return {output: None} if given in self._trails else {}
        names = [argument.name for argument in func._schema.arguments]
        dim = {**dict(zip(names, args, strict=False)), **kwargs}.get("dim")
        chosen = [dim] if isinstance(dim, int) else dim or range(given.dim())
        axes = [axis % given.dim() for axis in chosen]
        keeps = output.dim() == given.dim()
        if _axes(trail) and set(_axes(trail)) <= set(axes):
            return {} if keeps else {output: _everywhere(output)}
        for axis in sorted(axes, reverse=True):
            trail = trail.narrow(axis, 0, 1) if keeps else trail.select(axis, 0)
        return {output: trail}

    def _multiply(self, one: Tensor, other: Tensor, output: Tensor) -> _Trails:
        # The product with weights has new channels, unless the weights mix positions. A sum over
        # the channels of both factors, such as queries and keys, leaves none.
        left, right = self._trails.get(one), self._trails.get(other)
        row, column = one.dim() - 2, one.dim() - 1
        (rows, sums), (sums_right, columns) = (
            [axis in (() if trail is None else _axes(trail)) for axis in (row, column)]
            for trail in (left, right)
        )
        shape = output.shape
        of_left: _Trails = {} if left is None else {output: left[..., :1].expand(shape)}
        of_right: _Trails = {} if right is None else {output: right[..., :1, :].expand(shape)}
        weighs_left, weighs_right = (
            part in self._learned and (part not in self._trails or part.dim() == 2)
            for part in (one, other)
        )  # in a batch, what layers made of learned tokens is data
        if weighs_left or weighs_right:
            data, trail, summed = (one, left, sums) if weighs_right else (other, right, sums_right)
            if data in self._trails and trail is None:
                return {output: None}
            if trail is None or summed or not _axes(trail):
                return _new(output, column if weighs_right else row)
            return {output: _mixed(_fit(trail, output.shape))} if weighs_right else of_right
        if one not in self._trails or other not in self._trails:
            return {}
        if sums and sums_right:
            return {output: None}
        if sums_right and one in self._shares and not rows:
            return _new(output, row)  # each channel is a mixture of all
        if rows and columns and not (sums or sums_right or one in self._shares):
            return {output: _everywhere(output)}  # values of pairs of channels
        if columns and not sums_right:
            return of_right
        return of_left if rows and not sums else {}


def follow_channels(model: nn.Module, arguments: object) -> ChannelTrails:
    colours = {}
    for part in tensors_in(arguments):
        count = part.dim()
        axis = 2 if count == 5 and part.shape[1] != 3 and part.shape[2] == 3 else count > 3
        is_image = count in (4, 5) or (count == 3 and len(part) in (1, 3, 4))
        if part.is_floating_point() and is_image:
            colours[part] = int(axis)
    return ChannelTrails(colours, [*model.parameters(), *model.buffers()])


def _of_norm(name: str, args: Sequence[Any], output: Tensor) -> _Trails:
    if name in ("native_layer_norm", "_fused_rms_norm") and len(args[1]) == 1:
        return _new(output, -1)
    return _new(output, 1) if "batch_norm" in name or name == "native_group_norm" else {}


def _new(tensor: Tensor, axis: int) -> _Trails:
    if tensor.dim() < 2:
        return {}
    device = "cpu" if tensor.is_meta else tensor.device
    index = torch.arange(tensor.shape[axis], dtype=torch.float32, device=device)
    return {tensor: _along(index, tensor, axis)}


def _everywhere(tensor: Tensor) -> Tensor:
    return torch.zeros((), device="cpu" if tensor.is_meta else tensor.device).expand(tensor.shape)


def _along(index: Tensor, tensor: Tensor, axis: int) -> Tensor:
    shape = [1] * tensor.dim()
    shape[axis] = -1
    return index.view(shape).expand(tensor.shape)


def _line(trail: Tensor, axis: int) -> tuple[slice | int, ...]:
    return tuple(slice(None) if each == axis else 0 for each in range(trail.dim()))


def _fit(trail: Tensor, shape: Sequence[int]) -> Tensor:
    for axis, (own, wanted) in enumerate(zip(trail.shape, shape, strict=True)):
        if own != wanted:
            trail = trail.narrow(axis, 0, 1)
    return trail.expand(shape)


def _shrink(trail: Tensor) -> Tensor:
    shape = trail.shape
    for axis in _axes(trail):
        first = trail.narrow(axis, 0, 1)
        if bool((trail == first).all()):
            trail = first
    return trail.expand(shape)


def _mixed(trail: Tensor) -> Tensor:
    return -1 - trail.abs()


def _is_mixed(trail: Tensor) -> bool:
    return trail.numel() > 0 and float(trail[(0,) * trail.dim()]) < 0


def _axes(trail: Tensor) -> tuple[int, ...]:
    return tuple(a for a in range(trail.dim()) if trail.stride(a) and trail.shape[a] > 1)


def _is_view(func: Any) -> bool:
    aliases = [each.alias_info for each in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)
