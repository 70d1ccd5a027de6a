"""Weights from the user's file: fitted to the model, and the model to them."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from hookcli.errors import ModelError, RequestError, WeightsError
from hookcli.models.build import build_random, build_shapes, build_unset
from hookcli.models.source import ModelWithWeights
from hookcli.models.weights_file import read_weights_file
from hookcli.models.weights_fit import COUNTER, check_fit, fit_names
from hookcli.outside.files import hash_file
from hookcli.outside.foreign import ForeignCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.models.source import Source

_HEADS = re.compile(r"(aux|Aux|fc|head|classifier|last_linear|roi_heads)")


def load_from_file(source: Source, request: ModelRequest) -> ModelWithWeights:
    """Return the model with weights from a file; its classifier gets the file's number of classes.

    The model is built with values only after the file is known to fit.

    Raises:
        WeightsError: there is no such file, or it does not fit the model.
        ModelError: the model's own code for loading raised an exception.
    """
    file = Path(request.weights)
    _require_file(file, source, request)
    saved = read_weights_file(file)
    outline = build_shapes(source, request) if source.is_known else build_random(source, request)
    sized, expected = request, _state_of(request, outline)
    saved = fit_names(str(file), saved, expected)
    if source.is_known:
        sized, expected = _size_like(source, request, expected, saved.tensors)
    head = _check_keys(file, saved.tensors, expected)
    module = build_unset(source, sized) if source.is_known else outline
    state: dict[str, object] = {**_state_of(request, module), **saved.tensors}
    if head:
        drawn = build_random(source, sized).state_dict()
        state |= {key: drawn[key] for key in head}
    with ForeignCode(f"loading {file} into {request.name}"):
        module.load_state_dict(_with_versions(state, module, saved.versions))
    warning = f"{', '.join(head)} are not in {file}: they are RANDOM (seed {request.seed})"
    notes = (saved.note, source.adapt(request, module))
    return ModelWithWeights(
        module,
        str(file),
        source.preset,
        _categories_that_fit(source.list_categories(module), sized),
        trained=not head,
        warning=warning if head else "",
        sha256=hash_file(file),
        notes=tuple(filter(None, notes)),
    )


def _require_file(file: Path, source: Source, request: ModelRequest) -> None:
    """Check that the file exists.

    Raises:
        WeightsError: it does not, and no weights have this name.
    """
    if os.path.isdir(file) or not os.path.exists(file):  # noqa: PTH110, PTH112  pathlib's may raise
        names = (*source.members, "auto", "pretrained", "random", "FILE")
        raise WeightsError(
            f"no weights and no file are called {request.weights!r}",
            f"{request.name} has: {', '.join(names)}",
        )


def _check_keys(
    file: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, object]
) -> list[str]:
    """Return the keys of the classifier if they are all that the file lacks; otherwise none.

    Raises:
        WeightsError: the file does not fit.
    """
    counters = _absent_counters(tensors, expected)
    missing = [key for key in expected if key not in tensors and key not in counters]
    head = missing if _are_head(missing, expected, tensors) else []
    absent = {*counters, *head}
    wanted = {key: value for key, value in expected.items() if key not in absent}
    check_fit(str(file), tensors, wanted)
    return head


def _categories_that_fit(categories: tuple[str, ...], request: ModelRequest) -> tuple[str, ...]:
    """Return the class names by index; empty if the model has a different number of classes."""
    count = str(len(categories))
    asked = dict(request.arguments).get("num_classes", count)
    return categories if asked == count else ()


def _size_like(
    source: Source,
    request: ModelRequest,
    expected: Mapping[str, object],
    tensors: Mapping[str, Tensor],
) -> tuple[ModelRequest, Mapping[str, object]]:
    """Return the request for a model with as many classes as ``tensors`` have, and its state dict.

    The state dict has no values.

    Args:
        source: the model; not one of the user's own code.
        request: the user's request.
        expected: the state dict of the model that ``request`` builds.
        tensors: the tensors to be loaded.
    """
    if "num_classes" in dict(request.arguments):
        return request, expected
    counts = dict.fromkeys(
        len(tensors[key])
        for key, wanted in _tensors_of(expected).items()
        if key in tensors and tensors[key].dim() and tensors[key].shape != wanted.shape
    )
    for count in list(counts)[:3]:
        sized = replace(request, arguments=(*request.arguments, ("num_classes", str(count))))
        try:
            resized = _state_of(sized, build_shapes(source, sized))
        except (RequestError, ModelError):
            continue
        shapes = {key: value.shape for key, value in _tensors_of(resized).items()}
        if all(tensors[key].shape == shapes[key] for key in tensors if key in shapes):
            return sized, resized
    return request, expected


def _state_of(request: ModelRequest, module: nn.Module) -> Mapping[str, object]:
    with ForeignCode(f"state_dict of {request.name}"):
        return module.state_dict()


def _tensors_of(state: Mapping[str, object]) -> dict[str, Tensor]:
    """Return the tensors of a state dict, without anything else that a module keeps in it."""
    return {key: value for key, value in state.items() if isinstance(value, Tensor)}


def _with_versions(
    state: Mapping[str, object], module: nn.Module, versions: Mapping[str, int]
) -> OrderedDict[str, object]:
    """Return ``state`` as ``module.state_dict()`` would: with the version of each module.

    Some modules load nothing without a version. Where ``versions`` has none, the module's own is
    used.
    """
    versioned = OrderedDict(state)
    vars(versioned)["_metadata"] = {  # where torch keeps them
        path: {"version": versions.get(path, submodule._version)}
        for path, submodule in module.named_modules(remove_duplicate=False)
    }
    return versioned


def _absent_counters(tensors: Mapping[str, Tensor], expected: Mapping[str, object]) -> list[str]:
    """Return the keys of batch counters that a file lacks, for norms whose other tensors it has.

    Older files have no counters, and nothing needs them.
    """
    return [
        key
        for key in expected
        if key.endswith(COUNTER)
        and key not in tensors
        and f"{key.removesuffix(COUNTER)}running_mean" in tensors
    ]


def _are_head(
    missing: list[str], expected: Mapping[str, object], tensors: Mapping[str, Tensor]
) -> bool:
    """Return whether all that a file lacks belongs to classifiers.

    A classifier is the last module at the top of the model, or one that is named like a classifier.
    """
    if not tensors.keys() & expected.keys():
        return False
    last = list(expected)[-1].partition(".")[0]
    tops = {key.partition(".")[0] for key in missing}
    return len(missing) < len(expected) and all(top == last or _HEADS.match(top) for top in tops)
