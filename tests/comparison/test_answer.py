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


def test_the_divergence_is_that_of_the_probabilities():
    """Logits 0 and ln 3 are 1/4 and 3/4; the other way round, the divergence is ln(3) / 2."""
    a = torch.tensor([[0.0, math.log(3)]])
    found = compare_answers(model(), a, a.flip(1))
    assert found.share == 0
    assert found.distance == pytest.approx(math.log(3) / 2)
    assert compare_answers(model(), a, a.clone()) == Answer("top class", 1.0, 0.0)


def test_logits_that_are_not_finite_are_another_answer():
    a = torch.tensor([[1.0, 0.0]])
    assert compare_answers(model(), a, a * math.nan) == Answer("top class", 0.0)


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


def test_boxes_agree_if_they_overlap_and_have_one_class():
    """One of two boxes overlaps by 9/11, and the other one has another class: 2 of 4 match."""
    a = boxes([0, 0, 10, 10], [20, 20, 30, 30])
    b = boxes([1, 0, 11, 10], [20, 20, 30, 30], labels=[1, 2])
    assert compare_answers(model(Detection()), a, b) == Answer("boxes", 0.5)
    assert compare_answers(model(Detection()), a, a) == Answer("boxes", 1.0)


def test_boxes_that_are_hardly_certain_are_left_out():
    a = boxes([0, 0, 10, 10], [20, 20, 30, 30], scores=[0.9, 0.1])
    assert compare_answers(model(Detection()), a, boxes([0, 0, 10, 10])) == Answer("boxes", 1.0)
    assert compare_answers(model(Detection()), a, boxes()) == Answer("boxes", 0.0)


def test_another_output_is_compared_by_its_numbers():
    a, b = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])
    found = compare_answers(model(), a, b)
    assert found is not None
    assert (found.kind, found.share, found.distance) == ("output", 0.0, pytest.approx(0.1))
    assert compare_answers(model(), (a, a), (a, a)) == Answer("output", 1.0, 0.0)
    assert compare_answers(model(), a, b * math.inf) == Answer("output", 0.0)


def test_outputs_of_different_shapes_are_not_compared():
    assert compare_answers(model(), torch.ones(1, 3), torch.ones(1, 4)) is None
    assert compare_answers(model(), torch.ones(3), torch.ones(4)) is None
    assert compare_answers(model(), "text", "text") is None


def test_boxes_with_small_scores_are_compared_down_to_half_the_best_score():
    corners = [0, 0, 10, 10], [20, 20, 30, 30], [40, 40, 50, 50]
    a = boxes(*corners, scores=[0.2, 0.1, 0.09])
    b = boxes(*corners[:2], scores=[0.2, 0.1])
    assert compare_answers(model(Detection()), a, b) == Answer("boxes", 1.0)
    found = compare_answers(model(Detection()), a, boxes(corners[0]))
    assert found is not None
    assert found.share == pytest.approx(2 / 3)


def test_a_box_that_covers_half_of_both_is_the_same():
    """The intersection has half the area of the union."""
    a, half, less = boxes([0, 0, 10, 10]), boxes([0, 0, 10, 5]), boxes([0, 0, 10, 4.9])
    assert compare_answers(model(Detection()), a, half) == Answer("boxes", 1.0)
    assert compare_answers(model(Detection()), a, less) == Answer("boxes", 0.0)


def test_a_box_is_the_counterpart_of_one_other_box():
    """B has one box where A has two: 2 of 3 boxes match."""
    a = boxes([0, 0, 10, 10], [0, 0, 10, 10])
    found = compare_answers(model(Detection()), a, boxes([0, 0, 10, 10]))
    assert found is not None
    assert found.share == pytest.approx(2 / 3)


def test_rounding_makes_no_divergence_negative():
    torch.manual_seed(0)
    for _ in range(20):
        a = torch.randn(1, 7)
        found = compare_answers(model(), a, a + 1e-9 * torch.randn(1, 7))
        assert found is not None
        assert found.distance == 0


def test_a_class_without_any_probability_has_a_finite_divergence():
    a, b = torch.tensor([[0.0, -math.inf]]), torch.tensor([[0.0, 0.0]])
    found = compare_answers(model(), a, b)
    assert found is not None
    assert found.distance == pytest.approx(math.log(2))


def test_the_divergence_is_that_of_b_from_a():
    """With 1/4 and 3/4 in A and 1/2 and 1/2 in B, it is ln(2) - the entropy of A."""
    a, b = torch.tensor([[0.0, math.log(3)]]), torch.zeros(1, 2)
    found = compare_answers(model(), a, b)
    assert found is not None
    entropy = -(math.log(1 / 4) / 4 + 3 * math.log(3 / 4) / 4)
    assert found.distance == pytest.approx(math.log(2) - entropy)


def test_an_output_of_several_tensors_is_as_far_off_as_the_worst():
    one, two = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])
    found = compare_answers(model(), (one, one), (one, two))
    assert found is not None
    assert (found.share, found.distance) == (0.0, pytest.approx(0.1))


def test_outputs_with_other_numbers_of_tensors_are_not_compared():
    one = torch.ones(3)
    assert compare_answers(model(), (one, one), (one,)) is None
    assert compare_answers(model(), (one,), (one, one)) is None
