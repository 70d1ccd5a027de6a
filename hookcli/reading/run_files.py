"""Read local or remote run folders; refuse unfinished and damaged runs, and links that lead out."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from hookcli.errors import HookcliError, RequestError, hint_near
from hookcli.outside.documents import MOST_BYTES, DamagedError, LaterVersionError, decode_both
from hookcli.outside.files import OutsideError, open_regular, read_stream, write_atomic
from hookcli.outside.foreign import first_line
from hookcli.outside.urls import HELD, choose, shown
from hookcli.records.text import and_more
from hookcli.store.locations import storage
from hookcli.store.locations.names import REQUEST, is_run_file
from hookcli.store.locations.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hookcli.outside.urls import Location, Url

T = TypeVar("T")

AGAIN = "run `hookcli.inspect` again"
UPGRADE = "a later version wrote it: pip install --upgrade hookcli"


class RunFiles(Protocol):
    """Reads the files of a run folder, by their paths in the folder, without locking the folder."""

    location: Location

    def exists(self) -> bool: ...

    def has(self, name: str) -> bool: ...

    def measure(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if no regular file has this name."""

    def open(self, name: str) -> BinaryIO:
        """Open a regular file; raise an OSError if it cannot be opened."""

    def read(self, name: str, most: int = MOST_BYTES) -> bytes:
        with self.open(name) as stream:
            return read_stream(stream, name, most)


class LocalFiles(RunFiles):
    """Reads the files of a local run folder; a link that leads out of it raises an OutsideError."""

    location: Path

    def __init__(self, location: Path) -> None:
        self.location = location

    def exists(self) -> bool:
        return self.location.is_dir()

    def has(self, name: str) -> bool:
        return (self.location / name).exists()

    def measure(self, name: str) -> int | None:
        try:
            status = self._locate(name).stat()
        except (OSError, ValueError):  # ValueError: a file cannot have this name
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def open(self, name: str) -> BinaryIO:
        return open_regular(self._locate(name))

    def _locate(self, name: str) -> Path:
        path = self.location / name
        real, inside = os.path.realpath(path), os.path.realpath(self.location)
        if not Path(real).is_relative_to(inside) or Path(real).is_symlink():
            raise OutsideError(errno.ELOOP, "it is a link out of the run folder", str(path))
        return path


class RemoteFiles(RunFiles):
    """Reads files of a run folder in cloud storage, through local copies, or in memory."""

    location: Url

    def __init__(self, location: Url) -> None:
        self.location = location
        self._folder = RemoteFolder(location)
        self._copies: Path | None = None

    def exists(self) -> bool:
        return next(self._folder.entries(), None) is not None

    def has(self, name: str) -> bool:
        return self._folder.is_file(name)

    def measure(self, name: str) -> int | None:
        found = self._folder.find(name)
        return found.size if found and found.is_file else None

    def open(self, name: str) -> BinaryIO:
        if not is_run_file(name):
            raise FileNotFoundError(errno.ENOENT, "is not a file of a run", name)
        if self.location.startswith(HELD):
            return io.BytesIO(storage.read_file(self.location / name))
        if self._copies is None:
            self._copies = Path(tempfile.mkdtemp(prefix="hookcli-"))
            weakref.finalize(self, shutil.rmtree, self._copies, ignore_errors=True)
        if not (copy := self._copies / name).exists():
            write_atomic(copy, storage.read_file(self.location / name))
        return open_regular(copy)


def quote(location: Location) -> str:
    return shown(repr(str(location)))


def open_files(location: Location) -> RunFiles:
    kind: Callable[[Location], RunFiles] = choose(location, LocalFiles, RemoteFiles)
    return kind(location)


def require_file(run: RunFiles, name: str) -> None:
    folder, hint = quote(run.location), "give the folder of a run"
    if not run.exists():
        raise RequestError(f"there is no folder {folder}", hint)
    if not run.has(name) and not run.has(REQUEST):
        raise RequestError(f"{folder} is not the folder of a run", hint)
    if not run.has(name):
        hint = "finish it with the same command and `resume=True`"
        raise RequestError(f"{folder} is the folder of an unfinished run", hint)


def read_json(run: RunFiles, name: str, kind: type[T]) -> tuple[dict[str, object], T]:
    file = run.location / name
    try:
        return decode_both(run.read(name), kind)
    except LaterVersionError as error:
        raise RequestError(f"{quote(file)} {error}", UPGRADE) from error
    except DamagedError as error:
        raise RequestError(f"{quote(file)} is damaged: {error}", AGAIN) from error
    except OSError as error:
        raise cannot_read(file, error) from error


def cannot_read(file: Location, error: Exception) -> HookcliError:
    if isinstance(error, storage.StorageError):
        return error.explain(file)
    reason = getattr(error, "strerror", None) or first_line(error)
    return RequestError(f"cannot read {quote(file)}: {reason}", AGAIN)


def name_close(wanted: str, known: Iterable[str]) -> str:
    names = list(known)
    some = f"there are: {', '.join(names[:5])}{and_more(len(names) - 5)}"
    return hint_near(wanted, names, some)
