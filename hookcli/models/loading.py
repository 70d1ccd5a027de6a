"""A model that is ready to run: built, with its weights, on its device, and its preprocessing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hookcli.errors import WeightsError, first_line
from hookcli.models.building import (
    SkipInitialisation,
    build_model,
    build_random,
    check_runnable,
)
from hookcli.models.catalog import find_task, find_weights
from hookcli.models.device import find_device
from hookcli.models.weights import (
    UNREACHABLE,
    UNREADABLE,
    cache_weights,
    check_fit,
    hash_file,
    read_weights_file,
)
from hookcli.results import ModelInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hookcli.config import ModelRequest


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in evaluation mode on its device.

    Attributes:
        info: the facts.
        module: the model itself.
        prepare: turns an upright RGB ``PIL.Image`` into (3, H, W) float32 pixels on the CPU.
        categories: class names by index; empty when the weights have none that fit.
    """

    info: ModelInfo
    module: nn.Module
    prepare: Callable[[Any], Tensor]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Weighted:
    """A model with its weights, and what is to be said about them."""

    module: nn.Module
    name: str
    transforms: Callable[..., Any]
    categories: tuple[str, ...] = ()
    trained: bool = True
    warning: str = ""
    sha256: str = ""


def load_model(request: ModelRequest) -> LoadedModel:
    """Build the model, load its weights, and put it on the device.

    ``auto`` weights are torchvision's default ones or, where neither cache nor network has them or
    another ``num_classes`` was asked for, random ones with a warning. Random weights are those of ``torch.manual_seed(seed)`` followed by
    torchvision's builder with ``weights=None``.

    Raises:
        UnknownModelError: no model has this name.
        RequestError: it is of a task that cannot be run, or its builder refuses the arguments.
        DeviceError: no such device here.
        WeightsError: weights that were asked for by name cannot be loaded, or a download is damaged.
    """
    check_runnable(request.name)
    device = find_device(request.device)
    weighted = _with_weights(request)
    prepare = _preprocessing(weighted.transforms, request.size, weighted.module)
    module = weighted.module.eval().to(device=device, dtype=getattr(torch, request.dtype))
    info = ModelInfo(
        name=request.name,
        task=find_task(request.name),
        weights=weighted.name,
        trained=weighted.trained,
        warning=weighted.warning,
        sha256=weighted.sha256,
        device=str(device),
        dtype=request.dtype,
        preprocessing=" ".join(repr(prepare).split()),
        input_shape=(1, 3, prepare.crop_size[0], prepare.crop_size[0]),
    )
    return LoadedModel(info, module, prepare, weighted.categories)


def build_skeleton(request: ModelRequest) -> tuple[nn.Module, ModelInfo]:
    """The model without weights, for looking at its structure.

    On the meta device, where nothing is computed; on the CPU with unset values where a builder needs
    real tensors (regnets).
    """
    check_runnable(request.name)
    with SkipInitialisation():
        try:
            with torch.device("meta"):
                module = build_model(request)
        except (RuntimeError, NotImplementedError):
            module = build_model(request)
    default = find_weights(request.name).DEFAULT
    prepare = _preprocessing(default.transforms, request.size, module)
    side = prepare.crop_size[0]
    shape = (1, 3, side, side)
    info = ModelInfo(
        request.name, find_task(request.name), "none", trained=False, input_shape=shape
    )
    return module.eval(), info


def _with_weights(request: ModelRequest) -> _Weighted:
    members = find_weights(request.name)
    if request.weights == "random":
        return _random(request)
    if request.weights == "auto":
        return _trained_or_random(request, members.DEFAULT)
    if request.weights == "pretrained" or request.weights in members.__members__:
        chosen = request.weights if request.weights != "pretrained" else "DEFAULT"
        try:
            return _pretrained(request, members[chosen])
        except UNREACHABLE as error:
            raise WeightsError(
                f"cannot get the weights {request.weights} of {request.name}: {error}",
                "use --weights random, or a file: --weights FILE",
            ) from error
    return _from_file(request)


