"""What two variants answer, with outputs and agreements by hand."""

from __future__ import annotations

import math

import pytest
import torch

from hookcli.comparison.answer import compare_answers
from hookcli.distance.answer import Answer
from hookcli.networks.description import ModelDescription
from hookcli.networks.task import Preprocessing
from hookcli.networks.tasks import CLASSIFICATION, Detection, Segmentation


def model(task=CLASSIFICATION):
    return ModelDescription(info=None, prepare=Preprocessing(task, None))


def boxes(*corners, labels=None, scores=None):
    count = len(corners)
    return [
        {
            "boxes": torch.tensor(corners, dtype=torch.float32).reshape(count, 4),
            "labels": torch.tensor(labels or [1] * count),
            "scores": torch.tensor(scores or [0.9] * count),
        }
    ]


INF, LN3 = math.inf, math.log(3)


@pytest.mark.parametrize(
    ("a", "b", "share", "distance"),
    [
        ([0.0, LN3], [0.0, LN3], 1, 0),
        ([0.0, LN3], [LN3, 0.0], 0, LN3 / 2),  # 1/4 and 3/4, the other way round in B
        ([0.0, LN3], [0.0, 0.0], 0, math.log(2) - (math.log(4) / 4 - 3 * math.log(3 / 4) / 4)),
        ([0.0, -INF], [0.0, 0.0], 1, math.log(2)),
        ([1.0, 0.0], [math.nan, math.nan], 0, None),
    ],
)
def test_the_divergence_is_that_of_b_from_a(a, b, share, distance):
    found = compare_answers(model(), torch.tensor([a]), torch.tensor([b]))
    assert found is not None
    assert (found.kind, found.share, found.distance) == (
        *("top class", share),
        distance if distance is None else pytest.approx(distance),
    )


def test_labels_that_may_all_be_true_are_counted():
    task = CLASSIFICATION.read_as("labels")
    a, b = torch.tensor([[1.0, -1, 2, -3]]), torch.tensor([[1.0, 1, 2, -3]])
    assert compare_answers(model(task), a, b) == Answer("labels", 0.75)


def test_masks_agree_by_pixels():
    a = torch.tensor([[[[1.0, 1.0]], [[0.0, 0.0]]]])
    b = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    assert compare_answers(model(Segmentation()), {"out": a}, {"out": b}) == Answer("masks", 0.5)


def test_an_export_returns_the_tensors_of_a_dictionary_alone():
    a = torch.tensor([[[[1.0, 1.0]], [[0.0, 0.0]]]])
    assert compare_answers(model(Segmentation()), {"out": a}, a.clone()) == Answer("masks", 1.0)


ONE, TWO, THREE = [0, 0, 10, 10], [20, 20, 30, 30], [40, 40, 50, 50]


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        (boxes(ONE, TWO), boxes(ONE, TWO), 1),
        # one of two boxes overlaps by 9/11, and the other one has another class
        (boxes(ONE, TWO), boxes([1, 0, 11, 10], TWO, labels=[1, 2]), 0.5),
        (boxes(ONE), boxes([0, 0, 10, 5]), 1),  # the intersection is half of the union
        (boxes(ONE), boxes([0, 0, 10, 4.9]), 0),
        (boxes(ONE, ONE), boxes(ONE), 2 / 3),  # a box has one counterpart
        (boxes(ONE, TWO, scores=[0.9, 0.1]), boxes(ONE), 1),  # hardly certain boxes do not count
        (boxes(ONE), boxes(), 0),
        (boxes(), boxes(ONE), 0),
        (boxes(), boxes(), 1),
        (boxes(), boxes(ONE, scores=[0.4]), 1),
        # with small scores, boxes count down to half the best score of A
        (boxes(ONE, TWO, THREE, scores=[0.2, 0.1, 0.09]), boxes(ONE, TWO, scores=[0.2, 0.1]), 1),
        (boxes(ONE, TWO, THREE, scores=[0.2, 0.1, 0.09]), boxes(ONE), 2 / 3),
    ],
)
def test_boxes_agree_if_they_overlap_and_have_one_class(a, b, share):
    found = compare_answers(model(Detection()), a, b)
    assert (found.kind, found.share) == ("boxes", pytest.approx(share))


def test_an_answer_without_classes_or_boxes_is_compared_by_its_numbers():
    class Nothing(Segmentation):
        def read(self, found, _categories, _sizes=()):
            return [()] * len(found)

    a = {"out": torch.ones(1, 2, 3, 3)}
    assert compare_answers(model(Nothing()), a, a) == Answer("output", 1.0, 0.0)


def test_another_output_is_compared_by_its_numbers():
    a, b = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])
    found = compare_answers(model(), a, b)
    assert found is not None
    assert (found.kind, found.share, found.distance) == ("output", 0.0, pytest.approx(0.1))
    assert compare_answers(model(), (a, a), (a, a)) == Answer("output", 1.0, 0.0)
    assert compare_answers(model(), a, b * math.inf) == Answer("output", 0.0)
    worst = compare_answers(model(), (a, a), (a, b))
    assert worst == found


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.ones(1, 3), torch.ones(1, 4)),
        (torch.ones(3), torch.ones(4)),
        ((torch.ones(3),), (torch.ones(3), torch.ones(3))),
        ("text", "text"),
    ],
)
def test_outputs_of_other_shapes_or_numbers_are_not_compared(a, b):
    assert compare_answers(model(), a, b) is None


def test_rounding_makes_no_divergence_negative():
    torch.manual_seed(0)
    for _ in range(20):
        a = torch.randn(1, 7)
        found = compare_answers(model(), a, a + 1e-9 * torch.randn(1, 7))
        assert found is not None
        assert found.distance == 0
