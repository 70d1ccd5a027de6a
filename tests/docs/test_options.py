"""The options that the README and the site name exist."""

from __future__ import annotations

import re
import sys

import pytest

from hookcli.__main__ import _run
from hookcli.verbs.subjects import COMMANDS
from tests.docs.test_commands import HOME, PAGES

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OF_OTHERS = {
    *("--activations-update", "--index-url"),  # of the plugin for pytest, and of pip
    *("--duplicates", "--strangers"),  # of tools/shapes.py
    "--ways",  # of tools/blame.py
    *("--have", "--pack", "--python", "--quick", "--wheels"),  # of tools/gpu.py
}


@pytest.fixture
def known(monkeypatch, capsys):
    for words in ([], *([name] for name in COMMANDS)):
        monkeypatch.setattr(sys, "argv", ["hookcli", *words, "--help"])
        assert _run() == 0
    return set(OPTION.findall(capsys.readouterr().out))


def test_every_option_that_a_page_names_exists(known):
    named = {
        (str(page.relative_to(HOME)), option)
        for page in PAGES
        for option in OPTION.findall(page.read_text(encoding="utf-8"))
    }
    assert {each for each in named if each[1] not in known | OF_OTHERS} == set()
