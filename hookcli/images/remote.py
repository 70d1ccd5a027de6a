"""Implement ``Filesystem`` for URLs: list, glob and open images; hidden files are left out."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from hookcli.images.decode import image_suffixes
from hookcli.images.tensor_files import TENSOR_SUFFIXES
from hookcli.outside.files import natural_key
from hookcli.outside.urls import Url, to_location
from hookcli.store import ownership
from hookcli.store.locations import storage
from hookcli.store.locations.names import MANIFEST, REQUEST

if TYPE_CHECKING:
    from hookcli.records.images import SkippedImage


def check(name: str) -> None:
    storage.check_url(str(to_location(name)))


def open_file(file: str) -> io.BytesIO:
    return io.BytesIO(storage.read_file(file))


def find_state(file: str) -> tuple[int, int]:
    return storage.find_state(file)


def is_folder(name: str) -> bool:
    return not _names_file(name) and (name.endswith("/") or storage.is_folder(name))


def is_same(folder: str, other: str) -> bool:
    return folder.rstrip("/") == other.rstrip("/")


def name_folder(name: str) -> str:
    return Url(name.rpartition("/")[0] if _names_file(name) else name).name


def list_frames(folder: str) -> list[str]:
    names = storage.list_files(folder)
    inside = [name for name in names if "/" not in name and not name.startswith(".")]
    return [str(Url(folder) / name) for name in sorted(inside, key=natural_key)]


def is_pattern(word: str) -> bool:
    check(word)
    if not any(each in word for each in "*?[") or word.startswith("http"):
        return False  # in addresses of web pages, ``?`` begins a query
    try:
        storage.find_state(word)
    except OSError:
        return True
    return False


def glob(pattern: str) -> list[str]:
    found = storage.match_urls(pattern)
    return found if "/." in pattern else [url for url in found if "/." not in url]


def list_images(
    folder: str, suffixes: tuple[str, ...], *, recursive: bool, leave_out: str
) -> list[str | SkippedImage]:
    root = Url(folder)
    names = storage.list_files(root)
    marks = {REQUEST, MANIFEST}
    marked = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in marks}
    runs = {run for run in marked if ownership.is_run(root / run if run else root)}
    found: list[str | SkippedImage] = []
    for name in sorted(names, key=natural_key):
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        is_wanted = name.lower().endswith(suffixes) and (recursive or "/" not in name)
        in_run = any(name.startswith(f"{run}/" if run else "") for run in runs)
        if is_wanted and not is_hidden and not in_run:
            file = root / name
            if not (leave_out and file.startswith(f"{leave_out.rstrip('/')}/")):
                found.append(str(file))  # str: a saved chunk holds plain text
    return found


def _names_file(name: str) -> bool:
    return name.lower().endswith((*image_suffixes(), *TENSOR_SUFFIXES))
