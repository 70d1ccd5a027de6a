"""The files of a chunk that another process writes into the folder of a run."""

from __future__ import annotations

import math
from pathlib import Path

from hookcli.outside.documents import decode_escaped, encode_escaped
from hookcli.store.chunks import ChunkFiles, read_chunk
from hookcli.store.locations.directory import Directory
from hookcli.store.ownership import find_run
from hookcli.summary.call_tally import RuleHit
from hookcli.summary.chunks import Chunk
from tests.store.test_folder import DONE, files, open_folder

WRITTEN = ["parts/000003.json", "parts/000003.written.jsonl"]


def save(*names):
    chunk = ChunkFiles()
    for name in names:
        chunk.write(name, b"new")
    chunk.save(Path("run").absolute(), Chunk(3, written_files=list(names)))


def test_the_files_of_a_chunk_are_written_when_it_is_complete():
    with open_folder() as run:
        chunk = ChunkFiles()
        chunk.write("seen/cat.jpg", b"new")
        assert not Path("run/seen").exists()
        save("seen/cat.jpg")
        assert files() == [*WRITTEN, "parts/written.jsonl", "run.json", "seen/cat.jpg"]
        run.adopt(["seen/cat.jpg", *WRITTEN])
        assert read_chunk(run, 3) == Chunk(3, written_files=["seen/cat.jpg"])
        run.complete(DONE, ["seen/cat.jpg"])
    assert files() == ["manifest.json", "run.json", "seen/cat.jpg"]


def test_a_chunk_that_was_not_adopted_is_known_to_be_of_the_run_all_the_same():
    """Either the process that wrote the chunk or the process of the run was killed."""
    with open_folder():
        save("seen/cat.jpg")
    assert find_run(Directory(Path("run"))).known >= {"seen/cat.jpg", *WRITTEN}
    with open_folder(replace_run=True):
        assert files() == ["parts/written.jsonl", "run.json"]


def test_the_journal_of_a_chunk_is_known_after_a_second_resume_and_kill():
    with open_folder():
        save("seen/cat.jpg")
    with open_folder(resume=True) as run:
        run.remove({*WRITTEN})
    with open_folder(replace_run=True):
        assert files() == ["parts/written.jsonl", "run.json"]


def test_a_chunk_is_saved_again_by_a_worker_after_one_that_was_killed():
    with open_folder():
        save("seen/cat.jpg")
        Path("run/parts/.partial-000003.json").write_bytes(b"half")
        Path("run/seen/.partial-cat.jpg").write_bytes(b"half")
        save("seen/cat.jpg")
        assert files() == [*WRITTEN, "parts/written.jsonl", "run.json", "seen/cat.jpg"]


def test_a_chunk_with_figures_that_are_not_finite_is_read_back():
    """Without it a run with an Inf would begin again when it is resumed."""
    hit = RuleHit(math.inf, ["cat"], "")
    assert decode_escaped(encode_escaped(hit), RuleHit) == hit
