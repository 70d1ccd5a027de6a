"""A run folder in cloud storage such as S3, where hookcli always writes whole files."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.store.places import storage
from hookcli.store.places.folder import Entry, Folder, Log
from hookcli.store.places.lease import Lease, refuse_locked
from hookcli.store.places.names import JOURNAL, LATER_JOURNAL, LOCKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hookcli.outside.urls import Url


class RemoteFolder(Folder):
    """A run folder in cloud storage, where folders are only parts of file names.

    It keeps a list of the files; only ``lock`` and ``measure`` see the changes of others.
    """

    path: Url
    journals = (JOURNAL, LATER_JOURNAL)

    def __init__(self, path: Url) -> None:
        self.path = path
        self._listed: dict[str, int] | None = None

    def __exit__(self, *_error: object) -> None:
        pass  # no file is open

    def is_in_place(self) -> bool:
        return True

    def lock(self) -> Lease:
        lease = Lease(self.path, self.write)
        self._listed = None
        return lease

    def refuse_locked(self) -> None:
        with suppress(OSError):
            refuse_locked(self.path)

    def open_log(self, name: str) -> _RewrittenFile:
        """Start a log that rewrites its file at every addition; an old file ``name`` is deleted."""
        self.remove([name])
        return _RewrittenFile(self, name)

    def read(self, name: str) -> bytes | None:
        with _explain("read", self.path / name), suppress(FileNotFoundError):
            return storage.read_file(self.path / name)
        return None

    def read_part(self, name: str, start: int, stop: int) -> bytes:
        return storage.read_file(self.path / name, start, stop)

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        with _explain("read", self.path):
            yield from storage.read_files([self.path / name for name in names])

    def write(self, name: str, data: bytes) -> str:
        with _explain("write", self.path / name):
            storage.write_file(self.path / name, data)
        if self._listed is not None:
            self._listed[name] = len(data)
        return name

    def write_all(self, files: Mapping[str, bytes]) -> None:
        with _explain("write", self.path):
            storage.write_files({self.path / name: data for name, data in files.items()})
        if self._listed is not None:
            self._listed |= {name: len(data) for name, data in files.items()}

    def find(self, name: str) -> Entry | None:
        files = self._list()
        if name in files:
            return Entry(files[name], is_file=True)
        is_folder = any(file.startswith(f"{name}/") for file in files)
        return Entry(0, is_folder=True) if is_folder else None

    def is_file(self, name: str) -> bool:
        return name in self._list()

    def measure(self, names: Iterable[str]) -> dict[str, int | None]:
        self._listed = None
        files = self._list()
        return {name: files.get(name) for name in names}

    def remove(self, names: Iterable[str]) -> None:
        names = sorted(names)
        with _explain("write", self.path):
            storage.remove_files([self.path / name for name in names])
        for name in names:
            if self._listed is not None:
                self._listed.pop(name, None)

    def remove_partial(self, names: Iterable[str]) -> None:
        pass  # cloud storage never has half-written files

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        prefix = f"{name}/" if name else ""
        found: dict[str, Entry] = {}
        for file, size in self._list().items():
            if file.startswith(prefix):
                first, slash, _ = file.removeprefix(prefix).partition("/")
                found[prefix + first] = (
                    Entry(0, is_folder=True) if slash else Entry(size, is_file=True)
                )
        yield from sorted(found.items(), key=lambda item: item[0])

    def _list(self) -> dict[str, int]:
        if self._listed is None:
            with _explain("read", self.path):
                files = storage.list_files(self.path)
            self._listed = {
                name: size for name, size in files.items() if not name.startswith(f"{LOCKS}/")
            }
        return self._listed


class _RewrittenFile(Log):
    """A log in cloud storage, which cannot append to files: each addition writes the whole file."""

    def __init__(self, folder: RemoteFolder, name: str) -> None:
        self._folder, self._name = folder, name
        self._data = b""

    def add(self, data: bytes) -> None:
        self._data += data
        self._folder.write(self._name, self._data)

    def close(self) -> None:
        pass


@contextmanager
def _explain(verb: str, place: Url) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        is_away = isinstance(error, storage.StorageError)
        raise OutputError(
            f"cannot {verb} {str(place)!r}: {error.strerror or error}",
            storage.TRY_AGAIN if is_away else f"name a folder that you may {verb}",
        ) from error
