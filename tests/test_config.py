"""The requests, as code that imports hookcli sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

import hookcli
from hookcli.config import FolderRequest, chunk_size


@pytest.mark.parametrize("name", sorted({*hookcli.__all__} - {"__version__"}))
def test_what_users_import_shows_an_example(name):
    assert "Example:\n" in getattr(hookcli, name).__doc__


@pytest.mark.parametrize(
    ("batch", "images"), [(1, 32), (3, 33), (8, 32), (20, 40), (32, 32), (33, 33)]
)
def test_a_chunk_is_whole_batches_of_at_least_32_images_in_all(batch, images):
    assert chunk_size(batch) == images


def test_a_run_folder_may_be_named_by_a_string():
    assert FolderRequest("my-run").out == Path("my-run")  # type: ignore[arg-type]
