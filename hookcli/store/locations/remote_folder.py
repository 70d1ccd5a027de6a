"""Read and list a run folder in cloud storage such as S3, and write whole files into it."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.store.locations import storage
from hookcli.store.locations.folder import Entry, Folder
from hookcli.store.locations.lease import Lease, refuse_locked
from hookcli.store.locations.names import LOCKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hookcli.outside.urls import Url


class RemoteFolder(Folder):
    """A run folder in cloud storage, whose cached list of files ``lock`` and ``measure`` renew."""

    path: Url

    def __init__(self, path: Url) -> None:
        self.path = path
        self._listed: dict[str, int] | None = None
        self._appended: dict[str, bytes] = {}  # the content of files that ``append`` wrote

    def lock(self) -> Lease:
        lease = Lease(self.path)
        self._listed = None
        return lease

    def refuse_locked(self) -> None:
        with suppress(OSError):
            refuse_locked(self.path)

    def append(self, name: str, data: bytes) -> None:
        """Write the whole file again, with ``data`` added: cloud storage cannot append to files."""
        whole = (self._appended.get(name) or self.read(name) or b"") + data
        self.write(name, whole)
        self._appended[name] = whole

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
        self._appended.pop(name, None)
        if self._listed is not None:
            self._listed[name] = len(data)
        return name

    def write_all(self, files: Mapping[str, bytes]) -> None:
        with _explain("write", self.path):
            storage.write_files({self.path / name: data for name, data in files.items()})
        if self._listed is not None:
            self._listed |= {name: len(data) for name, data in files.items()}

    def find(self, name: str) -> Entry | None:
        if name in (files := self._list()):
            return Entry(files[name], is_file=True)
        is_folder = any(file.startswith(f"{name}/") for file in files)
        return Entry(0, is_folder=True) if is_folder else None

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

    def list_partial(self, names: Iterable[str]) -> set[str]:  # noqa: ARG002
        return set()  # cloud storage never has half-written files

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        prefix = f"{name}/" if name else ""
        found: dict[str, Entry] = {}
        for file, size in self._list().items():
            if file.startswith(prefix):
                first, slash, _ = file.removeprefix(prefix).partition("/")
                entry = Entry(0, is_folder=True) if slash else Entry(size, is_file=True)
                found[prefix + first] = entry
        yield from sorted(found.items(), key=lambda item: item[0])

    def _list(self) -> dict[str, int]:
        if self._listed is None:
            with _explain("read", self.path):
                files = storage.list_files(self.path)
            self._listed = {
                name: size for name, size in files.items() if not name.startswith(f"{LOCKS}/")
            }
        return self._listed


@contextmanager
def _explain(verb: str, location: Url) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        is_away = isinstance(error, storage.StorageError)
        hint = storage.TRY_AGAIN if is_away else f"name a folder that you may {verb}"
        what = f"cannot {verb} {str(location)!r}: {error.strerror or error}"
        raise OutputError(what, hint) from error
