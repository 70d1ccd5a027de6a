"""Build a model with random weights or uninitialized ones, and refuse one that is too large."""

from __future__ import annotations

import ast
import warnings
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hookcli.errors import ModelError, RequestError
from hookcli.outside.foreign import foreign_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.config import ModelRequest
    from hookcli.networks.source import Source

_REFUSALS = (
    *(TypeError, ValueError, AssertionError, RuntimeError),
    *(ArithmeticError, LookupError, AttributeError),
)
_MOST_CALLS = 1 << 16  # of torch while a model is built; large models need 11,000


def build_model(source: Source, request: ModelRequest, **arguments: object) -> nn.Module:
    given = read_arguments(source, request)
    most = source.most_values
    limited = nullcontext() if most is None else _LimitSize(request.name, most)
    try:
        with limited, warnings.catch_warnings():
            # GoogLeNet warns that its default initialisation will change.
            warnings.simplefilter("ignore", FutureWarning)
            return source.builder(**given, **arguments)
    except _REFUSALS as error:
        if "meta" in str(error) or not given:
            raise
        words = ", ".join(f"{key}={value}" for key, value in given.items())
        raise RequestError(
            f"{request.name} cannot be built with {words}: {foreign_line(error)}",
            "the trained weights fix these arguments: use `weights='random'` or a file of your own"
            if arguments.get("weights") is not None
            else "`arguments`: the model's builder takes these arguments",
        ) from error


def read_arguments(source: Source, request: ModelRequest) -> dict[str, object]:
    given = {key: read_literal(text) for key, text in request.arguments}
    if reserved := sorted(source.reserved & set(given)):
        what = f"`arguments` cannot set {reserved[0]!r}"
        raise RequestError(what, "choose weights with `weights`")
    return {**given, **(source.sizes(request) | given)}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def build_random(source: Source, request: ModelRequest, **arguments: object) -> nn.Module:
    if source.most_values is not None:
        build_shapes(source, request)  # is refused here if it is too large
    with seeded(request.seed):
        return build_model(source, request, **arguments)


def build_shapes(source: Source, request: ModelRequest) -> nn.Module:
    try:
        with SkipInitialisation(), torch.device("meta"):
            return build_model(source, request)
    except RuntimeError:  # the builder computes with its tensors, as Regnet's does
        return build_unset(source, request)


def build_unset(source: Source, request: ModelRequest) -> nn.Module:
    with SkipInitialisation():
        return build_model(source, request)


class _LimitSize(TorchFunctionMode):
    _FACTORIES = frozenset({torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand})

    def __init__(self, name: str, values: int) -> None:
        super().__init__()
        self._name, self._calls, self._values = name, _MOST_CALLS, values

    def __torch_function__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._calls -= 1
        if func in self._FACTORIES and isinstance(result, Tensor):
            self._values -= Tensor.numel(result)
        if self._calls < 0 or self._values < 0:
            what = f"{self._name} would be larger than its weights, or than the memory allows"
            raise ModelError(what, "its configuration may be damaged")
        return result


class SkipInitialisation(TorchFunctionMode):
    _RANDOM = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.random_})

    def __torch_function__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        # Torch calls an initializer by its own name with this mode off, so it is stopped here.
        if func in self._RANDOM and isinstance(args[0], Tensor):
            # Set to zero, since trunc_normal_ draws again until all values are in range.
            return args[0].zero_()
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def read_literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
