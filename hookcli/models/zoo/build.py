"""Calling a model's builder: its arguments, and its weights seeded or not initialised at all."""

from __future__ import annotations

import ast
import inspect
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hookcli.errors import RequestError
from hookcli.foreign import first_line
from hookcli.models.zoo.origin import OWN, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hookcli.config import ModelRequest
    from hookcli.models.zoo.catalog import Preset
    from hookcli.models.zoo.origin import Origin

_REFUSALS = (
    TypeError,
    ValueError,
    AssertionError,
    RuntimeError,
    ArithmeticError,
    LookupError,
    AttributeError,
)
_RESERVED = frozenset({"weights", "weights_backbone", "pretrained", "progress", "quantize"})


@dataclass(frozen=True, slots=True)
class ModelWithWeights:
    """A model with its weights, and what has to be reported about them.

    Attributes:
        module: the model.
        name: where the weights came from.
        preset: makes torchvision's preprocessing for the weights; None if there is none.
        categories: the class names by index.
        trained: False if any of the weights are known to be random.
        warning: what the user must know about the weights.
        sha256: the hash of the weights' file or, for the user's own models without a file, of the
            weights themselves; empty otherwise.
        notes: changes to the model that the user did not ask for and that affect what it computes.
    """

    module: nn.Module
    name: str
    preset: Callable[..., Preset] | None = None
    categories: tuple[str, ...] = ()
    trained: bool = True
    warning: str = ""
    sha256: str = ""
    notes: tuple[str, ...] = ()


def build_model(origin: Origin, request: ModelRequest, **arguments: object) -> nn.Module:
    """Call the model's builder; torchvision's with ``weights=None`` unless ``arguments`` set it.

    Raises:
        RequestError: the builder refuses an argument that the user gave.
        ModelError: the user's own code raised an exception.
    """
    given = _read_arguments(origin, request)
    if origin.weights is not None:
        arguments.setdefault("weights", None)
        if "weights_backbone" in inspect.signature(origin.builder).parameters:
            arguments["weights_backbone"] = None
    try:
        with warnings.catch_warnings():
            # GoogLeNet warns that its default initialisation will change.
            warnings.simplefilter("ignore", FutureWarning)
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


def _read_arguments(origin: Origin, request: ModelRequest) -> dict[str, object]:
    """Return the builder's arguments that the user chose.

    These are ``--model-arg`` and, for networks that are built for one size, ``--size``.

    Raises:
        RequestError: an argument is one that hookcli sets itself.
    """
    given = {key: _literal(text) for key, text in request.arguments}
    reserved = sorted(_RESERVED & set(given)) if origin.task != OWN else []
    if reserved:
        raise RequestError(
            f"--model-arg cannot set {reserved[0]!r}", "choose weights with --weights"
        )
    if origin.weights is not None and request.size is not None:
        if origin.builder.__module__.endswith("vision_transformer"):
            given.setdefault("image_size", request.size)
        if origin.builder.__module__.endswith("maxvit"):
            given.setdefault("input_size", (request.size, request.size))
    return given


def build_random(origin: Origin, request: ModelRequest, **arguments: object) -> nn.Module:
    """Build the model with random weights: ``torch.manual_seed(seed)``, then the builder.

    The caller's random generator is left unchanged.
    """
    with seeded(request.seed):
        return build_model(origin, request, **arguments)


def build_shapes(origin: Origin, request: ModelRequest) -> nn.Module:
    """Build the model for the names, shapes and dtypes of its state dict.

    If possible its weights take no memory, however many there are.
    """
    for nowhere in (torch.device("meta"), _EmptyOnMeta()):
        try:
            with SkipInitialisation(), nowhere:
                return build_model(origin, request)
        except RuntimeError:  # it computes with its tensors, or mixes devices
            continue
    return build_unset(origin, request)


def build_unset(origin: Origin, request: ModelRequest) -> nn.Module:
    """Build the model without initialising it, to be filled from a file.

    This is not for the user's own code, which keeps its initialisation.
    """
    with SkipInitialisation():
        return build_model(origin, request)


class SkipInitialisation(TorchFunctionMode):
    """Leaves new parameters uninitialised, for a model whose weights are loaded afterwards."""

    _RANDOM = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.random_})

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        # Called by its own name, an initialiser runs with this mode off, so it is stopped here.
        if func in self._RANDOM and isinstance(args[0], Tensor):
            # Set to zero, since trunc_normal_ draws again until all values are in range.
            return args[0].zero_()
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


class _EmptyOnMeta(TorchFunctionMode):
    """Puts tensors made by ``torch.empty`` on the meta device, and no others.

    Regnets compute their widths with tensors, which need values.
    """

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        changed = {"device": "meta"} if func is torch.empty else {}
        return func(*args, **{**(kwargs or {}), **changed})


def _literal(text: str) -> object:
    try:
        value: object = ast.literal_eval(text)
        return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
