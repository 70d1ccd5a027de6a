"""A run folder in a storage: which files hookcli writes, keeps, refuses and reads there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import hookcli
from hookcli.errors import OutputError
from hookcli.outside.urls import Url
from hookcli.reading.run_files import RemoteFiles, open_files
from hookcli.store.chunks import ChunkFiles
from hookcli.store.folder import RunFolder
from hookcli.store.locations import storage
from hookcli.summary.chunks import Chunk
from tests.store.test_folder import DONE, REQUEST, planned
from tests.toy_runs import run_of

RUN = Url("memory://bucket/run")
TOY = replace(run_of(conv=np.arange(48, dtype="f4").reshape(1, 3, 4, 4)), kept="both")


@pytest.fixture(autouse=True)
def memory():
    """A storage with nothing in it."""
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def open_run(request=REQUEST, **how):
    return RunFolder(RUN, request, **planned(**how))


def files():
    """The files of the run, without its lock."""
    return [name for name in storage.list_files(RUN) if not name.startswith("lock/")]


def put(name, data=b"mine"):
    storage.write_file(RUN / name, data)


def copy(folder):
    """Copy a folder of this machine."""
    for file in Path(folder).rglob("*"):
        if file.is_file():
            put(file.relative_to(folder).as_posix(), file.read_bytes())
    return str(RUN)


def refusal(**how):
    before = {name: storage.read_file(RUN / name) for name in files()}
    with pytest.raises(OutputError) as caught, open_run(**how):
        pass
    assert {name: storage.read_file(RUN / name) for name in files()} == before
    return caught.value.message


# --- writing


def test_a_run_is_written_and_nothing_else_is_left():
    with open_run() as run:
        assert files() == ["parts/written.jsonl", "run.json"]
        run.write("layers.csv", b"rows")
        assert files() == ["layers.csv", "parts/written.jsonl", "run.json"]
        run.complete(DONE, ["layers.csv"])
    assert [*storage.list_files(RUN)] == ["layers.csv", "manifest.json", "run.json"]
    assert json.loads(storage.read_file(RUN / "manifest.json"))["sizes"]["layers.csv"] == 4


def test_a_chunk_of_another_process_belongs_to_the_run():
    chunk = ChunkFiles()
    chunk.write("seen/cat.jpg", b"new")
    with open_run() as run:
        chunk.save(RUN, Chunk(3, written_files=["seen/cat.jpg"]))
        own = ["parts/000003.json", "parts/000003.written.jsonl"]
        assert files() == [*own, "parts/written.jsonl", "run.json", "seen/cat.jpg"]
        run.adopt(["seen/cat.jpg", *own])
        run.complete(DONE, ["seen/cat.jpg"])
    assert files() == ["manifest.json", "run.json", "seen/cat.jpg"]


def test_a_run_that_was_killed_is_known_with_all_its_files():
    with open_run() as run:
        run.write("layers.csv", b"rows")
        chunk = ChunkFiles()
        chunk.write("seen/cat.jpg", b"new")
        chunk.save(RUN, Chunk(3, written_files=["seen/cat.jpg"]))
    put("notes.txt")
    with open_run(resume=True) as run:
        assert run.read("layers.csv") == b"rows"
        assert run.holds("seen/cat.jpg")
    with open_run(replace_any=True):
        assert files() == ["notes.txt", "parts/written.jsonl", "run.json"]


def test_the_second_journal_of_an_earlier_version_goes_with_the_run():
    with open_run() as run:
        run.write("layers.csv", b"rows")
    begun, later = storage.read_file(RUN / "parts/written.jsonl").rsplit(b"\n", 2)[:2]
    put("parts/written.jsonl", begun + b'\n"parts/later.written.jsonl"\n')
    put("parts/later.written.jsonl", later + b"\n")
    with open_run(resume=True) as run:
        assert run.read("layers.csv") == b"rows"
        run.complete(DONE, ["layers.csv"])
    assert files() == ["layers.csv", "manifest.json", "run.json"]


def test_files_that_no_run_wrote_are_not_overwritten():
    put("layers.csv")
    assert refusal() == f"{str(RUN)!r} holds files that no run wrote"
    message = f"'{RUN}/layers.csv' was not written by a run, and this run would overwrite it"
    assert refusal(replace_any=True) == message


# --- reading


@pytest.fixture
def toy(tmp_path):
    return TOY.write(tmp_path / "toy")


def test_a_run_is_loaded_from_a_url(toy):
    here, there = hookcli.load_run(toy), hookcli.load_run(copy(toy))
    assert there.folder == RUN
    assert there.calls == here.calls
    assert (there["conv"] == here["conv"]).all()
    assert there.records == here.records


def test_a_copy_of_a_file_goes_with_what_read_it(toy):
    copy(toy)
    run = open_files(RUN)
    assert run.read("manifest.json") == (toy / "manifest.json").read_bytes()
    assert isinstance(run, RemoteFiles)
    copies = run._copies
    assert copies is not None
    assert [file.name for file in copies.iterdir()] == ["manifest.json"]
    del run
    assert not copies.exists()


def test_only_files_of_runs_are_copied():
    put("../secret")
    with pytest.raises(FileNotFoundError):
        open_files(RUN).open("../secret")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["report", RUN], f"there is no folder '{RUN}'"),
        (["report", "nothing://bucket/run"], "cannot use 'nothing://bucket/run'"),
        (["report", "sftp://me:pass@host/run"], "the URL on host holds a password"),
        (["report", RUN, "--storage-option", "secret=x"], "takes no credentials, such as 'secret'"),
        (["report", RUN, "--storage-option", "secretKey=x"], "such as 'secretKey'"),
        (["report", RUN, "--storage-option", "endpoint_url=http://me:pass@host"], "no credentials"),
        (
            ["report", RUN, "--storage-option", "endpoint"],
            "--storage-option cannot read 'endpoint'",
        ),
    ],
)
def test_a_url_that_cannot_be_read_is_refused(run, words, reason):
    ended = run(*words)
    assert ended.code == 2
    assert reason in ended.err
    assert "pass@" not in ended.err


def test_a_storage_that_cannot_be_used_ends_with_5(run, toy, monkeypatch):
    copy(toy)
    put("report.json", b"{}")

    def away(*_args):
        raise storage.StorageError(5, "no route to host")

    for name in ("read_file", "list_files"):
        with monkeypatch.context() as patch:
            patch.setattr(storage, name, away)
            ended = run("report", RUN)
        assert ended.code == 5
        assert "no route to host" in ended.err
        assert "try again when the storage can be used" in ended.err


def test_a_golden_file_may_be_at_a_url(run, toy, tmp_path):
    put("golden.json", TOY.write_golden(tmp_path / "golden.json").read_bytes())
    assert run("diff", RUN / "golden.json", toy).code == 0
    ended = run("diff", RUN / "none.json", toy)
    assert ended.code == 2
    assert f"there is no folder and no file '{RUN}/none.json'" in ended.err


def test_a_run_at_a_url_is_exported(run, toy, tmp_path):
    run("export", copy(toy), "--to", "npy")
    assert np.load("hookcli-exports/run/conv.npy").shape == (1, 3, 4, 4)
