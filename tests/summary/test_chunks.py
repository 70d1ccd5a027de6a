"""Chunks of a run are added up in their order."""

from __future__ import annotations

from dataclasses import fields

import pytest

from hookcli.records.edit_effects import EditEffects
from hookcli.records.images import FileState, SkippedImage
from hookcli.summary.chunks import Chunk, chunk_size


def test_the_sum_of_two_chunks_has_the_results_of_both_in_their_order():
    total = Chunk()
    total.merge(Chunk(0, skipped=[SkippedImage("a", "broken")], called={"conv": ""}, halved=1))
    total.merge(
        Chunk(1, skipped=[SkippedImage("b", "broken")], called={"fc": ""}, halved=2, alone=True)
    )
    assert [image.file for image in total.skipped] == ["a", "b"]
    assert (total.called, total.halved, total.alone) == ({"conv": "", "fc": ""}, 3, True)


def test_the_first_of_two_chunks_says_where_a_nan_is_and_which_edit_made_it():
    total = Chunk()
    for name in ("a", "b"):
        effects = EditEffects({name}, {"NaN": name})
        total.merge(Chunk(broken={"NaN": name}, written={"conv": name}, edits=effects))
    assert (total.broken, total.written) == ({"NaN": "a"}, {"conv": "a"})
    assert total.edits == EditEffects({"a", "b"}, {"NaN": "a"})


def test_the_sum_of_chunks_has_no_number_and_no_files_of_its_own():
    total = Chunk()
    total.merge(Chunk(7, files=[FileState("a", 1, 1, "")], merge_key="sheet"))
    assert total == Chunk()


def test_no_field_of_a_chunk_is_left_out_of_the_sum():
    """A field of a new type must say how it is added."""
    for each in fields(Chunk):
        assert isinstance(getattr(Chunk(), each.name), list | dict | set | int | str | EditEffects)


@pytest.mark.parametrize(
    ("batch", "images"), [(1, 32), (3, 33), (8, 32), (20, 40), (32, 32), (33, 33)]
)
def test_a_chunk_is_whole_batches_of_at_least_32_images_in_all(batch, images):
    assert chunk_size(batch) == images
