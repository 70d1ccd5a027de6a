"""A model that is ready to run: the classes that it has, its bands, and how its images run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.config import ModelRequest
from hookcli.models.inputs import ExtraInputs
from hookcli.models.load import LoadedModel, _note_count
from hookcli.models.own_code import OwnCode
from hookcli.models.sources import find_model
from hookcli.records.runs import ModelInfo


@pytest.mark.parametrize(
    ("outputs", "names", "is_said"),
    [(5, 5, False), (5, 4, True), (1, 2, False), (2, 1, True), (1, 1, False), (1, 3, True)],
)
def test_a_last_layer_with_another_number_of_outputs_than_names_is_said(outputs, names, is_said):
    """One output may be the score of the second of two classes."""
    net = nn.Sequential(nn.Conv2d(3, 7, 1), nn.Linear(4, outputs), nn.ReLU())
    note = _note_count(net, ["name"] * names)
    assert bool(note) is is_said
    assert not note or note.endswith(": classes appear as numbers")


def test_a_last_layer_that_does_not_say_its_outputs_causes_no_note():
    assert _note_count(nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5)), ["one"]) == ""


class Added(nn.Module):
    def forward(self, x, bias):
        return x + bias


def loaded(module, request=None, extra=None):
    request = request or ModelRequest("own", size=32)
    source = OwnCode("own", lambda: module)
    prepare = source.prepare(request, module)
    info = ModelInfo("own", "own", "none", trained=False, device="cpu", dtype="float32")
    return LoadedModel(info, prepare, module=module.eval(), source=source, extra=extra)


@pytest.mark.parametrize(("shape", "alone"), [((2,), True), ((1, 3), False), ((), False)])
def test_images_run_one_at_a_time_if_another_input_has_a_leading_axis(shape, alone):
    extra = ExtraInputs({"bias": torch.ones(shape)}, as_dict=False, hashes={})
    assert loaded(Added(), extra=extra).inputs.alone is alone


@pytest.mark.parametrize("mode", [True, False])
def test_images_run_one_at_a_time_in_training(mode):
    model = loaded(nn.BatchNorm2d(3))
    model.module.train(mode)
    assert model.inputs.alone is mode


def test_an_own_model_gets_as_many_bands_as_the_pictures_have():
    request = ModelRequest("own", size=32)
    model = loaded(nn.Conv2d(5, 2, 1), request)
    found = model.for_bands(request, 5)
    assert found.prepare.transform is not model.prepare.transform
    assert [len(each) for each in found.normalisation()] == [5, 5]
    assert found.info.preprocessing == found.prepare.words
    assert model.for_bands(request, 3) is model


@pytest.mark.parametrize(
    "words",
    [{"mean": (0.5,) * 5, "std": (0.5,) * 5}, {"bands": (0, 1, 2)}],
)
def test_bands_that_the_user_describes_stay_as_they_are(words):
    request = ModelRequest("own", size=32, **words)
    model = loaded(nn.Conv2d(5, 2, 1), request)
    assert model.for_bands(request, 5) is model


def test_a_model_that_is_known_keeps_its_bands():
    request = ModelRequest("squeezenet1_1", size=32)
    source = find_model("squeezenet1_1", 0)
    module = nn.Conv2d(3, 2, 1)
    model = LoadedModel(None, source.prepare(request, module), module=module, source=source)
    assert model.knows_input
    assert model.for_bands(request, 5) is model
