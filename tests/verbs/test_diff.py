"""``hookcli.diff`` from Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import hookcli
from tests.toy_runs import run_of

A = run_of(stem=[1.0, 2], head=[4.0])
B = run_of(stem=[1.0, 2], head=[5.0])


def test_two_runs_are_compared_and_nothing_is_written(capfd):
    A.write("a")
    B.write("b")
    before = sorted(Path().rglob("*"))
    found = hookcli.diff(Path("a"), "b")
    assert (capfd.readouterr().out, sorted(Path().rglob("*"))) == ("", before)
    assert (found.exit_code, found.files, found.page, found.notes) == (7, {}, None, [])
    assert [(row.call_id, row.max_abs) for row in found.rows] == [("stem", 0), ("head", 1)]
    assert found.document().command == ("hookcli", "diff", "a", "b")
    assert found.document().calls == found.rows


def test_keywords_are_the_options():
    A.write("a")
    B.write("b")
    found = hookcli.diff("a", "b", layer_tolerance={"head": 0.5}, sort="worst", top=1)
    assert (found.exit_code, [row.call_id for row in found.rows]) == (0, ["head", "stem"])
    table = found.table()
    assert [row.call_id for row in table.rows] == ["head"]
    assert table.caption[0] == "the worst 1 of 2 calls; all of them: `rows`"


@pytest.mark.parametrize(
    ("keywords", "message", "hint"),
    [
        ({"tp": 1}, "`hookcli.diff` has no keyword 'tp'", "did you mean top?"),
        ({"top": 0}, "`top` cannot be 0", "it must be from 1 to 100000"),
        ({"theme": "light"}, "`theme` has no effect without `pictures`", "add `pictures`"),
        ({"pictures": "p"}, "`pictures` needs tensors, and 'b' kept none", "`tensors.save`"),
    ],
)
def test_errors_are_in_words_of_python(keywords, message, hint):
    A.write("a")
    replace(B, kept="sketches").write("b")
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.diff("a", "b", **keywords)
    assert caught.value.message == message
    assert hint in caught.value.hint
