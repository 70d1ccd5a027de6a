"""A model with its weights: trained, random, or from a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.errors import RequestError, WeightsError
from hookcli.networks.build import build_random
from hookcli.networks.fingerprint import hash_weights
from hookcli.networks.from_file import load_from_file
from hookcli.networks.source import UNREACHABLE, ModelWithWeights
from hookcli.outside.foreign import first_line

if TYPE_CHECKING:
    from hookcli.config import ModelRequest
    from hookcli.networks.source import Source


def add_weights(source: Source, request: ModelRequest) -> ModelWithWeights:
    """Build the model with the requested weights."""
    if source.keeps_format and request.weights in ("random", "pretrained"):
        what = f"a model in memory has its weights, and `weights={request.weights!r}` others"
        raise RequestError(what, "leave it out, or give a file")
    if request.weights == "random":
        return _random(source, request, "the weights are RANDOM, as asked for")
    if request.weights == "auto":
        return source.load_as_made(request) or _trained_or_random(source, request)
    if source.has_weights(request.weights):
        try:
            return source.load_trained(request, request.weights)
        except UNREACHABLE as error:
            raise WeightsError(
                f"cannot get the weights {request.weights} of {request.name}: {first_line(error)}",
                "use `weights='random'`, or a file: `weights=FILE`",
            ) from error
    return load_from_file(source, request)


def pin_weights(source: Source, request: ModelRequest, loaded: str) -> ModelRequest:
    """Return a request with which another process loads the weights called ``loaded`` here."""
    if request.weights not in ("auto", "pretrained"):
        return request
    is_random = loaded.startswith("random ")
    return replace(request, weights="random" if is_random else source.pin(loaded))


def _trained_or_random(source: Source, request: ModelRequest) -> ModelWithWeights:
    why = source.explain_untrained(request)
    if not why:
        try:
            return source.load_trained(request, "pretrained")
        except UNREACHABLE as error:
            reason = str(getattr(error, "reason", None) or first_line(error))[:120].strip(" .")
            why = f"trained weights are neither cached nor reachable ({reason})"
    return _random(source, request, f"{why}: the weights are RANDOM")


def _random(source: Source, request: ModelRequest, warning: str) -> ModelWithWeights:
    module = build_random(source, request)
    return ModelWithWeights(
        module,
        f"random (seed {request.seed})",
        source.preset,
        source.list_categories(module),
        trained=False,
        warning=warning,
        sha256="" if source.is_known else hash_weights(module),
    )
