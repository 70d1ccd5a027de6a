"""Group layers that did not run by the reason, and shorten names, as in ``layer{1-4}.conv1``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FEW = 3  # at most this many layers of a group are listed by name
_HOLDER = re.compile(r"inside .+ \((\w+)\)")  # the module that a reason names


@dataclass(frozen=True, slots=True)
class UncalledGroup:
    """Layers that did not run for the same reason."""

    layers: tuple[str, ...]
    names: str  # all names; short forms such as ``layer{1-4}.conv1``; or only the first names
    reason: str

    @property
    def is_few(self) -> bool:
        """Whether there are so few layers that ``names`` lists the full name of each."""
        return len(self.layers) <= _FEW


def group_uncalled(uncalled: Iterable[tuple[str, str]]) -> list[UncalledGroup]:
    """Group pairs (layer name, why the layer did not run) by reason, in the order of the pairs.

    Reasons that differ only in the module that holds the layer count as one reason.
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for layer, reason in uncalled:
        kind = _HOLDER.sub(r"inside the \1 that holds it", reason)
        alike.setdefault(kind, []).append((layer, reason))
    groups = []
    for kind, group in alike.items():
        layers, reasons = zip(*group, strict=True)
        shared = reasons[0] if len(set(reasons)) == 1 else kind
        groups.append(UncalledGroup(layers, _shorten(layers), shared))
    return groups


def _shorten(layers: Sequence[str]) -> str:
    if len(layers) <= _FEW:
        return ", ".join(layers)
    alike: dict[str, list[list[str]]] = {}
    for layer in layers:
        alike.setdefault(re.sub(r"\d+", "0", layer), []).append(re.split(r"(\d+)", layer))
    found = [_list_numbers(names) for names in alike.values()]
    if len(alike) > _FEW or not all(found):
        return ", ".join(layers[:_FEW]) + and_more(len(layers) - _FEW)
    return ", ".join(found)


def _list_numbers(names: Sequence[Sequence[str]]) -> str:
    # Each name is split into texts and numbers: ``["layer", "1", ".conv", "2", ""]``. The result is
    # "" if the joint form, such as ``layer{1-4}.conv{1-2}``, includes other names, too.
    parts = [tuple(dict.fromkeys(part)) for part in zip(*names, strict=True)]
    if math.prod(map(len, parts)) != len(names):
        return ""
    return "".join(part[0] if len(part) == 1 else f"{{{_numbers_text(part)}}}" for part in parts)


def _numbers_text(part: Sequence[str]) -> str:
    first, last = int(part[0]), int(part[-1])
    is_range = part == tuple(str(number) for number in range(first, last + 1))
    return f"{first}-{last}" if is_range else ",".join(part)
