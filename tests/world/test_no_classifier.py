"""A model without a classifier returns features: it predicts no class, and has no predicted one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.config import BackwardStyle, ModelRequest
from hookcli.errors import RequestError
from hookcli.networks.load import LoadedModel
from hookcli.networks.own_code import OwnCode
from hookcli.networks.timm import Timm
from hookcli.records.images import Prediction
from hookcli.records.runs import ModelInfo

ROWS = torch.tensor([[1.0, 5.0, 3.0], [2.0, 0.0, 4.0]])


def loaded(module, kind=OwnCode):
    prepare = OwnCode("mine", lambda: module).prepare(ModelRequest("own", size=6), module)
    source = kind("mine", lambda: module)
    info = ModelInfo("mine", source.word, "none", trained=False, device="cpu", dtype="float32")
    return LoadedModel(info, prepare, module=module.eval(), source=source)


def backbone():
    return nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Flatten(), nn.Identity())


def timm_model(num_classes):
    model = nn.Sequential(nn.Linear(3, 3))
    model.num_classes = num_classes
    return model


def features(count):
    return (Prediction("features", f"{count} features, no classes", None, None),)


def test_a_backbone_says_how_many_features_it_returns_for_each_image():
    assert loaded(backbone()).read(ROWS) == [features(3), features(3)]


def test_a_model_of_timm_without_classes_returns_features():
    assert loaded(timm_model(0), Timm).read(ROWS) == [features(3)] * 2
    assert loaded(timm_model(3), Timm).read(ROWS)[0][0].category == "class 1"


@pytest.mark.parametrize(
    ("output", "count"),
    [
        ({"last_hidden_state": torch.zeros(1, 5, 24)}, 24),
        ({"last_hidden_state": torch.zeros(1, 8, 2, 3)}, 8),
        ({"last_hidden_state": torch.zeros(1, 5, 24), "pooler_output": torch.zeros(1, 16)}, 16),
    ],
)
def test_a_model_of_transformers_without_a_head_returns_features(output, count):
    assert loaded(backbone()).read(output) == [features(count)]


def test_a_model_of_transformers_with_a_head_returns_no_features():
    output = {"logits": torch.zeros(1, 3), "last_hidden_state": torch.zeros(1, 5, 24)}
    assert loaded(backbone()).read(output) == []


@pytest.mark.parametrize("score", ["logit", "cross-entropy"])
def test_a_model_without_a_classifier_has_no_predicted_class_to_score(score):
    scorer = loaded(backbone()).scorer(BackwardStyle(score=score), "predicted")
    with pytest.raises(RequestError) as caught:
        scorer(ROWS[:1].requires_grad_())
    assert caught.value.message == (
        "mine has no classifier: it returns features and predicts no class"
    )
    assert caught.value.hint == "`target=INDEX` for one feature, counted from 0, or `score='sum'`"
