"""``hookcli.golden`` from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hookcli
from tests.toy_models import two_channel_net
from tests.toy_runs import run_of


def test_without_out_the_outcome_holds_the_document_and_nothing_is_written(capfd):
    run_of(stem=[1.0, 2]).write("a")
    before = sorted(Path().rglob("*"))
    made = hookcli.golden("a")
    assert (capfd.readouterr().out, sorted(Path().rglob("*"))) == ("", before)
    assert (made.exit_code, made.files, made.notes) == (0, {}, [])
    assert [call.call_id for call in made.rows] == ["stem"]
    assert made.document().calls == made.rows
    assert "| stem |" in str(made.table())
    assert made.page is None
    assert made.text().startswith('{\n"schema_version": 1,\n"kind": "golden",')


def test_with_out_the_document_is_written_as_the_command_writes_it(run):
    run_of(stem=[1.0, 2]).write("a")
    made = hookcli.golden("a", out="python.json")
    assert (made.files, made.text()) == ({"python.json": Path("python.json")}, "python.json\n")
    assert run("golden", "a", "-o", "command.json").out == "command.json\n"
    assert Path("python.json").read_bytes() == Path("command.json").read_bytes()
    assert run("golden", "a").out == hookcli.golden("a").text()


def test_of_a_model_the_document_is_that_of_a_run():
    Path("nets.py").write_text(two_channel_net(1, "mean"))
    np.save("a.npy", np.ones((3, 2, 2), "f4"))
    with pytest.warns(hookcli.HookcliWarning, match="as nets.py:Net made them, trained or not"):
        made = hookcli.golden("nets.py:Net", "a.npy", layers="leaf", at="both", out="g.json")
    assert [note.level for note in made.notes] == ["plan", "warning", "note"]
    assert [call.call_id for call in made.rows][:2] == ["input:conv", "conv"]
    assert hookcli.diff("g.json", "g.json").exit_code == 0


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"at": "input"}, "`at` needs a model and images, but 'a' is a run's folder"),
        ({"overwrite": True}, "`overwrite` has no effect without `out`"),
        ({"out": "a"}, "'a' is a folder"),
    ],
)
def test_errors_are_in_words_of_python(keywords, message):
    run_of(stem=[1.0, 2]).write("a")
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.golden("a", **keywords)
    assert caught.value.message == message
