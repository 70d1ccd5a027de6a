"""The requests, as code that imports hookcli sees them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hookcli
from hookcli.config import FolderRequest


@pytest.mark.parametrize("name", sorted({*hookcli.__all__} - {"__version__"}))
def test_what_users_import_shows_an_example(name):
    assert re.search(r"Examples?:\n", getattr(hookcli, name).__doc__)


def test_a_run_folder_may_be_named_by_a_string():
    assert FolderRequest("my-run").out == Path("my-run")  # type: ignore[arg-type]
