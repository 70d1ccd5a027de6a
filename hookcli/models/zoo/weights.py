"""A model with its weights: trained, random, or from a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.errors import WeightsError
from hookcli.files import hash_file
from hookcli.foreign import first_line
from hookcli.models.zoo.build import (
    ModelWithWeights,
    SkipInitialisation,
    build_model,
    build_random,
)
from hookcli.models.zoo.fingerprint import hash_weights
from hookcli.models.zoo.from_file import load_from_file
from hookcli.models.zoo.origin import OWN, TIMM
from hookcli.models.zoo.state_dict import UNREACHABLE, cache_weights
from hookcli.models.zoo.timm_models import fail_fast_offline, has_timm_weights, timm_categories
from hookcli.models.zoo.weights_file import UNREADABLE

if TYPE_CHECKING:
    from hookcli.config import ModelRequest
    from hookcli.models.zoo.catalog import WeightsMember
    from hookcli.models.zoo.origin import Origin


def add_weights(origin: Origin, request: ModelRequest) -> ModelWithWeights:
    """Build the model with the weights that were asked for.

    Raises:
        RequestError: the builder refuses an argument.
        WeightsError: weights that were asked for by name cannot be loaded.
        ModelError: the user's own code raised an exception.
    """
    names = () if origin.weights is None else tuple(origin.weights.__members__)
    if request.weights == "random":
        return _random(origin, request, "the weights are RANDOM, as asked for")
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
    return load_from_file(origin, request)


def pin_weights(request: ModelRequest, loaded: str) -> ModelRequest:
    """Return the request for the very weights that were loaded, for another process to load too.

    ``auto`` and ``pretrained`` may mean something else there.

    Args:
        request: the request.
        loaded: the name of the weights that were loaded, as in ``ModelWithWeights.name``.
    """
    if request.weights not in ("auto", "pretrained") or ":" in request.name.removeprefix("timm:"):
        return request
    if loaded.startswith("random "):
        return replace(request, weights="random")
    if request.name.startswith("timm:"):
        return replace(request, weights="pretrained")
    return replace(request, weights=loaded.rpartition(".")[2])


def _trained_or_random(origin: Origin, request: ModelRequest) -> ModelWithWeights:
    """Return the model with its trained weights, or with random ones.

    They are random if the trained ones are unavailable or do not fit what was asked for.
    """
    if origin.task == OWN:
        module = build_random(origin, request)
        return ModelWithWeights(
            module,
            f"as {request.name} made them (seed {request.seed})",
            warning=f"the weights are as {request.name} made them, trained or not",
            sha256=hash_weights(module),
        )
    classes = len(origin.categories)
    if classes and dict(request.arguments).get("num_classes", str(classes)) != str(classes):
        why = f"trained weights have {classes} classes, and a different num_classes was asked for"
    elif origin.task == TIMM and not has_timm_weights(request.name):
        why = f"timm has no trained weights for {request.name}"
    else:
        try:
            return _pretrained(origin, request, "pretrained")
        except UNREACHABLE as error:
            reason = str(getattr(error, "reason", None) or first_line(error))[:120].strip(" .")
            why = f"trained weights are neither cached nor reachable ({reason})"
    return _random(origin, request, f"{why}: the weights are RANDOM")


def _random(origin: Origin, request: ModelRequest, warning: str) -> ModelWithWeights:
    module = build_random(origin, request)
    return ModelWithWeights(
        module,
        f"random (seed {request.seed})",
        origin.preset,
        timm_categories(module) if origin.task == TIMM else origin.categories,
        trained=False,
        warning=warning,
        sha256=hash_weights(module) if origin.task == OWN else "",
    )


def _pretrained(origin: Origin, request: ModelRequest, name: str) -> ModelWithWeights:
    if origin.task == TIMM:
        return _pretrained_timm(origin, request)
    if origin.weights is None:
        raise WeightsError(
            f"{request.name} has no pretrained weights that hookcli knows of",
            "let its own code load them, or pass a file: --weights FILE",
        )
    member = origin.weights["DEFAULT" if name == "pretrained" else name]
    return _pretrained_torchvision(origin, request, member)


def _pretrained_torchvision(
    origin: Origin, request: ModelRequest, member: WeightsMember
) -> ModelWithWeights:
    """Load a member as torchvision itself does: some models rename keys or drop auxiliary heads."""
    file = cache_weights(member, progress=request.progress)
    arguments: dict[str, object] = {"weights": member}
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
    return ModelWithWeights(
        module, str(member), member.transforms, categories, sha256=hash_file(file)
    )


def _pretrained_timm(origin: Origin, request: ModelRequest) -> ModelWithWeights:
    """Load the weights with timm, from its cache or the network.

    Raises:
        WeightsError: timm has no weights for this model.
        OSError: the weights are neither cached nor reachable.
    """
    fail_fast_offline()
    try:
        module = build_random(origin, request, pretrained=True)
    except (RuntimeError, ValueError) as error:  # timm has no weights for this model
        raise WeightsError(
            f"{request.name} has no pretrained weights: {first_line(error)}"
        ) from error
    config = getattr(module, "pretrained_cfg", {})
    name = f"timm {config.get('tag') or 'default'}"
    weighted = ModelWithWeights(module, name, categories=timm_categories(module))
    trained, asked = config.get("num_classes"), getattr(module, "num_classes", 0)
    if not asked or asked == trained:
        return weighted
    text = f"trained weights have {trained} classes, and {asked} were asked for"
    warning = f"{text}: the classifier is RANDOM (seed {request.seed})"
    return replace(weighted, trained=False, warning=warning)
