"""torchvision's builders called: with which arguments, seeded or not initialised at all."""

from __future__ import annotations

import ast
import inspect
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hookcli.errors import RequestError, first_line
from hookcli.models.zoo.origin import OWN, seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.config import ModelRequest
    from hookcli.models.zoo.origin import Origin

_REFUSALS = (
    TypeError, ValueError, AssertionError, RuntimeError, ArithmeticError, LookupError, AttributeError,
)  # fmt: skip
_RESERVED = frozenset({"weights", "weights_backbone", "pretrained", "progress", "quantize"})


@dataclass(frozen=True, slots=True)
class ModelWithWeights:
    """A model with its weights, and what is to be said about them.

    Attributes:
        module: the model.
        name: where the weights came from.
        transforms: torchvision's preset for them; None where there is none.
        categories: class names by index.
        trained: False when any of them is known to be random.
        warning: what must be known about them.
        sha256: of their file or, for the user's own models without one, of their values; else empty.
        notes: what was done to it unasked that changes what it computes.
    """

    module: nn.Module
    name: str
    transforms: Callable[..., Any] | None = None
    categories: tuple[str, ...] = ()
    trained: bool = True
    warning: str = ""
    sha256: str = ""
    notes: tuple[str, ...] = ()


def build_model(origin: Origin, request: ModelRequest, **arguments: Any) -> nn.Module:
    """Call the model's builder; torchvision's with ``weights=None`` unless ``arguments`` say otherwise.

    Raises:
        RequestError: it refuses an argument that the user gave.
        ModelError: code of the user's raised.
    """
    given = {key: _literal(text) for key, text in request.arguments}
    reserved = sorted(_RESERVED & set(given)) if origin.task != OWN else []
    if reserved:
        raise RequestError(
            f"--model-arg cannot set {reserved[0]!r}", "choose weights with --weights"
        )
    if origin.weights is not None:
        signature = inspect.signature(origin.builder).parameters
        if request.size is not None:  # some models are made for one size
            if origin.builder.__module__.endswith("vision_transformer"):
                given.setdefault("image_size", request.size)
            if origin.builder.__module__.endswith("maxvit"):
                given.setdefault("input_size", (request.size, request.size))
        arguments.setdefault("weights", None)
        if "weights_backbone" in signature:
            arguments["weights_backbone"] = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of googlenet's default initialisation
            return origin.builder(**given, **arguments)
    except _REFUSALS as error:
        if not given or "meta" in str(error):
            raise
        words = ", ".join(f"{key}={value}" for key, value in given.items())
        raise RequestError(
            f"{request.name} cannot be built with {words}: {first_line(error)}",
            "trained weights fix these: use --weights random or a file of your own"
            if arguments.get("weights") is not None
            else "--model-arg KEY=VALUE goes to the builder of the model",
        ) from error


def build_random(origin: Origin, request: ModelRequest, **arguments: Any) -> nn.Module:
    """The model of ``torch.manual_seed(seed)`` followed by the builder; the caller's generator is left alone."""
    with seeded(request.seed):
        return build_model(origin, request, **arguments)


def build_shapes(origin: Origin, request: ModelRequest) -> nn.Module:
    """The model for the names, shapes and dtypes of its state dict: its weights take no memory, however many."""
    for nowhere in (torch.device("meta"), _EmptyOnMeta()):
        try:
            with SkipInitialisation(), nowhere:
                return build_model(origin, request)
        except RuntimeError:  # it computes with its tensors, or mixes devices
            continue
    return build_unset(origin, request)


def build_unset(origin: Origin, request: ModelRequest) -> nn.Module:
    """The model to be filled from a file; not for code of the user's, which keeps its own initialisation."""
    with SkipInitialisation():
        return build_model(origin, request)


class SkipInitialisation(TorchFunctionMode):
    """Leaves new parameters unset: for a model whose weights are loaded right after."""

    _RANDOM = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.random_})

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Called by its own name, an initialiser runs with this mode off, so it is stopped here.
        if func in self._RANDOM:
            return args[
                0
            ].zero_()  # a value, since trunc_normal_ draws again until all are in range
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


class _EmptyOnMeta(TorchFunctionMode):
    """Puts what is not initialised on the meta device, and nothing else: regnets compute their widths with tensors."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        device = {"device": "meta"} if func is torch.empty else {}
        return func(*args, **((kwargs or {}) | device))


def categories_of(origin: Origin) -> tuple[str, ...]:
    """Class names by index of a torchvision model's default weights; empty for other models."""
    if origin.weights is None:
        return ()
    return tuple(origin.weights.DEFAULT.meta.get("categories", ()))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
