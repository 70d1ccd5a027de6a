"""The call that has a model's features, and the reason for the choice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.config import SIDES, ModelRequest
from hookcli.hooks.layers import list_layers
from hookcli.networks.load import LoadedModel, load_model
from hookcli.networks.own_code import OwnCode
from hookcli.passes.eager import EagerRunner
from hookcli.passes.features import find_feature_call
from hookcli.records.runs import ModelInfo


def find(module, *paths, at="both", task="own"):
    """The id of the chosen call, among all layers unless some are named."""
    source = OwnCode("own", lambda: module)
    prepare = source.prepare(ModelRequest("own", size=32), module)
    info = ModelInfo("own", task, "none", trained=False, device="cpu", dtype="float32")
    return find_in(LoadedModel(info, prepare, module=module.eval(), source=source), *paths, at=at)


def find_in(loaded, *paths, at="both"):
    layers = [each for each in list_layers(loaded.module) if not paths or each.module_path in paths]
    found = find_feature_call(loaded, EagerRunner.of(loaded, layers), SIDES[at])
    return found and found[0].id


class Net(nn.Module):
    """Features (N, 4), and then what ``after`` makes of them in ``forward``."""

    def __init__(self, **heads):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        for name, head in heads.items():
            setattr(self, name, head)

    def pooled(self, x):
        return self.pool(self.norm(self.conv(x))).flatten(1)


class Classifier(Net):
    def forward(self, x):
        return self.fc(self.pooled(x)).softmax(1)


class Tokens(Net):
    """The head takes the first of several tokens, which no module returns alone."""

    def forward(self, x):
        tokens = self.norm(self.conv(x)).flatten(2).transpose(1, 2)
        return self.fc(tokens[:, 0])


class TwoHeads(Net):
    """The output has the heads in another order than the forward pass."""

    def forward(self, x):
        features = self.pooled(x)
        first, second = self.one(features), self.two(features)
        return {"b": second, "a": first}


class Named(Net):
    """The interface of timm: the mean of two heads, which no module returns."""

    def forward(self, x):
        features = self.pooled(x)
        return (self.one(self.drop(features)) + self.two(features)) / 2

    def get_classifier(self):
        return self.one, self.two


class Detector(Net):
    def forward(self, x):
        return self.fc(self.backbone(x)["1"].mean((2, 3)))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return {"0": self.body(x), "1": self.body(x)[:, :, ::2, ::2]}


class Embedder(Net):
    def forward(self, x):
        return self.pooled(x)


def test_the_features_are_what_the_head_takes():
    assert find(Classifier(fc=nn.Linear(4, 5))) == "pool"


def test_features_that_no_layer_returns_are_the_input_of_the_head():
    assert find(Tokens(fc=nn.Linear(4, 5))) == "input:fc"


def test_a_run_of_some_layers_has_the_last_one_before_the_head():
    net = Classifier(fc=nn.Linear(4, 5))
    assert find(net, "conv", "norm", "fc", "", at="output") == "norm"
    assert find(net, "fc", "", at="output") is None


def test_no_head_is_taken_for_features_if_there_are_several():
    assert find(TwoHeads(one=nn.Linear(4, 4), two=nn.Linear(4, 4))) == "pool"


def test_the_head_is_the_one_that_the_model_names():
    assert find(Named(drop=nn.Dropout(), one=nn.Linear(4, 5), two=nn.Linear(4, 5))) == "drop"


def test_the_features_of_a_detector_are_the_coarsest_map_of_its_backbone():
    assert (
        find(Detector(backbone=Backbone(), fc=nn.Linear(4, 5)), task="detection") == "backbone[1]"
    )


def test_an_embedding_that_the_model_returns_is_its_features():
    assert find(Embedder()) == "(model)"
    assert find(Embedder(), "conv", "pool") == "pool"


def test_a_layer_called_again_is_chosen_by_its_call():
    class Twice(Net):
        def forward(self, x):
            return self.fc(self.act(self.act(self.pooled(x)) - 1))

    assert find(Twice(act=nn.ReLU(), fc=nn.Linear(4, 5))) == "act#1"


class Pooled(nn.Sequential):
    """The output has the mean of each channel."""

    def forward(self, x):
        return super().forward(x).mean((2, 3))


@pytest.mark.parametrize(
    ("last", "call_id"),
    [
        ([nn.Conv2d(8, 4, 3)], "1"),
        ([nn.Conv2d(8, 4, 1), nn.ReLU()], "1"),
        ([nn.Conv2d(8, 4, 3), nn.ReLU(inplace=True)], "3"),
        ([nn.Conv2d(8, 4, 3), nn.MaxPool2d(2)], "3"),
    ],
)
def test_the_last_convolution_is_a_head_unless_the_layers_after_it_make_features(last, call_id):
    assert find(Pooled(nn.Conv2d(3, 8, 3), nn.ReLU(), *last)) == call_id


def test_a_norm_at_the_end_is_no_head():
    class Normed(Net):
        def forward(self, x):
            return self.last_norm(self.fc(self.norm(self.conv(x)))) * 2

    assert find(Normed(fc=nn.Conv2d(4, 5, 1), last_norm=nn.BatchNorm2d(5))) == "norm"


def test_the_last_layer_is_no_head_if_the_output_has_not_its_channels():
    class Prototypes(Net):
        """The classifier is a parameter that no module has."""

        def forward(self, x):
            return self.act(self.conv(x)).mean((2, 3)) @ torch.ones(8, 5)

    assert find(Prototypes(act=nn.Conv2d(4, 8, 1))) == "act"


@pytest.mark.parametrize(
    ("name", "size", "call_id"),
    [
        ("squeezenet1_1", 64, "classifier.0"),
        ("lraspp_mobilenet_v3_large", 64, "input:classifier.high_classifier"),
        ("timm:resnet18", 64, "global_pool"),
        ("timm:test_vit", 160, "head_drop"),
    ],
)
def test_models_of_libraries(name, size, call_id):
    assert find_in(load_model(ModelRequest(name, weights="random", size=size))) == call_id


@pytest.mark.parametrize("name", ["test_vit", "test_efficientnet"])
def test_they_are_what_timm_says_they_are(name):
    loaded = load_model(ModelRequest(f"timm:{name}", weights="random", size=160))
    runner = EagerRunner.of(loaded, list_layers(loaded.module))
    call, _ = find_feature_call(loaded, runner, SIDES["both"])
    seen = []
    module = loaded.module.get_submodule(call.layer.module_path)
    module.register_forward_hook(lambda _, inputs, output: seen.append(output.flatten(1)))
    pixels = loaded.pixels_to_try()
    with torch.no_grad():
        wanted = loaded.module.forward_head(loaded.module.forward_features(pixels), pre_logits=True)
        loaded.module(pixels)
    assert torch.equal(seen[-1], wanted)


def test_the_head_makes_the_logits_and_not_what_else_the_model_returns():
    class More(Net):
        def forward(self, x):
            features = self.pooled(x)
            hidden = self.hidden(features)
            return {"hidden": hidden, "logits": self.fc(hidden)}

    assert find(More(hidden=nn.Linear(4, 6), fc=nn.Linear(6, 5))) == "hidden"


def test_the_head_of_a_segmentation_is_the_one_that_the_model_names():
    class Masks(Net):
        def forward(self, x):
            return self.last(self.segmentation_head(self.norm(self.conv(x))))

    assert find(Masks(segmentation_head=nn.Conv2d(4, 2, 1), last=nn.Conv2d(2, 2, 1))) == "norm"
