"""Find a tensor's layout (NCHW, NLC) by its layer's type, by following channels, or by shape."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch.utils.weak import WeakIdKeyDictionary

from hookcli.hooks.channel_trails import ChannelTrails
from hookcli.hooks.nested import named_tensors
from hookcli.records.layouts import Channels

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    _Names = dict[tuple[str, str], set[str]]

    from torch import Tensor

    from hookcli.records.calls import Call, LayerInfo

# Operations that keep the order of the axes.
_KEEP_AXES = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "exp", "sqrt", "pow", "clamp", "dropout"}
    | {"relu", "relu6", "gelu", "silu", "mish", "elu", "leaky_relu", "sigmoid", "tanh"}
    | {"hardswish", "hardsigmoid", "hardtanh", "softplus", "where", "masked_fill"}
    | {"cat", "chunk", "split", "narrow", "getitem", "pad", "roll", "flip", "softmax", "normalize"}
    | {"mean", "sum", "amax", "amin", "var", "std", "layer_norm", "rms_norm"}
)
_FIRST = frozenset(
    {"batch_norm", "group_norm", "instance_norm", "local_response_norm", "channel_shuffle"}
    | {"interpolate", "upsample", "grid_sample", "pixel_shuffle", "pixel_unshuffle"}
)


def channels_of_operation(name: str) -> Channels:
    if name in _FIRST or name.startswith("conv") or "pool" in name:
        return Channels.FIRST
    if name in ("linear", "embedding"):
        return Channels.LAST
    return Channels.BY_INPUT if name in _KEEP_AXES else Channels.BY_NOTHING


# The names of layouts, by the number of axes and the axis of the channels.
_BY_AXIS = {
    2: {1: "NC"},
    3: {1: "NCL", 2: "NLC"},
    4: {1: "NCHW", 3: "NHWC"},
    5: {1: "NCDHW", 4: "NDHWC"},
}


@dataclass(slots=True)
class LayoutWatcher:
    # ``started`` and ``finished`` are listeners of ``watch``. A tensor that a layer of a decisive
    # type returned keeps its layout. For all others, ``trails`` decides if it could follow the
    # channels, and otherwise the layer's type and the shape do.

    size: tuple[int, int] | None  # the height and width of the network's input
    trails: ChannelTrails = field(default_factory=ChannelTrails)
    # names of layouts, by module path and tensor of a call
    inferred: _Names = field(default_factory=lambda: defaultdict(set))
    # those that the layer's type or the shape shows
    own_names: _Names = field(default_factory=lambda: defaultdict(set))
    _decided: MutableMapping[Tensor, str] = field(default_factory=WeakIdKeyDictionary)

    def started(self, call: Call, inputs: object) -> None:
        if call.layer.channels.needs_inference:
            for key, tensor in named_tensors(inputs):
                self._infer(replace(call, side="input", output_key=key), tensor)

    def finished(self, call: Call, output: object) -> None:
        for key, tensor in named_tensors(output):
            self._infer(replace(call, output_key=key), tensor)

    def infer(self, layer: LayerInfo) -> LayerInfo:
        names = set()
        for (path, tensor), inferred in self.inferred.items():
            if path == layer.module_path:
                every = inferred | self.own_names[path, tensor]
                for name in inferred:
                    others = {each for each in every if len(each) == len(name)} - {name}
                    names.add((tensor, "?" * len(name) if others else name))
        return replace(layer, inferred=tuple(sorted(names)))

    def _infer(self, call: Call, tensor: Tensor) -> None:
        layer, count = call.layer, tensor.dim()
        if tensor.is_nested:
            return
        layout = layer.layout_of(tuple(tensor.shape), self.size)
        own = "" if layout.channel_axis is None else layout.name
        if not layer.channels.needs_inference:
            self._decided[tensor] = own
            return
        if count < 3 and not layer.is_operation:
            return
        name = self._decided.get(tensor, "")
        if len(name) != count:  # for example, unsqueeze_ adds an axis
            name = _name_axes(self.trails.axes_of(tensor), count, own)
        if not name and count == 3 and layer.channels is Channels.UNKNOWN:
            name = "???" * (tensor.shape[1] == tensor.shape[2])  # values of pairs are as likely
        where = layer.module_path, call.tensor
        if name and name != own:
            self.inferred[where].add(name)
        elif own or layer.is_operation:
            # if nothing is known of this call, the layout of its other calls does not hold
            self.own_names[where].add(own or "?" * count)


def _name_axes(axes: tuple[int, ...] | None, count: int, own: str) -> str:
    # If the channels are split over several axes, ``own`` decides. Question marks: no layout fits.
    if axes is None:
        return ""
    names = [_BY_AXIS.get(count, {}).get(axis, "?" * count) for axis in axes]
    if own in names:
        return own
    return names[0] if len(names) == 1 or (names and own) else "?" * count
