"""Models by name: seeded, trained, from a file, from a server that misbehaves, and what is
refused."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from importlib import metadata
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models import ResNet18_Weights, SqueezeNet1_1_Weights

from hookcli.config import ModelRequest, ScoreRequest
from hookcli.errors import ModelError, RequestError, WeightsError
from hookcli.networks.build import SkipInitialisation, build_random
from hookcli.networks.catalog import list_catalog
from hookcli.networks.inputs import ExtraInputs
from hookcli.networks.load import LoadedModel, _note_count, load_model
from hookcli.networks.own_code import OwnCode
from hookcli.networks.sources import choose_source, find_model
from hookcli.networks.weights import pin_weights
from hookcli.records.runs import ModelInfo
from tests.hub_server import MAIN, Hub, serving
from tests.processes import COMMAND, forget, start

SMALL = "squeezenet1_1"  # 5 MB of weights
CLASSIFIER = ["classifier.1.weight", "classifier.1.bias"]


def load(name=SMALL, weights="auto", seed=0, **arguments):
    words = tuple((key, str(value)) for key, value in arguments.items())
    return load_model(ModelRequest(name, weights=weights, seed=seed, device="cpu", arguments=words))


def refusal(kind, *args, **options):
    with pytest.raises(kind) as caught:
        load(*args, **options)
    return caught.value


def seeded(builder, seed, **arguments):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return builder(weights=None, **arguments).state_dict()


def assert_same(module, state):
    mine = module.state_dict()
    assert list(mine) == list(state)
    different = [key for key in state if not torch.equal(mine[key], state[key])]
    assert different == []


@pytest.fixture(scope="module")
def trained():
    """The weights of an imaginary trained squeezenet, which differ from those of seed 0."""
    return seeded(torchvision.models.squeezenet1_1, 123)


@pytest.fixture(scope="module")
def weights_file(trained, tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "squeezenet.pth"
    torch.save(trained, file)
    return file


def test_random_weights_are_those_of_the_seed_and_torchvisions_builder():
    expected = seeded(torchvision.models.mobilenet_v3_small, 7)
    assert_same(load("mobilenet_v3_small", "random", 7).module, expected)


def test_random_weights_leave_the_callers_generator_as_it_was():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    build_random(find_model(SMALL, 7), ModelRequest(SMALL, "random", 7))
    assert torch.equal(torch.get_rng_state(), before)


def test_random_weights_say_that_they_are():
    info = load(SMALL, "random", 7).info
    assert (info.weights, info.trained, info.sha256) == ("random (seed 7)", False, "")
    assert info.warning == "the weights are RANDOM, as asked for"


def test_a_model_argument_reaches_the_builder():
    expected = seeded(torchvision.models.squeezenet1_1, 0, num_classes=50)
    assert_same(load(SMALL, "random", num_classes=50).module, expected)


def test_a_model_argument_that_the_builder_does_not_know_is_refused():
    error = refusal(RequestError, SMALL, "random", colour="red")
    assert error.exit_code == 2
    assert error.message.startswith("squeezenet1_1 cannot be built with colour=red: ")
    assert error.hint == "`arguments`: the model's builder takes these arguments"


def test_a_weights_file_is_loaded_whole(weights_file, trained):
    loaded = load(weights=str(weights_file))
    assert_same(loaded.module, trained)
    assert (loaded.info.trained, loaded.info.warning) == (True, "")
    assert loaded.info.sha256 == hashlib.sha256(weights_file.read_bytes()).hexdigest()


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_state_dict"])
def test_a_checkpoint_is_unwrapped(trained, wrapper):
    torch.save({"epoch": 3, wrapper: trained}, "w.pt")
    assert_same(load(weights="w.pt").module, trained)


def test_another_number_of_classes_sizes_the_classifier():
    seven = seeded(torchvision.models.squeezenet1_1, 1, num_classes=7)
    torch.save(seven, "w.pth")
    loaded = load(weights="w.pth")
    assert_same(loaded.module, seven)
    assert loaded.categories == ()  # ImageNet's thousand names do not fit seven classes


def test_a_missing_classifier_is_random_and_named_and_the_rest_is_loaded(trained):
    torch.save({k: v for k, v in trained.items() if k not in CLASSIFIER}, "w.pth")
    loaded = load(weights="w.pth", seed=3)
    drawn = seeded(torchvision.models.squeezenet1_1, 3)
    assert_same(loaded.module, trained | {key: drawn[key] for key in CLASSIFIER})
    assert not loaded.info.trained
    assert loaded.info.warning == (
        "classifier.1.weight, classifier.1.bias are not in w.pth: they are RANDOM (seed 3)"
    )


def test_a_file_of_another_model_is_refused_in_a_few_words(trained):
    torch.save(trained, "w.pth")
    error = refusal(WeightsError, "resnet18", "w.pth")
    # resnet18: 20 convolutions, 20 norms of five entries, one linear layer of two; squeezenet1_1:
    # 26 of two
    assert error.message == (
        "w.pth does not fit the model: "
        "122 missing (conv1.weight, bn1.weight, bn1.bias and 119 more); "
        "52 unexpected (features.0.weight, features.0.bias, features.3.squeeze.weight and 49 more)"
    )
    assert error.exit_code == 4


def test_a_file_with_one_tensor_of_another_shape_is_refused(trained):
    torch.save(trained | {"features.0.bias": torch.zeros(65)}, "w.pth")
    assert refusal(WeightsError, weights="w.pth").message == (
        "w.pth does not fit the model: 1 of a different shape (features.0.bias is 65 and not 64)"
    )


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("the code was run",)


def test_a_file_from_before_norms_counted_their_batches_is_loaded_whole():
    state = seeded(torchvision.models.resnet18, 4)
    counters = [key for key in state if key.endswith("num_batches_tracked")]
    assert len(counters) == 20
    torch.save({key: value for key, value in state.items() if key not in counters}, "w.pth")
    loaded = load("resnet18", "w.pth")
    assert_same(loaded.module, state)
    assert (loaded.info.trained, loaded.info.warning) == (True, "")


def test_the_keys_of_old_densenet_files_are_understood():
    small = {"growth_rate": 4, "block_config": (2, 2, 2, 2), "num_init_features": 8}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        state = torchvision.models.DenseNet(**small).state_dict()
    # "denselayer1.norm1.weight" was "denselayer1.norm.1.weight" until torchvision 0.3
    old = {re.sub(r"(denselayer\d\.(?:norm|conv))([12])", r"\1.\2", k): v for k, v in state.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, "w.pth")
    Path("net.py").write_text(
        f"from torchvision.models import DenseNet\ndef make(): return DenseNet(**{small!r})\n"
    )
    assert_same(load("net.py:make", "w.pth").module, state)


def test_a_pickled_object_is_refused_and_its_code_is_not_run():
    torch.save({"state_dict": {"features.0.weight": RunsCode()}}, "w.pth")
    error = refusal(WeightsError, weights="w.pth")
    assert error.message == (
        "w.pth holds more than tensors (posix.mkdir), and loading it would run its code"
    )
    assert not Path("the code was run").exists()


@pytest.mark.parametrize("text", ["hello, this is text", "", "{}"])
@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_file_that_holds_no_weights_is_said_to_be_unreadable_in_words(name, text):
    Path(name).write_text(text, encoding="latin-1")
    error = refusal(WeightsError, weights=name)
    beginning, _, why = error.message.partition(": ")
    assert beginning == f"cannot read the weights {name}"
    assert len(why.split()) > 1  # and not "101", the text of a KeyError


@pytest.mark.parametrize("content", [[1, 2], {}, {"epoch": 3}])
def test_a_file_without_tensors_is_refused(content):
    torch.save(content, "w.pth")
    assert refusal(WeightsError, weights="w.pth").message.startswith("w.pth holds ")


def test_a_name_that_is_neither_file_nor_weights_is_refused_with_what_there_is():
    error = refusal(WeightsError, "vit_b_16", "missing.pth")
    assert error.message == "no weights and no file are called 'missing.pth'"
    assert error.hint == (
        "vit_b_16 has: IMAGENET1K_V1, IMAGENET1K_SWAG_E2E_V1, IMAGENET1K_SWAG_LINEAR_V1,"
        " DEFAULT, auto, pretrained, random, FILE"
    )


def test_draws_that_are_skipped_make_zeros():
    # torch 2.15's trunc_normal_ draws again until all values lie in [-2, 2]; unset memory may never
    with SkipInitialisation():
        assert torch.full((2,), 1e9).normal_().tolist() == [0, 0]


def cache(url):
    folder = Path(os.environ["TORCH_HOME"]) / "hub" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / url.rpartition("/")[2]


@pytest.mark.parametrize("weights", ["auto", "pretrained", "IMAGENET1K_V1", "DEFAULT"])
def test_weights_in_the_cache_are_loaded_without_the_network(
    weights, weights_file, trained, monkeypatch
):
    monkeypatch.setattr(SqueezeNet1_1_Weights.DEFAULT.value, "url", "http://127.0.0.1:9/s.pth")
    cache("s.pth").symlink_to(weights_file)
    loaded = load(weights=weights)
    assert_same(loaded.module, trained)
    assert (loaded.info.weights, loaded.info.trained, loaded.info.warning) == (
        "SqueezeNet1_1_Weights.IMAGENET1K_V1",
        True,
        "",
    )


def test_no_random_number_is_drawn_where_trained_weights_are_loaded(weights_file):
    cache(SqueezeNet1_1_Weights.DEFAULT.url).symlink_to(weights_file)
    before = torch.get_rng_state()
    load(weights="pretrained")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("data", [b"", b"damaged", b"PK\x03\x04half a zip"])
def test_a_damaged_file_in_the_cache_is_an_error_that_names_it(data):
    file = cache(SqueezeNet1_1_Weights.DEFAULT.url)
    file.write_bytes(data)
    error = refusal(WeightsError)
    assert error.message.startswith(f"the cached weights {file} cannot be loaded: ")
    assert error.hint == f"if they are damaged, remove them: rm '{file}'"
    assert file.exists()


@pytest.fixture
def hub(weights_file):
    hub = Hub()
    hub.add("nets", weights_file.parent)
    with serving(hub):
        yield hub


@pytest.fixture
def publish(monkeypatch):

    def at(server, name):
        url = f"{server}/nets/resolve/main/{name}"
        monkeypatch.setattr(SqueezeNet1_1_Weights.DEFAULT.value, "url", url)

    return at


def test_a_download_with_the_right_hash_is_loaded_and_kept(hub, publish, weights_file, trained):
    data = weights_file.read_bytes()
    name = f"squeezenet-{hashlib.sha256(data).hexdigest()[:8]}.pth"
    hub.files["nets", MAIN, name] = data
    publish(hub.url, name)
    assert_same(load().module, trained)
    load()
    assert hub.asked == [("GET", name, "")]  # once
    assert cache(name).read_bytes() == data


def test_a_download_with_a_wrong_hash_is_an_error_even_under_auto(hub, publish, weights_file):
    hub.files["nets", MAIN, "squeezenet-00000000.pth"] = weights_file.read_bytes()
    publish(hub.url, "squeezenet-00000000.pth")
    error = refusal(WeightsError)
    assert error.message.startswith(
        "the download of SqueezeNet1_1_Weights.IMAGENET1K_V1 is not what torchvision published: "
    )
    assert error.exit_code == 4
    assert list(cache("x").parent.iterdir()) == []


def test_auto_takes_random_weights_with_a_warning_where_the_server_has_none(hub, publish):
    publish(hub.url, "lost-00000000.pth")
    loaded = load()
    assert_same(loaded.module, seeded(torchvision.models.squeezenet1_1, 0))
    assert (loaded.info.weights, loaded.info.trained) == ("random (seed 0)", False)
    assert loaded.info.warning == (
        "trained weights are neither cached nor reachable (Not Found): the weights are RANDOM"
    )


def test_a_download_has_a_timeout_which_is_not_left_to_the_caller(publish, monkeypatch):
    def download(*_words, **_options):
        seen.append(socket.getdefaulttimeout())
        raise OSError("silence")

    seen: list[float | None] = []
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    publish("http://127.0.0.1:9", "s-00000000.pth")
    assert "(silence)" in load().info.warning
    assert (seen, socket.getdefaulttimeout()) == ([10], None)


def test_pretrained_is_an_error_where_the_server_has_none(hub, publish):
    publish(hub.url, "lost-00000000.pth")
    error = refusal(WeightsError, weights="pretrained")
    assert error.message == (
        "cannot get the weights pretrained of squeezenet1_1: HTTP Error 404: Not Found"
    )
    assert error.hint == "use `weights='random'`, or a file: `weights=FILE`"


def test_a_named_model_is_never_prepared_as_another():
    request = ModelRequest(SMALL, weights="random", device="cpu", like="inception_v3")
    assert load_model(request).info.preprocessing == load(weights="random").info.preprocessing


def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(RequestError) as caught:
        load_model(ModelRequest(SMALL, weights="random", device="cuda:97"))
    assert caught.value.message == "there is no device 'cuda:97' here"


def test_the_catalogue_has_every_torchvision_model():
    names = [entry.name for entry in list_catalog()]
    assert names == sorted(torchvision.models.list_models())
    assert len(names) == 121


@pytest.mark.parametrize(
    ("name", "params", "gflops", "file_mb"),
    # torchvision's documentation: 3.66 and 17.56 GFLOPS, a multiply-add counted as one
    [("resnet34", 21_797_672, 7.33, 87.3), ("vit_b_16", 86_567_656, 35.13, 346.3)],
)
def test_the_catalogue_states_the_facts_of_the_default_weights(name, params, gflops, file_mb):
    entry = list_catalog(name)[0]
    assert (entry.name, entry.task, entry.params) == (name, "classification", params)
    assert round(entry.gflops, 2) == gflops
    assert round(entry.file_mb, 1) == file_mb


def test_the_default_weights_come_first():
    assert list_catalog("resnet50")[0].weights == ("IMAGENET1K_V2", "IMAGENET1K_V1")


def test_the_catalogue_says_which_weights_are_in_the_cache():
    assert list_catalog("resnet18")[0].cached == ()
    cache(ResNet18_Weights.DEFAULT.url).touch()
    assert list_catalog("resnet18")[0].cached == ("IMAGENET1K_V1",)


def test_a_torch_and_torchvision_that_do_not_fit_are_an_error_with_both_versions():
    Path("fake/torchvision").mkdir(parents=True)
    Path("fake/torchvision/__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')\n", encoding="utf-8"
    )
    code = forget("hookcli", "torchvision") + "sys.path.insert(0, 'fake')\n" + COMMAND
    process = start(code, "layers", "resnet18", out="out.txt", err="err.txt")
    process.join()
    installed = [f"{name} {metadata.version(name)}" for name in ("torchvision", "torch")]
    versions = " does not work with ".join(installed)
    assert (process.exitcode, Path("out.txt").read_text()) == (4, "")
    assert Path("err.txt").read_text() == (
        f"error: {versions}: operator torchvision::nms does not exist\n"
        "hint: install matching versions: pip install --upgrade torch torchvision\n"
    )


@pytest.mark.parametrize(
    ("name", "weights", "loaded", "pinned"),
    [
        (SMALL, "auto", "random (seed 7)", "random"),
        (SMALL, "auto", "SqueezeNet1_1_Weights.IMAGENET1K_V1", "IMAGENET1K_V1"),
        (SMALL, "net.pth", "net.pth", "net.pth"),
        ("timm:resnet18", "auto", "timm a1_in1k", "pretrained"),
        ("net.py:make", "auto", "as net.py:make made them (seed 0)", "auto"),
    ],
)
def test_weights_that_were_loaded_are_asked_for_by_their_own_name(name, weights, loaded, pinned):
    source = choose_source(name)(name, nn.Identity)
    assert pin_weights(source, ModelRequest(name, weights), loaded) == ModelRequest(name, pinned)


@pytest.mark.parametrize(
    ("outputs", "names", "is_said"),
    [(5, 5, False), (5, 4, True), (1, 2, False), (2, 1, True), (1, 3, True)],
)
def test_a_last_layer_with_another_number_of_outputs_than_names_is_said(outputs, names, is_said):
    """One output may be the score of the second of two classes."""
    net = nn.Sequential(nn.Conv2d(3, 7, 1), nn.Linear(4, outputs), nn.ReLU())
    note = _note_count(net, ["name"] * names)
    assert bool(note) is is_said
    assert not note or note.endswith(": classes appear as numbers")


class Added(nn.Module):
    def forward(self, x, bias):
        return x + bias


def own_model(module, request=None, extra=None):
    request = request or ModelRequest("own", size=32)
    source = OwnCode("own", lambda: module)
    prepare = source.prepare(request, module)
    info = ModelInfo("own", "own", "none", trained=False, device="cpu", dtype="float32")
    return LoadedModel(info, prepare, module=module.eval(), source=source, extra=extra)


@pytest.mark.parametrize(("shape", "alone"), [((2,), True), ((1, 3), False), ((), False)])
def test_images_run_one_at_a_time_if_another_input_has_a_leading_axis(shape, alone):
    extra = ExtraInputs({"bias": torch.ones(shape)}, as_dict=False, hashes={})
    assert own_model(Added(), extra=extra).inputs.alone is alone


@pytest.mark.parametrize("mode", [True, False])
def test_images_run_one_at_a_time_in_training(mode):
    model = own_model(nn.BatchNorm2d(3))
    model.module.train(mode)
    assert model.inputs.alone is mode


def test_an_own_model_gets_as_many_bands_as_the_pictures_have():
    request = ModelRequest("own", size=32)
    model = own_model(nn.Conv2d(5, 2, 1), request)
    found = model.for_bands(request, 5)
    assert found.prepare.transform is not model.prepare.transform
    assert [len(each) for each in found.normalisation()] == [5, 5]
    assert found.info.preprocessing == found.prepare.words
    assert model.for_bands(request, 3) is model


def test_a_model_that_is_known_keeps_its_bands():
    request = ModelRequest("squeezenet1_1", size=32)
    source = find_model("squeezenet1_1", 0)
    module = nn.Conv2d(3, 2, 1)
    model = LoadedModel(None, source.prepare(request, module), module=module, source=source)
    assert model.knows_input
    assert model.for_bands(request, 5) is model


def test_a_parameter_without_a_shape_is_said_before_gradients():
    with pytest.raises(
        ModelError, match=r"(?m)^own has parameters without a shape, such as weight$"
    ):
        own_model(nn.LazyConv2d(2, 1)).scorer(ScoreRequest(), "predicted")
