"""The folder of an analysis: complete or unchanged, and never over files of others."""

from __future__ import annotations

import json

import pytest

from hookcli.analysis.folder import check_folder, make_folder
from hookcli.errors import OutputError

COMMAND = ("hookcli", "map", "run")


def make(folder, **files):
    with make_folder(folder, COMMAND) as made:
        for name, text in files.items():
            made.write(name.replace("__", "/"), text.encode())


class Broken:
    """A file whose content is never made."""

    def encode(self):
        raise TypeError


def list_files(folder):
    """All files except the lock."""
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("[!.]*") if not f.is_dir())


def test_an_analysis_replaces_the_files_of_the_one_before(tmp_path):
    folder = tmp_path / "out/analysis"
    make(folder, a="1", pictures__b="2")
    make(folder, a="3", c="4")
    assert list_files(folder) == ["a", "analysis.json", "c"]
    assert not (folder / "pictures").exists()
    assert (folder / "a").read_text() == "3"
    listed = json.loads((folder / "analysis.json").read_text())
    assert (listed["command"], listed["files"]) == (list(COMMAND), ["a", "c"])


def test_an_error_leaves_everything_as_it_was(tmp_path):
    folder = tmp_path / "out/analysis"
    with pytest.raises(TypeError):
        make(folder, a="1", b=Broken())
    assert list(tmp_path.iterdir()) == []
    make(folder, a="1")
    with pytest.raises(TypeError):
        make(folder, a="2", b=Broken())
    assert (folder / "a").read_text() == "1"
    assert list((tmp_path / "out").iterdir()) == [folder]


def test_files_of_others_stay_and_are_never_replaced(tmp_path):
    make(tmp_path / "out", a="1")
    (tmp_path / "out/mine").write_text("mine")
    make(tmp_path / "out", b="2")
    assert list_files(tmp_path / "out") == ["analysis.json", "b", "mine"]
    with pytest.raises(OutputError, match="mine' was not written by an analysis"):
        make(tmp_path / "out", mine="3")
    assert (tmp_path / "out/mine").read_text() == "mine"
    assert (tmp_path / "out/b").read_text() == "2"


def test_names_that_lead_out_of_the_folder_are_not_deleted(tmp_path):
    make(tmp_path / "out", a="1")
    victim = tmp_path / "victim"
    victim.write_text("victim")
    (tmp_path / "out/link").symlink_to(tmp_path)
    listed = json.loads((tmp_path / "out/analysis.json").read_text())
    listed["files"] += ["../victim", str(victim), "link/victim"]
    (tmp_path / "out/analysis.json").write_text(json.dumps(listed))
    make(tmp_path / "out", b="2")
    assert victim.read_text() == "victim"


def test_a_folder_is_checked_before_the_work(tmp_path):
    check_folder(tmp_path / "new", overwrite=False)
    (tmp_path / "empty").mkdir()
    check_folder(tmp_path / "empty", overwrite=False)
    make(tmp_path / "out", a="1")
    check_folder(tmp_path / "out", overwrite=True)
    with pytest.raises(OutputError, match="already has an analysis"):
        check_folder(tmp_path / "out", overwrite=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file, not a folder"):
        check_folder(tmp_path / "file", overwrite=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text('{"hookcli": "1", "command": ["hookcli", "inspect"]}')
    for name in ("run", "run/inner"):
        with pytest.raises(OutputError, match="run' is a run's folder"):
            check_folder(tmp_path / name, overwrite=True)
    (tmp_path / "others").mkdir()
    (tmp_path / "others/x").write_text("")
    with pytest.raises(OutputError, match="holds files that no analysis wrote"):
        check_folder(tmp_path / "others", overwrite=True)
