"""Choose layers by the filter language: aliases, classes, paths, ``re:``, ``@FILE``, ``op:``.

A filter is one or more forms. hookcli tries to read a form in this order: ``re:PATTERN``,
``@FILE``, ``path:PATH``, alias (``conv``), class name, module path (or call id), glob. Only a form
with ``op:`` chooses functional operations: ``[INSIDE/]op:NAME[#CALL][[INDEX]]``. ``op:*`` chooses
every operation that computes new values, and ``op:add[3]`` the third addition in running order.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from torch import nn

from hookcli.errors import FilterSyntaxError, NoLayerMatchedError, RequestError
from hookcli.hooks.layers import FAMILIES, family_of, list_layers
from hookcli.hooks.operations import split_path
from hookcli.networks.modules import find_modules, list_classes
from hookcli.outside.files import read_regular
from hookcli.records.calls import OPERATION, ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hookcli.hooks.operations import FoundOperation
    from hookcli.records.calls import LayerInfo

_ALIASES = (*FAMILIES, "all", "leaf")
_EXAMPLE = "for all convolutions: `layers=('conv',)`"

_INDEXED = re.compile(r"(?P<name>\w+)\[(?P<first>-?\d{1,9})(?::(?P<last>-?\d{1,9}))?\]")
_CALL_ID = re.compile(r"(?:(?:input|output):)?(?P<path>.+?)(?:#\d+)?(?:\[[^\]]+\])?")
ChosenCall: TypeAlias = tuple[str, int | None]
"""The path of a layer, and the index of one of its calls, from 0, or None for all its calls."""
_FORM = re.compile(
    r"(?:path:)?(?:(?:input|output):)?(?:(?P<inside>.*)/)?op:(?P<name>[\w*?]+)(?:#(?P<call>\d{1,9}))?"
    r"(?:\[(?P<first>-?\d{1,9})(?::(?P<last>-?\d{1,9}))?\])?"
)


@dataclass(frozen=True, slots=True)
class Entry:
    layer: LayerInfo
    types: frozenset[str]  # the names of its class and its bases
    families: frozenset[str]  # the aliases that choose it, such as ``conv``, ``leaf`` or ``all``


def select_layers(
    model: nn.Module,
    forms: Sequence[str],
    exclude: Sequence[str] = (),
    operations: Sequence[FoundOperation] = (),
) -> tuple[LayerInfo, ...]:
    modules = find_modules(model)
    entries = []
    for layer in list_layers(model):
        classes = list_classes(modules[layer.module_path])
        bases = [base for base in classes if base not in (nn.Module, object)]
        names = [base.__name__ for base in bases]
        entries.append(make_entry(layer, names, [family_of(base) for base in bases]))
    return choose_layers(entries, forms, exclude, operations)


def choose_layers(
    entries: Sequence[Entry],
    forms: Sequence[str],
    exclude: Sequence[str] = (),
    operations: Sequence[FoundOperation] = (),
) -> tuple[LayerInfo, ...]:
    # ``operations`` are needed only if a form chooses them (``name_operations``).
    wanted = _match_all(entries, operations, forms)
    left = wanted - _match_all(entries, operations, exclude)
    chosen = [e.layer for e in entries if (e.layer.module_path, None) in left]
    for each in operations:
        every = range(len(each.moments))
        calls = tuple(call for call in every if (each.layer.module_path, call) in left)
        if calls:  # ``chosen_calls`` is empty if those are all
            chosen_calls = () if len(calls) == len(every) else calls
            chosen.append(replace(each.layer, chosen_calls=chosen_calls))
    if not chosen:
        if not wanted:
            raise FilterSyntaxError("no layer filter was given", _EXAMPLE)
        what = f"`exclude` {', '.join(exclude)} leaves no layer"
        raise RequestError(what, "exclude fewer layers")
    return tuple(chosen)


def name_operations(*options: Sequence[str]) -> bool:
    """Return whether any of the filters in ``options`` chooses functional operations."""
    return any(is_operation_form(form) for forms in options for form in read_forms(forms))


def read_forms(options: Iterable[str], inside: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the single forms of layer filters, such as ``layer1`` and ``fc`` of ``layer1,fc``."""
    # Commas outside brackets and braces separate forms, but an option that begins with ``re:`` is a
    # single form. ``inside`` are the files that are being read, outermost first.
    for option in options:
        if not option.strip():
            raise FilterSyntaxError("an empty layer filter", _EXAMPLE)
        if option.startswith("re:"):
            yield option
            continue
        for form in re.split(r",(?![^\[{]*[\]}])", option):
            file = form.strip().removeprefix("@")
            if file != form.strip():
                yield from read_forms(_lines(file, inside), (*inside, file))
            elif file:
                yield file


