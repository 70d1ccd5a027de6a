"""``hookcli.report``: the page of a run, from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

import hookcli
from tests.toy_models import pointwise

PIXELS = np.full((4, 4, 3), 200, np.uint8)


def test_the_page_of_a_run_is_made_again():
    model = nn.Sequential(pointwise([1.0, 2.0, 3.0]))
    hookcli.inspect(model, PIXELS, size=4, layers="0", out="run")
    page = Path("run/report.html")
    before = page.read_bytes()
    page.unlink()
    made = hookcli.report("run")
    assert page.read_bytes() == before
    assert (made.files, made.page.path) == ({"report.html": page}, page)
    assert [row.file for row in made.rows] == ["run/report.html"]
    assert (made.document().complete, made.state.missing) == (True, ())
    assert 'src="grids/' in before.decode()
    assert 'src="grids/' not in made.page.html  # a notebook shows the pictures


def test_the_page_of_a_run_in_memory_has_its_pictures_inside():
    run = hookcli.inspect(nn.Sequential(pointwise([1.0, 2.0, 3.0])), PIXELS, size=4, layers="0")
    made = hookcli.report(run)
    assert [row.file for row in made.rows] == ["report.html"]
    assert 'src="grids/' not in made.page.html
    assert "data:image/png" in made.page.html
