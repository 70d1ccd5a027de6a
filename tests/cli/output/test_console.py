"""A terminal without UTF-8 gets characters that its encoding has."""

from __future__ import annotations

import io
import sys

import pytest

from hookcli.cli.output import console

TEXT = "layer ─━│ 3 × 3 … “é” → 猫"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", TEXT),
        ("ascii", r"layer --| 3 x 3 . \"\xe9\" > \u732b".replace(r"\"", '"')),
        ("cp1252", "layer --| 3 × 3 … “é” > \\u732b"),
    ],
)
def test_a_character_that_the_encoding_lacks_is_shown_as_another(encoding, shown, monkeypatch):
    streams = []
    for name in ("stdout", "stderr"):
        streams.append(io.BytesIO())
        stream = io.TextIOWrapper(streams[-1], encoding, console.FIT, newline="\n")
        monkeypatch.setattr(sys, name, stream)
    console.print_data(f"{TEXT}\n")
    console.say(TEXT)
    sys.stderr.flush()
    assert [stream.getvalue().decode(encoding) for stream in streams] == [f"{shown}\n"] * 2
