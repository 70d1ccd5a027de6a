"""Finding the attention calls of a model, and the parts of the image that their tokens stand for.

One forward of blank pixels is enough for all forwards of pixels of the same shape.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from hookcli.activations.token_places import TokenTrails
from hookcli.errors import RequestError
from hookcli.hooks.layers import list_layers
from hookcli.hooks.operations import split_path
from hookcli.passes.find_operations import run_aside
from hookcli.records.attention import AttentionRow
from hookcli.records.calls import Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from hookcli.activations.token_places import TokenPlaces
    from hookcli.hooks.operations import OperationCall
    from hookcli.models.inputs import ModelInputs
    from hookcli.records.calls import LayerInfo

FUNCTIONS = ("scaled_dot_product_attention", "multi_head_attention_forward", "softmax")
_HIDDEN = "no softmax over a product of queries and keys was seen in it"


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """An attention call of every forward of pixels of one shape.

    Attributes:
        call: the module that computes it, and which of its attention calls it is.
        path: the path of the function as an operation.
        place: which call of that operation it is, from 0.
        function: the name of the function.
        places: the parts of the image that its queries and keys stand for.
    """

    call: Call
    path: str
    place: int
    function: str
    places: TokenPlaces

    def hidden_row(self, reason: str) -> AttentionRow:
        """Return the row of the call for an image of which no figures are known."""
        return _hidden_row(self.call, reason)


@dataclass(frozen=True, slots=True)
class FoundAttention:
    """The attention of every forward of pixels of one shape.

    Attributes:
        calls: the calls that are visible, in running order.
        hidden: modules of attention that show neither queries nor keys.
    """

    calls: tuple[AttentionCall, ...]
    hidden: tuple[LayerInfo, ...] = ()

    @property
    def hidden_rows(self) -> list[AttentionRow]:
        """A row for each attention that is not visible."""
        first = len(self.calls) + 1
        return [
            _hidden_row(Call(layer, order=first + place, side="attention"), _HIDDEN)
            for place, layer in enumerate(self.hidden)
        ]


def _hidden_row(call: Call, reason: str) -> AttentionRow:
    layer = call.layer
    return AttentionRow(
        call.order, call.id, layer.module_path, layer.module_type, images=1, reason=reason
    )


def find_attention(
    model: nn.Module, feed: ModelInputs, layers: Sequence[LayerInfo], pixels: Tensor
) -> FoundAttention:
    """Return the attention in forwards of pixels of one shape.

    Args:
        model: the model; its values do not matter.
        feed: how the model is called with pixels.
        layers: the layers whose attention is wanted, and that of all modules inside them.
        pixels: pixels (1, …) of that shape; their values do not matter.

    Raises:
        RequestError: the model is not given one tensor of pictures or clips.
        ForwardError: the model raised an exception.
    """
    arguments = feed.arguments_of(pixels)
    if not any(argument is pixels for argument in arguments) or pixels.dim() not in (4, 5):
        raise RequestError(
            "--attention follows the pixels of one picture or clip, and this model takes others"
        )
    learned = [arguments, *map(vars, model.modules())]
    finder = _Finder(pixels, learned, {layer.module_path: layer for layer in list_layers(model)})
    run_aside(model, arguments, finder)
    calls = tuple(call for call in finder.calls if _is_chosen(call, layers))
    return FoundAttention(calls, tuple(_list_hidden(model, layers, finder)))


def _is_chosen(call: AttentionCall, layers: Sequence[LayerInfo]) -> bool:
    own = call.call.layer.module_path
    for layer in layers:
        if layer.is_operation:
            chosen = not layer.chosen_calls or call.place in layer.chosen_calls
            if layer.module_path == call.path and chosen:
                return True
        elif _is_inside(own, layer.module_path):
            return True
    return False


def _list_hidden(
    model: nn.Module, layers: Sequence[LayerInfo], finder: _Finder
) -> Iterator[LayerInfo]:
    """Yield the innermost modules of attention that are wanted and ran, and show nothing."""
    attentions = [
        path for path, module in model.named_modules() if _has_name_of_attention(path, module)
    ]
    seen = [call.call.layer.module_path for call in finder.calls]
    wanted = [layer.module_path for layer in layers if not layer.is_operation]
    for path in attentions:
        inner = any(other != path and _is_inside(other, path) for other in attentions)
        is_seen = any(_is_inside(each, path) or _is_inside(path, each) for each in seen)
        has_run = any(_is_inside(each, path) for each in finder.ran)
        if has_run and not inner and not is_seen and any(_is_inside(path, each) for each in wanted):
            yield finder.layers[path]


def _has_name_of_attention(path: str, module: nn.Module) -> bool:
    """Return whether the class or the place of a module says that it is an attention."""
    kind, place = type(module).__name__, path.rpartition(".")[2].lower()
    return "Attention" in kind or "Attn" in kind or place in ("attn", "attention", "self_attn")


def _is_inside(path: str, other: str) -> bool:
    """Return whether a module is another one or inside it."""
    return not other or path == other or path.startswith(f"{other}.")


@dataclass(slots=True)
class _Finder:
    """The listener of the forward that finds the attention calls, with the trails of its tokens."""

    pixels: Tensor
    learned: Sequence[object]
    layers: Mapping[str, LayerInfo]
    calls: list[AttentionCall] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)
    _trails: TokenTrails = field(init=False)
    _counts: Counter[str] = field(default_factory=Counter)
    _of_modules: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._trails = TokenTrails(self.pixels, self.learned)

    def begin(self, operation: OperationCall) -> OperationCall:
        return operation

    def end(self, begun: object, output: object) -> None:
        operation = cast("OperationCall", begun)
        module_path, name = split_path(operation.path)
        self.ran.add(module_path)
        places = self._trails.follow(operation.function, operation.args, operation.kwargs, output)
        if name not in FUNCTIONS or output is None:
            return
        place = self._counts[operation.path]
        self._counts[operation.path] += 1
        if places is not None:
            index = self._of_modules[module_path]
            self._of_modules[module_path] += 1
            call = Call(self.layers[module_path], index, len(self.calls) + 1, "attention")
            self.calls.append(AttentionCall(call, operation.path, place, name, places))
