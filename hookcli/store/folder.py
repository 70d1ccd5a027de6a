"""The run folder itself: who may write into it, what was asked, and the manifest that closes it.

``run.json`` is written first and locked while the run lives; ``manifest.json`` is written last, so
its presence means that the run is complete. In between the journal holds the name of every file
before it is written: only what stands there, or in a manifest, is ever changed or deleted.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from typing import TYPE_CHECKING

from hookcli.documents import Request, decode_both
from hookcli.errors import OutputError, RequestError
from hookcli.files import cannot_write, is_full
from hookcli.records.command import list_differences
from hookcli.store.admission import is_a_file, look_around
from hookcli.store.directory import PARTIAL, Directory
from hookcli.store.journal import Journal, write_all
from hookcli.store.lock import lock_request, take_lock
from hookcli.store.names import JOURNAL, MANIFEST, PARTS, REQUEST
from hookcli.store.ownership import is_not_ours, remove_half_written, remove_known
from hookcli.store.tables import plain_object, render_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from hookcli.store.names import PlannedNames
    from hookcli.store.ownership import HeldRun


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
        request: Mapping[str, object],
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
        self._journal: Journal | None = None

    def __enter__(self) -> RunFolder:
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._folder = stack.enter_context(Directory(self.path))
                stack.callback(self._close)
                held = self._admit()
                self._lock, is_new = lock_request(self._folder)
                self._begin(held if is_new else self._admit())
            except FileExistsError as error:
                raise is_a_file(self.path) from error
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

    def complete(self, manifest: Mapping[str, object], files: Sequence[str]) -> None:
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
        text = render_json({**manifest, "files": list(sizes), "sizes": sizes})
        self.write(MANIFEST, text.encode())
        # Only now: without them a run that is killed here would have to begin again.
        remove_known(self._folder, parts)
        remove_known(self._folder, {JOURNAL})

    def _close(self) -> None:
        with contextlib.suppress(OSError):  # of a disk that is full
            if self._journal is not None:
                self._journal.close()
        with contextlib.suppress(OSError):
            if self._lock is not None:
                os.close(self._lock)
        self._journal = self._lock = None

    def _admit(self) -> HeldRun | None:
        """The run that stands in the folder and may be replaced or gone on with.

        Raises:
            OutputError: nothing may be written here.
        """
        replace_run = self._replace_run or self._resume
        return look_around(
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
            take_lock(new, self.path)
            write_all(new, text)
            self._folder.rename(PARTIAL + REQUEST, REQUEST)
        except OSError:
            os.close(new)
            raise
        os.close(self._lock)  # only now: until here nobody else could take the one or the other
        self._lock = new

    def _open_journal(self, names: set[str] | frozenset[str] = frozenset()) -> None:
        """Begin the journal anew with ``names`` or, without any, go on with the one that is there."""
        journal = Journal(self._folder, names)
        self._known.add(JOURNAL)
        if self._journal is not None:
            self._journal.close()
        self._journal = journal

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
                self._journal.add(name)
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


def _write_whole(descriptor: int, text: bytes) -> None:
    """Write a text into an empty file, which is left empty where it cannot hold all of it.

    Raises:
        OSError: it cannot be written.
    """
    try:
        write_all(descriptor, text)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise


def _refuse_other_run(begun: bytes, path: Path, request: Mapping[str, object]) -> None:
    """See that the run that was begun in a folder is this one.

    Raises:
        RequestError: something differs; the message names it.
    """
    wanted = plain_object(request)
    for difference in list_differences(decode_both(begun, Request)[0], wanted):
        raise RequestError(
            f"--resume: the run in {str(path)!r} was begun {difference}",
            "ask for the same, or start again with --overwrite",
        )
