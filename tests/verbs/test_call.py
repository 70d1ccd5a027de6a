"""What a Python program sees of a verb that runs."""

from __future__ import annotations

from hookcli.verbs import call


def test_a_bar_shows_how_much_is_done_and_leaves_nothing(monkeypatch, capsys):
    now = iter([0, 9, 9])
    monkeypatch.setattr(call, "_is_watched", lambda: True)
    monkeypatch.setattr(call.time, "monotonic", lambda: next(now))
    with call.VerbListener().count(2, "images", is_long=True) as bar:
        bar.step()
    bar_line, empty_line = map(str.strip, capsys.readouterr().err.split("\r")[1:3])
    assert bar_line == f"{'█' * 15}{'·' * 15} 1 of 2 images"
    assert empty_line == ""
