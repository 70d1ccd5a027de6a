"""Weights from a file of the user's: fitted to the model, and the model to them."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookcli.errors import ModelError, RequestError, WeightsError
from hookcli.files import hash_file
from hookcli.foreign import ForeignCode
from hookcli.models.zoo.build import (
    ModelWithWeights,
    build_random,
    build_shapes,
    build_unset,
    categories_of,
)
from hookcli.models.zoo.origin import OWN
from hookcli.models.zoo.weights_file import COUNTER, check_fit, fit_names, read_weights_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.models.zoo.origin import Origin

_HEADS = re.compile(r"(aux|Aux|fc|head|classifier|last_linear|roi_heads)")


def load_from_file(origin: Origin, request: ModelRequest) -> ModelWithWeights:
    """Weights from a file; the classifier takes the file's number of classes.

    The model is built with values only when the file is known to fit.

    Raises:
        WeightsError: there is no such file, or it does not fit.
        ModelError: the model's own code for loading raised.
    """
    file = Path(request.weights)
    if os.path.isdir(file) or not os.path.exists(file):  # noqa: PTH110, PTH112  pathlib's may raise
        members = () if origin.weights is None else tuple(member.name for member in origin.weights)
        raise WeightsError(
            f"no weights and no file are called {request.weights!r}",
            f"{request.name} has: {', '.join((*members, 'auto', 'pretrained', 'random', 'FILE'))}",
        )
    held = read_weights_file(file)
    is_own = origin.task == OWN
    outline = build_random(origin, request) if is_own else build_shapes(origin, request)
    sized, expected = request, _state_of(request, outline)
    held = fit_names(held, expected)
    if not is_own:
        sized, expected = _size_like(origin, request, expected, held.tensors)
    counters = _absent_counters(held.tensors, expected)
    missing = [key for key in expected if key not in held.tensors and key not in counters]
    head = missing if _are_head(missing, expected, held.tensors) else []
    absent = {*counters, *head}
    wanted = {key: value for key, value in expected.items() if key not in absent}
    check_fit(str(file), held.tensors, wanted)
    module = outline if is_own else build_unset(origin, sized)
    state = dict(_state_of(request, module)) | held.tensors
    if head:
        drawn = build_random(origin, sized).state_dict()
        state |= {key: drawn[key] for key in head}
    with ForeignCode(f"loading {file} into {request.name}"):
        module.load_state_dict(_with_versions(state, module, held.versions))
    known = categories_of(origin)
    count = dict(sized.arguments).get("num_classes", str(len(known)))
    warning = f"{', '.join(head)} are not in {file}: they are RANDOM (seed {request.seed})"
    notes = (held.note, _rescale_inputs(origin, request, module))
    return ModelWithWeights(
        module,
        str(file),
        None if origin.weights is None else origin.weights.DEFAULT.transforms,
        known if count == str(len(known)) else (),
        trained=not head,
        warning=warning if head else "",
        sha256=hash_file(file),
        notes=tuple(filter(None, notes)),
    )


def _size_like(
    origin: Origin,
    request: ModelRequest,
    expected: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> tuple[ModelRequest, Mapping[str, Any]]:
    """The request for a model with as many classes as ``tensors`` have, and its state dict without values.

    Args:
        origin: of the model; not the user's own.
        request: what was asked for.
        expected: the state dict of the model that ``request`` builds.
        tensors: what is to be loaded.
    """
    if "num_classes" in dict(request.arguments):
        return request, expected
    counts = dict.fromkeys(
        len(tensors[key])
        for key, wanted in expected.items()
        if key in tensors and tensors[key].dim() and tensors[key].shape != wanted.shape
    )
    for count in list(counts)[:3]:
        sized = replace(request, arguments=(*request.arguments, ("num_classes", str(count))))
        try:
            other = _state_of(sized, build_shapes(origin, sized))
        except (RequestError, ModelError):
            continue
        if all(tensors[key].shape == other[key].shape for key in tensors if key in other):
            return sized, other
    return request, expected


def _state_of(request: ModelRequest, module: nn.Module) -> Mapping[str, Any]:
    with ForeignCode(f"state_dict of {request.name}"):
        return module.state_dict()


def _with_versions(
    state: Mapping[str, Any], module: nn.Module, versions: Mapping[str, int]
) -> OrderedDict[str, Any]:
    """``state`` as ``module.state_dict()`` would give it: with the version of each module.

    Some modules load nothing without one. Where ``versions`` has none it is the module's own.
    """
    told = OrderedDict(state)
    told._metadata = {  # type: ignore[attr-defined]  # where torch keeps them
        path: {"version": versions.get(path, part._version)}
        for path, part in module.named_modules(remove_duplicate=False)
    }
    return told


def _rescale_inputs(origin: Origin, request: ModelRequest, module: nn.Module) -> str:
    """Let an Inception rescale its inputs, as torchvision's own weights need it; what there is to say of that."""
    if (
        origin.weights is None
        or not hasattr(module, "transform_input")
        or "transform_input" in dict(request.arguments)
    ):
        return ""
    module.transform_input = True  # type: ignore[assignment]
    return (
        "transform_input=True, with which torchvision's own weights were trained, rescales the input: "
        "weights that were trained without it need --model-arg transform_input=False"
    )


def _absent_counters(tensors: Mapping[str, Tensor], expected: Mapping[str, Any]) -> list[str]:
    """The batch counters of norms whose other entries are in a file: older files have none, nothing needs them."""
    return [
        key
        for key in expected
        if key.endswith(COUNTER)
        and key not in tensors
        and f"{key.removesuffix(COUNTER)}running_mean" in tensors
    ]


def _are_head(
    missing: list[str], expected: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> bool:
    """Whether all that a file lacks belongs to classifiers: the last part of the model, or one called so."""
    if not tensors.keys() & expected.keys():
        return False
    last = list(expected)[-1].partition(".")[0]
    tops = {key.partition(".")[0] for key in missing}
    return len(missing) < len(expected) and all(top == last or _HEADS.match(top) for top in tops)
