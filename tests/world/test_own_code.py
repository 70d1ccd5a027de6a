"""Models that are not torchvision's: the user's own code, whatever it does, and timm's."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import socket
import struct
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms import functional as F  # noqa: N812

import hookcli
from hookcli.config import GridStyle, ModelRequest
from hookcli.errors import ModelError, RequestError, UnknownModelError, WeightsError
from hookcli.hooks.layers import list_layers
from hookcli.models.fingerprint import hash_weights
from hookcli.models.inputs import PLAIN as AS_THEY_ARE
from hookcli.models.load import build_skeleton, load_model
from hookcli.models.timm import Timm
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import ForwardSettings, run_forward
from hookcli.passes.nan_origin import find_forward_origin

PLAIN = ("--device", "cpu", "--grids", "none", "--size", "8", "-o", "out")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 1)
        self.fc = nn.Linear(width, 4)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


class Shelf:
    @staticmethod
    def make():
        return Net(7)


def make(width=2, **rest):
    return Net(width)


net = Net(3)
number = 5
"""

DOUBLE = """
def double(part):
    if isinstance(part, nn.Conv2d):
        part.weight *= 2
"""


@pytest.fixture
def photo():
    y, x = np.mgrid[:30, :40]
    planes = [(6 * x) % 256, (8 * y) % 256, (x * y) % 256]
    Image.fromarray(np.stack(planes, 2).astype(np.uint8)).save("photo.png")
    return "photo.png"


@pytest.fixture
def net():
    Path("net.py").write_text(NET)
    return "net.py"


@pytest.fixture
def inspect(run, photo):
    return lambda name, *words: run("inspect", name, photo, *PLAIN, *words)


def document(ended):
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def load(name, weights="auto", **options):
    return load_model(ModelRequest(name, weights=weights, device="cpu", **options))


