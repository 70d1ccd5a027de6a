"""The lock of a run folder in a storage: who gets it, who loses it, and where it cannot work."""

from __future__ import annotations

import json
import os
import time

import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from hookcli.errors import OutputError
from hookcli.store.locations import lease, storage
from hookcli.store.locations.remote_folder import RemoteFolder
from tests.store.locations.test_remote_folder import RUN, memory, open_run  # noqa: F401
from tests.store.test_folder import DONE

FIRST = RUN / "lock/000001.json"


def expire():
    """Make the first lock look as if its owner had not renewed it for a long time."""
    held = json.loads(storage.read_file(FIRST))
    storage.write_file(FIRST, json.dumps(held | {"expires": time.time() - 1}).encode())


def locks():
    return [*storage.list_files(RUN / "lock")]


def test_a_second_run_is_refused_and_the_error_says_who_writes():
    with open_run(), pytest.raises(OutputError, match="another run is writing") as caught:
        RemoteFolder(RUN).lock()
    assert f"process {os.getpid()} on " in caught.value.message
    assert "its lock expires in 60 s" in caught.value.hint
    assert locks() == []


def test_a_lock_that_has_expired_is_taken_over():
    first = RemoteFolder(RUN).lock()
    expire()
    second = RemoteFolder(RUN).lock()
    assert locks() == ["000002.json"]
    second.check()
    first._renew()
    with pytest.raises(OutputError, match=r"was lost: process \d+ on .* holds it") as caught:
        first.check()
    assert caught.value.exit_code == 5
    first.close()
    assert locks() == ["000002.json"]
    second.close()
    assert locks() == []


def test_a_lock_is_renewed_while_the_run_lives(monkeypatch):
    monkeypatch.setattr(lease, "_RENEWAL", 0.01)
    with open_run():
        before = storage.read_file(FIRST)
        deadline = time.monotonic() + 5
        while storage.read_file(FIRST) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert storage.read_file(FIRST) != before


def test_a_lock_that_could_not_be_renewed_in_time_is_lost(monkeypatch):
    held = RemoteFolder(RUN).lock()
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)  # the machine slept
    with pytest.raises(OutputError, match="was lost: it was not renewed in time"):
        held.check()
    before = storage.read_file(FIRST)
    held._renew()
    assert storage.read_file(FIRST) == before
    held.close()
    assert storage.read_file(FIRST) == before


def test_a_run_that_has_lost_its_lock_changes_nothing():
    with open_run() as run:
        run.write("layers.csv", b"")
        before = dict.fromkeys(storage.list_files(RUN))
        run._lock._loss = "another has it"
        changes = (
            lambda: run.write("skipped.csv", b""),
            lambda: run.claim(["skipped.csv"]),
            lambda: run.remove({"layers.csv"}),
            lambda: run.complete(DONE, []),
        )
        for change in changes:
            with pytest.raises(OutputError, match="another has it"):
                change()
        assert dict.fromkeys(storage.list_files(RUN)) == before


def test_one_of_two_simultaneous_runs_gets_the_lock(monkeypatch):
    """Both have seen that there is no lock, and the other creates the file first."""
    create, others = storage.create_file, []

    def create_second(url, data):
        monkeypatch.setattr(storage, "create_file", create)
        others.append(RemoteFolder(RUN).lock())
        create(url, data)

    monkeypatch.setattr(storage, "create_file", create_second)
    with pytest.raises(OutputError, match="another run is writing"):
        RemoteFolder(RUN).lock()
    others[0].close()


def test_a_lost_answer_of_the_storage_is_not_taken_for_another_run(monkeypatch):
    """The file was created, but the connection broke, and fsspec tried again."""
    create = storage.create_file

    def create_twice(url, data):
        create(url, data)
        create(url, data)

    monkeypatch.setattr(storage, "create_file", create_twice)
    RemoteFolder(RUN).lock().close()
    assert locks() == []


class Careless(MemoryFileSystem):
    """A filesystem that accepts the argument for a conditional write and ignores it."""

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        super().pipe_file(path, value)


class Emulating(MemoryFileSystem):
    """A filesystem that first checks whether the file exists, and then writes."""

    pipe_file = AbstractFileSystem.pipe_file


@pytest.mark.parametrize("kind", [Careless, Emulating])
def test_a_storage_without_conditional_writes_is_refused(monkeypatch, kind):
    filesystem = kind(skip_instance_cache=True)
    monkeypatch.setattr(storage, "_open", lambda url: (filesystem, url.removeprefix("memory:/")))
    with pytest.raises(OutputError, match="no conditional writes") as caught, open_run():
        pass
    assert caught.value.exit_code == 5
    assert locks() == []
