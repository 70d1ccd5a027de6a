"""Decode JSON documents as dataclasses, and describe dataclasses by a JSON Schema.

A damaged or foreign file is rejected here, before hookcli computes anything from it. Unknown fields
are ignored. The schema takes its descriptions from ``Attributes`` in docstrings of dataclasses.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType, NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from hookcli.outside.files import read_regular
from hookcli.outside.flags import list_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from _typeshed import DataclassInstance

T = TypeVar("T")

SCHEMA_VERSION = 1  # the version that hookcli writes, and the newest that it reads
MOST_BYTES = 1 << 30  # of one JSON file; report.json of 100,000 images has about 300 MB

# Splits the text of an msgspec error into the problem and its position in the document.
_REASON = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?")
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)  # of a docstring
_MISSING = re.compile(r"Object missing required field `(\w+)`")
MOST_VALUES = 2**62  # no tensor has more values
PARTS = "#/$defs/"  # the beginning of references within a schema
LEFT_OUT = MappingProxyType({"left out": True})
"""The metadata of a dataclass field that is left out of JSON when it is empty."""
_EMPTY: tuple[object, ...] = (None, (), "", {})


def keywords(**values: object) -> Meta:
    """Return constraints such as ``minimum=0`` for the JSON Schema; reading does not check them."""
    return Meta(extra_json_schema=values)


_ROWS = keywords()
Rows: TypeAlias = Annotated[tuple[T, ...], _ROWS]
"""Marks the field of a document that lists the rows of a command's outcome, in any order."""


def find_row_type(document: type[DataclassInstance]) -> Any:
    hints = get_type_hints(document, include_extras=True).values()
    (rows,) = (hint for hint in hints if _ROWS in getattr(hint, "__metadata__", ()))
    return get_args(get_args(rows)[0])[0]


def at_least(parts: int) -> Meta:
    return Meta(min_length=parts)


