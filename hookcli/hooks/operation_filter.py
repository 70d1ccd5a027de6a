"""The forms of the filter language that choose functional operations.

A form is ``[INSIDE/]op:NAME[#CALL][[INDEX]]``: ``op:add`` chooses every addition, ``op:*`` every
operation that computes new values, ``op:add[3]`` the third addition in running order,
``layer1.*/op:relu`` each ReLU inside the modules that match the glob, and ``layer1.0/op:add#1`` one
call by its id.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from hookcli.errors import FilterSyntaxError, NoLayerMatchedError
from hookcli.hooks.operations import split_path
from hookcli.records.calls import OPERATION, ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from hookcli.hooks.operations import FoundOperation
    from hookcli.records.calls import LayerInfo

ChosenCall: TypeAlias = tuple[str, int | None]
"""A layer's path, and the index (from 0) of a call of the layer; None for all calls of a module."""

_FORM = re.compile(
    r"(?:path:)?(?:(?:input|output):)?(?:(?P<inside>.*)/)?op:(?P<name>[\w*?]+)(?:#(?P<call>\d{1,9}))?"
    r"(?:\[(?P<first>-?\d{1,9})(?::(?P<last>-?\d{1,9}))?\])?"
)


def is_operation_form(form: str) -> bool:
    """Return whether a form chooses operations instead of modules."""
    return re.search(rf"(^|[^\w]){OPERATION}", form) is not None


def match_operations(operations: Sequence[FoundOperation], form: str) -> list[ChosenCall]:
    """Return the calls that match a form, in running order."""
    if form.startswith("re:"):
        pattern = to_pattern(form[3:])
        found = [each for each in operations if pattern.search(each.layer.module_path)]
        return _in_order(found, form, operations)
    read = _FORM.fullmatch(form)
    if read is None:
        raise FilterSyntaxError(
            f"cannot read the operation {form!r}",
            "for example op:add, op:add[3], op:*, or layer1.*/op:relu",
        )
    inside, name = read["inside"], read["name"]
    any_kind = not re.search(r"[*?]", name)  # a view needs its full name, without * or ?
    found = [
        each
        for each in operations
        if (any_kind or each.computes)
        and _matches(inside, split_path(each.layer.module_path)[0])
        and fnmatch.fnmatchcase(each.layer.module_type, name)
    ]
    calls = _in_order(found, form, operations)
    if read["call"]:
        calls = [call for call in calls if call[1] == int(read["call"])]
        if not calls:
            known = [f"{path}#{n}" if n else path for path, n in _all_calls(operations)]
            raise NoLayerMatchedError(form, known, "operation")
    return calls[to_slice(read, len(calls))] if read["first"] else calls


def keep_calls(
    operations: Sequence[FoundOperation], chosen: Collection[ChosenCall]
) -> Iterator[LayerInfo]:
    """Yield each operation with its chosen calls; ``chosen_calls`` is empty if those are all."""
    for each in operations:
        layer = each.layer
        every = range(len(each.moments))
        calls = tuple(call for call in every if (layer.module_path, call) in chosen)
        if calls:
            yield replace(layer, chosen_calls=() if len(calls) == len(every) else calls)


def add_operations(
    layers: Sequence[LayerInfo], operations: Sequence[FoundOperation]
) -> tuple[LayerInfo, ...]:
    """Return ``layers``, and all operations that run inside any module in ``layers``."""
    known = {layer.module_path for layer in layers}
    paths = [layer.module_path for layer in layers if not layer.is_operation]
    inside = (
        each.layer
        for each in operations
        if each.layer.module_path not in known
        and any(is_inside(split_path(each.layer.module_path)[0], path) for path in paths)
    )
    return (*layers, *inside)


def is_inside(path: str, other: str) -> bool:
    """Return whether the module at ``path`` is the module at ``other``, or is inside it."""
    return not other or path == other or path.startswith(f"{other}.")


def _matches(inside: str | None, module_path: str) -> bool:
    """Return whether a path matches the part of a form before ``op:``; None matches every path."""
    if inside is None:
        return True
    return fnmatch.fnmatchcase(module_path, inside) or (not module_path and inside == ROOT_LABEL)


def _in_order(
    found: Sequence[FoundOperation], form: str, operations: Sequence[FoundOperation]
) -> list[ChosenCall]:
    if not found:
        paths = [each.layer.module_path for each in operations]
        kinds = {f"{OPERATION}{each.layer.module_type}" for each in operations}
        inside, slash, name = form.rpartition("/")
        deeper = f"{inside}.*/{name}"
        if slash and any(fnmatch.fnmatchcase(path, deeper) for path in paths):
            paths.insert(0, deeper)
            kinds = set()
        raise NoLayerMatchedError(form, [*sorted(kinds), *paths], "operation")
    return [(path, call) for path, call in _all_calls(found)]


def _all_calls(operations: Sequence[FoundOperation]) -> list[tuple[str, int]]:
    moments = [
        (moment, each.layer.module_path, call)
        for each in operations
        for call, moment in enumerate(each.moments)
    ]
    return [(path, call) for _, path, call in sorted(moments)]


def to_slice(form: re.Match[str], count: int) -> slice:
    """Return the slice for the index of a form, counted from 1, or from the end if negative."""
    first, last = int(form["first"]), int(form["last"] or form["first"])
    if first == 0 or last == 0:
        raise FilterSyntaxError(
            f"{form[0]!r} has the index 0", "layers are counted from 1: [1] is the first"
        )
    start = first - 1 if first > 0 else count + first
    stop = last if last > 0 else count + last + 1
    if not 0 <= start < count or not start < stop <= count:
        raise FilterSyntaxError(
            f"{form[0]!r} is out of range", f"this model has {count}: [1] to [{count}], or [-1]"
        )
    return slice(start, stop)


def to_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression."""
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise FilterSyntaxError(f"not a regular expression: {text!r:.200} ({reason})") from error
