"""The task of every family, its name in manifests, and which source takes a name."""

from __future__ import annotations

import pytest

from hookcli.networks import sources
from hookcli.networks.catalog import list_catalog
from hookcli.networks.own_code import OwnCode
from hookcli.networks.source import Source
from hookcli.networks.sources import choose_source
from hookcli.networks.tasks import TASKS, find_task
from hookcli.networks.timm import Timm
from hookcli.networks.torchvision import Torchvision
from hookcli.records.rows import CatalogEntry


def test_every_task_is_that_of_some_model_of_torchvision():
    assert {entry.task for entry in list_catalog()} == {task.word for task in TASKS}


@pytest.mark.parametrize(
    ("package", "word", "takes_any_size"),
    [
        ("torchvision.models.resnet", "classification", False),
        ("torchvision.models.video.resnet", "video", False),
        ("torchvision.models.segmentation.fcn", "segmentation", True),
        ("torchvision.models.detection.ssd", "detection", True),
    ],
)
def test_a_task_is_that_of_the_package_of_the_builder(package, word, takes_any_size):
    task = find_task(package)
    assert (task.word, task.takes_any_size) == (word, takes_any_size)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("resnet18", Torchvision),
        ("timm:resnet18", Timm),
        ("net.py:make", OwnCode),
        ("a.b:make", OwnCode),
    ],
)
def test_a_source_is_chosen_by_the_name_alone(name, source):
    assert choose_source(name) is source


@pytest.mark.parametrize(
    ("source", "word"), [(Timm, "timm"), (OwnCode, "own"), (Torchvision, "classification")]
)
def test_manifests_name_a_task_only_if_it_is_known(source, word):
    assert source("resnet18", lambda: None).word == word


class Shelf(Source):
    prefix = "shelf:"

    @classmethod
    def list_shelf(cls):
        return ["shelf:net"]

    @classmethod
    def describe(cls, name):
        return CatalogEntry(name, "classification", (), None, None, None, ())


def test_a_source_is_listed_with_the_names_that_it_brings(monkeypatch):
    monkeypatch.setattr(sources, "SOURCES", (Shelf, *sources.SOURCES))
    assert [entry.name for entry in list_catalog("*net", "shelf")] == ["shelf:net"]
