"""The browser in which the tests of this folder open pages."""

from __future__ import annotations

import shutil

import pytest

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        started = play.chromium.launch(executable_path=chromium, args=QUIET)
        yield started
        started.close()
