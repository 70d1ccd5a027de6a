"""Lock a run folder, and write its files: ``run.json`` first, and the manifest last."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING

from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import decode_both, to_fields
from hookcli.outside.files import ANOTHER, cannot_write, is_full, not_ours_error
from hookcli.outside.json_text import encode_json, plain, render_json
from hookcli.records.command import list_differences
from hookcli.records.report import Manifest, Request
from hookcli.store.admission import check_folder, find_replaceable_run
from hookcli.store.journal import to_lines, write_journal
from hookcli.store.locations.folders import open_folder
from hookcli.store.locations.names import JOURNAL, MANIFEST, PARTS, REQUEST, is_usual

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hookcli.outside.urls import Location
    from hookcli.records.report import FinishedRun, RequestFile
    from hookcli.store.locations.names import PlannedNames
    from hookcli.store.ownership import HeldRun

_HINTS = {"versions": "use the same", "code": "restore the file"}  # if these differ
# A run may be resumed on another machine. If the number of threads or the memory format (which
# depends on the number of images) differs, the run starts again.
_MACHINE = ("platform", "processor", "threads", "memory_format")


class RunFolder:
    def __init__(
        self, path: Location, request: RequestFile, planned: PlannedNames, *, resume: bool = False
    ) -> None:
        self.path, self.request = path, request
        self._planned, self._resume = planned, resume
        self._known: set[str] = set()  # files of this run, or of the run that it resumes
        self._claimed: set[str] = set()  # the known files whose names this process has checked
        self._mutex = threading.Lock()

    def __enter__(self) -> RunFolder:
        check_folder(self.path, self._planned)  # a folder that is refused gets no lock
        with contextlib.ExitStack() as stack:
            try:
                self._folder = open_folder(self.path, make=True)
                self._lock = stack.enter_context(self._folder.lock())
                self._begin(find_replaceable_run(self._folder, self._planned))
            except OSError as error:
                raise cannot_write(self.path, error) from error
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stack.close()
        if isinstance(error, OutputError) and is_full(error.__cause__):
            error.hint = f"make room and continue with `resume=True`, or {ANOTHER}"

    def write(self, name: str, data: bytes) -> str:  # several threads may call this at once
        self.claim([name])
        return self._folder.write(name, data)

    def claim(self, names: Collection[str]) -> None:
        # ``write`` claims the name of each file; in cloud storage, claiming many at once is faster.
        self._lock.check()
        with self._mutex:
            if self._claimed.issuperset(names):
                return
            new = [name for name in names if name not in self._known]
            for name in new:
                if self._folder.find(name) is not None:
                    raise not_ours_error(self.path / name)
            self._folder.append(JOURNAL, to_lines(new))
            self._known.update(new)
            self._claimed.update(names)

    def adopt(self, written: Iterable[str]) -> None:
        with self._mutex:
            self._known |= {*written}
            self._claimed |= {*written}

    def read(self, name: str) -> bytes | None:
        return self._folder.read(name) if name in self._known else None

    def holds(self, name: str) -> bool:
        return name in self._known and self._folder.is_file(name)

    def remove(self, names: set[str]) -> None:
        self._lock.check()
        self._folder.remove(names & self._known)

    def list_chunks(self) -> set[str]:
        return {name for name in self._known if name.startswith(f"{PARTS}/")} - {JOURNAL}

    def complete(self, facts: FinishedRun, files: Sequence[str]) -> None:
        # This also deletes the files of the run that the manifest does not list, such as chunks.
        self._lock.check()
        sizes: dict[str, int] = {}
        for name, size in self._folder.measure(sorted({REQUEST, *files})).items():
            if size is None:
                what = f"{str(self.path / name)!r} was deleted during the run"
                raise OutputError(what, "run the same command again")
            sizes[name] = size
        parts = self.list_chunks()
        self._folder.remove(self._known - sizes.keys() - parts - {JOURNAL, MANIFEST})
        manifest = Manifest(**to_fields(facts), files=tuple(sizes), sizes=sizes)
        self.write(MANIFEST, encode_json(plain(manifest)))
        # Chunks are deleted only now, so that a run killed before this line can still be resumed.
        self._lock.check()
        self._folder.remove(parts)
        self._folder.remove([JOURNAL])

    def _begin(self, held: HeldRun | None) -> None:
        text = render_json(self.request).encode()
        if held is not None:
            old = self._folder.read(REQUEST)
            if old and self._resume:
                _refuse_other_run(old, self.path, text)
                for name in itertools.filterfalse(is_usual, sorted(held.known)):
                    raise RequestError(
                        f"`resume`: the run in {str(self.path)!r} has a file {name!r}, a name that "
                        "not every system allows",
                        "start again with `overwrite=True`, or finish it with the version that "
                        "began it",
                    )
            self._folder.remove(self._folder.list_partial(held.journal))
            if old or held.complete:
                # Write the journal first: if hookcli is killed while it deletes files, the journal
                # must still name the remaining ones.
                self._start_journal(held.known)  # includes the names in the journals of chunks
                if old and self._resume:
                    return
                self._folder.remove(held.known - {JOURNAL, REQUEST})
        self._folder.write(REQUEST, text)
        self._start_journal({REQUEST})

    def _start_journal(self, names: Iterable[str]) -> None:
        write_journal(self._folder, JOURNAL, names)
        self._known = {*names, JOURNAL}


def _refuse_other_run(old: bytes, path: Location, request: bytes) -> None:
    (known, before), (wanted, now) = (decode_both(each, Request) for each in (old, request))
    names = [name for name in {**before.versions, **now.versions} if name not in _MACHINE]
    wanted["versions"] = {name: now.versions.get(name) for name in names}
    for name in wanted:
        for difference in list_differences({name: known.get(name)}, {name: wanted[name]}):
            hint = f"{_HINTS.get(name, 'ask for the same')}, or start again with `overwrite=True`"
            raise RequestError(f"`resume`: the run in {str(path)!r} was started {difference}", hint)
