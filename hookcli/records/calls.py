"""A layer of a model, one of its calls, and a layer that did not run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hookcli.records.layouts import NO_TOKENS, Channels, Layout, Tokens, resolve_layout


@dataclass(frozen=True, slots=True)
class UncalledLayer:
    """A selected layer that never ran.

    Attributes:
        layer: its module path; ``(model)`` for the model itself.
        reason: why it did not run, if known.
    """

    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Uncalled:
    """A selected layer that never ran, and the reason if known."""

    layer: LayerInfo
    reason: str

    def row(self) -> UncalledLayer:
        """Return the layer and the reason as documents hold them."""
        return UncalledLayer(self.layer.label, self.reason)


ROOT_LABEL = "(model)"
OPERATION = "op:"  # the start of a functional operation's name
RECOMPUTED = "it was recomputed during the backward pass"  # the reason why a call has no gradient


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One module of a model, or one functional operation inside a module.

    Attributes:
        module_path: the dotted name from ``named_modules()``; empty for the model itself. For an
            operation, the operation's name follows: ``layer1.0/op:add``.
        module_type: the name of its class, or of the operation: ``add``.
        depth: 0 for the model itself, 1 for its children, and so on.
        is_leaf: the module has no children, or is a ``MultiheadAttention``.
        params: the number of parameters of this module and all modules below it.
        channels: the position of the channel axis in its output, as far as its type shows it.
        tokens: the model's facts about its sequences of tokens.
        inferred: the layout of its output, inferred from other tensors of the same shape
            (``hooks.layouts``); empty if it was not inferred. Equality ignores it.
        chosen_calls: the observed calls of an operation, counted from 0; empty for all.
    """

    module_path: str
    module_type: str
    depth: int = 1
    is_leaf: bool = True
    params: int = 0
    channels: Channels = Channels.UNKNOWN
    tokens: Tokens = NO_TOKENS
    inferred: str = field(default="", compare=False)
    chosen_calls: tuple[int, ...] = ()

    @property
    def is_operation(self) -> bool:
        """Whether this is a functional operation instead of a module."""
        return self.module_path.rpartition("/")[2].startswith(OPERATION)

    @property
    def label(self) -> str:
        """The module path for people; ``(model)`` for the model itself."""
        return self.module_path or ROOT_LABEL

    def layout_of(self, shape: tuple[int, ...], pixels: tuple[int, int] | None = None) -> Layout:
        """Return the layout of the layer's input or output, given its shape with the batch axis.

        ``pixels`` are the height and width of the network's input, if they are known.
        """
        if not self.inferred or len(self.inferred) != len(shape):
            return resolve_layout(shape, self.channels, pixels, self.tokens)
        channels = Channels.LAST if self.inferred.endswith("C") else Channels.FIRST
        return replace(resolve_layout(shape, channels, pixels, self.tokens), inferred=True)


@dataclass(frozen=True, slots=True)
class Call:
    """One tensor of one call of one layer.

    Attributes:
        call_index: 0 for the layer's first call in one forward, then 1, and so on.
        order: the position among the observed calls, from 1, by the moment the call started.
        side: ``output``, ``input``, ``grad_output``, ``grad_input``, or ``param`` (the gradient of
            a parameter).
        output_key: the name of the tensor in an output that holds several; empty for a single
            tensor; for ``param`` the name of the parameter.
    """

    layer: LayerInfo
    call_index: int = 0
    order: int = 0
    side: str = "output"
    output_key: str = ""

    @property
    def id(self) -> str:
        """The name that people see and paste.

        For example ``layer1.0.relu#1``, ``self_attention[1]``, ``input:fc``, ``param:fc.bias``.
        """
        if self.side == "param":
            return "param:" + ".".join(filter(None, (self.layer.module_path, self.output_key)))
        side = "" if self.side == "output" else f"{self.side}:"
        index = f"#{self.call_index}" if self.call_index else ""
        key = f"[{self.output_key}]" if self.output_key else ""
        return f"{side}{self.layer.label}{index}{key}"
