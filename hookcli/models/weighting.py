"""A model with its weights: trained, random, or from a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookcli.errors import ModelError, RequestError, WeightsError, first_line
from hookcli.models.building import SkipInitialisation, build_model, build_random
from hookcli.models.origins import OWN, TIMM
from hookcli.models.timm_models import fail_fast_offline, timm_categories
from hookcli.models.weights import (
    UNREACHABLE,
    UNREADABLE,
    cache_weights,
    check_fit,
    hash_file,
    read_weights_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.models.origins import Origin

_HEADS = re.compile(r"(aux|Aux|fc|head|classifier|last_linear|roi_heads)")


@dataclass(frozen=True, slots=True)
class Weighted:
    """A model with its weights, and what is to be said about them.

    Attributes:
        module: the model.
        name: where the weights came from.
        transforms: torchvision's preset for them; None where there is none.
        categories: class names by index.
        trained: False when any of them is known to be random.
        warning: what must be known about them.
        sha256: of their file; empty without one.
    """

    module: nn.Module
    name: str
    transforms: Callable[..., Any] | None = None
    categories: tuple[str, ...] = ()
    trained: bool = True
    warning: str = ""
    sha256: str = ""


def add_weights(origin: Origin, request: ModelRequest) -> Weighted:
    """The model with the weights that were asked for.

    Raises:
        RequestError: the builder refuses an argument.
        WeightsError: what was asked for by name cannot be loaded.
        ModelError: code of the user's raised.
    """
    names = () if origin.weights is None else tuple(origin.weights.__members__)
    if request.weights == "random":
        return replace(_random(origin, request), warning="the weights are RANDOM, as asked for")
    if request.weights == "auto":
        return _trained_or_random(origin, request)
    if request.weights == "pretrained" or request.weights in names:
        try:
            return _pretrained(origin, request, request.weights)
        except UNREACHABLE as error:
            raise WeightsError(
                f"cannot get the weights {request.weights} of {request.name}: {first_line(error)}",
                "use --weights random, or a file: --weights FILE",
            ) from error
    return _from_file(origin, request)


def _trained_or_random(origin: Origin, request: ModelRequest) -> Weighted:
    """The trained weights or, where they cannot be had or do not fit what was asked for, random ones."""
    if origin.task == OWN:
        return Weighted(
            build_random(origin, request),
            f"as {request.name} made them (seed {request.seed})",
            warning=f"the weights are as {request.name} made them, trained or not",
        )
    classes = len(_categories(origin))
    if classes and dict(request.arguments).get("num_classes", str(classes)) != str(classes):
        text = f"trained weights have {classes} classes, and another num_classes was asked for"
        return replace(_random(origin, request), warning=f"{text}: the weights are RANDOM")
    try:
        return _pretrained(origin, request, "pretrained")
    except UNREACHABLE as error:
        reason = str(getattr(error, "reason", None) or first_line(error))[:120]
        text = f"trained weights are neither cached nor reachable ({reason})"
        return replace(_random(origin, request), warning=f"{text}: the weights are RANDOM")


def _random(origin: Origin, request: ModelRequest) -> Weighted:
    return Weighted(
        build_random(origin, request),
        f"random (seed {request.seed})",
        None if origin.weights is None else origin.weights.DEFAULT.transforms,
        _categories(origin),
        trained=False,
    )


def _pretrained(origin: Origin, request: ModelRequest, name: str) -> Weighted:
    if origin.task == TIMM:
        return _pretrained_timm(origin, request)
    if origin.weights is None:
        raise WeightsError(
            f"{request.name} has no pretrained weights that hookcli knows of",
            "let its own code load them, or pass a file: --weights FILE",
        )
    return _pretrained_torchvision(origin, request, "DEFAULT" if name == "pretrained" else name)


def _pretrained_torchvision(origin: Origin, request: ModelRequest, name: str) -> Weighted:
    """Torchvision's own way to load a member: some models rename keys or drop auxiliary heads."""
    member = origin.weights[name]
    file = cache_weights(member, progress=request.progress)
    arguments = {"weights": member}
    if member.meta.get("backend") is not None:
        arguments["quantize"] = True
    try:
        with SkipInitialisation():
            module = build_model(origin, request, **arguments)
    except UNREADABLE as error:
        raise WeightsError(
            f"the cached weights {file} cannot be loaded: {first_line(error)}",
            f"if they are damaged, remove them: rm '{file}'",
        ) from error
    categories = tuple(member.meta.get("categories", ()))
    return Weighted(module, str(member), member.transforms, categories, sha256=hash_file(file))


