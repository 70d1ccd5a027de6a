"""Translate messages that name parts of the Python API into the words of the command line."""
# Messages put these names in backticks, such as `cluster.cpus`, `size=32`, `hookcli.layers(MODEL)`.
# A field's path is shortened from the left, as far as it stays unique.

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hookcli.config import CompareConfig
from hookcli.outside.flags import REFERENCE, find_nearest, list_fields, list_paths
from hookcli.verbs import subjects

if TYPE_CHECKING:
    from hookcli.outside.flags import Flag

# The options that print the rows or the document of an outcome, which messages name.
_SHOWN = {"rows": "--format csv", "document": "--format json"}


def to_words(text: str) -> str:
    """Replace the names of fields in a message by options, and names of functions by commands."""
    return REFERENCE.sub(lambda found: find_words(*found.groups()) or found[0], text)


def find_words(name: str, value: str | None = None, arguments: str | None = None) -> str:
    """Return the command-line words for a name that a message has in backticks.

    For a field, return its option, with ``value`` if there is one. For a function, return its
    command, with options for its ``arguments``. For any other name, return "".
    """
    command = name.removeprefix("hookcli.")
    if command != name and command in subjects.COMMANDS:
        given = (each.partition("=") for each in (arguments or "").split(", ") if each)
        words = (find_words(word, text) if sign else word for word, sign, text in given)
        return " ".join(["hookcli", command, *words])
    if name in _SHOWN:
        return _SHOWN[name]
    if (flag := find_nearest(_list_options(), name)) is None:
        return ""
    if value is not None:
        option = flag.list_words(_read_value(value, flag))[flag.is_argument :]
        is_negative = len(option) == 2 and option[1].startswith("-")  # --range=-1024,3071
        return shlex.join(["=".join(option)] if is_negative else option)
    if flag.word:
        return " ".join(flag.list_words(True))
    return "-o" if "-o" in flag.names else flag.name  # users know -o, but -0 looks like a number


def _read_value(text: str, flag: Flag) -> Any:
    """Parse a value from a message: a Python literal, perhaps inside ``NAME(…)``, or plain text."""
    request = re.fullmatch(r"\w+\((.+)\)", text)
    try:
        return ast.literal_eval(request[1] if request else text)
    except (SyntaxError, ValueError):
        return (text,) if flag.many else text


@cache
def _list_options() -> list[tuple[str, Flag]]:
    found = list(list_paths(list_fields(CompareConfig)))  # no verb has this as a parameter
    for name in subjects.COMMANDS:
        found += list_paths(getattr(import_module(f"hookcli.verbs.{name}"), name).verb.fields)
    return found
