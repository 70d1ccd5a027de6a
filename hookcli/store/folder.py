"""The run folder itself: who may write into it, what was asked, and the manifest that closes it.

``run.json`` is written first and locked while the run lives; ``manifest.json`` is written last, so
its presence means that the run is complete. In between the journal holds the name of every file
before it is written: only what stands there, or in a manifest, is ever changed or deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import threading
from importlib import metadata
from typing import TYPE_CHECKING, Any

from hookcli.documents import FileList, Request, decode_both
from hookcli.errors import CompleteError, OutputError, RequestError
from hookcli.files import cannot_write, is_full
from hookcli.records.command import list_differences
from hookcli.store.directory import PARTIAL, Directory
from hookcli.store.names import JOURNAL, MANIFEST, PAGE, PARTS, REQUEST
from hookcli.store.ownership import (
    find_run,
    is_not_ours,
    list_damage,
    refuse_strangers,
    remove_half_written,
    remove_known,
)
from hookcli.store.tables import render_json, to_plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from hookcli.store.names import PlannedNames
    from hookcli.store.ownership import HeldRun

_RUN_AGAIN = "start again with --overwrite, or choose another -o"


class RunFolder:
    """A folder that belongs to one run while the ``with`` block lasts.

    Attributes:
        path: where it is.

    Raises:
        OutputError: on entering, when the folder is protected, in use, or cannot be written, or when a
            file of somebody else has a name that the run may write.
    """

    def __init__(
        self,
        path: Path,
        request: dict[str, Any],
        planned: PlannedNames,
        *,
        replace_run: bool,
        replace_any: bool,
        resume: bool = False,
    ) -> None:
        """``replace_run`` lets a run that stands there go; ``replace_any`` writes among other files too.

        ``resume`` goes on with the same run, if it stands there.
        """
        self.path = path
        self._request, self._planned = request, planned
        self._replace_run, self._replace_any, self._resume = replace_run, replace_any, resume
        self._known: set[str] = set()  # what this run, or the one it goes on with, has written
        self._claimed: set[str] = set()  # of these, what this process has looked at
        self._mutex = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._lock: int | None = None
        self._journal: int | None = None

    def __enter__(self) -> RunFolder:
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._folder = stack.enter_context(Directory(self.path))
                stack.callback(self._close)
                held = self._admit()
                self._lock, is_new = _lock_request(self._folder)
                self._begin(held if is_new else self._admit())
            except FileExistsError as error:
                raise _is_a_file(self.path) from error
            except OSError as error:
                raise cannot_write(self.path, error) from error
            self._stack = stack.pop_all()
        return self

    @property
    def lock_number(self) -> int | None:
        """The file descriptor that holds the lock; a child process must close it."""
        return self._lock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        if isinstance(error, OutputError) and is_full(error.__cause__):
            error.hint = "make room and go on with --resume, or choose another folder with -o"

    def write(self, name: str, data: bytes) -> str:
        """Write one file of the run; returns its name. Threads may write at the same time.

        Raises:
            OutputError: it cannot be written, or a file of somebody else stands there.
        """
        self._claim(name)
        return self._folder.write(name, data)

    def read(self, name: str) -> bytes | None:
        """Read a file that this run is known to have written; None where there is none.

        Raises:
            OutputError: it may not be read.
        """
        return self._folder.read(name) if name in self._known else None

    def holds(self, name: str) -> bool:
        """Whether a file that this run is known to have written is there."""
        return name in self._known and self._folder.is_file(name)

    def remove(self, names: set[str]) -> None:
        """Delete those of these files that this run is known to have written.

        Raises:
            OutputError: one cannot be deleted.
        """
        remove_known(self._folder, names & self._known)

    def list_parts(self) -> set[str]:
        """The names in ``parts/`` that this run is known to have written, without the journal."""
        return {name for name in self._known if name.startswith(f"{PARTS}/")} - {JOURNAL}

    def complete(self, manifest: dict[str, Any], files: Sequence[str]) -> None:
        """Write the manifest: the run is complete. What was written on the way and is not listed goes.

        Args:
            manifest: without ``files`` and ``sizes``.
            files: what belongs to the run, beside ``run.json`` and the manifest itself.

        Raises:
            OutputError: one of the files is gone, or the folder is.
        """
        sizes = {name: self._measure(name) for name in sorted({REQUEST, *files})}
        if not self._folder.is_in_place():
            raise OutputError(
                f"the folder {str(self.path)!r} was deleted or moved while the run was writing into it",
                "run the same command again",
            )
        parts = frozenset(self.list_parts())
        remove_known(self._folder, self._known - sizes.keys() - parts - {JOURNAL, MANIFEST})
        text = render_json(manifest | {"files": list(sizes), "sizes": sizes})
        self.write(MANIFEST, text.encode())
        # Only now: without them a run that is killed here would have to begin again.
        remove_known(self._folder, parts)
        remove_known(self._folder, {JOURNAL})

    def _close(self) -> None:
        for descriptor in (self._journal, self._lock):
            if descriptor is not None:
                with contextlib.suppress(OSError):  # of a disk that is full
                    os.close(descriptor)
        self._journal = self._lock = None

    def _admit(self) -> HeldRun | None:
        """The run that stands in the folder and may be replaced or gone on with.

        Raises:
            OutputError: nothing may be written here.
        """
        replace_run = self._replace_run or self._resume
        return _look_around(
            self._folder, self._planned, replace_run=replace_run, replace_any=self._replace_any
        )

    def _begin(self, held: HeldRun | None) -> None:
        """Leave what can be gone on with, take away what cannot, and say what was asked.

        Raises:
            RequestError: the run that is to be resumed is another one.
            OutputError: something cannot be written or deleted.
        """
        text = render_json(self._request).encode()
        begun = self._folder.read(REQUEST)
        if held is not None and begun and self._resume:
            _refuse_other_run(begun, self.path, self._request)
            self._known = set(held.known)
            remove_half_written(self._folder, held.begun)
            self._open_journal()
            return
        if held is not None and begun != b"":
            # The journal first, so that a run that is killed while it deletes still knows what is its own.
            self._known = set(held.known)
            remove_half_written(self._folder, held.begun)
            self._open_journal(held.known)
            remove_known(self._folder, held.known - {REQUEST, JOURNAL})
        self._write_request(text, begun)
        self._known = {REQUEST}
        self._open_journal({REQUEST})

    def _write_request(self, text: bytes, begun: bytes | None) -> None:
        """Say what was asked. What stood there is replaced whole, so that the folder is always known as a run's.

        Raises:
            OSError: it cannot be written.
        """
        assert self._lock is not None  # noqa: S101
        if not begun:
            try:
                _write_whole(self._lock, text)
            except OSError:
                self._folder.remove(REQUEST)  # an empty one is a run's only where it stands alone
                raise
            return
        new = self._folder.open_inside(PARTIAL + REQUEST, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _take_lock(new, self.path)
            _write_all(new, text)
            self._folder.rename(PARTIAL + REQUEST, REQUEST)
        except OSError:
            os.close(new)
            raise
        os.close(self._lock)  # only now: until here nobody else could take the one or the other
        self._lock = new

    def _open_journal(self, names: set[str] | frozenset[str] = frozenset()) -> None:
        """Make the journal anew with ``names`` or, without any, go on with the one that stands there."""
        if names or not self._folder.is_file(JOURNAL):
            lines = [_to_line(name) for name in sorted({*names, JOURNAL})]
            self._folder.write(JOURNAL, b"".join(lines))
        self._known.add(JOURNAL)
        if self._journal is not None:
            os.close(self._journal)
        self._journal = self._folder.open_inside(JOURNAL, os.O_WRONLY | os.O_APPEND)

    def _claim(self, name: str) -> None:
        """See that a name is free, or the run's own, and put it into the journal.

        Raises:
            OutputError: a file of somebody else stands there, or the journal cannot be written.
        """
        with self._mutex:
            if name in self._claimed:
                return
            if name not in self._known:
                if self._folder.status(name) is not None:
                    raise is_not_ours(self._folder, name)
                assert self._journal is not None  # noqa: S101
                _append(self._journal, _to_line(name), self.path / JOURNAL)
                self._known.add(name)
            self._claimed.add(name)

    def _measure(self, name: str) -> int:
        """The size of a file that the run has written.

        Raises:
            OutputError: it is gone.
        """
        status = self._folder.status(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            raise OutputError(
                f"{str(self.path / name)!r} is gone: somebody deleted it while the run was going on",
                "run the same command again",
            )
        return status.st_size


def check_folder(
    path: Path, planned: PlannedNames, *, replace_run: bool, replace_any: bool
) -> HeldRun | None:
    """The run that stands in ``path``, where a new one may be written; nothing is changed.

    Raises:
        OutputError: it is protected, in use, or not a folder, or a file of somebody else has a name
            that the run may write.
    """
    if not path.exists() and not path.is_symlink():
        return None
    if not path.is_dir():
        raise _is_a_file(path)
    try:
        with Directory(path) as folder:
            return _look_around(folder, planned, replace_run=replace_run, replace_any=replace_any)
    except OSError as error:
        raise cannot_write(path, error) from error


def _look_around(
    folder: Directory, planned: PlannedNames, *, replace_run: bool, replace_any: bool
) -> HeldRun | None:
    """The run that stands in a folder into which may be written.

    Raises:
        OutputError: nothing may be written there.
    """
    name, held = repr(str(folder.path)), find_run(folder)
    if held is not None and not (replace_run or replace_any):
        raise _no_replacing(folder, held)
    for mark in (MANIFEST, REQUEST):
        if (held is None or mark not in held.known) and folder.status(mark) is not None:
            raise OutputError(
                f"{name} holds a {mark} that is not a run's", "choose another folder with -o"
            )
    if held is None and not replace_any and next(folder.entries(), None) is not None:
        raise OutputError(
            f"{name} holds files that are not a run's",
            "choose another folder with -o; --overwrite writes there and deletes none of them",
        )
    refuse_strangers(folder, held, planned)
    return held


def _is_a_file(path: Path) -> OutputError:
    return OutputError(f"{str(path)!r} is a file, not a folder", "choose another folder with -o")


def _no_replacing(folder: Directory, held: HeldRun) -> OutputError:
    """The error for a run that stands in a folder and may not go.

    Raises:
        OutputError: it is being written.
    """
    name = repr(str(folder.path))
    if held.complete is not None:
        return OutputError(
            f"{name} holds a run already", "replace it with --overwrite, or choose another -o"
        )
    with contextlib.suppress(OSError), open(folder.open_inside(REQUEST, os.O_RDONLY)) as lock:  # noqa: PTH123
        _take_lock(lock.fileno(), folder.path)
    return OutputError(
        f"{name} holds a run that was interrupted",
        "go on with --resume, or replace it with --overwrite",
    )


def _lock_request(folder: Directory) -> tuple[int, bool]:
    """A descriptor of ``run.json`` that holds the lock, and whether the file was made here and is still empty.

    Raises:
        OSError: it cannot be opened.
        OutputError: something else stands there, or another run holds the lock.
    """
    while True:
        is_new = folder.status(REQUEST) is None
        lock = folder.open_inside(REQUEST, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            facts = os.fstat(lock)
            if not stat.S_ISREG(facts.st_mode):
                raise is_not_ours(folder, REQUEST)
            _take_lock(lock, folder.path)
            now = folder.status(REQUEST)
            if now is not None and os.path.samestat(now, facts):
                return lock, is_new and now.st_size == 0
        except OutputError:
            os.close(lock)
            raise
        os.close(lock)  # another run has put its own in the place of this one


def _take_lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"another run is writing into {str(path)!r}", "wait for it, or choose another -o"
        ) from error


def _write_whole(descriptor: int, text: bytes) -> None:
    """Write a text into an empty file, which is left empty where it cannot hold all of it.

    Raises:
        OSError: it cannot be written.
    """
    try:
        _write_all(descriptor, text)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise


def _append(descriptor: int, line: bytes, file: Path) -> None:
    """Add a line to the journal; a line that cannot be written whole is taken out again.

    Raises:
        OutputError: it cannot be written.
    """
    before = os.fstat(descriptor).st_size
    try:
        _write_all(descriptor, line)
    except OSError as error:
        os.ftruncate(descriptor, before)
        raise cannot_write(file, error) from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _to_line(name: str) -> bytes:
    return f"{json.dumps(name)}\n".encode()


def replace_page(path: Path, page: bytes) -> Path:
    """Write the page of a run that stands there again, and its size into the manifest; returns the file.

    Raises:
        RequestError: the folder is not a run's.
        OutputError: a run is going on in it, or it cannot be written.
    """
    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(Directory(path))
            if folder.is_file(REQUEST):
                lock = stack.enter_context(open(folder.open_inside(REQUEST, os.O_RDONLY)))  # noqa: PTH123
                _take_lock(lock.fileno(), path)
            held = find_run(folder)
            if held is None:
                raise RequestError(
                    f"{str(path)!r} is not a run's folder", "give the folder of a run"
                )
            is_free = folder.status(PAGE) is None
            if not is_free and not (PAGE in held.known and folder.is_file(PAGE)):
                raise OutputError(
                    f"{str(path / PAGE)!r} is not known to be of the run, and would be written over",
                    "move it away, or run hookcli inspect again",
                )
            remove_half_written(folder, held.begun)
            folder.write(PAGE, page)
            if held.complete is not None and held.complete.sizes.get(PAGE, len(page)) != len(page):
                document, listed = decode_both(folder.read(MANIFEST) or b"", FileList)
                document["sizes"] = {**listed.sizes, PAGE: len(page)}
                folder.write(MANIFEST, render_json(document).encode())
    except OSError as error:
        raise cannot_write(path / PAGE, error) from error
    return path / PAGE


def finish_resume(path: Path, command: Sequence[str], weights_sha256: str = "") -> None:
    """See that there is something left to resume; of a run that is complete, take away what it needed on the way.

    Args:
        path: the run folder.
        command: what is asked now.
        weights_sha256: of a weights file that is named.

    Raises:
        CompleteError: the run in ``path`` came to its end.
        RequestError: another one did, or one of its files is missing or of another size.
        OutputError: another process is writing into the folder.
    """
    if not path.is_dir():
        return
    with Directory(path) as folder:
        held, data = find_run(folder), folder.read(MANIFEST)
        if held is None or held.complete is None or data is None:
            return
        done, _ = decode_both(data, Request)
        wanted = {"hookcli": metadata.version("hookcli"), "command": to_plain(command)}
        if weights_sha256:
            wanted["model"] = {**done.get("model", {}), "sha256": weights_sha256}
        for difference in list_differences(done, wanted):
            raise RequestError(
                f"--resume: the run in {str(path)!r} was done {difference}",
                "choose another folder with -o, or start again with --overwrite",
            )
        for damage in list_damage(path, held.complete.sizes).values():
            raise RequestError(
                f"--resume: the run in {str(path)!r} is complete, but {damage}", _RUN_AGAIN
            )
        left = {
            name for name in held.known if name.startswith(f"{PARTS}/") and folder.is_file(name)
        }
        if left and folder.is_file(REQUEST):
            try:
                with open(folder.open_inside(REQUEST, os.O_RDONLY)) as lock:  # noqa: PTH123
                    _take_lock(lock.fileno(), path)
                    remove_known(folder, left)
            except OSError as error:
                raise cannot_write(path, error) from error
    raise CompleteError(f"the run in {str(path)!r} is complete")


def _refuse_other_run(begun: bytes, path: Path, request: dict[str, Any]) -> None:
    """See that the run that was begun in a folder is this one.

    Raises:
        RequestError: something differs; the message names it.
    """
    wanted = to_plain(request)
    for difference in list_differences(decode_both(begun, Request)[0], wanted):
        raise RequestError(
            f"--resume: the run in {str(path)!r} was begun {difference}",
            "ask for the same, or start again with --overwrite",
        )
