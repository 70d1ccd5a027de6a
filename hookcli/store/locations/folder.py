"""Define the interfaces of a run folder and of its lock, on this machine or in cloud storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hookcli.outside.urls import Location


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a folder; a link, a pipe and a device count as neither file nor folder."""

    size: int  # bytes
    is_file: bool = False
    is_folder: bool = False


class Lock(Protocol):
    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def check(self) -> None:
        """Raise an OutputError if the lock was lost: another run may write into the folder now."""

    def close(self) -> None: ...


class Folder(Protocol):
    """A folder whose files hookcli writes, inspects and deletes.

    Names are relative to the folder, with ``/`` between their parts. Methods raise an
    ``OutputError``; ``lock`` and ``read_part`` may raise an ``OSError`` instead.
    """

    path: Location

    def lock(self) -> Lock:
        """Lock the folder. From then on, this object sees earlier changes by other processes."""

    def refuse_locked(self) -> None:
        """Raise an OutputError if a run holds the lock."""

    def append(self, name: str, data: bytes) -> None: ...  # the file need not exist

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if the file does not exist."""

    def read_part(self, name: str, start: int, stop: int) -> bytes: ...  # ``stop`` is exclusive

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        return (self.read(name) or b"" for name in names)

    def write(self, name: str, data: bytes) -> str:
        """Write a file completely or not at all, and return its name."""

    def write_all(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self.write(name, data)

    def find(self, name: str) -> Entry | None: ...

    def is_file(self, name: str) -> bool:
        found = self.find(name)
        return found is not None and found.is_file

    def measure(self, names: Iterable[str]) -> dict[str, int | None]:
        found = {name: self.find(name) for name in names}
        return {name: each.size if each and each.is_file else None for name, each in found.items()}

    def remove(self, names: Iterable[str]) -> None:
        """Delete files, and the folders that become empty; ignore names that are not files."""

    def list_partial(self, names: Iterable[str]) -> set[str]:
        """Return the ``.partial-NAME`` files of ``names``, which killed processes left behind."""

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield (name, entry) for each file and folder directly in ``name``, sorted by name."""
