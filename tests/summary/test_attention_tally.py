"""The figures of attention over images: a mean per head, the worst error, and the last reason."""

from hookcli.records.attention_records import AttentionRow
from hookcli.summary.attention_tally import AttentionTally


def row(**facts):
    return AttentionTally.of(AttentionRow(1, "attention:a", images=1, **facts))


def test_images_are_averaged_by_head_and_the_worst_error_is_kept():
    tally = row(function="softmax", entropy=(1.0, None), row_error=0.1, broken=1)
    tally.merge(row(function="softmax", entropy=(3.0, 2.0), row_error=0.3, broken=2))
    means = tally.means()
    assert (means.images, means.entropy) == (2, (2.0, 2.0))
    assert (means.row_error, means.broken) == (0.3, 3)


def test_the_reason_of_an_image_without_statistics_stays_until_another_has_one():
    tally = row(reason="it was not called")
    tally.merge(row())
    assert tally.means().reason == "it was not called"
    tally.merge(row(function="softmax", reason="its tokens are nowhere"))
    assert tally.means().reason == "its tokens are nowhere"
    assert tally.means().images == 3
