"""No picture of the documentation is stale: each has a file that says from what it was made."""

from __future__ import annotations

import functools
import json
import re
import runpy
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent.parent
FOLDER = HOME / "docs" / "pictures"
PAGES = [HOME / "README.md", *(HOME / "docs").rglob("*.md")]


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(HOME / "tools" / "pictures.py"))


def test_every_picture_shows_what_is_drawn_today(tool):
    """If one does not: make docs-pictures, and look at them."""
    hash_sources = functools.cache(tool["hash_sources"])
    for listed in tool["list_pictures"]():
        facts = json.loads((FOLDER / f"{listed.name}.json").read_text(encoding="utf-8"))
        assert facts["command"] == listed.command
        assert facts["made_from"] == hash_sources(listed.kind), listed.name


def test_every_picture_is_made_and_shown(tool):
    made = {each.name for each in tool["list_pictures"]()}
    shown = {
        name for page in PAGES for name in re.findall(r"pictures/([\w-]+)\.png", page.read_text())
    }
    assert {picture.stem for picture in FOLDER.glob("*.png")} == made == shown