def _pretrained_timm(origin: Origin, request: ModelRequest) -> Weighted:
    """What timm loads by itself, from its cache or the network.

    Raises:
        OSError: they are neither cached nor reachable.
    """
    fail_fast_offline()
    try:
        module = build_model(origin, request, pretrained=True)
    except (RuntimeError, ValueError) as error:  # timm has no weights for this model
        raise WeightsError(
            f"{request.name} has no pretrained weights: {first_line(error)}"
        ) from error
    tag = getattr(module, "pretrained_cfg", {}).get("tag") or "default"
    return Weighted(module, f"timm {tag}", categories=timm_categories(module))


def _from_file(origin: Origin, request: ModelRequest) -> Weighted:
    """Weights from a file; the classifier takes the file's number of classes.

    Raises:
        WeightsError: there is no such file, or it does not fit.
    """
    file = Path(request.weights)
    if not file.is_file():
        members = () if origin.weights is None else tuple(member.name for member in origin.weights)
        raise WeightsError(
            f"no weights and no file are called {request.weights!r}",
            f"{request.name} has: {', '.join((*members, 'auto', 'pretrained', 'random', 'FILE'))}",
        )
    state = read_weights_file(file)
    if any(value.is_quantized for value in state.values()):
        raise WeightsError(
            f"{file} holds quantized weights, which cannot be loaded from a file",
            "give the float weights, or --weights pretrained",
        )
    module, sized = _sized_like(origin, request, state)
    if hasattr(module, "transform_input") and "transform_input" not in dict(request.arguments):
        # as torchvision does for weights that were trained so
        module.transform_input = True  # type: ignore[assignment]
    expected = module.state_dict()
    state |= {key: expected[key] for key in _absent_counters(state, expected)}
    missing = [key for key in expected if key not in state]
    warning = ""
    if missing and state.keys() & expected.keys() and _are_head(missing, expected):
        head = build_random(origin, sized).state_dict()
        state = state | {key: head[key] for key in missing}
        warning = f"{', '.join(missing)} are not in {file}: they are RANDOM (seed {request.seed})"
    check_fit(str(file), state, expected)
    module.load_state_dict(state)
    known = _categories(origin)
    fits = len(known) == len(expected[list(expected)[-1]])
    return Weighted(
        module,
        str(file),
        None if origin.weights is None else origin.weights.DEFAULT.transforms,
        known if fits else (),
        trained=not warning,
        warning=warning,
        sha256=hash_file(file),
    )


def _sized_like(
    origin: Origin, request: ModelRequest, state: Mapping[str, Tensor]
) -> tuple[nn.Module, ModelRequest]:
    """The model, its values unset, with as many classes as ``state`` has, and the request that builds it."""
    module = _unset(origin, request)
    if origin.task == OWN or "num_classes" in dict(request.arguments):
        return module, request
    counts = dict.fromkeys(
        len(state[key])
        for key, tensor in module.state_dict().items()
        if key in state and state[key].dim() and state[key].shape != tensor.shape
    )
    for count in list(counts)[:3]:
        sized = replace(request, arguments=(*request.arguments, ("num_classes", str(count))))
        try:
            other = _unset(origin, sized)
        except (RequestError, ModelError):
            continue
        shapes = {key: tensor.shape for key, tensor in other.state_dict().items()}
        if all(state[key].shape == shapes[key] for key in state if key in shapes):
            return other, sized
    return module, request


def _unset(origin: Origin, request: ModelRequest) -> nn.Module:
    """The model to be filled from a file; code of the user's keeps its own initialisation."""
    if origin.task == OWN:
        return build_random(origin, request)
    with SkipInitialisation():
        return build_model(origin, request)


def _absent_counters(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """The batch counters of norms whose other entries are in ``state``: older files have none, nothing needs them."""
    counter = "num_batches_tracked"
    return [
        key
        for key in expected
        if key.endswith(counter)
        and key not in state
        and f"{key.removesuffix(counter)}running_mean" in state
    ]


def _are_head(missing: list[str], expected: Mapping[str, Tensor]) -> bool:
    """Whether all that is missing belongs to classifiers: the last part of the model, or one called so."""
    last = list(expected)[-1].partition(".")[0]
    tops = {key.partition(".")[0] for key in missing}
    return len(missing) < len(expected) and all(top == last or _HEADS.match(top) for top in tops)


def _categories(origin: Origin) -> tuple[str, ...]:
    if origin.weights is None:
        return ()
    return tuple(origin.weights.DEFAULT.meta.get("categories", ()))
