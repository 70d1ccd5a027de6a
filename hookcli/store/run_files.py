"""The files of a run folder as files on this machine, for code that reads them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hookcli.outside.files import write_atomic
from hookcli.outside.urls import choose
from hookcli.store.places import storage
from hookcli.store.places.names import is_run_file
from hookcli.store.places.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.outside.urls import Place, Url


class OutsideError(OSError):
    """A file of a run folder is a link to a file outside of it."""


class LocalFiles:
    """The files of a run folder on this machine.

    A run folder may come from a stranger, and a file of it may be a link to a file of the reader.
    """

    def __init__(self, place: Path) -> None:
        self.place = place

    def exists(self) -> bool:
        """Return whether there is such a folder."""
        return self.place.is_dir()

    def has(self, name: str) -> bool:
        """Return whether there is anything of this name."""
        return (self.place / name).exists()

    def measure(self, name: str) -> int | None:
        """Return the size of a regular file in the run folder; None if there is none."""
        try:
            status = self.file(name).stat()
        except (OSError, ValueError):  # ValueError: not a possible name of a file
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def file(self, name: str) -> Path:
        """Return the path of a file.

        Raises:
            OutsideError: it is a link to a file outside of the run folder, or to itself.
        """
        path = self.place / name
        real, inside = os.path.realpath(path), os.path.realpath(self.place)
        if not Path(real).is_relative_to(inside) or Path(real).is_symlink():
            raise OutsideError(errno.ELOOP, "it is a link out of the run folder", str(path))
        return path


class RemoteFiles:
    """The files of a run folder in a storage, copied to this machine when they are asked for.

    The copies are in a folder that is deleted when this object is. Any other method raises an
    OutputError if the storage cannot be read.
    """

    def __init__(self, place: Url) -> None:
        self.place = place
        self._folder = RemoteFolder(place)
        self._copies: Path | None = None

    def exists(self) -> bool:
        """Return whether anything is in the folder."""
        return next(self._folder.entries(), None) is not None

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return self._folder.is_file(name)

    def measure(self, name: str) -> int | None:
        """Return the size of a file; None if there is none."""
        found = self._folder.find(name)
        return found.size if found and found.is_file else None

    def file(self, name: str) -> Path:
        """Return the path of the copy of a file.

        Raises:
            OSError: it cannot be read.
            OutputError: the copy cannot be written.
        """
        if not is_run_file(name):
            raise FileNotFoundError(errno.ENOENT, "is no file of a run", name)
        if self._copies is None:
            self._copies = Path(tempfile.mkdtemp(prefix="hookcli-"))
            weakref.finalize(self, shutil.rmtree, self._copies, ignore_errors=True)
        copy = self._copies / name
        if not copy.exists():
            write_atomic(copy, storage.read_file(self.place / name))
        return copy


RunFiles: TypeAlias = "LocalFiles | RemoteFiles"
"""The files of a run folder, which need not be open, in the same words for both kinds."""


def open_files(place: Place) -> RunFiles:
    """Return the files of a run folder; nothing is read yet."""
    kind: Callable[[Place], RunFiles] = choose(place, LocalFiles, RemoteFiles)
    return kind(place)
