"""The scalar that a backward starts at, for each form of output, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from hookcli.config import BackwardStyle
from hookcli.errors import ModelError, RequestError
from hookcli.networks.scores import find_target, score_output


def score(output, kind="logit", target=None, names=()):
    return score_output(output, BackwardStyle(score=kind), target, names)


def leaf(*rows):
    return torch.tensor(rows, requires_grad=True)


LOGITS = (0.0, math.log(3.0), 0.0)  # probabilities 0.2, 0.6, 0.2


@pytest.mark.parametrize(
    ("kind", "target", "value", "index"),
    [
        ("logit", None, math.log(3), 1),
        ("logit", 2, 0.0, 2),
        ("probability", None, 0.6, 1),
        ("probability", 0, 0.2, 0),
        ("cross-entropy", 0, -math.log(0.2), 0),
        ("sum", None, math.log(3), None),
    ],
)
def test_logits(kind, target, value, index):
    scored = score(leaf(LOGITS), kind, target, ("a", "b", "c"))
    assert scored.score.value == pytest.approx(value)
    assert (scored.score.target, scored.score.category) == (
        index,
        "" if index is None else "abc"[index],
    )


def test_the_predicted_class_of_a_segmentation_covers_most_pixels():
    # class 0 wins two pixels by little, class 1 one by much
    maps = leaf([[[1.0, 1.0, 0.0]], [[0.0, 0.0, 9.0]]]).requires_grad_()
    scored = score({"out": maps, "aux": maps})
    assert (scored.score.target, scored.score.value) == (0, pytest.approx(2 / 3))
    scored.value.backward()
    assert maps.grad.tolist() == [[[[pytest.approx(1 / 3)] * 3], [[0, 0, 0]]]]
    shares = score({"out": maps}, "probability", 1).score
    sigmoid = 1 / (1 + math.e)
    assert shares.value == pytest.approx((2 * sigmoid + 1 / (1 + math.exp(-9))) / 3)


def boxes(scores, labels):
    return [
        {
            "boxes": torch.zeros(len(scores), 4),
            "labels": torch.tensor(labels),
            "scores": leaf(*scores),
        }
    ]


def test_the_best_box_or_the_best_of_a_class():
    output = boxes([0.2, 0.9, 0.5, 0.4], [3, 1, 3, 3])
    assert score(output).score.value == pytest.approx(0.9)
    assert score(output).score.target == 1
    scored = score(output, target=3)
    assert scored.score.value == pytest.approx(0.5)
    scored.value.backward()
    assert output[0]["scores"].grad.tolist() == [0, 0, 1, 0]
    with pytest.raises(RequestError, match="no box of class 7"):
        score(output, target=7)
    with pytest.raises(RequestError, match="no box in an image"):
        score(boxes([], []))


def test_the_mean_length_of_the_last_flow():
    first, last = torch.ones(1, 2, 1, 2), leaf([[[3.0, 0.0]], [[4.0, 2.0]]])
    assert score([first, last]).score.value == pytest.approx((5 + 2) / 2)
    with pytest.raises(RequestError, match="an optical flow has no classes"):
        score([first, last], target=1)


def test_all_numbers_of_any_output_add_up():
    output = {"a": [leaf(1.0, 2.0), torch.arange(3)], "b": (leaf(4.0),), "c": "text"}
    assert score(output, "sum").score.value == 7
    with pytest.raises(ModelError, match="the score must be one number"):
        score({"c": "text"}, "sum")


def test_what_has_no_score_is_refused():
    with pytest.raises(
        RequestError, match="there is no score for an output of this form"
    ) as caught:
        score([leaf(LOGITS), {"what": leaf(LOGITS)}])
    assert caught.value.hint.startswith("choose one of its tensors with `output_key`, use ")
    with pytest.raises(RequestError, match="there is no class 3"):
        score(leaf(LOGITS), target=3)
    with pytest.raises(ModelError, match="no gradient leads back"):
        score(torch.tensor([LOGITS]))


def test_a_score_that_is_not_finite_is_no_number():
    assert score(leaf((math.nan, 1.0)), target=0).score.value is None


def test_a_class_is_found_by_its_name_unless_two_have_it():
    assert find_target("Tabby CAT", ["dog", "tabby cat", "crane", "crane"]) == 1
    assert find_target("tabby", ["cat, tabby cat", "Tabby, tabby cat", "tabby cat"]) == 1
    with pytest.raises(RequestError, match="2 classes are called 'crane'") as caught:
        find_target("crane", ["dog", "tabby cat", "crane", "crane"])
    assert caught.value.hint == "give the index: 2 or 3"


def test_a_model_of_one_value_has_no_second_class():
    with pytest.raises(RequestError, match="there is no class 1") as caught:
        find_target("1", ["age"])
    assert caught.value.hint == "the model returns one value: `target=0`, 'age'"