def write(text, name="net.py"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("from torch import nn\nimport torch\n" + text)


def conv_of(seed, width=2):
    """The first layer that the factory makes after the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Conv2d(3, width, 1)


# --- where the model comes from


def test_a_factory_in_a_file_is_run_on_imagenets_preprocessing(inspect, net, photo):
    found = document(inspect("net.py:make", "--format", "json"))
    # a crop of 8 from a short side of 256 / 224 * 8 = 9.1
    picture = F.center_crop(F.resize(Image.open(photo), [9], antialias=True), [8, 8])
    pixels = F.normalize(torch.from_numpy(np.asarray(picture) / 255).permute(2, 0, 1), MEAN, STD)
    with torch.inference_mode():
        expected = conv_of(0)(pixels.float().unsqueeze(0))
    (layer,) = found["layers"]
    assert (layer["call_id"], layer["shape"]) == ("conv", [1, 2, 8, 8])
    assert layer["mean"] == pytest.approx(float(expected.mean()), abs=1e-6)
    assert layer["max"] == pytest.approx(float(expected.max()), abs=1e-6)
    assert (found["model"]["name"], found["model"]["task"]) == ("net.py:make", "own")


@pytest.mark.parametrize(
    ("attribute", "width"), [("make", 2), ("Net", 2), ("net", 3), ("Shelf.make", 7)]
)
def test_a_function_a_class_a_module_and_what_is_inside_a_class_all_will_do(net, attribute, width):
    assert load(f"net.py:{attribute}").module.conv.out_channels == width


def test_a_file_of_a_model_may_be_in_any_folder():
    write(NET, "some where/net.py")
    assert load("some where/net.py:make").module.conv.out_channels == 2
    assert load(f"{Path.cwd()}/some where/net.py:make").module.conv.out_channels == 2


def test_a_file_may_import_its_neighbours():
    write("WIDTH = 6", "code/sizes_beside.py")
    write("from sizes_beside import WIDTH\ndef make(): return nn.Conv2d(3, WIDTH, 1)", "code/a.py")
    assert load("code/a.py:make").module.out_channels == 6


def test_a_module_of_a_package_in_the_working_folder_is_found():
    write("", "ownpackage/__init__.py")
    write(NET, "ownpackage/nets.py")
    assert load("ownpackage.nets:make").module.conv.out_channels == 2


def test_an_installed_package_is_found():
    loaded = load("torchvision.models.squeezenet:squeezenet1_1", arguments=(("num_classes", "3"),))
    assert loaded.module.classifier[1].out_channels == 3


@pytest.mark.parametrize(("word", "width"), [("5", 5), ("(5)", 5), ("0x5", 5)])
def test_a_model_argument_reaches_the_factory(inspect, net, word, width):
    found = document(inspect("net.py:make", "--format", "json", "--model-arg", f"width={word}"))
    assert found["layers"][0]["shape"] == [1, width, 8, 8]
    assert f"width={word}" in found["command"]


def test_the_factory_is_called_after_the_seed(net):
    for seed in (0, 7):
        weight = load("net.py:make", seed=seed).module.conv.weight
        assert torch.equal(weight, conv_of(seed).weight)


@pytest.mark.parametrize("place", ["net.py", "ownpackage.seeded"])
def test_weights_made_at_import_are_those_of_the_seed_and_the_generator_stays(place):
    write(NET)
    write("", "ownpackage/__init__.py")
    write(NET, "ownpackage/seeded.py")
    before = torch.random.get_rng_state()
    weight = load(f"{place}:net", seed=7).module.conv.weight
    assert torch.equal(weight, conv_of(7, width=3).weight)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_hash_of_weights_is_of_names_dtypes_shapes_and_bytes():
    part = nn.Conv2d(1, 2, 1)
    part.load_state_dict(
        {"weight": torch.tensor([1.5, -2]).view(2, 1, 1, 1), "bias": torch.ones(2)}
    )
    expected = b"dict 2\n'weight'\ntorch.float32 (2, 1, 1, 1)\n" + struct.pack("<2f", 1.5, -2)
    expected += b"'bias'\ntorch.float32 (2,)\n" + struct.pack("<2f", 1, 1)
    assert hash_weights(part) == hashlib.sha256(expected).hexdigest()
    assert hash_weights(part.to(memory_format=torch.channels_last)) == hash_weights(part)


@pytest.mark.parametrize("random", ["auto", "random"])
def test_ones_own_weights_are_recorded_by_what_they_are(net, random):
    one, again, other = (load("net.py:net", random, seed=seed) for seed in (0, 0, 1))
    assert one.info.sha256 == again.info.sha256 == hash_weights(one.module)
    assert len(one.info.sha256) == 64
    assert other.info.sha256 != one.info.sha256


FORMS = {
    "quantized": lambda k: torch.quantize_per_tensor(torch.arange(4.0) * k, 0.5, 3, torch.quint8),
    "sparse": lambda k: (torch.eye(3) * k).to_sparse(),
    "float8": lambda k: (torch.arange(4.0) * k).to(torch.float8_e4m3fn),
    "half": lambda k: (torch.arange(4.0) * k).bfloat16(),
    "complex32": lambda k: (torch.arange(4.0) * k).to(torch.complex32),
    "conjugate": lambda k: (torch.arange(4.0) * k * 1j).conj(),
    "one number": torch.tensor,
    "no values": lambda k: torch.empty(0, k),
    "turned": lambda k: (torch.arange(6) * k).view(2, 3).t(),
    "packed": lambda k: (torch.arange(4.0) * k, None),
}


@pytest.mark.filterwarnings("ignore:.*quantize", "ignore:ComplexHalf")
@pytest.mark.parametrize("name", FORMS)
def test_values_of_every_form_have_a_hash_and_others_another(name):
    class Holder(nn.Module):
        k = 1

        def get_extra_state(self):
            return FORMS[name](self.k)

    holder = Holder()
    first = hash_weights(holder)
    assert len(first) == 64
    assert hash_weights(holder) == first
    holder.k = 2
    assert hash_weights(holder) not in (first, "")


@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_quantized_modules_have_a_hash_of_their_packed_weights():
    torch.manual_seed(0)
    one, other = (
        torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
        for _ in range(2)
    )
    assert len({hash_weights(one), hash_weights(one), hash_weights(other)} - {""}) == 2


class Unheard(nn.Module):
    def get_extra_state(self):
        return object()


class Raising(nn.Module):
    def state_dict(self, *_args, **_options):
        raise KeyError("no")


@pytest.mark.parametrize(
    "module", [nn.LazyLinear(4), nn.Linear(2, 2, device="meta"), Unheard(), Raising()]
)
def test_weights_of_which_there_is_no_hash_have_an_empty_one(module):
    assert hash_weights(module) == ""


@pytest.mark.gpu
def test_weights_on_a_gpu_have_the_hash_of_the_same_on_the_host():
    part = nn.Conv2d(3, 2, 1)
    expected = hash_weights(part)
    assert hash_weights(part.cuda()) == expected


def interrupt(*_args, **_words):
    raise KeyboardInterrupt


def test_a_run_of_weights_made_at_import_goes_on_to_the_same_bytes(inspect, net, monkeypatch):
    assert inspect("net.py:net").code == 0
    whole = {file: file.read_bytes() for file in Path("out").rglob("*") if file.is_file()}
    shutil.rmtree("out")
    with monkeypatch.context() as patch:
        patch.setattr("hookcli.run.pipeline.close_run", interrupt)
        assert inspect("net.py:net").code == 130
    ended = inspect("net.py:net", "--resume")
    assert ended.code == 0, ended.err
    assert {file: file.read_bytes() for file in Path("out").rglob("*") if file.is_file()} == whole


def test_other_weights_of_ones_own_model_are_named_by_diff(run, inspect, net):
    assert inspect("net.py:make", "--sketch").code == 0
    write(NET.replace("Net(width)", "Net(width).requires_grad_(False).apply(double)") + DOUBLE)
    ended = run("inspect", "net.py:make", "photo.png", *PLAIN[:-1], "other", "--sketch")
    assert ended.code == 0
    told = json.loads(run("diff", "out", "other", "--format", "json").out)
    assert [each["name"] for each in told["changed"]] == ["model sha256"]


def test_the_weights_are_said_to_be_as_they_were_made(inspect, net):
    found = inspect("net.py:make", "--format", "json")
    line = "warning: the weights are as net.py:make made them, trained or not"
    assert line in found.err.splitlines()
    assert document(found)["model"]["weights"] == "as net.py:make made them (seed 0)"


def test_the_layers_of_ones_own_model_are_listed(run, net):
    rows = document(run("layers", "net.py:make", "--size", "8", "--format", "json"))["layers"]
    assert [(row["call_id"], row["shape"]) for row in rows] == [
        ("(model)", [1, 4]),
        ("conv", [1, 2, 8, 8]),
        ("fc", [1, 4]),
    ]


def test_a_name_for_the_folder_is_made_of_the_models_name(run, net, photo):
    code, _, err = run("inspect", "net.py:make", photo, *PLAIN[:-2])
    assert code == 0, err
    assert [file.name for file in Path("hookcli-runs").rglob("manifest.json")] == ["manifest.json"]


# --- what cannot be found, and what is no model

FACTORY = "FUNCTION in FILE.py:FUNCTION must be a function or a class that makes an nn.Module"
REFUSED = {
    "nofile.py:make": (2, "there is no file 'nofile.py'", "write FILE.py:FUNCTION"),
    "net.py:mak": (2, "net.py has no 'mak'", "did you mean make?"),
    "net.py:zzzzzz": (2, "net.py has no 'zzzzzz'", "write FILE.py:FUNCTION"),
    "net.py:": (2, "net.py has no ''", "write FILE.py:FUNCTION"),
    "net.py:Shelf.mak": (2, "net.py has no 'Shelf.mak'", "did you mean make?"),
    "nopackage.nets:make": (
        2,
        "there is no Python module 'nopackage.nets' here",
        "write PACKAGE.MODULE:FUNCTION, FILE.py:FUNCTION or timm:NAME",
    ),
    "torch.nothing:make": (
        2,
        "there is no Python module 'torch.nothing' here",
        "write PACKAGE.MODULE:FUNCTION, FILE.py:FUNCTION or timm:NAME",
    ),
    ":make": (
        2,
        "there is no Python module '' here",
        "write PACKAGE.MODULE:FUNCTION, FILE.py:FUNCTION or timm:NAME",
    ),
    "..net:make": (
        2,
        "there is no Python module '..net' here",
        "write PACKAGE.MODULE:FUNCTION, FILE.py:FUNCTION or timm:NAME",
    ),
    "net.py:number": (4, "net.py:number is of type int: neither a module nor a factory", FACTORY),
    "net.py:Shelf": (4, "net.py:Shelf returned a Shelf, not an nn.Module", FACTORY),
    "math:sqrt": (
        4,
        "math:sqrt raised TypeError: math.sqrt() takes exactly one argument (0 given)",
        "it runs when the model is built; try it in Python first",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("command", ["inspect", "layers"])
def test_what_is_no_model_is_refused_with_what_to_write(run, net, photo, name, command):
    code, error, hint = REFUSED[name]
    ended = run(command, name, *([photo, *PLAIN] if command == "inspect" else []))
    assert (ended.code, ended.out) == (code, "")
    assert ended.err == f"error: {error}\n" + (f"hint: {hint}\n" if hint else "")
    assert not Path("out").exists()


def test_a_module_that_is_made_already_takes_no_arguments(inspect, net):
    ended = inspect("net.py:net", "--model-arg", "width=3")
    assert ended.code == 2
    assert ended.err == "error: net.py:net is a module already, and takes no --model-arg\n"


def test_an_argument_that_the_factory_does_not_know_ends_with_4(inspect, net):
    code, _, err = inspect("net.py:Net", "--model-arg", "colour=red")
    assert code == 4
    assert err.startswith("error: net.py:Net raised TypeError: ")


def test_pretrained_weights_of_ones_own_model_are_for_its_own_code(inspect, net):
    code, _, err = inspect("net.py:make", "--weights", "pretrained")
    assert code == 4
    assert err == (
        "error: net.py:make has no known pretrained weights\n"
        "hint: let its own code load them, or pass a file: --weights FILE\n"
    )


# --- code that raises

ODD = "class Odd(Exception): pass\n"
RAISING = {
    "an error of its own": (
        ODD + "def make(): raise Odd('no luck')",
        "net.py:make raised Odd: no luck",
    ),
    "an error without text": (ODD + "def make(): raise Odd", "net.py:make raised Odd: Odd"),
    "a division by zero": (
        "def make(): 1 / 0",
        "net.py:make raised ZeroDivisionError: division by zero",
    ),
    "a way out": ("import sys\ndef make(): sys.exit('bye')", "net.py:make raised SystemExit: bye"),
    "a way out of the file": ("import sys\nsys.exit(0)", "the code in net.py raised SystemExit: 0"),
    "a stop": (
        "def make(): raise StopIteration",
        "net.py:make raised StopIteration: StopIteration",
    ),
    "many lines": (
        "def make(): raise ValueError('one\\ntwo')",
        "net.py:make raised ValueError: one",
    ),
    "no Python": (
        "def make(:",
        "the code in net.py raised SyntaxError: invalid syntax (net.py, line 3)",
    ),
    "at import": ("raise KeyError('home')", "the code in net.py raised KeyError: 'home'"),
    "a missing import": (
        "import nosuchpackage",
        "the code in net.py raised ModuleNotFoundError: No module named 'nosuchpackage'",
    ),
    "a lazy attribute": (
        "def __getattr__(name): raise RuntimeError('needs more')",
        "the code in net.py raised RuntimeError: needs more",
    ),
}


@pytest.mark.parametrize("kind", RAISING)
def test_whatever_the_code_raises_ends_with_4_and_one_line(inspect, kind):
    text, error = RAISING[kind]
    write(text)
    code, out, err = inspect("net.py:make")
    assert (code, out) == (4, "")
    assert err.splitlines()[0] == f"error: {error}"
    assert err.splitlines()[1] == "hint: it runs when the model is built; try it in Python first"


def test_a_package_that_misses_an_import_is_not_said_to_be_missing():
    write("import nosuchpackage", "ownbroken/__init__.py")
    with pytest.raises(ModelError) as caught:
        load("ownbroken:make")
    assert caught.value.message == (
        "the code in ownbroken raised ModuleNotFoundError: No module named 'nosuchpackage'"
    )


def test_an_interrupt_inside_the_code_is_an_interrupt(inspect):
    write("def make(): raise KeyboardInterrupt")
    assert inspect("net.py:make").code == 130


def test_a_model_without_values_ends_with_4(inspect):
    write("def make(): return nn.Conv2d(3, 2, 1, device='meta')")
    code, _, err = inspect("net.py:make")
    assert code == 4
    assert err.startswith("error: ")
    assert "meta" in err


def test_a_forward_that_raises_anything_ends_with_4_and_leaves_what_was_seen(inspect):
    write(
        ODD + "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.second = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)\n"
        "    def forward(self, x):\n"
        "        x = self.first(x)\n"
        "        raise Odd('half way')\n"
    )
    code, out, err = inspect("net.py:Net")
    assert (code, out) == (4, "")
    assert err.splitlines()[-2:] == [
        "error: the model failed in (model) (Net): half way",
        "hint: it was given x 1x3x8x8; the last observed layers were first",
    ]
    assert sorted(file.name for file in Path("out").iterdir()) == [
        "layers.csv",
        "parts",
        "run.json",
    ]
    rows = Path("out/layers.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows] == ["call_id", "first"]


def test_a_forward_that_leaves_the_program_ends_with_4(inspect):
    write("class Net(nn.Module):\n    def forward(self, x): raise SystemExit(0)\n")
    code, _, err = inspect("net.py:Net", "--layers", "all")
    assert code == 4
    assert err.splitlines()[-2] == "error: the model failed in (model) (Net): 0"
    assert not Path("out/manifest.json").exists()


def test_a_model_for_one_colour_fails_with_the_shapes_that_tell_why(inspect):
    write("def make(): return nn.Sequential(nn.Conv2d(1, 2, 1))")
    code, _, err = inspect("net.py:make")
    assert code == 4
    assert err.splitlines()[-1] == (
        "hint: it was given input 1x3x8x8; its weight is 2x1x1x1; "
        "a model of grey pictures: --mean M and --std S, one number each"
    )


@pytest.mark.parametrize(
    "output",
    [
        "None",
        "'text'",
        "{'a': [x]}",
        "[x, None]",
        "x.to_sparse()",
        "x.flatten(1).to_sparse()",
        "torch.complex(x, x).flatten(1)",
        "x.flatten(1).int()",
        "x.mean((2, 3)) * float('nan')",
    ],
)
def test_whatever_a_model_returns_the_run_ends_with_0(inspect, output):
    write(
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 2, 1)\n"
        f"    def forward(self, x):\n        x = self.conv(x)\n        return {output}\n"
    )
    ended = inspect("net.py:Net", "--layers", "all")
    assert ended.code == 0, ended.err


def test_what_the_code_prints_stays_out_of_the_data(inspect):
    write(
        "print('at import')\n"
        "class Net(nn.Conv2d):\n"
        "    def __init__(self):\n        super().__init__(3, 2, 1)\n        print('made')\n"
        "    def forward(self, x):\n        print('runs')\n        return super().forward(x)\n"
    )
    ended = inspect("net.py:Net", "--format", "json")
    assert document(ended)["layers"][0]["shape"] == [1, 2, 8, 8]
    assert [line for line in ended.err.splitlines() if line in ("at import", "made", "runs")] == [
        "at import",
        "made",
        "runs",
    ]


# --- weights from a file


def weights(width=2, **changes):
    state = {
        "conv.weight": torch.full((width, 3, 1, 1), 2.0),
        "conv.bias": torch.zeros(width),
        "fc.weight": torch.ones(4, width),
        "fc.bias": torch.zeros(4),
    }
    torch.save({k: v for k, v in (state | changes).items() if v is not None}, "w.pth")


def test_weights_from_a_file_go_into_ones_own_model(inspect, net):
    weights()
    ended = inspect("net.py:make", "--weights", "w.pth", "--format", "json")
    model = document(ended)["model"]
    assert (model["weights"], model["trained"], model["warning"]) == ("w.pth", True, "")
    assert "warning" not in ended.err
    assert load("net.py:make", "w.pth").module.conv.weight.unique().tolist() == [2.0]


def test_a_missing_classifier_stays_as_the_factory_made_it(net):
    weights(**{"fc.weight": None, "fc.bias": None})
    loaded = load("net.py:make", "w.pth", seed=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        nn.Conv2d(3, 2, 1)
        expected = nn.Linear(2, 4)
    assert torch.equal(loaded.module.fc.weight, expected.weight)
    assert loaded.module.conv.weight.unique().tolist() == [2.0]
    assert not loaded.info.trained
    assert loaded.info.warning == ("fc.weight, fc.bias are not in w.pth: they are RANDOM (seed 3)")


def test_weights_that_do_not_fit_ones_own_model_end_with_4(inspect, net):
    weights(5)
    code, _, err = inspect("net.py:make", "--weights", "w.pth")
    assert code == 4
    assert err.splitlines()[0] == (
        "error: w.pth does not fit the model: 3 of a different shape (conv.weight is 5x3x1x1 "
        "and not "
        "2x3x1x1, conv.bias is 5 and not 2, fc.weight is 4x5 and not 4x2)"
    )


def test_weights_whose_last_entry_is_a_single_number_are_loaded():
    write("def make(): return nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))")
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    assert list(model.state_dict())[-1] == "1.num_batches_tracked"
    torch.save(model.state_dict(), "w.pth")
    loaded = load("net.py:make", "w.pth").module.state_dict()
    assert torch.equal(loaded["0.weight"], model.state_dict()["0.weight"])


def test_random_weights_of_ones_own_model_are_those_of_its_factory(net):
    loaded = load("net.py:make", "random")
    assert torch.equal(loaded.module.conv.weight, conv_of(0).weight)
    assert not loaded.info.trained


# --- timm

SMALL = "test_resnet"  # timm's own toy: 160 x 160, half a million parameters


def offline(*_args, **_options):
    raise OSError("the network is not to be touched")


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """No connection, no proxy, an empty cache; what is set for the process is set back."""
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


def test_a_timm_model_with_weights_from_a_file_names_its_classes(tmp_path):
    torch.save(timm_seeded(SMALL).state_dict(), tmp_path / "mine.pth")
    categories = load(f"timm:{SMALL}", str(tmp_path / "mine.pth")).categories
    assert (len(categories), categories[282]) == (1000, "tiger cat")


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
        ({"std": (0.1, 0.2, 0.3)}, {"std": (0.1, 0.2, 0.3)}),
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
    for size in (64, 160, 224):
        for resize in range(size, 2 * size, 3):
            request = ModelRequest("", size=size, resize=resize)
            transform = Timm("", nn.Identity).prepare(request, module).transform
            assert vars(transform)["transforms"][0].size == resize, (size, resize)


def test_a_timm_model_is_inspected_from_the_command_line(run, photo):
    words = ("--weights", "random", "--device", "cpu", "--grids", "none", "--size", "32")
    ended = run(
        "inspect", f"timm:{SMALL}", photo, *words, "--layers", "conv[1]", "--format", "json"
    )
    (layer,) = document(ended)["layers"]
    assert layer["shape"] == [1, 16, 16, 16]
    assert len(document(ended)["images"][0]["predictions"]) == 5


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


@pytest.mark.parametrize("make", [load_model, build_skeleton])
def test_an_unknown_tag_of_a_timm_model_is_answered_with_near_ones(make):
    with pytest.raises(UnknownModelError) as caught:
        make(ModelRequest("timm:resnet18.fb_ssl_yfcc100m", weights="random"))
    assert caught.value.message == "no model is called 'timm:resnet18.fb_ssl_yfcc100m'"
    assert "timm:resnet18.fb_ssl_yfcc100m_ft_in1k" in caught.value.hint


def test_an_argument_that_timm_does_not_know_is_refused():
    with pytest.raises(RequestError) as caught:
        load(f"timm:{SMALL}", "random", arguments=(("colour", "red"),))
    assert caught.value.message.startswith(f"timm:{SMALL} cannot be built with colour=red: ")


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


def test_records_of_a_timm_model_are_those_of_independent_clones():
    model = timm_seeded("test_vit")
    pixels = torch.randn(1, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    clones = {}

    def remember(path, output):
        clones.setdefault(path, []).append(output.detach().clone().double().numpy())

    handles = [
        m.register_forward_hook(lambda _m, _i, out, path=path: remember(path, out))
        for path, m in model.named_modules()
        if not list(m.children())
    ]
    model(pixels)
    for handle in handles:
        handle.remove()
    with hookcli.capture(model, layers="leaf") as captured:
        model(pixels)
    assert {record.call.layer.module_path for record in captured.records} == set(clones)
    for record in captured.records:
        values = clones[record.call.layer.module_path][record.call.call_index]
        assert record.stats.shape == values.shape
        assert (record.stats.min, record.stats.max) == (values.min(), values.max())
        room = 1e-5 * max(abs(values.mean()), values.std())
        assert record.stats.mean == pytest.approx(values.mean(), abs=room)
        assert record.stats.std == pytest.approx(values.std(), abs=room)


def test_offline_timms_weights_are_random_before_long_and_said_to_be(no_network):
    begin = time.monotonic()
    loaded = load(f"timm:{SMALL}")
    assert time.monotonic() - begin < 5
    assert torch.equal(next(loaded.module.parameters()), next(timm_seeded(SMALL).parameters()))
    assert (loaded.info.weights, loaded.info.trained) == ("random (seed 0)", False)
    assert loaded.info.warning.startswith("trained weights are neither cached nor reachable (")
    assert loaded.info.warning.endswith("): the weights are RANDOM")


def test_offline_timms_weights_by_name_end_with_4(no_network, run, photo):
    code, out, err = run("inspect", f"timm:{SMALL}", photo, *PLAIN, "--weights", "pretrained")
    assert (code, out) == (4, "")
    error, hint = err.splitlines()
    assert error.startswith(f"error: cannot get the weights pretrained of timm:{SMALL}: ")
    assert hint == "hint: use --weights random, or a file: --weights FILE"


UNTRAINED = "timm:ghostnet_050"


def test_a_timm_model_without_trained_weights_is_random_and_said_to_be(no_network):
    info = load(UNTRAINED).info
    assert (info.weights, info.trained) == ("random (seed 0)", False)
    assert info.warning == (
        "timm has no trained weights for timm:ghostnet_050: the weights are RANDOM"
    )


def test_trained_weights_that_timm_does_not_have_are_an_error(no_network):
    with pytest.raises(WeightsError) as caught:
        load(UNTRAINED, "pretrained")
    assert caught.value.message.startswith("timm:ghostnet_050 has no pretrained weights: ")


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
    assert loaded.categories[281].startswith("tabby")


@pytest.mark.parametrize("weights", ["auto", "pretrained"])
def test_another_number_of_classes_leaves_timms_classifier_random_and_says_so(
    no_network, trained, weights
):
    model, overlay = trained
    loaded = load(f"timm:{SMALL}", weights, arguments=(overlay, ("num_classes", "7")))
    assert loaded.module.fc.out_features == 7
    assert torch.equal(next(loaded.module.parameters()), next(model.parameters()))
    assert not loaded.info.trained
    assert loaded.info.warning == (
        "trained weights have 1000 classes, and 7 were asked for: the classifier is RANDOM (seed 0)"
    )
    assert loaded.categories == ()
    again = load(f"timm:{SMALL}", weights, arguments=(overlay, ("num_classes", "7")))
    assert torch.equal(loaded.module.fc.weight, again.module.fc.weight)


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


# Models that the watcher of the first forward must not break


class UnderInference(nn.Module):
    """Runs itself under inference mode: its tensors have no counter of writes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    @torch.inference_mode()
    def forward(self, x):
        return self.conv(x)


class HoldsScripted(nn.Module):
    """A part is scripted, and takes no hook."""

    def __init__(self):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.scripted = torch.jit.script(nn.Sequential(nn.Conv2d(3, 2, 1)))
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(self.scripted(x).mean((2, 3)))


def test_a_model_that_runs_under_inference_mode_is_watched_without_counters():
    forward = ForwardSettings(
        EagerRunner(UnderInference().eval(), list_layers(UnderInference())), GridStyle("none")
    )
    done = run_forward(forward, ["a"], torch.ones(1, 3, 2, 2), first_image=True)
    (result,) = done.results
    assert {record.call.id for record in result.records} == {"(model)", "conv"}
    assert done.overwritten == {}


def test_a_scripted_part_that_is_not_selected_is_left_alone():
    model = HoldsScripted().eval()
    fc = [layer for layer in list_layers(model) if layer.module_path == "fc"]
    forward = ForwardSettings(EagerRunner(model, fc), GridStyle("none"))
    (result,) = run_forward(forward, ["a"], torch.ones(1, 3, 2, 2), first_image=True).results
    assert [record.call.id for record in result.records] == ["fc"]
    assert find_forward_origin(model, AS_THEY_ARE, torch.full((1, 3, 2, 2), math.nan)) == {
        "NaN": "the input holds NaN"
    }