Whole: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_VALUES)]
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_VALUES)]
Axes: TypeAlias = Annotated[tuple[Whole, ...], Meta(max_length=64)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Distance: TypeAlias = Annotated[float, keywords(minimum=0)]
Sha256: TypeAlias = Annotated[str, keywords(pattern="^([0-9a-f]{64})?$")]
Scalar: TypeAlias = str | float | bool | None
# The name of a picture that a run wrote; it cannot lead out of the run folder.
_IN_FOLDER = r"[\w-][\w.#-]*(/[\w-][\w.#-]*)*"
FileName: TypeAlias = Annotated[str, Meta(pattern=rf"(?a)^{_IN_FOLDER}\Z")]
Colour: TypeAlias = Annotated[str, Meta(pattern="^#[0-9a-f]{6}$")]
NoFileName: TypeAlias = Annotated[str, Meta(pattern=rf"(?a)^({_IN_FOLDER})?\Z")]  # or empty
_MOST_LEVELS = 64  # of nesting; documents of hookcli have fewer than ten


class DamagedError(ValueError):
    """Raised for a file that is not a valid file of hookcli; the text says where and why."""


class LaterVersionError(DamagedError):
    """Raised for a schema version that hookcli cannot read; callers add the name of the file."""


def decode(data: bytes, kind: type[T]) -> T:
    """Decode JSON as ``kind``, or raise a DamagedError. The schema version is not checked."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(error) from error
    refuse_deep(value)
    return value


def decode_both(data: bytes, kind: type[T]) -> tuple[dict[str, object], T]:
    document = decode(data, dict[str, object])
    return document, convert(document, kind)


def decode_escaped(data: bytes, kind: type[T]) -> T:
    """Decode JSON that may hold ``Infinity``, ``NaN`` or lone surrogates, which msgspec rejects."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(error) from error
    refuse_deep(document)
    return convert(document, kind)


def encode_escaped(value: object) -> bytes:
    return json.dumps(msgspec.to_builtins(value)).encode()


def convert(document: object, kind: type[T]) -> T:
    if isinstance(document, dict):
        version = document.get("schema_version", SCHEMA_VERSION)
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            raise LaterVersionError(
                f"has schema version {version!s:.40}, but this version reads up to {SCHEMA_VERSION}"
            )
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise _damaged(error) from error  # msgspec cannot look up a key with a surrogate


def read_document(file: Path, kind: type[T]) -> T:
    return decode(read_regular(file, MOST_BYTES), kind)


def refuse_deep(document: object) -> None:
    """Raise a DamagedError if lists and objects are nested too deeply for recursive functions."""
    level = [document]
    for _ in range(_MOST_LEVELS):
        level = [
            part
            for each in level
            if isinstance(each, (dict, list))
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return
    raise _damaged(RecursionError())


def _damaged(error: Exception) -> DamagedError:
    if isinstance(error, RecursionError):
        return DamagedError("it is nested too deeply")
    match = _REASON.fullmatch(str(error).strip().splitlines()[0])
    reason, path = (match[1], match[2]) if match else (str(error), None)
    if repr(_IN_FOLDER)[1:-1] in reason:
        reason = "Expected the name of a file in the run folder"
    if missing := _MISSING.fullmatch(reason):
        reason = f"{path or 'it'} lacks {missing[1]!r}"
    elif path and reason.startswith("Expected"):
        reason = f"{path}: e{reason[1:]}"
    return DamagedError(reason[:200])


def to_fields(value: DataclassInstance) -> dict[str, Any]:
    """Map names of a dataclass's fields to values, in order, without empty ``LEFT_OUT`` fields."""
    found = [(name, getattr(value, name), always) for name, always in _list_fields(type(value))]
    return {name: part for name, part, always in found if always or part not in _EMPTY}


@functools.cache
def _list_fields(kind: type[DataclassInstance]) -> list[tuple[str, bool]]:
    return [(each.name, each.metadata != LEFT_OUT) for each in fields(kind)]


def value_types(kind: type[DataclassInstance]) -> dict[str, type]:
    found = {}
    for name, hint in get_type_hints(kind).items():
        types = get_args(hint)
        value = types[0] if NoneType in types else hint
        found[name] = get_origin(value) or value
    return found


def describe_types(kinds: Iterable[type[DataclassInstance]]) -> dict[str, dict[str, Any]]:
    every = {kind.__name__: kind for each in kinds for kind in _list_types(each)}
    _, parts = msgspec.json.schema_components(every.values(), ref_template=f"{PARTS}{{name}}")
    return {name: _describe_type(every[name], part) for name, part in parts.items()}


def _list_types(hint: Any) -> Iterator[type[DataclassInstance]]:
    if is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for each in get_type_hints(hint).values() if is_dataclass(hint) else get_args(hint):
        yield from _list_types(each)


def _describe_type(kind: type[DataclassInstance], part: dict[str, Any]) -> dict[str, Any]:
    text, properties = _read_docstring(kind)[0], {}
    texts = {k: v for base in reversed(kind.__mro__) for k, v in _read_docstring(base)[1].items()}
    for each in list_fields(kind):
        if each.flag is not None:  # a request's field, whose option has a help text
            help_text = each.flag.help.partition("  [")[0]
            texts[each.name] = f"{help_text} {texts.get(each.name, '')}".strip()
    declared = {each.name: each.metadata.get("text") for each in fields(kind)}
    texts |= {name: f"{_as_sentences(text)}." for name, text in declared.items() if text}
    for name, _ in _list_fields(kind):
        schema = part["properties"][name]
        schema.pop("default", None)
        own = {"description": texts[name]} if name in texts else {}
        properties[name] = {"description": ""} | schema | own
    return {
        "description": text,
        "type": "object",
        "properties": properties,
        "required": [name for name, always in _list_fields(kind) if always],
        "additionalProperties": False,
    }


def _read_docstring(kind: type) -> tuple[str, dict[str, str]]:
    text, _, entries = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:\n")
    found = _ATTRIBUTE.findall(entries)
    return _as_sentences(text), {name: _as_sentences(words) for name, words in found}


def _as_sentences(text: str) -> str:
    plain = " ".join(text.split())
    return (plain[:1].upper() + plain[1:]).replace("``", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A JSON document, with the version of the document format.

    Attributes:
        schema_version: the version of the document format. A new version of the format removes a
            field, or changes the meaning or type of a field; new fields do not change the version.
    """

    schema_version: Annotated[int, keywords(const=SCHEMA_VERSION)] = SCHEMA_VERSION


def refuse_twice(noun: str, names: list[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"the {noun} {name!r} appears {times} times")
