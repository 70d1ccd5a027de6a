"""Open run folders on this machine and in cloud storage such as S3, both as a ``Folder``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.outside.files import ANOTHER, cannot_write
from hookcli.outside.urls import choose
from hookcli.store.locations.directory import Directory
from hookcli.store.locations.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.outside.urls import Location
    from hookcli.store.locations.folder import Folder


def open_folder(location: Location, *, make: bool = False) -> Folder:
    # A folder in cloud storage need not exist: it appears with its first file.
    if make and choose(location, local=True, remote=False):
        Path(location).mkdir(parents=True, exist_ok=True)
    kind: Callable[[Location], Folder] = choose(location, Directory, RemoteFolder)
    return kind(location)


def find_folder(location: Location) -> Folder | None:
    try:
        return open_folder(location)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.lexists(location):
            raise OutputError(f"{str(location)!r} is a file, not a folder", ANOTHER) from error
        return None
    except OSError as error:
        raise cannot_write(location, error) from error
