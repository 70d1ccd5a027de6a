"""hookcli opens only regular files: reading a pipe or a device could last forever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hookcli.errors import OutputError
from hookcli.outside.files import (
    NotRegularError,
    natural_key,
    open_regular,
    read_regular,
    scratch_folder,
    temporary_folder,
    write_atomic,
)
from tests.processes import start


def test_a_pipe_is_refused_at_once_and_its_writer_goes_on_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegularError, match="is not a regular file"):
        open_regular(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device or address"):  # there is still no reader
        os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)


def test_a_device_is_refused():
    with pytest.raises(NotRegularError, match="is not a regular file"):
        open_regular("/dev/zero")


def test_a_file_that_is_exchanged_for_a_pipe_while_it_is_opened_is_refused(tmp_path, monkeypatch):
    """The kind is looked at again on the open descriptor, and the descriptor is closed."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"abc")
    opened, before = [], os.open

    def exchange(_name, flags):
        opened.append(before(tmp_path / "pipe", flags))
        return opened[0]

    monkeypatch.setattr(os, "open", exchange)
    with pytest.raises(NotRegularError, match="is not a regular file"):
        open_regular(tmp_path / "file")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1001)
    with pytest.raises(OSError, match="has more than 1,000 bytes"):
        read_regular(tmp_path / "a", 1000)
    assert len(read_regular(tmp_path / "a", 1001)) == 1001


def test_a_url_is_no_file_of_this_machine():
    with pytest.raises(OutputError, match="a URL can only be the run folder"):
        write_atomic(Path("s3://bucket/golden.json"), b"")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "names",
    [
        ["a/2.png", "a/10.png", "a-b/1.png"],  # folder by folder
        ["img.png", "img1.png", "imgs.png"],  # a name without a number comes before, as in bytes
        ["0", "00", "000", "001", "01", "1", "9", "010", "11"],
        ["f1.png", "f2.png", "f10.png", "f10b.png", "f16.png", "f100/2", "f100/11", "f100.png"],
        ["Z1", "a1", "é1", "\udcff1"],  # as bytes, whatever the locale
        ["1" * 5000, "2" * 5000, "1" * 5001],  # more digits than int() takes
    ],
)
def test_names_are_sorted_by_numbers_and_otherwise_as_bytes(names):
    assert sorted(sorted(names, key=hash), key=natural_key) == names


def test_a_folder_that_a_killed_process_left_is_deleted(tmp_path):
    code = "import os, sys\nfrom pathlib import Path\nfrom hookcli.outside.files import *\n"
    code += "with temporary_folder(Path(sys.argv[1])) as made:\n"
    code += "    Path(made, 'half').write_bytes(b'x')\n    os.kill(os.getpid(), 9)\n"
    start(code, tmp_path).join()
    (left,) = tmp_path.iterdir()
    assert sorted(file.name for file in left.rglob("*")) == ["half", "lock", "unfinished"]
    write_atomic(tmp_path / "whole", b"")
    assert [file.name for file in tmp_path.iterdir()] == ["whole"]


def test_a_folder_in_use_stays(tmp_path):
    with temporary_folder(tmp_path) as made:
        (made / "half").write_bytes(b"x")
        write_atomic(tmp_path / "whole", b"")
        assert (made / "half").read_bytes() == b"x"
    assert [file.name for file in tmp_path.iterdir()] == ["whole"]


def test_what_others_named_alike_stays(tmp_path):
    (tmp_path / ".hookcli-notes").mkdir()
    (tmp_path / ".hookcli-notes/diary").write_text("mine")
    (tmp_path / ".hookcli-empty").mkdir()
    (tmp_path / ".hookcli-file").write_text("mine")
    (tmp_path / "far/unfinished").mkdir(parents=True)
    (tmp_path / "far/lock").touch()
    (tmp_path / ".hookcli-link").symlink_to(tmp_path / "far")
    before = sorted(tmp_path.rglob("*"))
    write_atomic(tmp_path / "whole", b"")
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "whole"])


def test_a_file_that_another_program_has_open_on_windows_is_replaced_a_moment_later(
    tmp_path, monkeypatch
):
    refusals, replace = [1, 2, 3], Path.replace
    monkeypatch.setattr("hookcli.outside.files._PATIENCE", 0.05)  # seconds

    def refuse(file, target):
        if refusals and refusals.pop():
            raise PermissionError(13, "The process cannot access the file")
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", refuse)
    write_atomic(tmp_path / "whole", b"x")
    assert (tmp_path / "whole").read_bytes() == b"x"
    refusals.extend([1] * 10**6)
    with pytest.raises(OutputError, match="cannot access the file"):
        write_atomic(tmp_path / "whole", b"y")
    assert (tmp_path / "whole").read_bytes() == b"x"


def test_a_ctrl_c_while_a_temporary_folder_is_deleted_leaves_nothing(tmp_path, monkeypatch):
    unlink, rings = os.unlink, [KeyboardInterrupt]

    def ring(*words, **options):
        if rings:
            raise rings.pop()
        unlink(*words, **options)

    monkeypatch.setattr(os, "unlink", ring)
    with pytest.raises(KeyboardInterrupt), scratch_folder(parent=tmp_path) as folder:
        (folder / "tensors").write_bytes(b"1")
    assert list(tmp_path.iterdir()) == []