def _trained_or_random(request: ModelRequest, member: Any) -> _Weighted:
    """The trained weights or, where they cannot be had or do not fit what was asked for, random ones."""
    classes = len(member.meta.get("categories", ()))
    if classes and dict(request.arguments).get("num_classes", str(classes)) != str(classes):
        text = f"trained weights have {classes} classes, and another num_classes was asked for"
        return replace(_random(request), warning=f"{text}: the weights are RANDOM")
    try:
        return _pretrained(request, member)
    except UNREACHABLE as error:
        reason = getattr(error, "reason", None) or error
        text = f"trained weights are neither cached nor reachable ({str(reason)[:120]})"
        return replace(_random(request), warning=f"{text}: the weights are RANDOM")


def _random(request: ModelRequest) -> _Weighted:
    module = build_random(request)
    default = find_weights(request.name).DEFAULT
    return _Weighted(
        module,
        f"random (seed {request.seed})",
        default.transforms,
        tuple(default.meta.get("categories", ())),
        trained=False,
        warning="the weights are RANDOM, as asked for",
    )


def _pretrained(request: ModelRequest, member: Any) -> _Weighted:
    """Torchvision's own way to load a member: some models rename keys or drop auxiliary heads."""
    file = cache_weights(member, progress=request.progress)
    arguments = {"weights": member}
    if member.meta.get("backend") is not None:
        arguments["quantize"] = True
    try:
        with SkipInitialisation():
            module = build_model(request, **arguments)
    except UNREADABLE as error:
        raise WeightsError(
            f"the cached weights {file} cannot be loaded: {first_line(error)}",
            f"if they are damaged, remove them: rm '{file}'",
        ) from error
    categories = tuple(member.meta.get("categories", ()))
    return _Weighted(module, str(member), member.transforms, categories, sha256=hash_file(file))


def _from_file(request: ModelRequest) -> _Weighted:
    """Weights from a file; the classifier takes the file's number of classes.

    Raises:
        WeightsError: there is no such file, or it does not fit.
    """
    file = Path(request.weights)
    members = find_weights(request.name)
    if not file.is_file():
        names = ", ".join(member.name for member in members)
        raise WeightsError(
            f"no weights and no file are called {request.weights!r}",
            f"{request.name} has: {names}; or auto, pretrained, random, FILE",
        )
    state = read_weights_file(file)
    module, sized = _sized_like(request, state)
    expected = module.state_dict()
    classifier = list(expected)[-1].rpartition(".")[0] + "."
    missing = [key for key in expected if key not in state]
    warning = ""
    if missing and len(state) > 0 and all(key.startswith(classifier) for key in missing):
        module = build_random(sized)
        state = state | {key: module.state_dict()[key] for key in missing}
        warning = f"{', '.join(missing)} are not in {file}: they are RANDOM (seed {request.seed})"
    check_fit(str(file), state, expected)
    module.load_state_dict(state)
    categories = tuple(members.DEFAULT.meta.get("categories", ()))
    return _Weighted(
        module,
        str(file),
        members.DEFAULT.transforms,
        categories if len(categories) == len(expected[list(expected)[-1]]) else (),
        trained=not warning,
        warning=warning,
        sha256=hash_file(file),
    )


def _sized_like(
    request: ModelRequest, state: Mapping[str, Tensor]
) -> tuple[nn.Module, ModelRequest]:
    """The unset model with as many classes as ``state`` has, and the request that builds it."""
    with SkipInitialisation():
        module = build_model(request)
        expected = module.state_dict()
        last = list(expected)[-1]
        fits = last not in state or not state[last].dim() or len(state[last]) == len(expected[last])
        if fits or "num_classes" in dict(request.arguments):
            return module, request
        count = str(len(state[last]))
        sized = replace(request, arguments=(*request.arguments, ("num_classes", count)))
        return build_model(sized), sized


def _preprocessing(transforms: Callable[..., Any], size: int | None, module: nn.Module) -> Any:
    """The weights' own transforms, scaled in the same proportions to the size asked for, or the module's."""
    own = transforms()
    side = size or getattr(module, "image_size", None) or own.crop_size[0]
    if side == own.crop_size[0]:
        return own
    resize = round(side * own.resize_size[0] / own.crop_size[0])
    return transforms(crop_size=side, resize_size=resize)
