"""Weights from a file of the user's: fitted to the model, and the model to them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.errors import ModelError, RequestError, WeightsError
from hookcli.files import hash_file
from hookcli.models.building import (
    SkipInitialisation,
    Weighted,
    build_model,
    build_random,
    categories_of,
)
from hookcli.models.origins import OWN
from hookcli.models.weights import check_fit, read_weights_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.models.origins import Origin

_HEADS = re.compile(r"(aux|Aux|fc|head|classifier|last_linear|roi_heads)")


def load_from_file(origin: Origin, request: ModelRequest) -> Weighted:
    """Weights from a file; the classifier takes the file's number of classes.

    Raises:
        WeightsError: there is no such file, or it does not fit.
    """
    file = Path(request.weights)
    if os.path.isdir(file) or not os.path.exists(file):  # noqa: PTH110, PTH112  pathlib's may raise
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
    known = categories_of(origin)
    count = dict(sized.arguments).get("num_classes", str(len(known)))
    fits = count == str(len(known))
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
