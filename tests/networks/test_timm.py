"""Models of timm: how they are named, built, shown their pictures, and loaded."""

from __future__ import annotations

import math
import socket
import sys
import time

import pytest
import torch
from PIL import Image
from torch import nn

from hookcli.config import ModelRequest
from hookcli.errors import RequestError, UnknownModelError
from hookcli.networks.load import build_skeleton
from hookcli.networks.timm import Timm
from tests.world.test_own_code import PLAIN, document, load

SMALL = "test_resnet"  # timm's own toy: 160 x 160, half a million parameters


def offline(*_args, **_options):
    raise OSError("the network is not to be touched")


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(socket, "create_connection", offline)
    monkeypatch.setattr(socket, "getaddrinfo", offline)
    monkeypatch.setattr(socket.socket, "connect", offline)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.setattr(constants, name, str(tmp_path / "hub"), raising=False)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def timm():
    """The package, imported only where a test asks for it: that takes seconds."""
    return pytest.importorskip("timm")


def timm_seeded(name, **arguments):
    timm = pytest.importorskip("timm")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return timm.create_model(name, **arguments).eval()


def picture():
    return Image.radial_gradient("L").convert("RGB").resize((300, 200))


def test_random_weights_of_a_timm_model_are_those_of_the_seed():
    mine, own = load(f"timm:{SMALL}", "random").module, timm_seeded(SMALL)
    assert mine.state_dict().keys() == own.state_dict().keys()
    assert all(torch.equal(v, own.state_dict()[k]) for k, v in mine.state_dict().items())


def test_a_timm_model_is_shown_what_its_own_configuration_says(timm):
    loaded = load(f"timm:{SMALL}", "random")
    config = timm.data.resolve_model_data_config(loaded.module)
    expected = timm.data.create_transform(**config, is_training=False)(picture())
    assert tuple(expected.shape) == (3, 160, 160)
    assert torch.equal(loaded.prepare.to_pixels([picture()]), expected)
    assert loaded.info.input_shape == (1, 3, 160, 160)


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"size": 64}, {"input_size": (3, 64, 64)}),
        ({"mean": (0.1, 0.2, 0.3)}, {"mean": (0.1, 0.2, 0.3)}),
        ({"interpolation": "nearest"}, {"interpolation": "nearest"}),
        ({"size": 64, "resize": 128}, {"input_size": (3, 64, 64), "crop_pct": 0.5}),
    ],
)
def test_the_options_change_timms_configuration_and_nothing_else(timm, options, changed):
    loaded = load(f"timm:{SMALL}", "random", **options)
    config = timm.data.resolve_model_data_config(loaded.module) | changed
    expected = timm.data.create_transform(**config, is_training=False)(picture())
    assert torch.equal(loaded.prepare.to_pixels([picture()]), expected)


def test_the_side_before_the_crop_is_the_one_that_was_asked_for():
    module = timm_seeded(SMALL)
    for size in (64, 224):
        for resize in range(size, 2 * size, 7):
            request = ModelRequest("", size=size, resize=resize)
            transform = Timm("", nn.Identity).prepare(request, module).transform
            assert vars(transform)["transforms"][0].size == resize, (size, resize)


def test_the_layers_of_a_timm_model_are_listed_without_values(run):
    ended = run(
        "layers", f"timm:{SMALL}", "--size", "64", "--layers", "conv[1]", "--format", "json"
    )
    assert document(ended)["layers"][0]["shape"] == [1, 16, 32, 32]
    skeleton = build_skeleton(ModelRequest(f"timm:{SMALL}"))
    assert all(parameter.is_meta for parameter in skeleton.module.parameters())


def test_an_unknown_timm_model_is_answered_with_near_ones():
    with pytest.raises(UnknownModelError) as caught:
        load("timm:resnett18", "random")
    assert caught.value.message == "no model is called 'timm:resnett18'"
    assert "timm:resnet18" in caught.value.hint
    assert caught.value.exit_code == 2


def test_an_unknown_tag_of_a_timm_model_is_answered_with_near_ones():
    with pytest.raises(UnknownModelError) as caught:
        load("timm:resnet18.fb_ssl_yfcc100m", "random")
    assert caught.value.message == "no model is called 'timm:resnet18.fb_ssl_yfcc100m'"
    assert "timm:resnet18.fb_ssl_yfcc100m_ft_in1k" in caught.value.hint


