"""The task of every family, and the names under which outputs are read."""

from __future__ import annotations

import pytest

from hookcli.models.sources import choose_source
from hookcli.models.tasks import TASKS, find_task
from hookcli.models.torchvision import list_catalog


def test_every_task_is_that_of_some_model_of_torchvision():
    assert {entry.task for entry in list_catalog()} == {task.word for task in TASKS}


@pytest.mark.parametrize(
    ("package", "word", "takes_any_size"),
    [
        ("torchvision.models.resnet", "classification", False),
        ("torchvision.models.quantization.resnet", "quantization", False),
        ("torchvision.models.video.resnet", "video", False),
        ("torchvision.models.segmentation.fcn", "segmentation", True),
        ("torchvision.models.detection.ssd", "detection", True),
        ("torchvision.models.optical_flow.raft", "optical_flow", True),
    ],
)
def test_a_task_is_that_of_the_package_of_the_builder(package, word, takes_any_size):
    task = find_task(package)
    assert (task.word, task.takes_any_size) == (word, takes_any_size)


@pytest.mark.parametrize(
    ("name", "word"),
    [("resnet18", ""), ("timm:resnet18", "timm"), ("net.py:make", "own"), ("a.b:make", "own")],
)
def test_a_source_is_chosen_by_the_name_alone(name, word):
    assert choose_source(name).word == word
