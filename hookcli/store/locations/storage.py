"""Read and write single files in cloud storage (``s3://``, ``gs://``, …) through fsspec.

Functions raise a ``RequestError`` for a URL that fsspec cannot use, a ``StorageError`` if the
service fails, and another ``OSError`` if only the file is at fault, such as a
``FileNotFoundError``. After a temporary error, they try again for 20 seconds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from hookcli.errors import OutputError, RequestError
from hookcli.outside.foreign import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

_PATIENCE = 20.0  # seconds after which hookcli stops retrying
_PAUSE = 0.2  # seconds before the second try; each pause is doubled, and lengthened at random
_OF_ONE_FILE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_REFUSED = {"", "403", "401", "AccessDenied"}  # a PermissionError with these is about one file
_EXISTS = {"412", "PreconditionFailed"}
_MAY_PASS = {"408", "429"}  # the status codes from 400 to 499 after which a retry may succeed
_THREADS = 16  # files to read or delete at once
_CHANGED = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
_PACKAGES = {
    "gcs": "hookcli[gs]",
    "gs": "hookcli[gs]",
    "http": "fsspec[http]",
    "https": "fsspec[http]",
    "s3": "hookcli[s3]",
    "s3a": "hookcli[s3]",
}

TRY_AGAIN = "try again when the storage can be used; `resume=True` continues a run"


class StorageError(OSError):
    """A storage service is unreachable, or rejects the credentials or the request."""

    def explain(self, file: object) -> OutputError:
        return OutputError(f"cannot read {str(file)!r}: {self.strerror}", TRY_AGAIN)


_options: dict[str, object] = {}


def use_options(options: Iterable[tuple[str, str]]) -> None:
    _options.clear()
    for name, text in options:
        try:
            _options[name] = json.loads(text)
        except ValueError:
            _options[name] = text


def list_options() -> tuple[tuple[str, str], ...]:
    return tuple((name, json.dumps(value)) for name, value in _options.items())


def check_url(url: str) -> None:
    _open(url)


def read_file(url: str, start: int | None = None, stop: int | None = None) -> bytes:
    filesystem, path = _open(url)
    return bytes(_retry(lambda: filesystem.cat_file(path, start=start, end=stop)))


def read_files(urls: Sequence[str]) -> Iterator[bytes]:
    def read(url: str) -> bytes:
        try:
            return read_file(url)
        except FileNotFoundError:
            return b""

    with ThreadPoolExecutor(_THREADS) as threads:
        yield from threads.map(read, urls)


def write_file(url: str, data: bytes) -> None:
    filesystem, path = _open(url)
    _retry(lambda: filesystem.pipe_file(path, data))


def write_files(files: Mapping[str, bytes]) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(write_file, files, files.values()))


def create_file(url: str, data: bytes) -> None:
    """Write a new file, atomically if the storage can; raise a FileExistsError if it exists."""
    filesystem, path = _open(url)
    _retry(lambda: filesystem.pipe_file(path, data, mode="create"))


def has_conditional_writes(url: str) -> bool:
    # fsspec's default checks for the file and then writes it, so two processes could both succeed.
    from fsspec import AbstractFileSystem

    method = _open(url)[0].pipe_file
    return getattr(method, "__func__", method) is not AbstractFileSystem.pipe_file


def remove_file(url: str) -> None:
    filesystem, path = _open(url)
    with contextlib.suppress(FileNotFoundError):
        _retry(lambda: filesystem.rm_file(path))


def remove_files(urls: Iterable[str]) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(remove_file, urls))


def list_files(url: str) -> dict[str, int]:
    """Map the relative name of each file in a folder and its subfolders to its size in bytes."""
    filesystem, path = _open(url)

    def find() -> dict[str, dict[str, Any]]:
        filesystem.invalidate_cache()
        found = dict(filesystem.find(path, detail=True))
        filesystem.invalidate_cache()  # fsspec's cache takes more memory than the names
        return found

    prefix = f"{path.rstrip('/')}/"
    found: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(FileNotFoundError):  # there is no such bucket
        found = _retry(find)
    return {
        name.removeprefix(prefix): int(facts.get("size") or 0)
        for name, facts in sorted(found.items())
        if name.startswith(prefix) and not name.endswith("/")
    }


def match_urls(pattern: str) -> list[str]:
    start = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    filesystem, path = _open(pattern)
    above = f"{_open(start)[1].rstrip('/')}/"
    found = _retry(lambda: filesystem.glob(path))
    inside = (name.removeprefix(above) for name in found if name.startswith(above))
    return [f"{start}/{name}" for name in inside if name]


def is_folder(url: str) -> bool:
    filesystem, path = _open(url)
    return bool(_retry(lambda: filesystem.isdir(path)))


def find_state(url: str) -> tuple[int, int]:
    """Return the size of a file in bytes, and the time of its last change in ns since 1970."""
    # In whole seconds, because S3 may report a more precise time in listings than elsewhere
    filesystem, path = _open(url)
    facts = _retry(lambda: filesystem.info(path))
    if facts.get("type") == "directory":
        raise IsADirectoryError(errno.EISDIR, "is a folder", url)
    changed = _to_seconds(next((facts[key] for key in _CHANGED if facts.get(key)), 0))
    return int(facts.get("size") or 0), int(changed) * 10**9


def _to_seconds(moment: datetime | float | str) -> float:
    if isinstance(moment, str):
        return datetime.fromisoformat(moment).timestamp()
    return moment if isinstance(moment, (int, float)) else moment.timestamp()


def _open(url: str) -> tuple[Any, str]:
    from fsspec import get_filesystem_class

    scheme = url.partition("://")[0]
    try:
        kind = get_filesystem_class(scheme)
        filesystem = kind(**kind._get_kwargs_from_urls(str(url)) | _options)
        path = kind._strip_protocol(str(url))
    except ImportError as error:
        package = _PACKAGES.get(scheme)
        hint = f"pip install '{package}'" if package else first_line(error)
        raise RequestError(f"{scheme}:// needs a package that is not installed", hint) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise RequestError(f"cannot use {url!r}: {first_line(error)}", "") from error
    return filesystem, path


class _Tries(contextlib.AbstractContextManager[Any]):
    """A ``with`` block around one request; it swallows an error if the caller should try again."""

    def __init__(self) -> None:
        self._end, self._pause = time.monotonic() + _PATIENCE, _PAUSE

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """After a temporary error, wait and return True. Raise or pass on any other error."""
        if not isinstance(error, Exception) or isinstance(error, _OF_ONE_FILE):
            return False
        code = _find_code(error)
        if code in _EXISTS:
            raise FileExistsError(errno.EEXIST, first_line(error)) from error
        if isinstance(error, PermissionError) and code in _REFUSED:
            return False
        if code.isdecimal() and 400 <= int(code) < 500 and code not in _MAY_PASS:
            raise _ANSWERS.get(code, OSError)(errno.EINVAL, first_line(error)) from error
        is_wrong = isinstance(error, (PermissionError, NotImplementedError, ValueError, TypeError))
        left = self._end - time.monotonic()
        if left <= 0 or is_wrong or "Credentials" in type(error).__name__:
            raise StorageError(errno.EIO, first_line(error)) from error
        time.sleep(min(left, self._pause * random.uniform(1, 2)))  # noqa: S311
        self._pause *= 2
        return True


_ANSWERS = {"401": PermissionError, "403": PermissionError, "404": FileNotFoundError}


def _find_code(error: Exception) -> str:
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        for name in ("status", "code"):
            if isinstance(code := getattr(each, name, None), int):
                return str(code)
    return ""


def _retry(do: Callable[[], T]) -> T:
    tries = _Tries()
    while True:
        with tries:
            return do()
