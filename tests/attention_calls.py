"""The attention calls of a model, recorded by a separate torch mode for the tests of attention."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from hookcli.activations.attention_probabilities import call_probabilities
from hookcli.activations.token_trails import TokenTrails

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from hookcli.activations.token_places import TokenPlaces


class SeenCall(NamedTuple):
    """A call of attention: the places of its tokens, and its probabilities for every image.

    ``raw`` has the probabilities as the function returns them, (…, queries, keys); ``ordered`` has
    them as (windows, heads, queries, keys). ``arguments`` are the arguments of the function.
    """

    function: str
    places: TokenPlaces
    raw: list[Tensor]
    ordered: list[Tensor]
    arguments: tuple[object, ...]
    output: object


class Watching(TorchFunctionMode):
    """Follows the tokens of the first image, then keeps the probabilities of all of them."""

    def __init__(self, model: nn.Module, pixels: Tensor) -> None:
        super().__init__()
        first = pixels[:1].clone()
        self.trails: TokenTrails | None = TokenTrails(first, list(map(vars, model.modules())))
        self.places: list[TokenPlaces | None] = []
        self.calls: list[SeenCall] = []
        self.images = len(pixels)
        self._step = 0
        with torch.no_grad(), self:
            model(first)
        self.trails = None
        with torch.no_grad(), self:
            self.result = model(pixels)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        output = function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if self.trails is not None:
            places = self.trails.follow(function, args, kwargs, output)
            if name in FUNCTIONS:
                self.places.append(places)
        elif name in FUNCTIONS:
            places = self.places[self._step]
            self._step += 1
            if places is not None:
                # images are the slowest axis, or a part of it: windows and heads come after them
                shares = call_probabilities(name, args, kwargs, output).clone()
                raw = list(shares.tensor_split(self.images))
                ordered = [places.arrange(each) for each in raw]
                self.calls.append(SeenCall(name, places, raw, ordered, args, output))
        return output


FUNCTIONS = ("scaled_dot_product_attention", "multi_head_attention_forward", "softmax")


def attention_of(model: nn.Module, pixels: Tensor) -> list[SeenCall]:
    """The calls of attention in one forward of pixels, without torch's fast path."""
    with without_fast_path():
        return Watching(model, pixels).calls


@contextmanager
def without_fast_path() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
