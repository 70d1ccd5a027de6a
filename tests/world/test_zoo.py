"""All classification models of torchvision through the survey: minutes, so run by ``make test-
slow``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torchvision import models as zoo

from hookcli.config import ModelRequest
from hookcli.hooks.layers import list_layers
from hookcli.networks.catalog import list_catalog
from hookcli.networks.load import build_skeleton
from hookcli.passes.survey import survey

if TYPE_CHECKING:
    from hookcli.records.rows import SurveyRow

pytestmark = pytest.mark.slow

# By where torchvision keeps the builder: what is in one of its sub-packages has another task.
NAMES = [
    name
    for name in zoo.list_models()
    if zoo.get_model_builder(name).__module__.count(".") == len(("torchvision", "models"))
]


def test_torchvision_has_80_classification_models():
    assert len(NAMES) == 80


def test_the_catalog_calls_the_same_models_classification_models():
    entries = [entry.name for entry in list_catalog() if entry.task == "classification"]
    assert entries == sorted(NAMES)


@pytest.fixture(scope="module", params=NAMES)
def surveyed(request: pytest.FixtureRequest) -> tuple[str, tuple[SurveyRow, ...]]:
    size = zoo.get_model_weights(request.param).DEFAULT.transforms().crop_size[0]
    loaded = build_skeleton(ModelRequest(request.param, size=size))
    model, shape = loaded.module, loaded.info.input_shape
    return request.param, survey(model, list_layers(model), shape).rows


def test_the_model_costs_twice_the_published_multiply_adds(surveyed):
    """Published in billions with three decimals."""
    name, (whole, *_) = surveyed
    published = zoo.get_model_weights(name).DEFAULT.meta["_ops"]
    assert whole.flops == pytest.approx(2e9 * published, rel=0.01, abs=2e9 * 0.0005)


def test_the_model_has_the_published_number_of_parameters(surveyed):
    """The published figure of GoogLeNet leaves out its auxiliary heads, that of Inception does
    not."""
    name, (whole, *_) = surveyed
    published = zoo.get_model_weights(name).DEFAULT.meta["num_params"]
    heads = {"googlenet": 6_379_984}
    assert whole.params == published + heads.get(name, 0)
