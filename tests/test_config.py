"""The requests, as code that imports hookcli sees them."""

from __future__ import annotations

import re

import pytest

import hookcli
from hookcli.config import GridStyle
from hookcli.outside.parse import read_rank


@pytest.mark.parametrize("name", sorted({*hookcli.__all__} - {"__version__"}))
def test_what_users_import_shows_an_example(name):
    assert re.search(r"Examples?:\n", getattr(hookcli, name).__doc__)


def test_the_old_word_for_the_default_order_of_channels_is_taken():
    assert read_rank("spread", "--rank") == GridStyle().rank == "std"
