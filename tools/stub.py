"""Write ``hookcli/__init__.pyi``, which tells editors and type checkers the types of the verbs."""

from __future__ import annotations

import inspect
import textwrap
import types
from importlib import import_module
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import hookcli
from hookcli.verbs.subjects import COMMANDS

PACKAGE = Path(__file__).parent.parent / "hookcli"
STUB = PACKAGE / "__init__.pyi"
_PICTURES = {"images", "pair"}  # keywords that also take arrays and tensors
_RUNS = {"model", "a", "b", "run"}


def main() -> None:
    text = render()
    STUB.write_text(text)


def render() -> str:
    names = {name: import_module(f"hookcli.verbs.{name}") for name in sorted(COMMANDS)}
    verbs = {name: getattr(module, name) for name, module in names.items()}
    body = "\n\n".join(_render_verb(name, verb) for name, verb in verbs.items())
    outcomes = sorted({kind for verb in verbs.values() for kind in _outcomes(verb)}, key=_module)
    lines = [
        '"""The types of hookcli\'s public names; tools/stub.py writes this file."""',
        "",
        "from collections.abc import Iterable, Mapping",
        "from os import PathLike",
        "from typing import Any, Literal, TypeAlias, overload",
        "",
        *(f"from {kind.__module__} import {kind.__name__} as {kind.__name__}" for kind in outcomes),
        *_list_imports(),
        "",
        "__version__: str",
        "__all__: list[str]",
        "_HOMES: dict[str, str]",
        "_Many: TypeAlias = str | Iterable[str]",
        "_Path: TypeAlias = str | PathLike[str]",
        "",
        body,
        "",
    ]
    return "\n".join(lines)


def _module(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__name__


def _list_imports() -> list[str]:
    """Return the imports of all public names that are not verbs."""
    homes = sorted((home, name) for name, home in hookcli._HOMES.items() if name not in COMMANDS)
    return [f"from hookcli.{home} import {name} as {name}" for home, name in homes]


def _outcomes(verb: Any) -> tuple[type, ...]:
    function, inspection = verb.verb.function, import_module("hookcli.verbs.inspection_outcome")
    kind = get_type_hints(function, vars(inspection) | function.__globals__)["return"]
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _render_verb(name: str, verb: Any) -> str:
    made, *planned = _outcomes(verb)
    options = list(verb.verb.options)
    if not planned:
        return _render_function(name, verb, options, made.__name__, "")
    return "\n\n".join(
        "@overload\n" + _render_function(name, verb, options, kind.__name__, dry_run)
        for kind, dry_run in ((made, "Literal[False] | None = None"), (planned[0], "Literal[True]"))
    )


def _render_function(name: str, verb: Any, options: Any, outcome: str, dry_run: str) -> str:
    first = [_render_option(each) for each in options if each.flag.is_argument]
    rest = [
        f"dry_run: {dry_run}" if dry_run and each.name == "dry_run" else _render_option(each)
        for each in options
        if not each.flag.is_argument
    ]
    words = ",\n    ".join([*first, "*", *rest] if rest else first)
    summary = inspect.cleandoc(verb.__doc__ or "").partition("\n\nExamples:")[0].rstrip()
    described = [f"    {each.name}: {each.flag.help}{each.field.default_text}" for each in options]
    doc = textwrap.indent("\n".join([summary, "", "Args:", *described]), "    ").lstrip()
    quotes = 'r"""' if "\\" in doc else '"""'
    return f'def {name}(\n    {words},\n) -> {outcome}:\n    {quotes}{doc}\n    """'


def _render_option(option: Any) -> str:
    default = "" if option.field.is_required else " = None"
    kind = _render_kind(option)
    return f"{option.name}: {kind}{' | None' if default else ''}{default}"


def _render_kind(option: Any) -> str:
    if option.name in _PICTURES | _RUNS or option.name in ("against", "control", "labels"):
        return "Any"
    if choices := option.field.choices:
        return f"Literal[{', '.join(map(repr, choices))}]"
    kinds = get_args(option.field.kind) or (option.field.kind,)
    if option.flag.many:
        index = "int | " * ("int" in str(option.field.kind))
        return f"{index}_Many | Iterable[Any] | Mapping[str, Any]"
    names = {bool: "bool", int: "int", float: "float", str: "str | float", Path: "_Path"}
    plain = [names[each] for each in kinds if each in names]
    if option.flag.read is not None or not plain:
        plain += ["str", "Iterable[Any]"] if option.flag.word else ["str", "Any"]
    return "Any" if "Any" in plain else " | ".join(dict.fromkeys(plain))


if __name__ == "__main__":
    main()
