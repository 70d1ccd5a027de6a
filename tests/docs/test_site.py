"""The site is built, and what its pages link to is there."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent.parent
PAGES = [*HOME.glob("*.md"), *(HOME / "docs").rglob("*.md")]
LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\((?P<address>[^)\s]+)\)|<img[^>]+src=\"(?P<image>[^\"]+)\"")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_what_a_page_links_to_exists(page):
    found = LINK.finditer(page.read_text(encoding="utf-8"))
    addresses = [link["address"] or link["image"] for link in found]
    files = [each.partition("#")[0] for each in addresses if "://" not in each]
    assert [file for file in files if file and not (page.parent / file).exists()] == []


@pytest.mark.docs
def test_the_site_builds_without_a_warning():
    """Zensical checks that the pages and headings that are linked to exist."""
    zensical = Path(sys.executable).parent / "zensical"
    built = subprocess.run(
        [zensical, "build", "--strict", "--clean"],
        cwd=HOME,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    page = (HOME / "build/site/guide/python.html").read_text(encoding="utf-8")
    assert "ActivationLog" in page  # from a file that the page includes


@pytest.mark.docs
def test_the_reference_is_what_the_code_says():
    """If it is not: make docs-reference."""
    pages = runpy.run_path(str(HOME / "tools" / "reference.py"))["render_pages"]()
    folder = HOME / "docs" / "reference"
    assert {name: (folder / name).read_text(encoding="utf-8") for name in pages} == pages
