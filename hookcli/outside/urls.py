"""Convert names to paths on this machine or to URLs; refuse URLs that hold a password or a key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from hookcli.errors import RequestError

T = TypeVar("T")

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")
_SECRET = re.compile(
    r"(^|_)(key|apikey|secret|token|pass|passwd|password|passphrase|credentials?|auth|authorization"
    r"|signature|sig|sas|connection_string)(_|$)",
    re.I,
)
# Names for objects in a program's memory: folders of pictures or of runs, and models
HELD, IN_MEMORY = "memory://hookcli", " in memory"
_HELD_FOLDER, _IN_HELD = re.compile(rf"'?{HELD}/\d+(?![\d/])'?"), re.compile(rf"{HELD}/\d+/")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")


class Url(str):
    """The URL of a folder or file; ``/``, ``name`` and ``absolute`` work as in a ``Path``."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.rstrip("/").rpartition("/")[2]

    def absolute(self) -> Url:
        return self

    resolve = absolute

    def as_uri(self) -> str:
        return str(self)


Location: TypeAlias = Path | Url
"""Where a folder or file is: its path on this machine, or its URL."""


def shown(text: str) -> str:
    """Shorten URLs in memory: of a file to its name (``a.png``), of a folder to ``memory``."""
    return _IN_HELD.sub("", _HELD_FOLDER.sub("memory", text)) if HELD in text else text


def choose(name: str | Path, local: T, remote: T) -> T:
    return remote if _is_url(str(name)) else local


def _is_url(name: str) -> bool:
    scheme = _SCHEME.match(name)
    return scheme is not None and scheme[1] != "file"


def to_location(name: str | Path) -> Location:
    """Convert a name to a path or a URL. A URL with a password or a key raises a RequestError."""
    name = str(name)
    if not _is_url(name):
        return Path(to_local(name))
    try:
        parts = urlsplit(name)
        host = parts.hostname
    except ValueError as error:
        raise RequestError(f"{name!r} is no URL: {error}") from error
    user = parts.username if parts.scheme.startswith("http") else None  # a token, on web servers
    if parts.password or user or any(map(is_secret, parse_qs(parts.query))):
        what = f"the URL on {host} holds a password or a key, which would be saved with its name"
        raise RequestError(what, "credentials are taken from the environment")
    if not name.partition("://")[2].strip("/"):
        raise RequestError(f"{name!r} names no bucket or server", "s3://bucket/folder")
    return Url(name)


def is_secret(name: str) -> bool:
    return _SECRET.search(_CAMEL.sub("_", name)) is not None


def to_local(name: str) -> str:
    if not name.startswith("file:///"):
        return name
    path = unquote(name.removeprefix("file://"))
    return path[1:] if Path(path[1:]).drive else path  # of /C:/data, on Windows
