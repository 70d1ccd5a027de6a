"""Layers that did not run, grouped by their reason. Standard library only."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_FEW = 3  # at most this many layers of a group are listed by name
_HOLDER = re.compile(r"inside .+ \((\w+)\)")  # the module that a reason names


@dataclass(frozen=True, slots=True)
class UncalledGroup:
    """Layers that did not run for the same reason."""

    layers: tuple[str, ...]
    names: str  # all names, globs that match them, or the first names
    reason: str

    @property
    def is_few(self) -> bool:
        """Whether ``names`` lists every layer by its name."""
        return len(self.layers) <= _FEW


def group_uncalled(
    uncalled: Iterable[tuple[str, str]], chosen: Collection[str] = ()
) -> list[UncalledGroup]:
    """Return (name, reason) of layers grouped by reason, in the order of the first layers."""
    # If all selected layers are ``chosen``, globs may replace many names.
    alike: dict[str, list[tuple[str, str]]] = {}
    for layer, reason in uncalled:
        kind = _HOLDER.sub(r"inside the \1 that holds it", reason)
        alike.setdefault(kind, []).append((layer, reason))
    known = {*chosen, *(layer for group in alike.values() for layer, _ in group)} if chosen else ()
    groups = []
    for kind, group in alike.items():
        layers = tuple(layer for layer, _ in group)
        reasons = {reason for _, reason in group}
        shared = reasons.pop() if len(reasons) == 1 else kind
        groups.append(UncalledGroup(layers, _shorten(layers, known), shared))
    return groups


def _shorten(layers: Sequence[str], known: Collection[str]) -> str:
    if len(layers) <= _FEW:
        return ", ".join(layers)
    globs = _find_globs(layers, known) if known else []
    return ", ".join(globs) or ", ".join(layers[:_FEW]) + and_more(len(layers) - _FEW)


def _find_globs(layers: Iterable[str], known: Collection[str]) -> list[str]:
    # The list is empty if there would be more than three globs, or one would match another name in
    # ``known``.
    alike: dict[str, list[str]] = {}
    for layer in layers:
        alike.setdefault(re.sub(r"\d+", "0", layer), []).append(layer)
    globs = [_find_glob(names, known) for names in alike.values()] if len(alike) <= _FEW else []
    return globs if all(globs) else []


def _find_glob(layers: Sequence[str], known: Collection[str]) -> str:
    """Return the shortest glob that matches ``layers`` alone of ``known``; empty without one."""
    if len(layers) == 1:
        return layers[0]
    if any(sign in layers[0] for sign in "*?["):
        return ""
    parts = zip(*(re.split(r"(\d+)", layer) for layer in layers), strict=True)
    full = "".join(part[0] if len(set(part)) == 1 else "*" for part in parts)
    for glob in (re.sub(r"\*(\.\*)+", "*", full), full):
        if {name for name in known if fnmatch.fnmatchcase(name, glob)} == set(layers):
            return glob
    return ""
