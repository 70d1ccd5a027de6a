"""The requests, as code that imports hookcli sees them."""

from __future__ import annotations

import re

import pytest

import hookcli


@pytest.mark.parametrize("name", sorted({*hookcli.__all__} - {"__version__"}))
def test_what_users_import_shows_an_example(name):
    assert re.search(r"Examples?:\n", getattr(hookcli, name).__doc__)
