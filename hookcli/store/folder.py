"""The run folder while a run writes into it: the request, the files, and the manifest at the end.

``run.json`` is written first and stays locked while the run lives; ``manifest.json`` is written
last, so its presence means that the run is complete. In between, the journal receives the name of
every file before the file is written: only files that are named there, or in a manifest, are ever
changed or deleted.
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
from hookcli.store.admission import file_in_the_way_error, find_replaceable_run
from hookcli.store.directory import PARTIAL, Directory
from hookcli.store.journal import Journal, write_all
from hookcli.store.lock import lock_request, take_lock
from hookcli.store.names import JOURNAL, MANIFEST, PARTS, REQUEST
from hookcli.store.ownership import not_ours_error, remove_half_written, remove_known
from hookcli.store.tables import encode_json, plain_object, render_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from hookcli.store.names import PlannedNames
    from hookcli.store.ownership import HeldRun


class RunFolder:
    """A folder that belongs to one run while the ``with`` block lasts.

    Attributes:
        path: the path of the folder.

    Raises:
        OutputError: on entering, if the folder is protected, in use, or cannot be written, or a
            file that no run wrote has a name that this run may write.
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
        """Prepare the folder; nothing is opened or written before the ``with`` block.

        Args:
            path: the path of the folder.
            request: the content of ``run.json``.
            planned: the names that the run may write.
            replace_run: delete a run that is in the folder.
            replace_any: write even if the folder holds files that no run wrote.
            resume: continue the same run if it is in the folder.
        """
        self.path = path
        self._request, self._planned = request, planned
        self._replace_run, self._replace_any, self._resume = replace_run, replace_any, resume
        self._known: set[str] = set()  # written by this run, or the one it resumes
        self._claimed: set[str] = set()  # the known names that this process has checked
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
                raise file_in_the_way_error(self.path) from error
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
            error.hint = "make room and continue with --resume, or choose another folder with -o"

    def write(self, name: str, data: bytes) -> str:
        """Write one file of the run and return its name; safe to call from several threads.

        Raises:
            OutputError: the file cannot be written, or a file that no run wrote has its name.
        """
        self._claim(name)
        return self._folder.write(name, data)

    def adopt(self, written: Iterable[str]) -> None:
        """Take files over that another process has written for this run.

        Raises:
            OutputError: the journal cannot be written.
        """
        assert self._journal is not None  # noqa: S101
        with self._mutex:
            for name in {*written} - self._known:
                self._journal.add(name)
                self._known.add(name)
            self._claimed |= {*written}

    def read(self, name: str) -> bytes | None:
        """Read a file that this run is known to have written; None if there is none.

        Raises:
            OutputError: the file may not be read.
        """
        return self._folder.read(name) if name in self._known else None

    def holds(self, name: str) -> bool:
        """Return whether a file exists that this run is known to have written."""
        return name in self._known and self._folder.is_file(name)

    def remove(self, names: set[str]) -> None:
        """Delete the given files, except any that this run is not known to have written.

        Raises:
            OutputError: a file cannot be deleted.
        """
        remove_known(self._folder, names & self._known)

    def list_chunks(self) -> set[str]:
        """Return the files in ``parts/`` that this run wrote, without the journal."""
        return {name for name in self._known if name.startswith(f"{PARTS}/")} - {JOURNAL}

    def complete(self, manifest: Mapping[str, object], files: Sequence[str]) -> None:
        """Write the manifest, which makes the run complete, and delete what it does not list.

        Args:
            manifest: the content of the manifest, without ``files`` and ``sizes``.
            files: the files of the run, without ``run.json`` and the manifest itself.

        Raises:
            OutputError: one of the files, or the folder, was deleted meanwhile.
        """
        sizes = {name: self._measure(name) for name in sorted({REQUEST, *files})}
        if not self._folder.is_in_place():
            raise OutputError(
                f"the folder {str(self.path)!r} was deleted or moved "
                "while the run was writing into it",
                "run the same command again",
            )
        parts = frozenset(self.list_chunks())
        remove_known(self._folder, self._known - sizes.keys() - parts - {JOURNAL, MANIFEST})
        whole = {**manifest, "files": list(sizes), "sizes": sizes}
        self.write(MANIFEST, encode_json(whole))
        # Only now: a run that is killed before this line can still be resumed from them.
        remove_known(self._folder, parts)
        remove_known(self._folder, {JOURNAL})

    def _close(self) -> None:
        with contextlib.suppress(OSError):  # closing fails when the disk is full
            if self._journal is not None:
                self._journal.close()
        with contextlib.suppress(OSError):
            if self._lock is not None:
                os.close(self._lock)
        self._journal = self._lock = None

    def _admit(self) -> HeldRun | None:
        """Return the run that is in the folder and may be replaced or resumed; None without one.

        Raises:
            OutputError: nothing may be written here.
        """
        replace_run = self._replace_run or self._resume
        return find_replaceable_run(
            self._folder, self._planned, replace_run=replace_run, replace_any=self._replace_any
        )

    def _begin(self, held: HeldRun | None) -> None:
        """Keep a run that is resumed, delete one that is replaced, and write the request.

        Raises:
            RequestError: the run to resume is a different one.
            OutputError: a file cannot be written or deleted.
        """
        text = render_json(self._request).encode()
        begun = self._folder.read(REQUEST)
        if held is not None and begun and self._resume:
            _refuse_other_run(begun, self.path, self._request)
            self._known = set(held.known)
            remove_half_written(self._folder, held.begun)
            self._open_journal(held.known)  # with the names in the journals of chunks
            return
        if held is not None and begun != b"":
            # The journal first: a run that is killed while it deletes must know its files.
            self._known = set(held.known)
            remove_half_written(self._folder, held.begun)
            self._open_journal(held.known)
            remove_known(self._folder, held.known - {REQUEST, JOURNAL})
        self._write_request(text, begun)
        self._known = {REQUEST}
        self._open_journal({REQUEST})

    def _write_request(self, text: bytes, begun: bytes | None) -> None:
        """Write ``run.json``, replacing an older one as a whole.

        At no moment is the folder without a request, so it is always known to be that of a run.

        Raises:
            OSError: the file cannot be written.
        """
        assert self._lock is not None  # noqa: S101
        if not begun:
            try:
                _write_whole(self._lock, text)
            except OSError:
                self._folder.remove(REQUEST)  # an empty one marks a run only if it is alone
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
        # Only now: until here no other run could lock the old file or the new one.
        os.close(self._lock)
        self._lock = new

    def _open_journal(self, names: set[str] | frozenset[str] = frozenset()) -> None:
        """Start a journal with ``names``; without any, go on with the existing one."""
        journal = Journal(self._folder, names)
        self._known.add(JOURNAL)
        if self._journal is not None:
            self._journal.close()
        self._journal = journal

    def _claim(self, name: str) -> None:
        """Check that a name is free or the run's own, and add it to the journal.

        Raises:
            OutputError: a file that no run wrote has the name, or the journal cannot be written.
        """
        with self._mutex:
            if name in self._claimed:
                return
            if name not in self._known:
                if self._folder.status(name) is not None:
                    raise not_ours_error(self._folder, name)
                assert self._journal is not None  # noqa: S101
                self._journal.add(name)
                self._known.add(name)
            self._claimed.add(name)

    def _measure(self, name: str) -> int:
        """Return the size of a file that the run has written.

        Raises:
            OutputError: the file was deleted.
        """
        status = self._folder.status(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            raise OutputError(
                f"{str(self.path / name)!r} is gone: "
                "somebody deleted it while the run was going on",
                "run the same command again",
            )
        return status.st_size


def _write_whole(descriptor: int, text: bytes) -> None:
    """Write a text into an empty file, which is empty again if not all of it can be written.

    Raises:
        OSError: the text cannot be written.
    """
    try:
        write_all(descriptor, text)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise


def _refuse_other_run(begun: bytes, path: Path, request: Mapping[str, object]) -> None:
    """Raise if the run that was begun in a folder is not the requested one.

    Raises:
        RequestError: the requests differ; the message says in what.
    """
    wanted = plain_object(request)
    for difference in list_differences(decode_both(begun, Request)[0], wanted):
        raise RequestError(
            f"--resume: the run in {str(path)!r} was begun {difference}",
            "ask for the same, or start again with --overwrite",
        )
