"""Run folders on this machine and elsewhere, opened in the same way."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hookcli.store.places.directory import Directory
from hookcli.store.places.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.urls import Place

AnyFolder: TypeAlias = Directory | RemoteFolder


@contextmanager
def opened(place: Place) -> Iterator[AnyFolder]:
    """Open a folder while the ``with`` block lasts, as ``open_folder`` does."""
    folder = open_folder(place)
    try:
        yield folder
    finally:
        folder.close()


def open_folder(place: Place) -> AnyFolder:
    """Open a folder; one in a storage may have nothing in it yet.

    Raises:
        OSError: there is no such folder on this machine, or it may not be read.
    """
    return Directory(place) if isinstance(place, Path) else RemoteFolder(place)


def make_folder(place: Place) -> AnyFolder:
    """Open a folder, which is made if there is none.

    Raises:
        OSError: the folder cannot be made or read.
    """
    if isinstance(place, Path):
        place.mkdir(parents=True, exist_ok=True)
    return open_folder(place)