def _lines(file: str, inside: tuple[str, ...]) -> list[str]:
    if file in inside:
        raise FilterSyntaxError(f"the layer list {file!r} names itself")
    try:
        text = read_regular(Path(file)).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise FilterSyntaxError(f"cannot read the layer list {file!r}: {reason}") from error
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    if not any(lines):
        what = f"the layer list {file!r} names no layer"
        raise FilterSyntaxError(what, "write one form per line")
    return [line for line in lines if line]


def _match_all(
    entries: Sequence[Entry], operations: Sequence[FoundOperation], options: Sequence[str]
) -> set[ChosenCall]:
    chosen: set[ChosenCall] = set()
    for form in read_forms(options):
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
            what = f"cannot read the index of {form!r}"
            raise FilterSyntaxError(what, "write [3], [-1] or [2:5], counted from 1")
        return []
    kinds = [e.families if name in _ALIASES else e.types for e in entries]
    matched = [e.layer for e, kind in zip(entries, kinds, strict=True) if name in kind]
    return matched[to_slice(indexed, len(matched))] if indexed and matched else matched


def _match_path(entries: Sequence[Entry], form: str) -> list[LayerInfo]:
    call_id = _CALL_ID.fullmatch(form)
    for path in (form, call_id["path"] if call_id else form):
        if matched := [e.layer for e in entries if path in (e.layer.module_path, e.layer.label)]:
            return matched
    return []


def make_entry(layer: LayerInfo, types: Iterable[str], families: Iterable[str]) -> Entry:
    aliases = {*families, "all", *(["leaf"] if layer.is_leaf else [])} - {""}
    return Entry(layer, frozenset(types), frozenset(aliases))


def is_operation_form(form: str) -> bool:
    return re.search(rf"(^|[^\w]){OPERATION}", form) is not None


def match_operations(operations: Sequence[FoundOperation], form: str) -> list[ChosenCall]:
    if form.startswith("re:"):
        pattern = to_pattern(form[3:])
        found = [each for each in operations if pattern.search(each.layer.module_path)]
        return _in_order(found, form, operations)
    read = _FORM.fullmatch(form)
    if read is None:
        what = f"cannot read the operation {form!r}"
        raise FilterSyntaxError(what, "for example op:add, op:add[3], op:*, or layer1.*/op:relu")
    inside, name = read["inside"], read["name"]
    any_kind = not re.search(r"[*?]", name)  # a view needs its full name, without * or ?
    found = [
        each
        for each in operations
        if (any_kind or each.computes)
        and (inside is None or _matches(inside, split_path(each.layer.module_path)[0]))
        and fnmatch.fnmatchcase(each.layer.module_type, name)
    ]
    calls = _in_order(found, form, operations)
    if read["call"]:
        calls = [call for call in calls if call[1] == int(read["call"])]
        if not calls:
            known = [f"{path}#{n}" if n else path for path, n in _all_calls(operations)]
            raise NoLayerMatchedError(form, known, "operation")
    return calls[to_slice(read, len(calls))] if read["first"] else calls


def add_operations(
    layers: Sequence[LayerInfo], operations: Sequence[FoundOperation]
) -> tuple[LayerInfo, ...]:
    known = {layer.module_path for layer in layers}
    paths = [layer.module_path for layer in layers if not layer.is_operation]
    new = [each.layer for each in operations if each.layer.module_path not in known]
    inside = (e for e in new if any(is_inside(split_path(e.module_path)[0], p) for p in paths))
    return (*layers, *inside)


def is_inside(path: str, other: str) -> bool:
    return not other or path == other or path.startswith(f"{other}.")


def _matches(inside: str, module_path: str) -> bool:
    return fnmatch.fnmatchcase(module_path, inside) or (not module_path and inside == ROOT_LABEL)


def _in_order(
    found: Sequence[FoundOperation], form: str, operations: Sequence[FoundOperation]
) -> list[ChosenCall]:
    if not found:
        paths = [each.layer.module_path for each in operations]
        kinds = {f"{OPERATION}{each.layer.module_type}" for each in operations}
        raise NoLayerMatchedError(form, [*sorted(kinds), *paths], "operation")
    return _all_calls(found)


def _all_calls(operations: Sequence[FoundOperation]) -> list[ChosenCall]:
    known = [(each.layer.module_path, each.moments) for each in operations]
    calls = sorted((m, path, call) for path, moments in known for call, m in enumerate(moments))
    return [(path, call) for _, path, call in calls]


def to_slice(form: re.Match[str], count: int) -> slice:
    first, last = int(form["first"]), int(form["last"] or form["first"])
    if first == 0 or last == 0:
        what = f"{form[0]!r} has the index 0"
        raise FilterSyntaxError(what, "layers are counted from 1: [1] is the first")
    start = first - 1 if first > 0 else count + first
    stop = last if last > 0 else count + last + 1
    if not 0 <= start < count or not start < stop <= count:
        what = f"{form[0]!r} is out of range"
        raise FilterSyntaxError(what, f"this model has {count}: [1] to [{count}], or [-1]")
    return slice(start, stop)


def to_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise FilterSyntaxError(f"not a regular expression: {text!r:.200} ({error})") from error
