"""Whether the content of a weights file fits a model, and under which of the file's names it is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from hookcli.errors import WeightsError
from hookcli.models.weights_file import kind_name, name_some
from hookcli.records.text import count, shape_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hookcli.models.weights_file import WeightsFile

COUNTER = "num_batches_tracked"  # a norm's; older files lack it, or have a different dtype
_MOST_PARTS = 16  # of a name that are tried as its prefix; a name of dots could take for ever
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")
_INTEGERS = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)


def fit_names(file: str, saved: WeightsFile, expected: Collection[str]) -> WeightsFile:
    """Return the tensors under the prefix that the model's own names have in the file.

    Wrappers add one: ``module.`` of a parallel model, ``_orig_mod.`` of a compiled one, or the name
    of the attribute in which a training class keeps the model. What lies beside the prefix belongs
    to other modules, such as the weights of a criterion, and is left out with a note.

    Args:
        file: the file, for messages.
        saved: the file's content.
        expected: the keys of the model's own state dict.

    Raises:
        WeightsError: the model is in the file more than once, under different prefixes.
    """
    prefix = _find_prefix(file, saved.tensors, expected)
    tensors = {
        _new_name(key.removeprefix(prefix), expected): value
        for key, value in saved.tensors.items()
        if key.startswith(prefix)
    }
    versions = {
        f"{path}.".removeprefix(prefix).removesuffix("."): version
        for path, version in saved.versions.items()
        if f"{path}.".startswith(prefix)
    }
    others = [key for key in saved.tensors if not key.startswith(prefix)]
    notes = (saved.note, _left_out(file, others, prefix) if others else "")
    return replace(saved, tensors=tensors, versions=versions, note="; ".join(filter(None, notes)))


def _find_prefix(file: str, keys: Collection[str], expected: Collection[str]) -> str:
    """Return the prefix under which most of the model's names are, if those are half of them.

    Raises:
        WeightsError: there are several.
    """
    needed = {key for key in expected if not key.endswith(COUNTER)}
    found = Counter(prefix for key in keys for prefix in _list_prefixes(key, needed))
    most = max(found.values(), default=0)
    best = [prefix for prefix, names in found.items() if names == most]
    if "" in best or 2 * most < len(needed):
        return ""
    if len(best) > 1:
        raise WeightsError(
            f"{file} holds the weights of the model {len(best)} times: under {name_some(best)}",
            "save one of them alone",
        )
    return best[0]


def _list_prefixes(key: str, expected: Collection[str]) -> Iterator[str]:
    """Yield what stands before a name that is expected, in a key of the file."""
    parts = key.split(".", _MOST_PARTS)
    for start in range(len(parts)):
        if _new_name(".".join(parts[start:]), expected) in expected:
            yield "".join(f"{part}." for part in parts[:start])


def _left_out(file: str, others: list[str], prefix: str) -> str:
    return (
        f"{count(len(others), 'tensor')} of {file} {'is' if len(others) == 1 else 'are'} not under"
        f" {prefix!r}, and left out: {name_some(others)}"
    )


def check_fit(file: str, state: Mapping[str, Tensor], expected: Mapping[str, object]) -> None:
    """Check that ``state`` has exactly the keys, shapes and kinds of values of ``expected``.

    The kinds are floats, complex numbers, and integers (with booleans) that the model's dtype can
    hold. A change from one kind to another would lose values silently.

    Raises:
        WeightsError: it does not; the message names the first few differences and counts the rest.
    """
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    shared = {
        key: (state[key], wanted)
        for key, wanted in expected.items()
        if key in state and isinstance(wanted, Tensor) and not is_lazy(wanted)
    }
    misshaped = [
        f"{key} is {shape_text(saved.shape)} and not {shape_text(wanted.shape)}"
        for key, (saved, wanted) in shared.items()
        if saved.shape != wanted.shape
    ]
    changed = [
        f"{key} is {kind_name(saved.dtype)} and not {kind_name(wanted.dtype)}"
        for key, (saved, wanted) in shared.items()
        if saved.shape == wanted.shape and not _keeps_kind(key, saved, wanted.dtype)
    ]
    faults = {
        "missing": missing,
        "unexpected": unexpected,
        "of a different shape": misshaped,
        "of a different kind": changed,
    }
    problems = [
        f"{len(keys)} {fault} ({name_some(keys)})" for fault, keys in faults.items() if keys
    ]
    if problems:
        raise WeightsError(
            f"{file} does not fit the model: {'; '.join(problems)}",
            "is it for a different model? see the names with: hookcli layers MODEL"
            if missing or unexpected or misshaped
            else "convert them, for example by tensor.real or tensor.float(), and save them again",
        )


def _new_name(key: str, expected: Collection[str]) -> str:
    """Return the name that torchvision has used since 0.3 for the key of an old DenseNet."""
    renamed = _OLD_DENSENET.sub(r"\1\2.", key)
    return renamed if renamed in expected and key not in expected else key


def _keeps_kind(key: str, saved: Tensor, dtype: torch.dtype) -> bool:
    """Return whether values can be converted to ``dtype``.

    Floats may be rounded; integers must not change.
    """
    if saved.is_complex() or dtype.is_complex:
        return saved.is_complex() and dtype.is_complex
    if key.rpartition(".")[2] == COUNTER:
        return True
    if saved.dtype in _INTEGERS and dtype in _INTEGERS:
        return torch.equal(saved.to(dtype).to(saved.dtype), saved)
    if not (saved.is_floating_point() and dtype.is_floating_point):
        return False
    if saved.dtype.itemsize <= dtype.itemsize:
        return True
    return bool((saved.isfinite() == saved.to(dtype).isfinite()).all())  # none becomes infinite
