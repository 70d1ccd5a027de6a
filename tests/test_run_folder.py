"""The run folder: who may write into it, what goes and what stays, and files that are whole or absent."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import stat
from pathlib import Path

import pytest

from hookcli.errors import OutputError
from hookcli.files import cannot_write, safe_name, write_atomic
from hookcli.sinks.run_folder import RunFolder

REQUEST = {"command": ["hookcli", "inspect"]}


def open_folder(folder="run", *, replace_run=False, replace_any=False):
    return RunFolder(Path(folder), REQUEST, replace_run=replace_run, replace_any=replace_any)


def finished_run(folder="run"):
    """A complete run with a file in every place where a run writes."""
    with open_folder(folder, replace_any=True) as run:
        for name in ("layers.csv", "skipped.csv", "grids/cat/001_conv1.png", "sheets/cat.png"):
            run.write(name, "old")
        run.complete({"hookcli": "0.1.0", "files": run.files})


def files(folder="run"):
    return sorted(
        str(file.relative_to(folder)) for file in Path(folder).rglob("*") if file.is_file()
    )


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
        assert files() == ["run.json"]
        document = json.loads(Path("run/run.json").read_text())
    assert document == {"schema_version": 1, "command": ["hookcli", "inspect"]}


def test_the_manifest_comes_last():
    with open_folder() as run:
        run.write("layers.csv", "rows")
        assert files() == ["layers.csv", "run.json"]
        run.complete({"files": []})
        assert files() == ["layers.csv", "manifest.json", "run.json"]
    assert json.loads(Path("run/manifest.json").read_text()) == {"schema_version": 1, "files": []}


def test_a_run_that_is_broken_off_has_no_manifest():
    def interrupted():
        with open_folder() as run:
            run.write("layers.csv", "rows")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert files() == ["layers.csv", "run.json"]


def test_a_run_tells_which_files_it_wrote():
    with open_folder() as run:
        run.write("layers.csv", "")
        run.complete({})
    assert run.files == ["layers.csv", "manifest.json"]


def test_folders_above_are_made():
    with open_folder("a/b/c"):
        pass
    assert files("a") == ["b/c/run.json"]


# --- the lock


def can_lock(file):
    with Path(file).open() as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_run_holds_a_lock_while_it_lives():
    with open_folder():
        assert not can_lock("run/run.json")


def test_the_lock_goes_with_the_run():
    with open_folder():
        pass
    assert can_lock("run/run.json")


def test_the_lock_goes_when_the_run_fails():
    with pytest.raises(ZeroDivisionError), open_folder():
        raise ZeroDivisionError
    assert can_lock("run/run.json")


def test_a_folder_in_use_is_refused_whatever_may_be_replaced():
    with open_folder():
        message = refusal(replace_run=True, replace_any=True)
    assert message == "another run is writing into 'run'"


# --- what may be replaced


def test_an_empty_folder_is_taken():
    Path("run").mkdir()
    with open_folder():
        assert files() == ["run.json"]


def test_a_run_is_protected():
    finished_run()
    assert refusal() == "'run' holds a run already"


def test_a_run_that_was_broken_off_is_protected_too():
    with open_folder():
        pass
    assert refusal() == "'run' holds a run that was interrupted"


def test_a_run_that_is_being_written_is_not_said_to_be_interrupted():
    with open_folder():
        assert refusal() == "another run is writing into 'run'"


def test_files_of_others_are_protected_though_a_run_may_be_replaced():
    Path("run").mkdir()
    Path("run/notes.txt").write_text("mine")
    assert refusal(replace_run=True) == "'run' holds files that are not a run's"


def test_a_file_in_the_way_is_refused():
    Path("run").write_text("mine")
    with pytest.raises(OutputError, match=r"^'run' is a file, not a folder$"), open_folder():
        pass
    assert Path("run").read_text() == "mine"


def test_a_dangling_link_in_the_way_is_refused():
    Path("run").symlink_to("nowhere")
    with pytest.raises(OutputError), open_folder():
        pass
    assert not Path("nowhere").exists()


def test_a_place_that_cannot_be_written_is_refused():
    Path("file").touch()
    with pytest.raises(OutputError) as caught, open_folder("file/run"):
        pass
    assert caught.value.message == "cannot write 'file/run': Not a directory"
    assert caught.value.hint == "choose another folder with -o"


def test_a_disk_that_is_full_leads_to_resume_in_a_run_and_to_room_elsewhere():
    full = OSError(errno.ENOSPC, "No space left on device")
    assert cannot_write(Path("a"), full).hint == "make room, or choose another folder with -o"
    with pytest.raises(OutputError) as caught, open_folder():
        raise cannot_write(Path("run/a"), full) from full
    hint = "make room and go on with --resume, or choose another folder with -o"
    assert (caught.value.message, caught.value.hint) == (
        "cannot write 'run/a': No space left on device",
        hint,
    )


@pytest.mark.parametrize("how", [{"replace_run": True}, {"replace_any": True}])
def test_every_file_of_the_old_run_goes_before_the_new_one_begins(how):
    finished_run()
    with open_folder(**how):
        assert files() == ["run.json"]
        assert [child.name for child in Path("run").iterdir()] == ["run.json"]


def test_the_old_request_gives_way_to_the_new_one():
    finished_run()
    with RunFolder(Path("run"), {"command": []}, replace_run=True, replace_any=False):
        pass
    assert json.loads(Path("run/run.json").read_text()) == {"schema_version": 1, "command": []}


def test_what_others_put_into_a_run_folder_stays():
    finished_run()
    foreign = ["notes.txt", "grids/notes.txt", "grids/cat/mine.png", "sheets/x.txt", "own/a.csv"]
    for name in foreign:
        file = Path("run") / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    with open_folder(replace_run=True):
        assert files() == sorted([*foreign, "run.json"])


def test_overwrite_deletes_nothing_in_a_folder_that_never_held_a_run():
    foreign = ["index.html", "overview.png", "grids/trip/001_beach.png", "tensors/a.safetensors"]
    for name in foreign:
        file = Path("run") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    with open_folder(replace_any=True):
        assert files() == sorted([*foreign, "run.json"])


def test_nothing_is_deleted_outside_the_folder_through_a_link():
    finished_run()
    for name in ("cat/001_conv1.png", "more/002_conv1.png"):
        file = Path("elsewhere") / name
        file.parent.mkdir(parents=True)
        file.write_text("mine")
    (Path("run/grids") / "linked").symlink_to(Path("elsewhere/cat").resolve())
    Path("run/tensors").symlink_to(Path("elsewhere/more").resolve())
    with open_folder(replace_run=True):
        assert files("elsewhere") == ["cat/001_conv1.png", "more/002_conv1.png"]


@pytest.mark.parametrize(
    "listed", [{"files": ["report.html"]}, {"name": "app"}, ["hookcli"], "text"]
)
@pytest.mark.parametrize("how", [{}, {"replace_run": True}, {"replace_any": True}])
def test_a_manifest_of_another_tool_is_no_runs_and_nothing_of_it_goes(listed, how):
    Path("run").mkdir()
    Path("run/manifest.json").write_text(json.dumps(listed))
    for name in ("report.html", "layers.csv", "overview.png"):
        (Path("run") / name).write_text("mine")
    assert refusal(**how) == "'run' holds a manifest.json that is not a run's"


def test_only_what_the_manifest_lists_goes():
    finished_run()
    for name in ("report.html", "grids/cat/002_mine.png"):
        (Path("run") / name).write_text("mine")
    with open_folder(replace_run=True):
        assert files() == ["grids/cat/002_mine.png", "report.html", "run.json"]


def test_the_files_of_a_run_without_a_manifest_go_by_their_names():
    with open_folder() as run:
        run.write("layers.csv", "old")
        run.write("notes.txt", "mine")
    with open_folder(replace_run=True):
        assert files() == ["notes.txt", "run.json"]


@pytest.mark.parametrize("how", [{"replace_run": True}, {"replace_any": True}])
def test_a_request_that_is_a_link_is_not_followed(how):
    Path("mine.txt").write_text("mine")
    Path("run").mkdir()
    Path("run/run.json").symlink_to(Path("mine.txt").resolve())
    with pytest.raises(OutputError, match=r"^cannot write 'run': "), open_folder(**how):
        pass
    assert Path("mine.txt").read_text() == "mine"


def test_a_request_that_is_a_link_to_nowhere_makes_no_file():
    Path("run").mkdir()
    Path("run/run.json").symlink_to(Path("nowhere").resolve())
    with pytest.raises(OutputError), open_folder(replace_any=True):
        pass
    assert not Path("nowhere").exists()


# --- files that are whole or absent


def test_a_file_is_written_with_its_folders():
    assert write_atomic(Path("a/b/c.txt"), b"data") == Path("a/b/c.txt")
    assert Path("a/b/c.txt").read_bytes() == b"data"
    assert files("a") == ["b/c.txt"]


def test_a_file_that_stands_there_is_replaced():
    Path("c.txt").write_bytes(b"old and longer")
    write_atomic(Path("c.txt"), b"new")
    assert Path("c.txt").read_bytes() == b"new"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else():
    Path("a").mkdir()
    Path("a/c.txt").write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # the disk is full after 100 bytes
    try:
        with pytest.raises(OutputError) as caught:
            write_atomic(Path("a/c.txt"), b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.message == "cannot write 'a/c.txt': File too large"
    assert Path("a/c.txt").read_bytes() == b"old"
    assert files("a") == ["c.txt"]


def test_a_folder_in_the_way_of_a_file_leaves_nothing_behind():
    Path("a/c.txt").mkdir(parents=True)
    with pytest.raises(OutputError):
        write_atomic(Path("a/c.txt"), b"data")
    assert [child.name for child in Path("a").iterdir()] == ["c.txt"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_file_gets_the_rights_that_the_users_umask_gives(mask, mode):
    before = os.umask(mask)
    try:
        write_atomic(Path("c.txt"), b"data")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("c.txt").stat().st_mode) == mode


def test_writing_never_changes_the_umask_which_all_threads_share(monkeypatch):
    masks = []
    monkeypatch.setattr(os, "umask", lambda mask: masks.append(mask) or 0o022)
    write_atomic(Path("c.txt"), b"data")
    assert masks == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("layer1.0.conv1", "layer1.0.conv1"),
        ("a/../../b", "a_.._.._b"),
        ("..", "unnamed"),
        ("/etc/passwd", "etc_passwd"),
        ("a b\tc", "a_b_c"),
        ("", "unnamed"),
        ("猫", "unnamed"),
        (".hidden", "hidden"),
        ("x" * 500, "x" * 120),
    ],
)
def test_a_safe_name_is_one_plain_file_name(text, name):
    assert safe_name(text) == name
