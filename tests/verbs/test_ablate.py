"""``hookcli.ablate``: channels ranked by their effect, from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hookcli
from hookcli import HookcliWarning
from tests.toy_models import two_channel_net

WORDS = {"layers": "conv", "device": "cpu"}


@pytest.fixture(autouse=True)
def net():
    Path("net.py").write_text(two_channel_net(-1, "sum"))
    np.save("a.npy", np.full((3, 2, 2), [[3, -4], [0, 0]], np.float32))


def test_channels_are_ranked_and_all_of_them_are_rows():
    with pytest.warns(HookcliWarning, match="as net.py:Net made them"):
        found = hookcli.ablate("net.py:Net", "a.npy", top=1, **WORDS)
    assert [(row.rank, row.layer) for row in found.rows] == [(1, "conv"), (2, "conv")]
    assert found.document().channels == found.rows
    assert len(found.table().rows) == 1
    assert found.table().caption[0] == "the first 1 of 2 channels; all of them: `rows`"
    levels = [(note.level, note.text) for note in found.notes if note.level == "plan"]
    assert levels == [("plan", "net.py:Net: 2 channels of 1 layer, 1 image, 2 forwards of up to 2")]
    assert (found.files, found.exit_code) == ({}, 0)


def test_a_dry_run_says_the_plan_and_which_images_it_cannot_use():
    Path("b.png").write_text("no picture")
    with pytest.warns(HookcliWarning, match="skipped 'b.png'"):
        planned = hookcli.ablate("net.py:Net", ["a.npy", "b.png"], dry_run=True, **WORDS)
    assert (planned.exit_code, planned.skipped) == (6, 1)
    assert planned.notes[0].text.startswith("net.py:Net: 2 channels of 1 layer")
