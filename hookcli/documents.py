"""What hookcli reads back from disk, decoded into typed values: anything that hookcli does not write is refused.

JSON is decoded by msgspec against the types below, so that a file that was damaged, or made by
somebody else, is known to be so in one place, before anything is computed from it. Fields that are
not named here are ignored: a later version may write more of them.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from hookcli.files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

SCHEMA_VERSION = 1  # the newest that is understood
MOST_BYTES = 1 << 30  # of one JSON file; the page's data of 100,000 images are about 300 MB

# How msgspec says what is wrong, and where.
_REASON = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
MOST_VALUES = 2**62  # what is larger is no tensor's shape
Whole: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_VALUES)]
Axes: TypeAlias = Annotated[tuple[Whole, ...], Meta(max_length=64)]
Scalar: TypeAlias = str | float | bool | None


class DamagedError(ValueError):
    """A file is not what hookcli writes; the text says where and why."""


class LaterVersionError(DamagedError):
    """A later version of hookcli wrote a file; the text goes on after the file's name."""


def decode(data: bytes, kind: type[T]) -> T:
    """Read JSON as a value of ``kind``.

    Raises:
        LaterVersionError: its ``schema_version`` is not known yet.
        DamagedError: it is no JSON, or not of this kind.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(error) from error


def decode_both(data: bytes, kind: type[T]) -> tuple[dict[str, object], T]:
    """Read a JSON object as it is, and as a value of ``kind``.

    Raises:
        LaterVersionError: its ``schema_version`` is not known yet.
        DamagedError: it is no JSON, or not of this kind.
    """
    document = decode(data, dict[str, object])
    return document, convert(document, kind)


def decode_escaped(data: bytes, kind: type[T]) -> T:
    """Read JSON as ``decode`` does, whose text may stand for names that are not UTF-8.

    Python writes such a name as a lone surrogate, which msgspec does not read.

    Raises:
        DamagedError: it is no JSON, or not of this kind.
    """
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(error) from error
    return convert(document, kind)


def encode_escaped(value: object) -> bytes:
    """The JSON of a typed value, which ``decode_escaped`` reads: bytes as base64, any name as text."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def convert(document: object, kind: type[T]) -> T:
    """Read what JSON gave as a value of ``kind``.

    Raises:
        LaterVersionError: its ``schema_version`` is not known yet.
        DamagedError: it is not of this kind.
    """
    if isinstance(document, dict):
        check_version(document.get("schema_version", SCHEMA_VERSION))
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _damaged(error) from error


def check_version(version: object) -> None:
    """Refuse what a later version of hookcli wrote.

    Raises:
        LaterVersionError: the schema version is not known yet.
    """
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise LaterVersionError(
            f"has schema version {version!s:.40}, and this hookcli reads up to {SCHEMA_VERSION}"
        )


def read_document(file: Path, kind: type[T]) -> T:
    """Read a JSON file as a value of ``kind``.

    Raises:
        OSError: it cannot be read, or is no regular file.
        DamagedError: it is no JSON, or not of this kind.
    """
    return decode(read_regular(file, MOST_BYTES), kind)


def _damaged(error: Exception) -> DamagedError:
    if isinstance(error, RecursionError):
        return DamagedError("it is nested too deeply")
    match = _REASON.fullmatch(str(error).strip().splitlines()[0])
    reason, place = (match[1], match[2]) if match else (str(error), None)
    if missing := _MISSING.fullmatch(reason):
        reason = f"{place or 'it'} lacks {missing[1]!r}"
    elif place and reason.startswith("Expected"):
        reason = f"{place}: e{reason[1:]}"
    return DamagedError(reason[:200])


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What ``run.json`` says: that a run of hookcli was begun, and what was asked of it.

    Attributes:
        hookcli: the version that wrote it.
        command: the words that repeat the run; the first is ``hookcli``.
        model: facts about the model.
        layers: the layers that were chosen.
    """

    hookcli: str
    command: Annotated[tuple[str, ...], Meta(min_length=2)]
    schema_version: int = SCHEMA_VERSION
    model: dict[str, object] = field(default_factory=dict)
    layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no run of hookcli."""
        if self.command[0] != "hookcli":
            raise ValueError("its command is not one of hookcli")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList(Request):
    """What ``manifest.json`` says of the files of a run that is complete.

    Attributes:
        files: their names, relative to the run folder, without the manifest itself.
        sizes: how many bytes each has; empty in what earlier versions wrote.
    """

    files: tuple[str, ...]
    sizes: dict[str, Whole] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What must be known of the model of a run.

    Attributes:
        name: as asked for.
        dtype: of parameters and pixels.
    """

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What must be known of an image of a run.

    Attributes:
        key: its name in the run.
        file: as the user gave it.
        sha256: of the file's bytes.
        pixels_shape: of what the network was given, with the leading axis 1; empty where that is not known.
    """

    key: str
    file: str
    sha256: str
    pixels_shape: Axes = ()
    width: Whole = 0
    height: Whole = 0
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse pixels that no network could have been given."""
        if 0 in self.pixels_shape or math.prod(self.pixels_shape) > MOST_VALUES:
            raise ValueError(f"the pixels of {self.key!r} have no shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a manifest and a golden file say of a run that came to its end.

    Attributes:
        hookcli: the version that wrote it.
        command: the words that repeat the run.
        model: which model ran.
        versions: of what the run depended on.
        images: those that went through the model; no key stands there twice.
        skipped: those that did not.
    """

    command: tuple[str, ...]
    model: ModelFacts
    versions: dict[str, Scalar]
    images: tuple[ImageFacts, ...]
    hookcli: str = ""
    skipped: tuple[dict[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse images of one key."""
        refuse_twice("image", [image.key for image in self.images])


class _MoreFigures(TypedDict, total=False):
    layout: str | None
    reason: str | None


class CallFigures(_MoreFigures):
    """The figures of one call for one image, as a golden file and ``records.parquet`` hold them.

    ``layout`` and ``reason`` are not there in what earlier versions wrote.
    """

    image: str
    call_id: str
    module_type: str
    shape: Annotated[list[Whole], Meta(max_length=64)]
    dtype: str
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    nan_count: Whole | None
    inf_count: Whole | None


class _MoreOfRecord(TypedDict, total=False):
    sketch: bytes | None


class RecordRow(CallFigures, _MoreOfRecord):
    """A row of ``records.parquet``, the columns that later commands look at."""

    side: str
    zero_fraction: float | None


def refuse_twice(noun: str, names: list[str]) -> None:
    """Refuse names of which one stands there more than once.

    Raises:
        ValueError: one does.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the {noun} {name!r} stands there {names.count(name)} times")
        seen.add(name)
