"""Which saved chunks are used again, for images that are rows of a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hookcli.run.chunk_runner import ChunkRunner

WORDS = ("tests.toy_models:Squeezed", "rows.npy", "--layers", "features.0", "--device", "cpu")


def save_rows(add):
    rows = np.random.default_rng(0).random((40, 3, 32, 32), dtype=np.float32)
    np.save("rows.npy", rows + np.float32(add))


def means():
    return [row["mean"] for row in pq.read_table("out/records.parquet").to_pylist()]


@pytest.fixture
def begun(run, monkeypatch):
    """A run over forty rows of a file that was interrupted after its first chunk."""
    save_rows(0)
    plain = ChunkRunner.run

    def run_chunk(self, number, images):
        if number == 1:
            raise KeyboardInterrupt
        return plain(self, number, images)

    with monkeypatch.context() as patch:
        patch.setattr(ChunkRunner, "run", run_chunk)
        assert run("inspect", *WORDS, "-o", "out").code == 130
    assert Path("out/parts/000000.json").exists()


def test_rows_of_a_file_that_has_not_changed_are_not_run_again(run, begun):
    ended = run("inspect", *WORDS, "-o", "out", "--resume")
    assert ended.code == 0, ended.err
    assert "continuing after 32 of 40 images" in ended.err


@pytest.mark.parametrize("verify", [(), ("--verify",)])
def test_rows_of_a_file_that_has_changed_run_again(run, begun, verify):
    save_rows(100)
    ended = run("inspect", *WORDS, "-o", "out", "--resume", *verify)
    assert ended.code == 0, ended.err
    assert "some saved results can no longer be used: the run begins again" in ended.err
    resumed = means()
    assert run("inspect", *WORDS, "-o", "out", "--overwrite").code == 0
    assert resumed == means()
    images = json.loads(Path("out/manifest.json").read_text())["images"]
    assert len({image["sha256"] for image in images}) == 1
