"""What a difference does to the answers, in words."""

from __future__ import annotations

import pytest

from hookcli.distance.answer import Answer, share_text, sum_up


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([Answer("top class", 1.0, 3.4e-4)], "same top class, KL 0.0003"),
        ([Answer("top class", 0.0, 0.51)], "top class changes, KL 0.5"),
        ([Answer("top class", 0.0)], "top class changes"),
        (
            [Answer("top class", 1.0, 0.1), Answer("top class", 1.0, 0.2)],
            "same top classes, KL 0.2",
        ),
        ([Answer("top class", 0.0, 0.1), Answer("top class", 1.0, 0)], "1 of 2 top classes change"),
        ([Answer("masks", 0.99999)], "masks agree to 99.99 %"),
        ([Answer("boxes", 1.0), Answer("boxes", 0.5)], "boxes agree to 75 %"),
        ([Answer("output", 0.0, 0.009)], "the output is 0.9 % off"),
        ([Answer("output", 0.0)], "the output is far off"),
        ([Answer("output", 1.0, 0.0)], "same output"),
    ],
)
def test_answers_in_words(answers, expected):
    assert sum_up({str(n): each for n, each in enumerate(answers)}).text == expected


def test_answers_of_several_kinds_are_not_summed_up():
    assert sum_up({"a": Answer("masks", 1.0), "b": Answer("boxes", 1.0)}) is None
    assert sum_up({}) is None


def test_images_whose_answer_changes_are_named():
    found = sum_up({"a": Answer("top class", 1.0, 0.0), "b": Answer("top class", 0.0, 0.7)})
    assert (found.changed, found.share, found.distance, found.images) == (("b",), 0.5, 0.7, 2)


def test_an_answer_that_is_partly_the_same_has_changed():
    found = sum_up({"a": Answer("masks", 0.999), "b": Answer("masks", 1.0)})
    assert found.changed == ("a",)


def test_a_distance_that_is_unknown_for_one_image_is_unknown_for_all():
    found = sum_up({"a": Answer("output", 0.0, 0.5), "b": Answer("output", 0.0)})
    assert found.distance is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0999, "10 %"),
        (0.956, "96 %"),
        (0.996, "100 %"),
        (9.96, "996 %"),
        (10, "10"),
    ],
)
def test_a_share_above_a_tenth_has_no_decimals(value, expected):
    assert share_text(value) == expected
