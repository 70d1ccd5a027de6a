"""Images that are not on this machine: the URLs that the user's words name are expanded."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.images.suffixes import image_suffixes
from hookcli.images.tensor_files import TENSOR_SUFFIXES
from hookcli.records.images import SkippedImage
from hookcli.store import ownership
from hookcli.store.places import storage
from hookcli.store.places.names import MANIFEST, REQUEST
from hookcli.urls import Url

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_pattern(url: str) -> bool:
    """Return whether a URL is a glob, and not the name of a file.

    In addresses of web pages, ``?`` begins a query.
    """
    if not any(each in url for each in "*?[") or url.startswith("http"):
        return False
    try:
        storage.find_state(url)
    except OSError:
        return True
    return False


def match(pattern: str, leave_out: str) -> list[str]:
    """Return what a glob matches, sorted, without anything in the folders of runs.

    Hidden files match only if the pattern has their dot.

    Raises:
        OSError: the storage cannot be read.
    """
    start = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    known = {start: False, leave_out.rstrip("/"): bool(leave_out)}

    def is_in_run(folder: str) -> bool:
        if folder not in known:
            above = folder.rpartition("/")[0]
            known[folder] = is_in_run(above) or ownership.is_run(Url(folder))
        return known[folder]

    found = storage.match_urls(pattern)
    if "/." not in pattern:
        found = [url for url in found if "/." not in url]
    wanted = [url for url in found if not is_in_run(url.rpartition("/")[0])]
    return sorted(wanted, key=lambda url: url.encode().split(b"/"))


def is_folder(url: str) -> bool:
    """Return whether a URL is that of a folder; what has an image's suffix is taken for a file.

    Raises:
        OSError: that cannot be found out.
    """
    if url.lower().endswith((*image_suffixes(), *TENSOR_SUFFIXES)):
        return False
    return url.endswith("/") or storage.is_folder(url)


def list_frames(url: str) -> Iterator[str]:
    """Yield the files in a folder, sorted by name, without hidden ones and those in folders.

    Raises:
        OSError: the folder cannot be listed.
    """
    for name in storage.list_files(url):
        if "/" not in name and not name.startswith("."):
            yield str(Url(url) / name)


def list_images(
    url: str, suffixes: tuple[str, ...], *, recursive: bool, leave_out: str
) -> Iterator[str]:
    """Yield the files in a folder that have one of the suffixes, sorted as those on this machine.

    Hidden files, the folders of runs, and the folder ``leave_out`` are left out.

    Raises:
        OSError: the folder cannot be listed.
    """
    root = Url(url)
    names = storage.list_files(root)
    runs = {run for run in _find_marked(names) if ownership.is_run(root / run if run else root)}
    for name in sorted(names, key=lambda name: name.encode().split(b"/")):
        path = PurePosixPath(name)
        is_hidden = any(part.startswith(".") for part in path.parts)
        is_wanted = name.lower().endswith(suffixes) and (recursive or "/" not in name)
        in_run = not runs.isdisjoint("" if str(each) == "." else str(each) for each in path.parents)
        if is_wanted and not is_hidden and not in_run:
            file = str(root / name)
            if not (leave_out and file.startswith(f"{leave_out.rstrip('/')}/")):
                yield file


def explain_none(url: str, leave_out: str) -> SkippedImage:
    """Return why a folder without images is skipped."""
    if url.rstrip("/") == leave_out.rstrip("/"):
        return SkippedImage(url, "is the folder that this run writes to")
    if ownership.is_run(Url(url)):
        return SkippedImage(url, "is the folder of a run; name a folder in it")
    return SkippedImage(url, "is a folder without images")


def _find_marked(names: dict[str, int]) -> set[str]:
    """Return the folders that may be those of runs, by the names of their files."""
    marks = {REQUEST, MANIFEST}
    return {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in marks}


def storage_error(file: str, error: OSError) -> OutputError:
    """Return the error for an image whose storage cannot be reached; it must not be skipped."""
    return OutputError(f"cannot read {file!r}: {error.strerror}", storage.TRY_AGAIN)
