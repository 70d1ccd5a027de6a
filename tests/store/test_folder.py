"""The run folder: who may write into it, what goes and what stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hookcli.errors import OutputError
from hookcli.outside.documents import to_fields
from hookcli.outside.files import cannot_write, safe_name, write_atomic
from hookcli.outside.locks import take_lock
from hookcli.records.report import FinishedRun, RequestFile
from hookcli.records.runs import ModelInfo
from hookcli.store.finished import finish_resume
from hookcli.store.folder import RunFolder
from hookcli.store.locations.directory import Directory
from hookcli.store.locations.names import LOCK, PlannedNames, chunk_file

MODEL = ModelInfo("toy", "own", "random (seed 0)", trained=False, dtype="float32")
REQUEST = RequestFile(
    hookcli="0.1.0", command=("hookcli", "inspect", "toy"), versions={"torch": "2"}, model=MODEL
)
DONE = FinishedRun(**to_fields(REQUEST), uncalled=(), images=(), skipped=(), findings=())
SAID = json.loads(json.dumps(REQUEST, default=to_fields))
NAMES = PlannedNames(
    frozenset({"cat"}),
    frozenset({"grids", "sheets", "seen", "thumbnails"}),
    frozenset({"overview.png"}),
)
JOURNAL = "parts/written.jsonl"


def open_folder(folder="run", request=REQUEST, **how):
    return RunFolder(Path(folder), request, **planned(**how))


def planned(*, resume=False, replace_run=False, **how):
    """What ``plan/folder`` decides before a run."""
    return {"planned": replace(NAMES, replace_run=replace_run or resume, **how), "resume": resume}


def finished_run(folder="run"):
    """A complete run with a file in every place where a run writes."""
    with open_folder(folder, replace_any=True) as run:
        names = ("layers.csv", "skipped.csv", "grids/cat/001_conv1.png", "sheets/cat.png")
        written = [run.write(name, b"old") for name in names]
        run.complete(DONE, written)


def put(*names, folder="run"):
    """Files of somebody else."""
    for name in names:
        file = Path(folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")


def files(folder="run"):
    """The names of all files except the lock."""
    found = (str(file.relative_to(folder)) for file in Path(folder).rglob("*") if file.is_file())
    return sorted(name for name in found if name != LOCK)


def refusal(folder="run", **options):
    before = {name: (Path(folder) / name).read_bytes() for name in files(folder)}
    with pytest.raises(OutputError) as caught, open_folder(folder, **options):
        pass
    assert {name: (Path(folder) / name).read_bytes() for name in files(folder)} == before
    assert caught.value.exit_code == 5
    return caught.value.message


# --- from beginning to end


def test_what_was_asked_is_written_before_anything_else():
    with open_folder():
        assert files() == [JOURNAL, "run.json"]
        document = json.loads(Path("run/run.json").read_text())
    assert document == SAID


def test_the_manifest_comes_last():
    with open_folder() as run:
        run.write("layers.csv", b"rows")
        assert files() == ["layers.csv", JOURNAL, "run.json"]
        run.complete(DONE, ["layers.csv"])
        assert files() == ["layers.csv", "manifest.json", "run.json"]
        assert [child.name for child in Path("run").iterdir() if child.is_dir()] == []
    sizes = {"layers.csv": 4, "run.json": Path("run/run.json").stat().st_size}
    done = json.loads(json.dumps(DONE, default=to_fields))
    manifest = {**done, "files": ["layers.csv", "run.json"], "sizes": sizes}
    assert json.loads(Path("run/manifest.json").read_text()) == manifest


def test_the_name_of_a_file_is_in_the_journal_before_the_file_is_written(monkeypatch):
    seen = []

    def look(_folder, name, _data):
        lines = Path("run", JOURNAL).read_text().splitlines()
        seen.append((name, [json.loads(line) for line in lines]))
        return name

    with open_folder() as run:
        monkeypatch.setattr("hookcli.store.locations.directory.Directory.write", look)
        run.write("seen/cat.jpg", b"")
        run.write("layers.csv", b"")
    begun = [JOURNAL, "run.json", "seen/cat.jpg"]
    assert seen == [("seen/cat.jpg", begun), ("layers.csv", [*begun, "layers.csv"])]


# --- the lock


def test_a_child_that_outlives_a_killed_run_does_not_keep_its_lock():
    code = "import multiprocessing, sys, time\nfrom tests.store.test_folder import open_folder\n"
    code += "run = open_folder(sys.argv[1])\nrun.__enter__()\n"
    code += "ways = multiprocessing.get_context(sys.argv[1])\n"
    code += "child = ways.Process(target=time.sleep, args=(60,))\nchild.start()\n"
    code += "print(child.pid, flush=True)\ntime.sleep(60)\n"
    command = [sys.executable, "-c", code, "fork"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert refusal("fork") == "another run is writing into 'fork'"
        parent.kill()
        parent.wait()
        with open_folder("fork", resume=True):
            os.kill(child, signal.SIGKILL)  # it was still alive


@pytest.mark.parametrize("content", ["text", "a link"])
def test_a_lock_file_of_somebody_else_is_not_touched(content):
    Path("run").mkdir()
    Path("mine.txt").write_text("mine")
    if content == "text":
        Path("run", LOCK).write_text("mine")
    else:
        Path("run", LOCK).symlink_to(Path("mine.txt").resolve())
    message = f"'run/{LOCK}' was not written by a run, and this run would overwrite it"
    assert refusal(replace_any=True) == message
    assert Path("mine.txt").read_text() == "mine"
    assert files() == []


def test_a_file_system_without_locks_is_an_error_with_a_hint(monkeypatch):
    def flock(_descriptor, _kind):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    message = "the file system of 'run' has no locks, so two runs could write there at once"
    assert refusal() == message
    assert files() == []


def test_a_folder_in_use_is_refused_whatever_may_be_replaced():
    with open_folder():
        Path("run/layers.csv").touch()  # not yet in the journal when another process read that
        message = refusal(replace_run=True, replace_any=True)
    assert message == "another run is writing into 'run'"
    assert take_lock(Path("run", LOCK))


# --- what may be replaced


def test_a_run_is_protected_whether_it_is_complete_or_not():
    finished_run()
    assert refusal() == "'run' already holds a run"
    Path("run/manifest.json").unlink()
    assert refusal() == "'run' holds a run that did not finish"


def test_a_run_that_stopped_before_its_first_chunk_is_replaced_and_a_later_one_is_not():
    with open_folder() as run:
        run.write("layers.csv", b"old")
        run.write("grids/cat/001_conv1.png", b"old")  # of the image for which the model failed
    with open_folder() as run:
        assert run.read("layers.csv") is None
        run.write("grids/cat/001_conv1.png", b"old")
    assert refusal() == "'run' holds a run that did not finish"
    with open_folder(replace_any=True) as run:
        run.write(chunk_file(0), b"{}")
    assert refusal() == "'run' holds a run that did not finish"


def test_a_file_in_the_way_is_refused():
    Path("run").write_text("mine")
    with pytest.raises(OutputError, match=r"(?m)^'run' is a file, not a folder$"), open_folder():
        pass
    assert Path("run").read_text() == "mine"


def test_a_location_that_cannot_be_written_is_refused():
    Path("file").touch()
    with pytest.raises(OutputError) as caught, open_folder("file/run"):
        pass
    assert caught.value.message == "cannot write 'file/run': Not a directory"
    assert caught.value.hint == "choose another folder with `out`"


def test_a_disk_that_is_full_leads_to_resume_in_a_run_and_to_room_elsewhere():
    full = OSError(errno.ENOSPC, "No space left on device")
    assert cannot_write(Path("a"), full).hint == "make room, or choose another folder with `out`"
    with pytest.raises(OutputError) as caught, open_folder():
        raise cannot_write(Path("run/a"), full) from full
    hint = "make room and continue with `resume=True`, or choose another folder with `out`"
    assert (caught.value.message, caught.value.hint) == (
        "cannot write 'run/a': No space left on device",
        hint,
    )


def test_every_file_of_the_old_run_goes_before_the_new_one_begins():
    finished_run()
    other = replace(REQUEST, command=("hookcli", "gradients", "toy"))
    with open_folder(request=other, replace_run=True):
        assert files() == [JOURNAL, "run.json"]
        assert sorted(child.name for child in Path("run").iterdir()) == [LOCK, "parts", "run.json"]
    said = {**SAID, "command": ["hookcli", "gradients", "toy"]}
    assert json.loads(Path("run/run.json").read_text()) == said


def test_files_that_others_put_into_a_run_folder_stay():
    finished_run()
    foreign = ["notes.txt", "grids/notes.txt", "grids/cat/mine.png", "sheets/x.txt", "own/a.csv"]
    put(*foreign)
    with open_folder(replace_run=True):
        assert files() == sorted([*foreign, JOURNAL, "run.json"])


def test_overwrite_deletes_nothing_in_a_folder_that_never_held_a_run():
    foreign = ["gradient_flow.png", "grids/trip/001_beach.png", "tensors/a.safetensors"]
    put(*foreign)
    assert refusal(replace_run=True) == "'run' holds files that no run wrote"
    with open_folder(replace_any=True):
        assert files() == sorted([*foreign, JOURNAL, "run.json"])


def test_nothing_is_deleted_outside_the_folder_through_a_link():
    finished_run()
    put("cat/001_conv1.png", "more/002_conv1.png", folder="elsewhere")
    (Path("run/grids") / "linked").symlink_to(Path("elsewhere/cat").resolve())
    Path("run/tensors").symlink_to(Path("elsewhere/more").resolve())
    with open_folder(replace_run=True):
        assert files("elsewhere") == ["cat/001_conv1.png", "more/002_conv1.png"]


@pytest.mark.parametrize("listed", [{"files": ["report.html"]}, ["hookcli"]])
def test_a_manifest_of_another_tool_is_no_runs_and_nothing_of_it_goes(listed):
    put("report.html", "layers.csv", "overview.png")
    Path("run/manifest.json").write_text(json.dumps(listed))
    message = refusal(replace_run=True, replace_any=True)
    assert message == "'run' holds a manifest.json that no run wrote"


def test_only_what_the_manifest_lists_goes():
    finished_run()
    put("top_images.csv", "grids/dog/002_mine.png")
    with open_folder(replace_run=True):
        assert files() == sorted(["grids/dog/002_mine.png", JOURNAL, "run.json", "top_images.csv"])


@pytest.mark.parametrize(
    "name",
    [
        *("layers.csv", "overview.png", "seen/cat.jpg", "grids/cat/017_any.png"),
        "thumbnails/000000.jpg",
        "records.parquet/notes.parquet",  # a reader would take it for a part of the table
        *("parts/000003.json", ".partial-layers.csv", "grids/cat/.partial-001_conv1.png"),
    ],
)
@pytest.mark.parametrize("holds_run", [False, True])
def test_a_file_of_somebody_else_that_a_run_would_write_over_is_named(name, holds_run):
    if holds_run:
        with open_folder():
            pass
    put(name)
    message = f"'run/{name}' was not written by a run, and this run would overwrite it"
    assert refusal(replace_any=True, replace_run=holds_run) == message


@pytest.mark.parametrize("name", ["parts", "grids/cat"])
@pytest.mark.parametrize("kind", ["a link", "a file"])
def test_a_file_in_place_of_a_folder_is_named(name, kind):
    Path("elsewhere/cat").mkdir(parents=True)
    Path("run", name).parent.mkdir(parents=True)
    if kind == "a link":
        Path("run", name).symlink_to(Path("elsewhere").resolve())
    else:
        Path("run", name).touch()
    message = f"'run/{name}' was not written by a run, and this run would overwrite it"
    assert refusal(replace_any=True) == message


def test_a_folder_that_the_run_does_not_use_may_be_anything():
    Path("run").mkdir()
    Path("run/tensors").symlink_to("nowhere")
    Path("run/cam").write_text("mine")
    with open_folder(replace_any=True) as run:
        run.complete(DONE, [])
    assert Path("run/tensors").is_symlink()
    assert Path("run/cam").read_text() == "mine"


def test_a_file_that_somebody_makes_while_the_run_is_going_on_stays():
    with open_folder() as run:
        Path("run/layers.csv").write_text("mine")
        with pytest.raises(OutputError) as caught:
            run.write("layers.csv", b"rows")
    assert caught.value.message.startswith("'run/layers.csv' was not written by a run")
    assert Path("run/layers.csv").read_text() == "mine"


def test_a_folder_that_becomes_a_link_while_the_run_is_going_on_is_not_followed():
    Path("elsewhere").mkdir()
    with open_folder() as run:
        Path("run/seen").symlink_to(Path("elsewhere").resolve())
        with pytest.raises(OutputError, match="a folder in its name is a link"):
            run.write("seen/cat.jpg", b"")
    assert list(Path("elsewhere").iterdir()) == []


def test_a_junction_of_windows_is_a_link(monkeypatch):
    real = os.lstat

    def lstat(path, **more):
        facts = real(path, **more)
        is_junction = os.fspath(path).endswith("seen")
        return SimpleNamespace(
            st_mode=facts.st_mode, st_size=0, st_reparse_tag=0xA0000003 * is_junction
        )

    with open_folder() as run:
        run.write("seen/cat.jpg", b"rows")
        monkeypatch.setattr(Path, "lstat", lstat)
        with pytest.raises(OutputError, match="a folder in its name is a link"):
            run.write("seen/cat.jpg", b"")
        assert run.read("seen/cat.jpg") is None
        assert not run.holds("seen/cat.jpg")
        run.remove({"seen/cat.jpg"})
    assert Path("run/seen/cat.jpg").read_bytes() == b"rows"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"hookcli": "0.1.0", "command": ["other", "inspect"]},
        {"schema_version": 2, "hookcli": "9", "command": ["hookcli", "inspect"]},
        [],
    ],
)
def test_a_request_of_another_program_is_no_runs_and_nothing_of_it_goes(said):
    put("tensors/shard-000000.safetensors", "skipped.csv", "overview.png")
    Path("run/run.json").write_text(json.dumps(said))
    message = refusal(replace_run=True, replace_any=True)
    assert message == "'run' holds a run.json that no run wrote"


def test_a_run_that_was_killed_while_it_wrote_its_request_is_none_among_other_files():
    with open_folder():
        pass
    shutil.rmtree("run/parts")
    Path("run/run.json").rename("run/.partial-run.json")
    assert refusal() == "'run' holds a run that did not finish"
    Path("run/notes.txt").write_text("mine")
    assert refusal() == "'run' holds files that no run wrote"
    Path("run/notes.txt").unlink()
    with open_folder(resume=True):
        assert files() == [JOURNAL, "run.json"]


@pytest.mark.parametrize(
    "name",
    ["../mine.txt", "notes.txt", "seen/\0.jpg", "grids/../../001_mine.png", "grids"],
)
@pytest.mark.parametrize("list_name", ["manifest.json", JOURNAL])
def test_a_list_that_names_what_no_run_writes_deletes_nothing_of_it(name, list_name):
    with open_folder() as run:
        if list_name == "manifest.json":
            run.complete(DONE, [])
    put("mine.txt", "001_mine.png", "run/notes.txt", folder=".")
    Path("run/grids").mkdir()
    file = Path("run", list_name)
    if list_name == JOURNAL:
        file.write_text(f"{file.read_text()}{json.dumps(name)}\n")
    else:
        file.write_text(json.dumps({**SAID, "files": [name]}))
    with open_folder(replace_run=True):
        pass
    kept = [Path(file).read_text() for file in ("mine.txt", "001_mine.png", "run/notes.txt")]
    assert kept == ["mine"] * 3
    assert Path("run/grids").is_dir()


def test_a_line_of_the_journal_that_was_cut_off_is_of_no_file():
    with open_folder() as run:
        run.write("layers.csv", b"")
    file = Path("run", JOURNAL)
    file.write_bytes(file.read_bytes() + b'"sheets/cat.png"')
    put("sheets/cat.png")
    message = "'run/sheets/cat.png' was not written by a run, and this run would overwrite it"
    assert refusal(replace_any=True) == message


def test_a_run_that_was_killed_while_it_replaced_another_one_still_knows_its_files(monkeypatch):
    finished_run()

    def killed(*_args):
        raise KeyboardInterrupt

    remove = Directory.remove
    with monkeypatch.context() as patch:
        patch.setattr(Directory, "remove", lambda *words: killed() if words[1] else remove(*words))
        with pytest.raises(KeyboardInterrupt), open_folder(replace_run=True):
            pass
    Path("run/manifest.json").unlink()  # the first of those that would have gone
    with open_folder(replace_run=True):
        assert files() == [JOURNAL, "run.json"]


def test_what_a_killed_writer_left_half_written_goes_with_the_run():
    with open_folder() as run:
        run.write("seen/cat.jpg", b"")
    Path("run/seen/.partial-cat.jpg").write_bytes(b"half")
    Path("run/.partial-run.json").write_bytes(b"half")
    Path("run/top_images.csv").write_text("mine")
    with open_folder(replace_run=True):
        assert files() == [JOURNAL, "run.json", "top_images.csv"]


def test_a_run_that_was_killed_while_its_first_journal_was_written_can_go_on():
    with open_folder():
        pass
    Path("run", JOURNAL).rename("run/parts/.partial-written.jsonl")
    with open_folder(resume=True) as run:
        run.complete(DONE, [])
    assert files() == ["manifest.json", "run.json"]


def test_a_run_goes_on_with_the_files_of_the_one_that_was_killed():
    with open_folder() as run:
        run.write("layers.csv", b"old")
        run.write("sheets/cat.png", b"old")
    Path("run/.partial-layers.csv").write_bytes(b"half")
    with open_folder(resume=True) as run:
        run.write("layers.csv", b"new")
        run.complete(DONE, ["layers.csv"])
    assert files() == ["layers.csv", "manifest.json", "run.json"]
    assert Path("run/layers.csv").read_bytes() == b"new"


def test_what_a_run_goes_on_from_is_there_until_the_manifest_is(monkeypatch):
    """So that a run that is killed at its very end need not begin again."""
    seen = []
    before = Directory.write

    def look(folder, name, data):
        if name == "manifest.json":
            seen.extend(files())
        return before(folder, name, data)

    with open_folder() as run:
        run.write("parts/000000.json", b"")
        monkeypatch.setattr(Directory, "write", look)
        run.complete(DONE, [])
    assert seen == ["parts/000000.json", JOURNAL, "run.json"]
    assert files() == ["manifest.json", "run.json"]


# --- folders that are taken away


def test_a_file_that_is_gone_when_the_run_ends_is_named_and_there_is_no_manifest():
    with open_folder() as run:
        run.write("layers.csv", b"")
        Path("run/layers.csv").unlink()
        with pytest.raises(OutputError) as caught:
            run.complete(DONE, ["layers.csv"])
    message = "'run/layers.csv' was deleted during the run"
    assert (caught.value.message, caught.value.exit_code) == (message, 5)
    assert not Path("run/manifest.json").exists()


def test_a_folder_that_another_one_replaces_gets_no_file():
    with open_folder() as run:
        Path("run").rename("away")
        Path("run").mkdir()
        for write in (lambda: run.write("layers.csv", b""), lambda: run.complete(DONE, [])):
            with pytest.raises(OutputError, match="was deleted or moved while the run was writing"):
                write()
    assert files("away") == [JOURNAL, "run.json"]
    assert list(Path("run").iterdir()) == []


def test_a_request_that_is_a_link_is_not_followed():
    Path("mine.txt").write_text("mine")
    Path("run").mkdir()
    Path("run/run.json").symlink_to(Path("mine.txt").resolve())
    assert refusal(replace_any=True) == "'run' holds a run.json that no run wrote"
    assert Path("mine.txt").read_text() == "mine"


# --- files that are whole or absent


def test_an_existing_file_is_replaced():
    for data in (b"old and longer", b"new"):
        assert write_atomic(Path("a/b/c.txt"), data) == Path("a/b/c.txt")
        assert Path("a/b/c.txt").read_bytes() == data
    assert files("a") == ["b/c.txt"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("layer1.0.conv1", "layer1.0.conv1"),
        ("a/../../b", "a_.._.._b"),
        ("/etc/passwd", "etc_passwd"),
        ("猫", "unnamed"),
        (".hidden", "hidden"),
        ("x" * 500, "x" * 120),
    ],
)
def test_a_safe_name_is_one_plain_file_name(text, name):
    assert safe_name(text) == name


# --- beside a run that is going on


def test_a_run_that_is_being_replaced_is_not_said_to_be_damaged():
    finished_run()
    with Directory(Path("run")).lock():
        Path("run/layers.csv").unlink()  # the manifest goes after it
        with pytest.raises(OutputError, match=r"(?m)^another run is writing into 'run'$"):
            finish_resume(
                Path("run"), REQUEST.command, "", {}, inputs={}, fail_on=(), cleans_up=False
            )


def test_a_file_that_became_a_link_is_neither_appended_to_nor_read(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run/journal").symlink_to(tmp_path / "mine")
    folder = Directory(tmp_path / "run")
    with pytest.raises(OutputError, match="it is a link, which is never followed"):
        folder.append("journal", b"more")
    with pytest.raises(OSError, match="it is a link"):
        folder.read_part("journal", 0, 2)
    assert (tmp_path / "mine").read_text() == "mine"


def test_files_are_deleted_with_the_folders_that_they_leave_empty(tmp_path):
    folder = Directory(tmp_path)
    for name in ("a/b/1", "a/b/2", "c/3", "c/mine"):
        folder.write(name, b"x")
    folder.remove({"a/b/1", "a/b/2", "c/3"})
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["c", "mine"]
