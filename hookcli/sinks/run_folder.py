"""The run folder itself: who may write into it, what was asked, and the manifest that closes it.

``run.json`` is written first and locked while the run lives; ``manifest.json`` is written last, so
its presence means that the run is complete. Only files that a run makes are ever deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import IO, TYPE_CHECKING, Any

from hookcli.errors import CompleteError, HookcliError, OutputError, RequestError
from hookcli.files import cannot_write, write_atomic
from hookcli.sinks.table import render_json, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

REQUEST, MANIFEST = "run.json", "manifest.json"
_ALWAYS = ("layers.csv", "report.html", "report.json")  # what every run writes beside them
_RUN_FILES = (
    MANIFEST, "layers.csv", "skipped.csv", "report.html", "overview.png",
    "gradient_flow.png", "report.json", "seen/*.jpg", "records.parquet/part-*.parquet", "parts/[0-9]*.json", "parts/top.npz", "top_images.csv", "grids/*/[0-9][0-9][0-9]*_*.png", "sheets/*.png", "tensors/*.safetensors", "tensors/index.json",
)  # fmt: skip
_RUN_DIRS = ("grids/*", "grids", "sheets", "seen", "tensors", "records.parquet", "parts")


class RunFolder:
    """A folder that belongs to one run while the ``with`` block lasts.

    Raises:
        OutputError: on entering, when the folder is protected, in use, or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        request: dict[str, Any],
        *,
        replace_run: bool,
        replace_any: bool,
        resume: bool = False,
    ) -> None:
        """``replace_run`` lets a run that stands there go; ``replace_any`` writes among other files too.

        ``resume`` goes on with the same run, if it stands there.
        """
        self.folder = folder
        self.files: list[str] = []
        self._request = request
        self._replace_run = replace_run
        self._replace_any = replace_any
        self._resume = resume
        self._lock: IO[str] | None = None

    def __enter__(self) -> RunFolder:
        held_run = check_folder(
            self.folder,
            replace_run=self._replace_run or self._resume,
            replace_any=self._replace_any,
        )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW  # never through a link
            self._lock = os.fdopen(
                os.open(self.folder / REQUEST, flags, 0o666), "a+", encoding="utf-8"
            )
            _take_lock(self._lock, self.folder)
            if held_run and self._resume:
                _refuse_other_run(self._lock, self.folder, self._request)
            elif held_run:
                _remove_old_run(self.folder)
            self._lock.truncate(0)
            self._lock.write(render_json(self._request))
            self._lock.flush()
        except OSError as error:
            self._unlock()
            raise cannot_write(self.folder, error) from error
        except HookcliError:
            self._unlock()
            raise
        return self

    @property
    def lock_number(self) -> int | None:
        """The file descriptor that holds the lock; a child process must close it."""
        return None if self._lock is None else self._lock.fileno()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._unlock()

    def write(self, name: str, text: str) -> str:
        """Write one text file of the run; returns its name."""
        return self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, data: bytes) -> str:
        """Write one file of the run; returns its name."""
        write_atomic(self.folder / name, data)
        self.files.append(name)
        return name

    def complete(self, manifest: dict[str, Any]) -> None:
        """Write the manifest: the run is complete."""
        self.write(MANIFEST, render_json(manifest))

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def check_folder(folder: Path, *, replace_run: bool, replace_any: bool) -> bool:
    """Whether a run stands in ``folder``.

    Raises:
        OutputError: it is protected, or not a folder.
    """
    if not folder.exists() and not folder.is_symlink():
        return False
    name = str(folder)
    if not folder.is_dir():
        raise OutputError(f"{name!r} is a file, not a folder", "choose another folder with -o")
    try:
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise cannot_write(folder, error) from error
    manifest = folder / MANIFEST
    if manifest.exists() and not _is_ours(manifest):
        raise OutputError(
            f"{name!r} holds a {MANIFEST} that is not a run's", "choose another folder with -o"
        )
    is_run = (folder / REQUEST).exists() or manifest.exists()
    if is_run and not (replace_run or replace_any):
        raise OutputError(
            f"{name!r} holds a run already", "replace it with --overwrite, or choose another -o"
        )
    if not is_run and not is_empty and not replace_any:
        raise OutputError(
            f"{name!r} holds files that are not a run's",
            "choose another folder with -o; --overwrite writes there and deletes none of them",
        )
    if not is_run:
        for file in (folder / name for name in _ALWAYS if (folder / name).exists()):
            raise OutputError(
                f"{str(file)!r} is not a run's, and a run would write over it",
                "choose another folder with -o",
            )
    return is_run


def _take_lock(lock: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"another run is writing into {str(folder)!r}", "wait for it, or choose another -o"
        ) from error


def refuse_complete(folder: Path, command: Sequence[str]) -> None:
    """See that there is something left to resume.

    Raises:
        CompleteError: the run in ``folder`` came to its end.
        RequestError: another one did.
    """
    if not (folder / MANIFEST).exists() or not _is_ours(folder / MANIFEST):
        return
    done = json.loads((folder / MANIFEST).read_bytes())["command"]
    for name, old, new in _differences({"command": done}, {"command": to_plain(command)}):
        raise RequestError(
            f"--resume: the run in {str(folder)!r} was done with another {name}: {old}, not {new}",
            "choose another folder with -o, or start again with --overwrite",
        )
    raise CompleteError(f"the run in {str(folder)!r} is complete")


def _refuse_other_run(lock: IO[str], folder: Path, request: dict[str, Any]) -> None:
    """See that the run that was begun in ``folder`` is this one.

    Raises:
        RequestError: something differs; the message names it.
    """
    lock.seek(0)
    try:
        begun = json.loads(lock.read() or "{}")
    except ValueError:
        begun = {}
    wanted = to_plain(request)
    for name, old, new in _differences(begun, wanted):
        raise RequestError(
            f"--resume: the run in {str(folder)!r} was begun with another {name}: {old}, not {new}",
            "ask for the same, or start again with --overwrite",
        )


def _differences(begun: dict[str, Any], wanted: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if not begun:
        return  # killed before it was written
    for name, new in wanted.items():
        old = begun.get(name)
        if isinstance(new, dict) and isinstance(old, dict):
            yield from ((f"{name} {part}", a, b) for part, a, b in _differences(old, new))
        elif isinstance(new, list) and isinstance(old, list):
            gone = [each for each in old if each not in new]
            come = [each for each in new if each not in old]
            if old != new:
                yield name, " ".join(gone) or "none of it", " ".join(come) or "none of it"
        elif old != new:
            yield name, str(old), str(new)


def _remove_old_run(run: Path) -> None:
    """Delete what is named like a run's file and, if there is a manifest, listed in it."""
    home = run.resolve()
    listed = _listed(run)
    for file in [file for pattern in _RUN_FILES for file in run.glob(pattern)]:
        inside = file.parent.resolve().is_relative_to(home)  # never through a link
        if inside and (listed is None or str(file.relative_to(run)) in listed):
            file.unlink(missing_ok=True)
    for pattern in _RUN_DIRS:
        for folder in run.glob(pattern):
            if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
                folder.rmdir()


def _listed(run: Path) -> set[str] | None:
    """The files that the manifest lists, and itself; None where there is no manifest."""
    if not (run / MANIFEST).exists():
        return None
    return {MANIFEST, *json.loads((run / MANIFEST).read_bytes())["files"]}


def _is_ours(manifest: Path) -> bool:
    """Whether a run wrote this ``manifest.json``; other tools have files of that name too."""
    try:
        content = json.loads(manifest.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"hookcli", "files"} <= content.keys()
