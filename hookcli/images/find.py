"""Expand the user's words (folders, globs, ``@LIST``, ``-``) to files; leave out run folders."""

from __future__ import annotations

import codecs
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hookcli.errors import RequestError
from hookcli.images.decode import image_suffixes
from hookcli.images.filesystems import choose_filesystem
from hookcli.images.tensor_files import TENSOR_SUFFIXES
from hookcli.outside.files import NotRegularError, natural_key
from hookcli.outside.urls import to_local, to_location
from hookcli.records.images import SkippedImage
from hookcli.store.locations.storage import StorageError
from hookcli.store.ownership import is_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hookcli.outside.urls import Location

_Found: TypeAlias = str | SkippedImage


def find_files(
    words: Sequence[str],
    *,
    recursive: bool = True,
    null_separated: bool = False,
    keep_folders: bool = False,
    leave_out: Location | None = None,
) -> tuple[list[str], list[SkippedImage]]:
    # ``-`` reads a list of names from standard input, and ``@FILE`` reads a list from a file. A
    # name in a list is never a glob, and neither is a word if a file has exactly this name. A
    # folder stands for the images inside or, without images, for the tensor files inside; with
    # ``keep_folders``, for itself.
    if words.count("-") > 1:
        raise RequestError("standard input is named twice", "give '-' once, for all names")
    rules = _Rules(recursive, keep_folders, str(leave_out or ""))
    found: list[_Found] = []
    for word in map(to_local, words):
        if word == "-" or word.startswith("@"):
            names = _names(word, _read(word), null_separated=null_separated)
            empty = SkippedImage(word, "is a list that contains no names")
            found += _expand(names, rules) or [empty]
        elif choose_filesystem(word).is_pattern(word):
            # A dictionary, since ** can match a file twice.
            matched = dict.fromkeys(_expand_or_skip(word, rules, _match))
            found += matched or [SkippedImage(word, "matches no file")]
        else:
            found += _expand([word], rules)
    skipped = [each for each in found if isinstance(each, SkippedImage)]
    return [each for each in found if isinstance(each, str)], skipped


@dataclass(frozen=True, slots=True)
class _Rules:
    recursive: bool
    keep_folders: bool
    leave_out: str


def _read(word: str) -> bytes:
    try:
        if word != "-":
            name = to_local(word[1:]) or "."
            with choose_filesystem(name).open_file(name) as file:
                return file.read()
        return sys.stdin.buffer.read() if sys.stdin else b""  # None where it is closed
    except NotRegularError as error:
        what = f"cannot read the list {word!r}: it is not a regular file"
        hint = "pipe the output of the other command to standard input, and write '-' for it"
        raise RequestError(what, hint) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        what = f"cannot read the list {word!r}: {getattr(error, 'strerror', None) or error}"
        hint = f"a list has one image name per line; a file of this name is written {f'./{word}'!r}"
        raise RequestError(what, hint) from error


def _names(word: str, data: bytes, *, null_separated: bool) -> list[str]:
    if null_separated:
        names = data.split(b"\0")
    elif b"\0" in data:
        what = f"the list {word!r} is not text with a name on each line: it contains a NUL"
        hint = "add -0 if its names are separated by NUL; or is it an image, or UTF-16 text?"
        raise RequestError(what, hint)
    else:
        lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
        names = [line.removesuffix(b"\r") for line in lines]
    return [os.fsdecode(name) for name in names if name]


def _expand(names: Iterable[str], rules: _Rules) -> list[_Found]:
    return [
        each for name in map(to_local, names) for each in _expand_or_skip(name, rules, _list_images)
    ]


def _expand_or_skip(
    name: str, rules: _Rules, expand: Callable[[str, _Rules], list[_Found]]
) -> list[_Found]:
    try:
        return expand(name, rules)
    except StorageError as error:
        raise error.explain(name) from error
    except OSError as error:
        return [SkippedImage(name, f"cannot be read: {error.strerror or error}")]


def _list_images(name: str, rules: _Rules) -> list[_Found]:
    filesystem = choose_filesystem(name)
    filesystem.check(name)
    if rules.keep_folders or not filesystem.is_folder(name):
        return [name]
    for suffixes in (image_suffixes(), TENSOR_SUFFIXES):
        found = filesystem.list_images(
            name, suffixes, recursive=rules.recursive, leave_out=rules.leave_out
        )
        if found:
            return found
    why = "is a folder without images"
    if filesystem.is_same(name, rules.leave_out):
        why = "is the folder that this run writes to"
    elif is_run(to_location(name)):
        why = "is the folder of a run; name a folder inside it"
    return [SkippedImage(name, why)]


def _match(pattern: str, rules: _Rules) -> list[_Found]:
    """Return the images that match a glob, sorted. Skip run folders that a wildcard matches."""
    filesystem = choose_filesystem(pattern)
    start = _parent_of(re.split(r"[*?[]", pattern, maxsplit=1)[0])
    known = dict.fromkeys((start, ""), False)

    def is_in_run(folder: str) -> bool:
        if folder not in known:
            above = is_in_run(_parent_of(folder)) or filesystem.is_same(folder, rules.leave_out)
            known[folder] = above or is_run(to_location(folder))
        return known[folder]

    names = sorted(filesystem.glob(pattern), key=natural_key)
    return _expand([name for name in names if not is_in_run(_parent_of(name.rstrip("/")))], rules)


def _parent_of(name: str) -> str:
    folder = os.path.dirname(name)  # noqa: PTH120  of a URL, too
    return "" if folder == name else folder
