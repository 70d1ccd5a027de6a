"""No picture of the documentation is stale: each has a file that says from what it was made."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent.parent
FOLDER = HOME / "docs" / "pictures"
PICTURES = sorted(FOLDER.glob("*.png"))
PAGES = [HOME / "README.md", *(HOME / "docs").rglob("*.md")]


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(HOME / "tools" / "pictures.py"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_shows_what_is_drawn_today(picture, tool):
    """If it does not: make docs-pictures, and look at them."""
    facts = json.loads(picture.with_suffix(".json").read_text(encoding="utf-8"))
    (listed,) = [each for each in tool["list_pictures"]() if each.name == picture.stem]
    assert facts["command"] == listed.command
    assert facts["made_from"] == tool["hash_sources"](listed.kind)


def test_every_picture_is_made_and_shown(tool):
    made = {each.name for each in tool["list_pictures"]()}
    shown = {
        name for page in PAGES for name in re.findall(r"pictures/([\w-]+)\.png", page.read_text())
    }
    assert {picture.stem for picture in PICTURES} == made == shown
