"""Declare command-line options by field annotations like ``Flag("--tile PX", "Longest side.")``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hookcli.errors import RequestError

REFERENCE = re.compile(r"(?<![\w'\"])`([A-Za-z_][\w.]*)(?:=([^`]+)|\(([^`]*)\))?`")
"""Matches a name in backticks in a message: a field, a field with its value, or a function call.

A backtick after a letter or a quote belongs to something else, such as the name of a file.
"""
_OF_JSON = {"null"}  # an option's name; in messages, it means JSON's null


@dataclass(frozen=True, slots=True)
class Flag:
    # The names of the option, and the word for its value: ``-o --out DIR``. An argument has one
    # name without dashes. A name that begins with ``--no-`` sets the field to False.
    usage: str
    help: str = ""
    at_least: int | None = None
    at_most: int | None = None
    # Converts a text, given the option's name, to a value; None: the field's type decides
    read: Callable[[str, str], Any] | None = None
    write: Callable[[Any], str] | None = None  # makes a text of a value; None: ``str``, with commas
    many: bool = False  # whether it may be given several times, each for one item of a tuple
    word: str = ""  # its word, if fields share an option: ``--save tensors,attention``
    none: tuple[str, str] | None = None  # what sets the field to None: ``("--channels", "all")``
    panel: str = ""  # the title of the group in ``--help``, unless the request's docstring names it
    late: bool = False  # whether ``--help`` shows the option after the others of its group
    # Whether ``hookcli diff`` reports that two runs differ in this option. Set this for an option
    # that affects the outputs of layers and is recorded only in a run's command.
    in_diff: bool = False
    always: bool = False  # whether the command that repeats a run has it even with its default
    repeats: bool = True  # whether it belongs in the command that repeats a run at all
    # Other options, ``URL`` or ``@LIST``, separated by ``|``. If the user gives none of those that
    # the command has, the option would have no effect, and hookcli refuses it.
    needs: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        words = self.usage.split()
        return tuple(each for each in words if each.startswith("-")) or (words[0],)

    @property
    def metavar(self) -> str | None:
        return next((each for each in self.usage.split() if each not in self.names), None)

    @property
    def is_argument(self) -> bool:
        return not self.usage.startswith("-")

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def parameter(self) -> str:
        return self.name.partition("/")[0].strip("-").replace("-", "_")

    def is_none(self, given: Mapping[str, Any]) -> bool:
        return self.none is not None and given.get(self.none[0].strip("-")) == self.none[1]

    def read_given(self, given: Any) -> Any:
        if isinstance(given, bool):
            return given and not self.name.startswith("--no-")
        if self.read is None:
            return tuple(given) if self.many else given
        if self.word:
            return self.word in self.read(",".join(given), self.name)
        if self.many:
            pairs = [self.read(each, self.name) for each in given]
            if twice := [key for key, number in Counter(k for k, _ in pairs).items() if number > 1]:
                raise RequestError(f"{self.name} has two values for {twice[0]!r}", "choose one")
            return tuple(pairs)
        return self.read(given, self.name)

    def list_words(self, value: Any) -> tuple[str, ...]:
        name = self.names[0]
        if self.word:
            return (name, self.word)
        if value is None and self.none is not None:
            return self.none
        if isinstance(value, bool):
            return (name.split("/")[not value if "/" in name else 0],)
        write = self.write or _write
        values = value if self.many else (value,)
        return tuple(word for each in values for word in (name, write(each)))


def _write(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: Any  # the type, without the ``Flag``
    default: Any  # ``MISSING`` if there is none
    flag: Flag | None
    request: type | None  # the class of the value if the value is itself a request

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def parameter(self) -> str:
        return self.name if self.flag is None else self.flag.parameter

    @property
    def choices(self) -> tuple[str, ...]:
        kinds = (self.kind, *get_args(self.kind))
        return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())

    @property
    def default_text(self) -> str:
        is_none = self.default in (None, (), "", MISSING) or isinstance(self.default, bool)
        if is_none or (self.flag is not None and "[default: " in self.flag.help):
            return ""
        return f"  [default: {_write(self.default)}]"


@cache
def list_fields(request: type) -> tuple[Field, ...]:
    hints = get_type_hints(request, include_extras=True)
    return tuple(read_field(each.name, hints[each.name], each.default) for each in fields(request))


def read_field(name: str, hint: Any, default: Any) -> Field:
    metadata = getattr(hint, "__metadata__", ())
    flags = [each for each in metadata if isinstance(each, Flag)]
    kind = hint.__origin__ if metadata else hint
    classes = (each for each in (kind, *get_args(kind)) if isinstance(each, type))
    request = next((each for each in classes if is_dataclass(each)), None)
    return Field(name, kind, default, flag=flags[0] if flags else None, request=request)


def list_values(
    request: Any, left_out: tuple[type, ...] = (), path: str = ""
) -> Iterator[tuple[Field, Flag, Any]]:
    """Yield ``(field, option, value)`` for each field of ``request`` that has an option.

    Fields of inner requests have dotted names such as ``run.model.seed``; all names begin with
    ``path``. Inner requests of the types in ``left_out`` are skipped.
    """
    kind: Any = type(request)
    for field in list_fields(kind):
        value = getattr(request, field.name)
        name = f"{path}{field.name}"
        if field.flag is not None:
            yield replace(field, name=name), field.flag, value
        if is_dataclass(value) and not isinstance(value, left_out):
            yield from list_values(value, left_out, f"{name}.")


def list_paths(fields: Iterable[Field], path: str = "") -> Iterator[tuple[str, Flag]]:
    """Yield ``(dotted path, option)`` for each field, and for the fields of inner requests.

    If the option and the field have different names, a second path ends in the option's name. All
    paths begin with ``path``.
    """
    # An optional request, such as ``cluster``, is given by the option of its required field.
    for field in fields:
        parts = () if field.request is None else list_fields(field.request)
        required = (each.flag for each in parts if each.is_required and field.kind != field.request)
        flag = field.flag or next(required, None)
        own_path = f"{path}.{field.name}"
        if flag is not None:
            yield own_path, flag
            if flag.parameter not in (field.name, *_OF_JSON) and not flag.word:
                yield f"{path}.{flag.parameter}", flag
        yield from list_paths(parts, own_path)


def find_nearest(paths: Iterable[tuple[str, Flag]], name: str) -> Flag | None:
    """Return the option whose dotted path ends in ``name`` and has the fewest dots.

    The result is None if no path ends in ``name``, or if several options have the fewest dots.
    """
    found = [(path.count("."), flag) for path, flag in paths if path.endswith(f".{name}")]
    nearest = min((depth for depth, _ in found), default=0)
    flags = {flag.names: flag for depth, flag in found if depth == nearest}
    return next(iter(flags.values())) if len(flags) == 1 else None


def find_panel(request: type) -> str:
    """Return the heading in ``--help``: a docstring up to a colon in its first line, or nothing."""
    panel, colon, _ = (request.__doc__ or "").partition("\n")[0].partition(": ")
    return panel if colon else ""
