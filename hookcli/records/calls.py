"""Describe layers and their calls; give each call an id, such as ``layer1.0.relu#1``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from hookcli.records.layouts import NO_TOKENS, UNKNOWN, Channels, Layout, Tokens, resolve_layout


@dataclass(frozen=True, slots=True)
class UncalledLayer:
    """A selected layer that never ran, as JSON documents list it.

    Attributes:
        layer: the module path of the layer; ``(model)`` for the model itself.
        reason: why the layer did not run, as far as hookcli can tell.
    """

    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Uncalled:
    """A selected layer that never ran, and the reason, as far as hookcli can tell."""

    layer: LayerInfo
    reason: str

    def row(self) -> UncalledLayer:
        """Return the layer's path and the reason, as JSON documents list them."""
        return UncalledLayer(self.layer.label, self.reason)


ROOT_LABEL = "(model)"
OPERATION = "op:"  # the start of a functional operation's name
FOLDED = "Conv+BatchNorm"  # the type of a convolution in a file that lost its BatchNorm's name
# The other possible position of the channels, for a class that may be used either way.
_OTHERS = {Channels.LIKELY_FIRST: (Channels.LAST,), Channels.LIKELY_LAST: (Channels.FIRST,)}
RECOMPUTED = "it was recomputed during the backward pass"  # one reason why a call has no gradient


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """A layer: a module of a model, or a functional operation, such as ``add``, in a module."""

    # The dotted name from ``named_modules()``; empty for the model itself. For an operation, the
    # path of the module that runs it, and its name: ``layer1.0/op:add``.
    module_path: str
    module_type: str  # the class name of the module, or the name of the operation, such as ``add``
    depth: int = 1  # 0 for the model itself, 1 for its children, and so on
    is_leaf: bool = True  # without children; also a ``MultiheadAttention``
    params: int = 0  # of the module and of all modules inside it
    channels: Channels = Channels.UNKNOWN
    tokens: Tokens = NO_TOKENS
    width: int = 0  # the number of channels that the parameters show; 0 if they do not
    # Pairs of a ``Call.tensor`` and the layout inferred in a forward pass, at most one for each
    # number of axes; question marks mean that no axis holds the channels.
    inferred: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    chosen_calls: tuple[int, ...] = ()  # of an operation, counted from 0; empty for all calls

    @property
    def is_operation(self) -> bool:
        """Whether this is a functional operation, such as ``add``, instead of a module."""
        return self.module_path.rpartition("/")[2].startswith(OPERATION)

    @property
    def label(self) -> str:
        """The module path as hookcli shows it to users; ``(model)`` for the model itself."""
        return self.module_path or ROOT_LABEL

    def has_call(self, call_index: int) -> bool:
        """Return whether hookcli observes this call of the layer; ``call_index`` counts from 0."""
        return not self.chosen_calls or call_index in self.chosen_calls

    def layout_of(
        self, shape: tuple[int, ...], pixels: tuple[int, int] | None = None, tensor: str = "output:"
    ) -> Layout:
        """Return which axes of the layer's input or output are batch, channels, rows and columns.

        ``shape`` is the tensor's shape, and ``pixels`` the height and width of the network's input.
        ``tensor`` names an input or output, such as ``output:1``; the only output is ``output:``.
        """
        names = (name for each, name in self.inferred if each == tensor)
        name = next((each for each in names if len(each) == len(shape)), "")
        if name.startswith("?") or _is_unbatched(self, len(shape)):
            return UNKNOWN
        if name:
            channels = Channels.LAST if name.endswith("C") else Channels.FIRST
            return replace(resolve_layout(shape, channels, pixels, self.tokens), inferred=True)
        if self.width and self.channels.is_last and shape[1:].count(self.width) > 1:
            return UNKNOWN  # a norm may work on either axis
        for channels in (self.channels, *_OTHERS.get(self.channels, ())):
            layout = resolve_layout(shape, channels, pixels, self.tokens)
            axis = layout.channel_axis
            if not self.width or axis is None or shape[axis] == self.width:
                return layout
        return UNKNOWN


def _is_unbatched(layer: LayerInfo, axes: int) -> bool:
    """Return whether a tensor with ``axes`` axes has no batch axis, such as 3 in a ``Conv2d``."""
    found = re.search(r"([23])d", layer.module_type)
    return found is not None and layer.channels is Channels.FIRST and 2 < axes < int(found[1]) + 2


@dataclass(frozen=True, slots=True)
class Call:
    """A tensor of a layer's call: input, output, or gradient of an input, output or parameter."""

    layer: LayerInfo
    call_index: int = 0  # 0 for the layer's first call in a forward pass
    order: int = 0  # among the observed calls, in the order in which they started, from 1
    side: str = "output"  # or input, grad_output, grad_input, or param for its gradient
    output_key: str = ""  # the name of the tensor if there are several, or of the parameter
    target: str = ""  # of gradients for several classes: the class's index, or ``predicted``

    @property
    def tensor(self) -> str:
        """The name of the input or output, such as ``output:1``.

        A gradient has the name of the input or output to which it belongs.
        """
        return f"{'input' if 'input' in self.side else 'output'}:{self.output_key}"

    def layout_of(self, shape: tuple[int, ...], pixels: tuple[int, int] | None = None) -> Layout:
        """Return the tensor's layout; ``pixels`` is the height and width of the network's input."""
        return self.layer.layout_of(shape, pixels, self.tensor)

    @property
    def id(self) -> str:
        """The id that tables show and filters take, such as ``layer1.0.relu#1``."""
        of = f"@{self.target}" if self.target else ""
        if self.side == "param":
            return f"param:{'.'.join(filter(None, (self.layer.module_path, self.output_key)))}{of}"
        side = "" if self.side == "output" else f"{self.side}:"
        index = f"#{self.call_index}" if self.call_index else ""
        key = f"[{self.output_key}]" if self.output_key else ""
        return f"{side}{self.layer.label}{index}{key}{of}"
