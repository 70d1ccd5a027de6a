"""The lines about a comparison, with rows and culprits by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hookcli.distance.answer import Answer
from hookcli.distance.comparison import Comparison, DiffRow, LeftOut
from hookcli.distance.culprits import Blame, OwnError, blame_text, name_merged
from hookcli.distance.tolerance import Tolerance
from hookcli.distance.verdict import first_text, list_notes, verdict_text


def row(call_id, rel_l2, tolerance=1e-5, **facts):
    holds = facts.pop("holds", rel_l2 <= tolerance)
    known = {
        "rank": 1, "order": 1, "other_call_id": call_id, "module_type": "Own", "reason": "",
        "metric": "rel-l2", "max_abs": rel_l2, "mean_abs": None, "cosine": None, "shape": (1, 2),
        "other_shape": (1, 2), "dtype": "float32", "other_dtype": "float32", "source": "tensors",
        "image": "cat", "images": 1, "failed_images": 0,
    }  # fmt: skip
    values = {"call_id": call_id, "holds": holds, "tolerance": tolerance, "rel_l2": rel_l2}
    return DiffRow(**(known | values | facts))


def comparison(*rows, tolerance=None, **facts):
    return Comparison("a", "b", tolerance or Tolerance(), rows, images=("cat",), **facts)


SAME = Answer("top class", 1.0, 0.001)


@pytest.mark.parametrize(
    ("rows", "tolerance", "expected"),
    [
        ([row("a", 1e-6)], None, "1 call holds, at most 1e-06 off (float32 allows 1e-05)"),
        ([row("a", 1e-6)], Tolerance(rtol=1e-5), "1 call holds, at most 1e-06 off (1e-05 allowed)"),
        (
            [row("a", 0.02), row("b", 1e-6)],
            None,
            "1 of 2 calls differs, up to 2 % (1e-05 allowed)",
        ),
        (
            [row("a", 0.02), row("b", 0.03)],
            None,
            "2 of 2 calls differ, up to 3 % (1e-05 allowed)",
        ),
        (  # a floor tolerates more than the whole of the second output
            [row("a", 1e-6), row("b", 5.0, 30.0)],
            None,
            "2 calls hold, at most 1e-06 off (float32 allows 1e-05)",
        ),
    ],
)
def test_the_first_line_says_how_many_calls_differ_and_how_far(rows, tolerance, expected):
    text = verdict_text(comparison(*rows, tolerance=tolerance, answer=SAME))
    assert text == f"{expected}; same top class, KL 0.001"


def test_an_output_below_its_floor_holds_however_far_it_is_off():
    far = Answer("output", 0.0, 5.0, changed=("cat",))
    held = verdict_text(comparison(row("a", 5.0, 30.0), answer=far))
    assert held.endswith("; the output holds")
    failed = verdict_text(comparison(row("a", 5.0), answer=far))
    assert failed.endswith("; the output is 500 % off")


def test_the_name_in_b_is_told_only_where_it_is_another():
    for name, told in (("a", "a differs"), ("", "a differs"), ("c", "a (in B c) differs")):
        text = first_text(comparison(row("a", 0.02, other_call_id=name)))
        assert text.startswith(f"{told} first: ")


def own(n, **facts):
    known = {"own": 0.5, "rounding": 1e-7} | facts
    return OwnError(f"c{n}", "Conv2d", **known)


def blame(*culprits, **facts):
    known: dict[str, Any] = {
        "spread": (),
        "worst": None,
        "is_rounding": False,
        "dtype": "float32",
    } | facts
    return blame_text(Blame(culprits, **known))


def test_at_most_four_culprits_are_named():
    text = blame(*map(own, range(6)))
    assert text.startswith("6 culprits: c0 (Conv2d), own error 0.5")
    assert "c3 (Conv2d)" in text
    assert "c4" not in text
    assert text.endswith("; and 2 more")
    assert "more" not in blame(*map(own, range(4)))


def test_a_culprit_that_one_side_lacks_has_its_reason():
    assert blame(own(1, before="d", only_in="B", lacks=("a", "b"))) == (
        "1 culprit: c1 (Conv2d) is only in B, which has no a and no b; "
        "d after it has the own error 0.5"
    )


def test_a_culprit_is_named_with_the_calls_merged_into_it():
    found = Blame((own(1), own(2)), spread=(), worst=None, is_rounding=False, dtype="float32")
    merged = [("conv", "merged into c1"), ("drop", "changes nothing")]
    text = blame_text(name_merged(found, merged))
    assert "c1 (Conv2d, with conv merged into it), own error 0.5" in text
    assert "c2 (Conv2d), own" in text


@pytest.mark.parametrize(("worst", "is_told"), [(1.49, False), (1.5, True)])
def test_channels_are_told_about_from_three_times_the_error_of_the_whole(worst, is_told):
    text = blame(own(1, channels=(0.25, worst), channel_rounding=(1e-7, 1e-7)))
    assert ("; its median channel is 25 % off, and its worst " in text) is is_told


def test_only_in_float32_rounding_needs_no_list_of_types():
    worst = {"worst": own(1, own=1e-7), "spread": (("Conv2d", 3),), "is_rounding": True}
    assert blame(**worst).endswith("(c1), which is rounding in float32")
    assert "spread evenly over 3 Conv2d; " in blame(**worst, dtype="bfloat16")


def test_at_most_four_types_that_share_an_error_are_named():
    kinds = tuple((f"Own{n}", 1) for n in range(6))
    assert ", 1 Own3, and 2 more types; " in blame(worst=own(1), spread=kinds)


def test_images_whose_answer_changes_are_named_unless_all_do():
    for changed, is_told in ((("cat",), True), (("cat", "dog"), False), ((), False)):
        answer = Answer("top class", 0.5, 0.1, changed, images=2)
        images = ("cat", "dog")
        found = Comparison("a", "b", Tolerance(), (row("x", 0.0),), images=images, answer=answer)
        told = [note for note in list_notes(found) if note.startswith("the answer is not the same")]
        assert told == (["the answer is not the same for cat"] if is_told else [])


def test_calls_that_were_merged_into_a_culprit_are_named_first():
    left_out = tuple(LeftOut(f"x{n}", "merged", f"merged into y{n}") for n in range(4))
    found = Blame((OwnError("y3", "Own", 1.0, 1e-7),), (), None, is_rounding=False, dtype="float32")
    notes = list_notes(comparison(row("y3", 1.0), left_out=left_out, blame=found))
    assert "not compared, 4 calls: x3 is merged into y3; x0 is merged into y0; and 2 more" in notes


def test_calls_without_a_difference_are_no_verdict_on_an_answer_that_changes():
    found = comparison(row("a", 0.0), answer=Answer("output", 0.0, 5.18, ("cat",)))
    assert verdict_text(found) == (
        "1 call holds, but the answer differs (the output is 518 % off): a layer that was not "
        "compared differs; choose more `layers`"
    )


def test_an_output_that_rounding_changes_is_no_difference():
    found = comparison(row("a", 0.0), answer=Answer("output", 0.0, 2.5e-7, ("cat",)))
    assert verdict_text(found).startswith("no difference: 1 call of 1 image holds")
