"""The filter language that chooses among a model's layers.

A filter consists of forms. hookcli tries the kinds of forms in this order: ``re:``, ``@``,
``path:``, alias, class name, module path (or call id), glob. Only a form with ``op:`` chooses
functional operations (``hooks.operation_filter``).
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from hookcli.errors import FilterSyntaxError, NoLayerMatchedError, RequestError
from hookcli.hooks.layers import FAMILIES, family_of, list_layers
from hookcli.hooks.operation_filter import (
    is_operation_form,
    keep_calls,
    match_operations,
    to_pattern,
    to_slice,
)
from hookcli.networks.modules import find_modules, list_classes
from hookcli.outside.files import NotRegularError, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hookcli.hooks.operation_filter import ChosenCall
    from hookcli.hooks.operations import FoundOperation
    from hookcli.records.calls import LayerInfo

_ALIASES = (*FAMILIES, "all", "leaf")

_INDEXED = re.compile(r"(?P<name>\w+)\[(?P<first>-?\d{1,9})(?::(?P<last>-?\d{1,9}))?\]")
_CALL_ID = re.compile(r"(?:(?:input|output):)?(?P<path>.+?)(?:#\d+)?(?:\[[^\]]+\])?")


@dataclass(frozen=True, slots=True)
class Entry:
    """A module that a filter may choose."""

    layer: LayerInfo
    types: frozenset[str]  # the names of its class and its bases
    families: frozenset[str]  # the aliases that choose it, such as ``conv``, ``leaf`` or ``all``


def select_layers(
    model: nn.Module,
    forms: Sequence[str],
    exclude: Sequence[str] = (),
    operations: Sequence[FoundOperation] = (),
) -> tuple[LayerInfo, ...]:
    """Return the layers of a model that match, in the order of ``named_modules()``."""
    modules = find_modules(model)
    entries = [_entry(layer, modules[layer.module_path]) for layer in list_layers(model)]
    return choose_layers(entries, forms, exclude, operations)


def choose_layers(
    entries: Sequence[Entry],
    forms: Sequence[str],
    exclude: Sequence[str] = (),
    operations: Sequence[FoundOperation] = (),
) -> tuple[LayerInfo, ...]:
    """Return the layers that match any of ``forms`` and none of ``exclude``.

    Modules come first, in the order of ``entries``. Operations follow in running order;
    ``operations`` are needed only if a form chooses them (``name_operations``).
    """
    wanted = _match_all(entries, operations, forms)
    left = wanted - _match_all(entries, operations, exclude)
    chosen = (
        *(e.layer for e in entries if (e.layer.module_path, None) in left),
        *keep_calls(operations, left),
    )
    if not chosen:
        if not wanted:
            raise FilterSyntaxError(
                "no layer filter was given", "for all convolutions: `layers=('conv',)`"
            )
        raise RequestError(
            f"`exclude` {', '.join(exclude)} leaves no layer", "exclude fewer layers"
        )
    return chosen


def name_operations(*options: Sequence[str]) -> bool:
    """Return whether any form of ``options`` chooses functional operations."""
    return any(is_operation_form(form) for forms in options for form in _read_forms(forms))


def _read_forms(options: Iterable[str], inside: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the forms in ``options``, those in ``@files`` included, without blanks and comments."""
    # Commas outside brackets and braces separate forms, but an option that begins with ``re:`` is a
    # single form. ``inside`` are the files that are being read, outermost first.
    for option in options:
        if not option.strip():
            raise FilterSyntaxError(
                "an empty layer filter", "for all convolutions: `layers=('conv',)`"
            )
        if option.startswith("re:"):
            yield option
            continue
        for form in re.split(r",(?![^\[{]*[\]}])", option):
            file = form.strip().removeprefix("@")
            if file != form.strip():
                yield from _read_forms(_lines(file, inside), (*inside, file))
            elif file:
                yield file


def _lines(file: str, inside: tuple[str, ...]) -> list[str]:
    if file in inside:
        raise FilterSyntaxError(f"the layer list {file!r} names itself")
    try:
        text = read_regular(Path(file)).decode("utf-8-sig")
    except NotRegularError as error:
        raise FilterSyntaxError(
            f"cannot read the layer list {file!r}: it is not a regular file",
            "write the forms into a file, one per line",
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise FilterSyntaxError(f"cannot read the layer list {file!r}: {reason}") from error
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    if not any(lines):
        raise FilterSyntaxError(
            f"the layer list {file!r} names no layer", "write one form per line"
        )
    return [line for line in lines if line]


def _match_all(
    entries: Sequence[Entry], operations: Sequence[FoundOperation], options: Sequence[str]
) -> set[ChosenCall]:
    chosen: set[ChosenCall] = set()
    for form in _read_forms(options):
        if is_operation_form(form):
            chosen.update(match_operations(operations, form))
        else:
            chosen.update((layer.module_path, None) for layer in _match_one(entries, form))
    return chosen


def _match_one(entries: Sequence[Entry], form: str) -> list[LayerInfo]:
    if form.startswith("re:"):
        matched = [e.layer for e in entries if to_pattern(form[3:]).search(e.layer.module_path)]
    elif form.startswith("path:"):
        matched = _match_path(entries, form[5:])
    else:
        matched = _match_kind(entries, form) or _match_path(entries, form)
        matched = matched or [
            e.layer for e in entries if fnmatch.fnmatchcase(e.layer.module_path, form)
        ]
    if not matched:
        kinds = {kind for e in entries for kind in (*e.types, *e.families)}
        raise NoLayerMatchedError(form, [*(e.layer.label for e in entries), *sorted(kinds)])
    return matched


def _match_kind(entries: Sequence[Entry], form: str) -> list[LayerInfo]:
    indexed = _INDEXED.fullmatch(form)
    name = indexed["name"] if indexed else form.partition("[")[0]
    if name != form and not indexed:
        if name in _ALIASES or any(name in e.types for e in entries):
            raise FilterSyntaxError(
                f"cannot read the index of {form!r}", "write [3], [-1] or [2:5], counted from 1"
            )
        return []
    if name in _ALIASES:
        matched = [e.layer for e in entries if name in e.families]
    else:
        matched = [e.layer for e in entries if name in e.types]
    if not indexed or not matched:
        return matched
    return matched[to_slice(indexed, len(matched))]


def _match_path(entries: Sequence[Entry], form: str) -> list[LayerInfo]:
    call_id = _CALL_ID.fullmatch(form)
    paths = (form, call_id["path"] if call_id else form)
    for path in paths:
        matched = [e.layer for e in entries if path in (e.layer.module_path, e.layer.label)]
        if matched:
            return matched
    return []


def _entry(layer: LayerInfo, module: nn.Module) -> Entry:
    bases = [base for base in list_classes(module) if base not in (nn.Module, object)]
    return make_entry(
        layer,
        types=[base.__name__ for base in bases],
        families=[family_of(base) for base in bases],
    )


def make_entry(layer: LayerInfo, types: Iterable[str], families: Iterable[str]) -> Entry:
    """Return the entry of a layer; empty names of families are left out."""
    aliases = {*families, "all", *(["leaf"] if layer.is_leaf else [])} - {""}
    return Entry(layer, frozenset(types), frozenset(aliases))
