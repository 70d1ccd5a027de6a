"""Options of the command line, each declared on the field of the request that it fills.

A field with an option is ``Annotated[int, Flag("--tile PX", "Longest side of a channel.")]``. The
command line, its checks, and the command that repeats a run are made from these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Flag:
    """An option or an argument of the command line.

    Attributes:
        usage: the names, and the word for the value in ``--help``: ``-o --out DIR``. A name without
            dashes belongs to an argument. A field that is True unless the option is given has a
            name such as ``--no-recursive``.
        help: the text for ``--help``.
        at_least: the smallest allowed number; None for any.
        at_most: the largest allowed number; None for any.
        read: makes a value from a text and the option's name; None if the field's type is enough.
        write: turns the value back into a text.
        many: the option may be given several times; the field's value is a tuple with one item for
            each time.
        word: one of the words that ``read`` finds; the field is set if that word is given. Fields
            that share an option have a word each.
        none: an option and its text that mean None for this field.
        panel: the panel in ``--help`` if the docstring of the request names none.
        late: the option comes after the other options of its panel.
        in_diff: hookcli diff reports a difference in this option: it affects the layers' outputs,
            and only the command of a run records its value.
        always: the command that repeats a run includes it even with its default value.
        repeats: the command that repeats a run includes it.
    """

    usage: str
    help: str = ""
    at_least: int | None = None
    at_most: int | None = None
    read: Callable[[str, str], Any] | None = None
    write: Callable[[Any], str] | None = None
    many: bool = False
    word: str = ""
    none: tuple[str, str] | None = None
    panel: str = ""
    late: bool = False
    in_diff: bool = False
    always: bool = False
    repeats: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names, such as ``-o`` and ``--out``; an argument's name has no dashes."""
        words = self.usage.split()
        return tuple(each for each in words if each.startswith("-")) or (words[0],)

    @property
    def metavar(self) -> str | None:
        """The word for the value in ``--help``; None if there is no value."""
        return next((each for each in self.usage.split() if each not in self.names), None)

    @property
    def is_argument(self) -> bool:
        """Whether this is an argument, which has no name on the command line."""
        return not self.usage.startswith("-")

    @property
    def name(self) -> str:
        """The long name, for messages."""
        return self.names[-1]

    @property
    def parameter(self) -> str:
        """The name as a Python identifier."""
        return self.name.partition("/")[0].strip("-").replace("-", "_")

    def is_none(self, given: Mapping[str, Any]) -> bool:
        """Return whether the given options mean None for the field."""
        return self.none is not None and given.get(self.none[0].strip("-")) == self.none[1]

    def read_given(self, given: Any) -> Any:
        """Return the value of the field for the words given on the command line."""
        if isinstance(given, bool):
            return given and not self.name.startswith("--no-")
        if self.read is None:
            return tuple(given) if self.many else given
        if self.word:
            return self.word in self.read(",".join(given), self.name)
        if self.many:
            return tuple(self.read(each, self.name) for each in given)
        return self.read(given, self.name)

    def list_words(self, value: Any) -> tuple[str, ...]:
        """Return the words of a command for a value of the field."""
        name = self.names[0]
        if self.word:
            return (name, self.word)
        if value is None and self.none is not None:
            return self.none
        if isinstance(value, bool):
            return (name.split("/")[not value if "/" in name else 0],)
        write = self.write or _write
        return tuple(
            word for each in (value if self.many else (value,)) for word in (name, write(each))
        )


def _write(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a request.

    Attributes:
        kind: its type, without the option.
        default: the default value; ``MISSING`` if there is none.
        request: the class of its value if the value is itself a request; None otherwise.
    """

    name: str
    kind: Any
    default: Any
    flag: Flag | None
    request: type | None

    @property
    def is_required(self) -> bool:
        """Whether the request needs a value for this field."""
        return self.default is MISSING

    @property
    def parameter(self) -> str:
        """The name of the field's parameter on the command line: its option's name, or its own."""
        return self.name if self.flag is None else self.flag.parameter

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that the field accepts; empty if its type lists none."""
        kinds = (self.kind, *get_args(self.kind))
        return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())

    @property
    def default_text(self) -> str:
        """The option's help about its default; empty for none."""
        if self.default in (None, (), "", MISSING) or isinstance(self.default, bool):
            return ""
        return f"  [default: {_write(self.default)}]"


@cache
def list_fields(request: type) -> tuple[Field, ...]:
    """Return the fields of a request's class that can be given."""
    hints = get_type_hints(request, include_extras=True)
    given = (each for each in fields(request) if each.init)
    return tuple(read_field(each.name, hints[each.name], each.default) for each in given)


def read_field(name: str, hint: Any, default: Any) -> Field:
    """Return the field that a type with a flag describes."""
    metadata = getattr(hint, "__metadata__", ())
    flags = [each for each in metadata if isinstance(each, Flag)]
    kind = hint.__origin__ if metadata else hint
    classes = (each for each in (kind, *get_args(kind)) if isinstance(each, type))
    request = next((each for each in classes if is_dataclass(each)), None)
    return Field(name, kind, default, flag=flags[0] if flags else None, request=request)


def list_values(
    request: Any, left_out: tuple[type, ...] = (), path: str = ""
) -> Iterator[tuple[Field, Flag, Any]]:
    """Yield each field with a flag, of a request and of the requests in it, with its value.

    The name of a field is its path in the request: ``run.model.seed``. Fields of the classes in
    ``left_out`` are left out.
    """
    kind: Any = type(request)
    for field in list_fields(kind):
        value = getattr(request, field.name)
        name = f"{path}{field.name}"
        if field.flag is not None:
            yield replace(field, name=name), field.flag, value
        if is_dataclass(value) and not isinstance(value, left_out):
            yield from list_values(value, left_out, f"{name}.")


def find_panel(request: type) -> str:
    """Return the panel: the part of a request docstring's first line before a colon, if any."""
    panel, colon, _ = (request.__doc__ or "").partition("\n")[0].partition(": ")
    return panel if colon else ""
