"""Folders of results, such as analyses: what two commands at once do."""

from __future__ import annotations

import pytest

from hookcli.errors import OutputError
from hookcli.store.results import Kind, make_results

KIND = Kind("list", "a", "list.txt", lambda data: data.decode().split())


def make_list(names):
    return " ".join(names).encode()


def test_of_two_commands_at_once_the_second_replaces_nothing(tmp_path):
    folder = tmp_path / "out"

    def write_late():
        with make_results(folder, KIND, make_list) as late:
            late.write("a", b"late")
            with make_results(folder, KIND, make_list) as early:
                early.write("a", b"early")

    with pytest.raises(OutputError, match="another command wrote into"):
        write_late()
    assert (folder / "a").read_bytes() == b"early"
