"""The run folder itself: who may write into it, what was asked, and the manifest that closes it.

``run.json`` is written first and locked while the run lives; ``manifest.json`` is written last, so
its presence means that the run is complete. Only files that a run makes are ever deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from importlib import metadata
from typing import IO, TYPE_CHECKING, Any

from hookcli.command import list_differences
from hookcli.errors import CompleteError, HookcliError, OutputError, RequestError
from hookcli.files import cannot_write, full_name, is_full, is_manifest, write_atomic
from hookcli.sinks.leftovers import MANIFEST, list_files, list_half_files, remove_files, remove_run
from hookcli.sinks.table import render_json, to_plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

REQUEST = "run.json"
_ALWAYS = ("layers.csv", "report.html", "report.json")  # what every run writes beside them


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
        self.shown = folder
        self.folder = full_name(folder)
        self.files: list[str] = []
        self._request = request
        self._replace_run = replace_run
        self._replace_any = replace_any
        self._resume = resume
        self._lock: IO[str] | None = None

    def __enter__(self) -> RunFolder:
        held_run = check_folder(
            self.shown,
            replace_run=self._replace_run or self._resume,
            replace_any=self._replace_any,
        )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW  # never through a link
            self._lock = os.fdopen(
                os.open(self.folder / REQUEST, flags, 0o666), "a+", encoding="utf-8"
            )
            _take_lock(self._lock, self.shown)
            _begin(self._lock, self.shown, self._request, held_run=held_run, resume=self._resume)
        except OSError as error:
            self._unlock()
            raise cannot_write(self.shown, error) from error
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
        if isinstance(error, OutputError):  # files are named as the user named the folder
            error.message = error.message.replace(str(self.folder), str(self.shown))
        if isinstance(error, OutputError) and is_full(error.__cause__):
            error.hint = "make room and go on with --resume, or choose another folder with -o"

    def write(self, name: str, text: str) -> str:
        """Write one text file of the run; returns its name."""
        return self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, data: bytes) -> str:
        """Write one file of the run; returns its name."""
        write_atomic(self.folder / name, data)
        self.files.append(name)
        return name

    def complete(self, manifest: dict[str, Any]) -> None:
        """Write the manifest: the run is complete. What an interrupted run left that is not this one's goes."""
        if self._resume:
            left = set(list_files(self.folder)) - set(manifest["files"]) - {MANIFEST}
            remove_files(self.folder, left | set(list_half_files(self.folder)))
        self.write(MANIFEST, render_json(manifest))

    def _unlock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):  # of a disk that is full
                self._lock.close()
            self._lock = None


def _begin(
    lock: IO[str], folder: Path, request: dict[str, Any], *, held_run: bool, resume: bool
) -> None:
    """Leave what can be gone on with, take away what cannot, and say what was asked."""
    words = render_json(request)
    lock.seek(0)
    begun = lock.read()
    asked = _read_request(begun)
    if held_run and resume and asked:
        _refuse_other_run(asked, folder, request)
    elif held_run:
        remove_run(folder)
    if begun != words:
        lock.truncate(0)
        lock.write(words)
        lock.flush()


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
    if manifest.exists() and not is_manifest(manifest):
        raise OutputError(
            f"{name!r} holds a {MANIFEST} that is not a run's", "choose another folder with -o"
        )
    is_run = (folder / REQUEST).exists() or manifest.exists()
    if is_run and not (replace_run or replace_any):
        raise _no_replacing(folder)
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


def _no_replacing(folder: Path) -> OutputError:
    """The error for a run that stands in ``folder`` and may not go.

    Raises:
        OutputError: it is being written.
    """
    name = repr(str(folder))
    if (folder / MANIFEST).exists():
        return OutputError(
            f"{name} holds a run already", "replace it with --overwrite, or choose another -o"
        )
    with contextlib.suppress(OSError), (folder / REQUEST).open() as lock:
        _take_lock(lock, folder)
    return OutputError(
        f"{name} holds a run that was interrupted",
        "go on with --resume, or replace it with --overwrite",
    )


def _take_lock(lock: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"another run is writing into {str(folder)!r}", "wait for it, or choose another -o"
        ) from error


def refuse_complete(folder: Path, command: Sequence[str], weights_sha256: str = "") -> None:
    """See that there is something left to resume; ``weights_sha256`` is of a weights file that is named.

    Raises:
        CompleteError: the run in ``folder`` came to its end.
        RequestError: another one did.
    """
    if not (folder / MANIFEST).exists() or not is_manifest(folder / MANIFEST):
        return
    done = json.loads((folder / MANIFEST).read_bytes())
    wanted = {"hookcli": metadata.version("hookcli"), "command": to_plain(command)}
    if weights_sha256:
        wanted["model"] = {**done.get("model", {}), "sha256": weights_sha256}
    for difference in list_differences(done, wanted):
        raise RequestError(
            f"--resume: the run in {str(folder)!r} was done {difference}",
            "choose another folder with -o, or start again with --overwrite",
        )
    remove_files(folder, {name for name in list_files(folder) if name.startswith("parts/")})
    raise CompleteError(f"the run in {str(folder)!r} is complete")


def _read_request(text: str) -> dict[str, Any]:
    """What a run was asked for; empty when it was killed before that was written."""
    try:
        asked = json.loads(text)
    except ValueError:
        return {}
    return asked if isinstance(asked, dict) else {}


def _refuse_other_run(begun: dict[str, Any], folder: Path, request: dict[str, Any]) -> None:
    """See that the run that was begun in ``folder`` is this one.

    Raises:
        RequestError: something differs; the message names it.
    """
    wanted = to_plain(request)
    for difference in list_differences(begun, wanted):
        raise RequestError(
            f"--resume: the run in {str(folder)!r} was begun {difference}",
            "ask for the same, or start again with --overwrite",
        )
