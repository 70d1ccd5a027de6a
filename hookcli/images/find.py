"""The files that the user's words name: folders, globs and lists of names are expanded.

Nothing is decoded here. A name that does not exist is passed on, and reported by the code that
reads the file.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from hookcli.errors import RequestError
from hookcli.files import NotRegularError, read_regular
from hookcli.images import folders, remote
from hookcli.images.remote import storage_error
from hookcli.images.suffixes import image_suffixes
from hookcli.images.tensor_files import TENSOR_SUFFIXES
from hookcli.records.images import SkippedImage
from hookcli.store.places import storage
from hookcli.urls import is_url, to_local, to_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.images.folders import Identity
    from hookcli.urls import Place

_Found: TypeAlias = str | SkippedImage

_OUTPUT = "is the folder that this run writes to"
_RUN = "is the folder of a run; name a folder in it"


def find_files(
    words: Sequence[str],
    *,
    recursive: bool = True,
    null_separated: bool = False,
    keep_folders: bool = False,
    leave_out: Place | None = None,
    stdin: IO[bytes] | None = None,
) -> tuple[list[str], list[SkippedImage]]:
    """Return the files that ``words`` name, in the order of the words, and what names none.

    ``-`` is a list of names on standard input, and ``@file`` is one in a file; a name in a list is
    a file or a folder, whatever characters it contains. A word with ``*``, ``?`` or ``[`` that does
    not exist itself is a glob; below its first star, nothing in the folder of a run matches. A
    folder means the images in it or, if it has none, its tensor files. They are recognised by their
    suffix, and sorted by their paths, which are compared name by name as bytes. Hidden files, the
    folders of runs, and folders that a link has already led to are left out. The same holds for
    URLs. Any other word is passed on unchanged.

    Args:
        words: the user's words; a file in a folder is named with the folder's word in front.
        recursive: whether to search the folders inside a folder.
        null_separated: whether names in a list are separated by NUL, not by the end of a line.
        keep_folders: whether to pass folders on unchanged.
        leave_out: a folder whose images are left out, under whatever name it is found.
        stdin: the stream to read for ``-``; standard input unless given.

    Raises:
        RequestError: a list cannot be read, or standard input is named twice.
        OutputError: a storage cannot be reached.
    """
    if words.count("-") > 1:
        raise RequestError("standard input is named twice", "give '-' once, for all names")
    left_out = None
    if isinstance(leave_out, Path) and leave_out.is_dir():
        left_out = folders.identity(leave_out)
    rules = _Rules(recursive, keep_folders, left_out, str(leave_out or ""))
    found: list[_Found] = []
    for word in map(to_local, words):
        if word == "-" or word.startswith("@"):
            names = _names(word, _read(word, stdin), null_separated=null_separated)
            found += _expand(names, rules) or [
                SkippedImage(word, "is a list that contains no names")
            ]
        elif is_url(word) and _is_url_pattern(word):
            matched = dict.fromkeys(_expand_urls(word, rules))
            found += matched or [SkippedImage(word, "matches no file")]
        elif _is_glob(word):
            # A dictionary, since ** can match a file twice.
            matched = dict.fromkeys(_expand(_matches(word, rules), rules))
            found += matched or [SkippedImage(word, "matches no file")]
        else:
            found += _expand([word], rules)
    skipped = [each for each in found if isinstance(each, SkippedImage)]
    return [each for each in found if isinstance(each, str)], skipped


@dataclass(frozen=True, slots=True)
class _Rules:
    recursive: bool
    keep_folders: bool
    left_out: Identity | None
    out: str


def _read(word: str, stdin: IO[bytes] | None) -> bytes:
    """Return the list that ``word`` means; empty if standard input is closed.

    Raises:
        RequestError: the list cannot be read.
    """
    try:
        if word != "-":
            name = to_local(word[1:])
            return storage.read_file(name) if is_url(name) else read_regular(Path(name))
        stream = stdin or (sys.stdin and sys.stdin.buffer)
        return stream.read() if stream else b""
    except NotRegularError as error:
        raise RequestError(
            f"cannot read the list {word!r}: it is not a regular file",
            "what another command writes is read with '-': find . -name '*.png' | hookcli ... -",
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise RequestError(
            f"cannot read the list {word!r}: {getattr(error, 'strerror', None) or error}",
            f"a list has one image name per line; a file of this name is written {f'./{word}'!r}",
        ) from error


def _names(word: str, data: bytes, *, null_separated: bool) -> list[str]:
    """Return the names in a list, without carriage returns at their ends or a byte order mark.

    Raises:
        RequestError: a line contains a NUL, which no name can.
    """
    if null_separated:
        names = data.split(b"\0")
    elif b"\0" in data:
        raise RequestError(
            f"the list {word!r} is not text with a name on each line: it contains a NUL",
            "add -0 if its names are separated by NUL; or is it an image, or UTF-16 text?",
        )
    else:
        lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
        names = [line.removesuffix(b"\r") for line in lines]
    return [os.fsdecode(name) for name in names if name]


def _is_glob(word: str) -> bool:
    return not is_url(word) and any(each in word for each in "*?[") and not os.path.lexists(word)


def _matches(pattern: str, rules: _Rules) -> list[str]:
    """Return what a glob matches, without anything in folders of runs that its stars lead into."""
    try:
        found = glob.glob(pattern, recursive=True)  # noqa: PTH207
    except ValueError:  # a NUL in it
        return []
    start = os.path.dirname(re.split(r"[*?[]", pattern, maxsplit=1)[0])  # noqa: PTH120
    known = dict.fromkeys((start, "", "/", "//"), False)

    def is_in_run(folder: str) -> bool:
        if folder not in known:
            known[folder] = is_in_run(os.path.dirname(folder)) or _is_left_out(folder, rules)  # noqa: PTH120
        return known[folder]

    wanted = [name for name in found if not is_in_run(os.path.dirname(name.rstrip("/")))]  # noqa: PTH120
    return sorted(wanted, key=lambda name: os.fsencode(name).split(b"/"))


def _is_left_out(folder: str, rules: _Rules) -> bool:
    try:
        return folders.identity(folder) == rules.left_out or folders.is_run(
            folder, folders.entries(folder)
        )
    except OSError:
        return False


def _expand(names: Iterable[str], rules: _Rules) -> list[_Found]:
    """Return ``names``, with each folder replaced by the images in it."""
    found: list[_Found] = []
    for name in map(to_local, names):
        if is_url(name):
            found += _expand_url(name, rules)
        elif rules.keep_folders or not os.path.isdir(name):  # noqa: PTH112 - pathlib's may raise
            found.append(name)
        else:
            found += (
                _walk(name, rules)
                or _walk(name, rules, TENSOR_SUFFIXES)
                or [SkippedImage(name, "is a folder without images")]
            )
    return found


def _is_url_pattern(url: str) -> bool:
    to_place(url)
    storage.check_url(url)
    return remote.is_pattern(url)


def _expand_urls(pattern: str, rules: _Rules) -> list[_Found]:
    """Return the images that a glob in a storage matches, as ``_matches`` does on this machine."""
    try:
        matched = remote.match(pattern, rules.out)
    except storage.StorageError as error:
        raise storage_error(pattern, error) from error
    except OSError as error:
        return [SkippedImage(pattern, f"cannot be read: {error.strerror or error}")]
    return _expand(matched, rules)


def _expand_url(name: str, rules: _Rules) -> list[_Found]:
    """Return the images in a folder of a storage; the URL of a file is returned as it is.

    Raises:
        RequestError: the storage cannot be used, or the URL holds a password.
    """
    url = str(to_place(name))
    storage.check_url(url)
    try:
        if rules.keep_folders or not remote.is_folder(url):
            return [url]
        found: list[_Found] = []
        for suffixes in (image_suffixes(), TENSOR_SUFFIXES):
            found += remote.list_images(
                url, suffixes, recursive=rules.recursive, leave_out=rules.out
            )
            if found:
                return found
        return [remote.explain_none(url, rules.out)]
    except storage.StorageError as error:
        raise storage_error(url, error) from error
    except OSError as error:
        return [SkippedImage(name, f"cannot be read: {error.strerror or error}")]


def _walk(root: str, rules: _Rules, suffixes: tuple[str, ...] = ()) -> list[_Found]:
    """Return the images in a folder, depth first, and the folders in it that cannot be read.

    With ``suffixes``, the files that have one of them are returned instead of images.
    """
    found: list[_Found] = []
    visited: set[Identity] = set()
    waiting = [(root, True)]
    while waiting:
        name, is_folder = waiting.pop()
        if not is_folder:
            found.append(name)
            continue
        try:
            identity = folders.identity(name)
            if identity in visited:
                continue
            visited.add(identity)
            inside = folders.entries(name)
        except OSError as error:
            found.append(SkippedImage(name, f"cannot be read: {error.strerror or error}"))
            continue
        is_output = identity == rules.left_out
        if is_output or folders.is_run(name, inside):
            reason = _OUTPUT if is_output else _RUN
            found += [SkippedImage(root, reason)] if name == root else []
        else:
            wanted = folders.wanted(inside, suffixes or image_suffixes(), recursive=rules.recursive)
            waiting += reversed(list(wanted))
    return found
