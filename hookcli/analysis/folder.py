"""The folder of an analysis, in which only the files that ``analysis.json`` lists are replaced."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import DamagedError, Document, keywords, read_document
from hookcli.outside.files import cannot_write, refuse_url, temporary_folder, write_atomic
from hookcli.outside.json_text import render_json
from hookcli.reading.run_files import AGAIN
from hookcli.records.shared_fields import Command
from hookcli.store.ownership import refuse_run_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

LIST = "analysis.json"
_ANOTHER = "choose another folder with `out`"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisList(Document):
    """The content of ``analysis.json``: how an analysis was made, and its files.

    Attributes:
        hookcli: the version of hookcli that made the analysis.
        files: the names of all other files, relative to the folder.
    """

    hookcli: str
    command: Command
    files: Annotated[tuple[str, ...], keywords(uniqueItems=True)]


@dataclass(frozen=True, slots=True)
class AnalysisFolder:
    """The files of an analysis while it is made, in a temporary folder or in memory."""

    place: Path | None  # where the files will be; None keeps them in memory
    _made: Path = Path()
    # by name, where each file will be, or what it holds
    files: dict[str, Path | bytes] = field(default_factory=dict)

    def write(self, name: str, data: bytes) -> str:
        """Write a file in the folder, and return its name, which may come from a run."""
        with self.open(name) as stream:
            stream.write(data)
        return name

    def read(self, name: str) -> bytes:
        """Return the content of a file that was written."""
        data = self.files[name]
        return data if isinstance(data, bytes) else (self._made / name).read_bytes()

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Yield a stream whose content becomes a file."""
        if self.place is None:
            memory = io.BytesIO()
            yield memory
            self.files[name] = memory.getvalue()
            return
        if not _is_inside(self._made, name):
            raise RequestError(f"the run names a file outside its folder: {name!r}", AGAIN)
        file = self._made / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as stream:
                yield stream
        except OSError as error:
            raise cannot_write(self.place / name, error) from error
        self.files[name] = self.place / name


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Check that an analysis may be written into a local folder, which may hold an earlier one."""
    refuse_url(folder)
    refuse_run_folder(folder)
    try:
        for each in (folder, *folder.parents):
            if os.path.lexists(each) and not each.is_dir():
                raise OutputError(f"{str(each)!r} is a file, not a folder", _ANOTHER)
        if not folder.exists() or not any(folder.iterdir()):
            return
    except OSError as error:
        raise cannot_write(folder, error) from error
    if _read_list(folder) is None:
        raise OutputError(f"{str(folder)!r} has files that no analysis wrote", _ANOTHER)
    if not overwrite:
        raise OutputError(
            f"{str(folder)!r} already has an analysis",
            "replace it with `overwrite=True`, or choose another `out`",
        )


@contextlib.contextmanager
def make_folder(folder: Path | None, command: tuple[str, ...] | None) -> Iterator[AnalysisFolder]:
    """Yield a folder in which the ``with`` block writes the files of an analysis.

    If the block ends without an error, the files replace those of an earlier analysis in
    ``folder``; otherwise ``folder`` does not change. None keeps the files in memory.
    """
    if folder is None:
        yield AnalysisFolder(None)
        return
    made: list[Path] = []
    try:
        made += [each for each in folder.parents if not each.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder.parent) as temporary:
            whole = AnalysisFolder(folder, temporary)
            yield whole
            _publish(folder, temporary, tuple(sorted(whole.files)), command)
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        for parent in made:  # the innermost first, as far as they are still empty
            with contextlib.suppress(OSError):
                parent.rmdir()


def _publish(
    folder: Path, made: Path, names: tuple[str, ...], command: tuple[str, ...] | None
) -> None:
    known = _read_list(folder)
    old = () if known is None else known.files
    for name in (LIST, *names):
        is_ours = known is not None and (name == LIST or name in old)
        if os.path.lexists(folder / name) and not is_ours:
            raise OutputError(f"{str(folder / name)!r} was not written by an analysis", _ANOTHER)
    # If hookcli is killed now, the list still has all files that hookcli may replace later.
    _write_list(folder, command, tuple(sorted({*old, *names})))
    for name in old:
        if name not in names:
            (folder / name).unlink(missing_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).replace(folder / name)
    for parent in {(folder / name).parent for name in old} - {folder}:
        with contextlib.suppress(OSError):
            parent.rmdir()
    _write_list(folder, command, names)


def _write_list(folder: Path, command: tuple[str, ...] | None, names: tuple[str, ...]) -> None:
    listed = AnalysisList(hookcli=metadata.version("hookcli"), command=command, files=names)
    write_atomic(folder / LIST, render_json(listed).encode())


def _read_list(folder: Path) -> AnalysisList | None:
    """Return None if there is no list; leave out names that lead out of the folder."""
    file = folder / LIST
    try:
        if file.is_symlink():
            return None
        listed = read_document(file, AnalysisList)
    except (OSError, DamagedError):
        return None
    return replace(listed, files=tuple(n for n in listed.files if _is_inside(folder, n)))


def _is_inside(folder: Path, name: str) -> bool:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        return False
    return not any((folder / part).is_symlink() for part in (path, *path.parents))
