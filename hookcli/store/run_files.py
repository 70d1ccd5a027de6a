"""The files of a run folder as files on this machine, for code that reads them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.files import write_atomic
from hookcli.store.places import storage
from hookcli.store.places.folders import opened
from hookcli.store.places.names import is_run_file
from hookcli.store.places.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from hookcli.urls import Place, Url


class OutsideError(OSError):
    """A file of a run folder is a link to a file outside of it."""


class RunFiles:
    """The files of a run folder.

    Those in a storage are copied to this machine when they are first asked for, into a folder that
    is deleted when this object is.

    Attributes:
        place: the run folder.
    """

    def __init__(self, place: Place) -> None:
        """Describe them; nothing is read yet."""
        self.place = place
        self._copies: Path | None = None
        self._remote = None if isinstance(place, Path) else RemoteFolder(place)

    def exists(self) -> bool:
        """Return whether there is such a folder.

        Raises:
            OutputError: the storage cannot be read.
        """
        if self._remote is not None:
            return next(self._remote.entries(), None) is not None
        return isinstance(self.place, Path) and self.place.is_dir()

    def has(self, name: str) -> bool:
        """Return whether there is anything of this name."""
        if isinstance(self.place, Path):
            return (self.place / name).exists()
        return self.measure(name) is not None

    def measure(self, name: str) -> int | None:
        """Return the size of a regular file in the run folder; None if there is none.

        Raises:
            OutputError: the storage cannot be read.
        """
        try:
            if self._remote is not None:
                found = self._remote.find(name)
                return found.size if found and found.is_file else None
            status = self.file(name).stat()
        except (OSError, ValueError):  # ValueError: not a possible name of a file
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list_inside(self, folder: str) -> list[str]:
        """Return the names of everything in a subfolder, sorted.

        Raises:
            OutputError: the folder cannot be read.
        """
        with opened(self.place) as inside:
            return [name for name, _ in inside.entries(folder)]

    def file(self, name: str) -> Path:
        """Return the path of a file on this machine.

        A file of a run folder that comes from a stranger may be a link to a file of the reader.

        Raises:
            OutsideError: it is a link to a file outside of the run folder, or to itself.
            OSError: a file in a storage cannot be read.
            OutputError: its copy cannot be written.
        """
        if not isinstance(self.place, Path):
            return self._copy(self.place, name)
        path = self.place / name
        real, inside = os.path.realpath(path), os.path.realpath(self.place)
        if not Path(real).is_relative_to(inside) or Path(real).is_symlink():
            raise OutsideError(errno.ELOOP, "it is a link out of the run folder", str(path))
        return path

    def _copy(self, place: Url, name: str) -> Path:
        if not is_run_file(name):
            raise FileNotFoundError(2, "is no file of a run", name)
        if self._copies is None:
            self._copies = Path(tempfile.mkdtemp(prefix="hookcli-"))
            weakref.finalize(self, shutil.rmtree, self._copies, ignore_errors=True)
        copy = self._copies / name
        if not copy.exists():
            write_atomic(copy, storage.read_file(place / name))
        return copy
