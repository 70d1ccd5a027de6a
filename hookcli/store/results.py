"""Write a folder of results, such as an analysis; replace only its list and files named there."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hookcli.errors import OutputError, RequestError
from hookcli.outside.files import ANOTHER, cannot_write, refuse_url, temporary_folder
from hookcli.store.locations.directory import Directory, is_inside
from hookcli.store.ownership import refuse_run_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Kind:
    """Says how hookcli names and recognizes one kind of result folder, such as an analysis."""

    name: str  # in messages, after ``article``
    article: str  # ``a`` or ``an``
    list_name: str  # the file that names all others
    read_list: Callable[[bytes], Iterable[str] | None]  # None if hookcli did not write the list
    hint: str = ANOTHER  # what to do about a folder that cannot be used


@dataclass(frozen=True, slots=True)
class ResultFolder:
    location: Path | None  # where the files will be; None keeps them in memory
    _made: Path = Path()
    _hint: str = ""
    # by name, each file's final path, or its content in memory
    files: dict[str, Path | bytes] = field(default_factory=dict)

    def write(self, name: str, data: bytes) -> str:
        with self.open(name) as stream:
            stream.write(data)
        return name

    def read(self, name: str) -> bytes:
        data = self.files[name]
        return data if isinstance(data, bytes) else (self._made / name).read_bytes()

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        if self.location is None:
            memory = io.BytesIO()
            yield memory
            self.files[name] = memory.getvalue()
            return
        if not is_inside(name):
            what = f"the run names a file outside its folder: {name!r}"
            raise RequestError(what, "run `hookcli.inspect` again")
        file = self._made / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as stream:
                yield stream
        except OSError as error:
            raise cannot_write(self.location / name, error, self._hint) from error
        self.files[name] = self.location / name


def check_results(folder: Path, kind: Kind) -> bool:
    """Return whether a folder has earlier results; raise an OutputError for an unusable folder."""
    refuse_url(folder)
    refuse_run_folder(folder, kind.hint)
    try:
        for each in (folder, *folder.parents):
            if os.path.lexists(each) and not each.is_dir():
                raise OutputError(f"{str(each)!r} is a file, not a folder", kind.hint)
        if not folder.exists():
            return False
        inside = Directory(folder)
        if _find_files(inside, kind):
            return True
        if next(inside.entries(), None) is not None:
            raise OutputError(f"{str(folder)!r} holds files that no {kind.name} wrote", kind.hint)
    except OSError as error:
        raise cannot_write(folder, error, kind.hint) from error
    return False


@contextlib.contextmanager
def make_results(
    folder: Path | None, kind: Kind, make_list: Callable[[Sequence[str]], bytes] | None = None
) -> Iterator[ResultFolder]:
    """Yield a folder whose files replace an earlier result if the block ends without an error.

    One file, the list, names all others. ``make_list`` encodes the list from the other files'
    names; without ``make_list``, the block must write the list. If ``folder`` is None, the files
    stay in memory.
    """
    if folder is None:
        yield ResultFolder(None)
        return
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = Directory(folder).read(kind.list_name)
        with temporary_folder(folder) as temporary:
            results = ResultFolder(folder, temporary, kind.hint)
            yield results
            names = sorted(results.files)
            if make_list is not None:
                (temporary / kind.list_name).write_bytes(make_list(names))
            _publish(Directory(folder), kind, {*names, kind.list_name}, temporary, before)
    except OSError as error:
        raise cannot_write(folder, error, kind.hint) from error
    finally:
        for each in made:  # the innermost first, as far as they are still empty
            with contextlib.suppress(OSError):
                each.rmdir()


def _publish(
    folder: Directory, kind: Kind, names: set[str], made: Path, before: bytes | None
) -> None:
    with folder.lock():
        if folder.read(kind.list_name) != before:
            what = f"another command wrote into {str(folder.path)!r} meanwhile"
            raise OutputError(what, kind.hint)
        known = _find_files(folder, kind)
        for name in names:
            found = folder.find(name)
            if found is not None and not (found.is_file and name in known):
                what = f"{str(folder.path / name)!r} was not written by {kind.article} {kind.name}"
                raise OutputError(what, kind.hint)
        # The list comes first: if hookcli is killed, it names all files that are there.
        folder.remove(known - names)
        for name in sorted(names, key=lambda name: name != kind.list_name):
            folder.adopt(name, made / name)


def _find_files(folder: Directory, kind: Kind) -> set[str]:
    data = folder.read(kind.list_name)
    names = None if data is None else kind.read_list(data)
    return set() if names is None else {kind.list_name, *filter(is_inside, names)}