def test_whether_timm_loads_weights_is_not_for_model_arg():
    with pytest.raises(RequestError, match="`arguments` cannot set 'pretrained'"):
        load(f"timm:{SMALL}", "random", arguments=(("pretrained", "True"),))


def test_without_timm_its_models_are_refused_with_how_to_install_it(run, photo, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    code, _, err = run("inspect", "timm:resnet18", photo, *PLAIN)
    assert (code, err) == (
        2,
        "error: timm:resnet18 needs timm\nhint: install it: pip install timm\n",
    )


def test_offline_timms_weights_are_random_before_long_and_said_to_be(no_network):
    begin = time.monotonic()
    loaded = load(f"timm:{SMALL}")
    assert time.monotonic() - begin < 5
    assert torch.equal(next(loaded.module.parameters()), next(timm_seeded(SMALL).parameters()))
    assert (loaded.info.weights, loaded.info.trained) == ("random (seed 0)", False)
    assert loaded.info.warning.startswith("trained weights are neither cached nor reachable (")
    assert loaded.info.warning.endswith("): the weights are RANDOM")


UNTRAINED = "timm:ghostnet_050"


def test_a_timm_model_without_trained_weights_is_random_and_said_to_be(no_network):
    info = load(UNTRAINED).info
    assert (info.weights, info.trained) == ("random (seed 0)", False)
    assert info.warning == (
        "timm has no trained weights for timm:ghostnet_050: the weights are RANDOM"
    )


@pytest.fixture
def trained(timm):
    """A file of trained weights, and the argument that lets timm load it without its hub."""
    torch.manual_seed(9)
    model = timm.create_model(SMALL)
    torch.save(model.state_dict(), "trained.pth")
    return model, ("pretrained_cfg_overlay", "{'file': 'trained.pth'}")


def test_timm_loads_trained_weights_and_names_the_classes(no_network, trained):
    model, overlay = trained
    loaded = load(f"timm:{SMALL}", "pretrained", arguments=(overlay,))
    assert torch.equal(loaded.module.fc.weight, model.fc.weight)
    assert (loaded.info.trained, loaded.info.warning) == (True, "")
    assert (len(loaded.categories), loaded.categories[282]) == (1000, "tiger cat")


def test_another_number_of_classes_leaves_timms_classifier_random_and_says_so(no_network, trained):
    model, overlay = trained
    loaded = load(f"timm:{SMALL}", arguments=(overlay, ("num_classes", "7")))
    assert loaded.module.fc.out_features == 7
    assert torch.equal(next(loaded.module.parameters()), next(model.parameters()))
    assert not loaded.info.trained
    assert loaded.info.warning == (
        "trained weights have 1000 classes, and 7 were asked for: the classifier is RANDOM (seed 0)"
    )
    assert loaded.categories == ()


def test_a_file_of_weights_sizes_a_timm_models_classifier():
    seven = timm_seeded(SMALL, num_classes=7)
    torch.save(seven.state_dict(), "w.pth")
    loaded = load(f"timm:{SMALL}", "w.pth")
    assert torch.equal(loaded.module.fc.weight, seven.fc.weight)
    assert loaded.info.trained


def test_a_probability_of_a_timm_model_is_the_softmax_of_its_logits(timm, run, photo):
    words = ("--weights", "random", "--device", "cpu", "--grids", "none", "--size", "32")
    arguments = ("--model-arg", "num_classes=3", "--format", "json")
    ended = run("inspect", f"timm:{SMALL}", photo, *words, *arguments)
    model = timm_seeded(SMALL, num_classes=3)
    config = timm.data.resolve_model_data_config(model) | {"input_size": (3, 32, 32)}
    pixels = timm.data.create_transform(**config, is_training=False)(Image.open(photo))
    with torch.inference_mode():
        logits = model(pixels.unsqueeze(0))[0].tolist()
    whole = sum(math.exp(logit) for logit in logits)
    said = {p["index"]: p["value"] for p in document(ended)["images"][0]["predictions"]}
    assert said == pytest.approx({i: math.exp(v) / whole for i, v in enumerate(logits)}, abs=1e-6)
