"""Models of the user's own code, whatever it does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms import functional as F  # noqa: N812

from hookcli.config import ModelRequest
from hookcli.networks.fingerprint import hash_weights
from hookcli.networks.load import load_model

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


def test_a_file_may_import_its_neighbours():
    write("WIDTH = 6", "code/sizes_beside.py")
    write("from sizes_beside import WIDTH\ndef make(): return nn.Conv2d(3, WIDTH, 1)", "code/a.py")
    assert load("code/a.py:make").module.out_channels == 6


@pytest.mark.parametrize("origin", ["net.py", "ownpackage.seeded"])
def test_weights_made_at_import_are_those_of_the_seed_and_the_generator_stays(origin):
    write(NET)
    write("", "ownpackage/__init__.py")
    write(NET, "ownpackage/seeded.py")
    before = torch.random.get_rng_state()
    weight = load(f"{origin}:net", seed=7).module.conv.weight
    assert torch.equal(weight, conv_of(7, width=3).weight)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_ones_own_weights_are_recorded_by_what_they_are(net):
    one, again, other = (load("net.py:net", "random", seed=seed) for seed in (0, 0, 1))
    assert one.info.sha256 == again.info.sha256 == hash_weights(one.module)
    assert len(one.info.sha256) == 64
    assert other.info.sha256 != one.info.sha256


# --- what cannot be found, and what is no model

FACTORY = "FUNCTION in FILE.py:FUNCTION must be a function or a class that makes an nn.Module"
REFUSED = {
    "nofile.py:make": (2, "there is no file 'nofile.py'", "write FILE.py:FUNCTION"),
    "net.py:mak": (2, "net.py has no 'mak'", "did you mean make?"),
    "nopackage.nets:make": (
        2,
        "there is no Python module 'nopackage.nets' here",
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
def test_what_is_no_model_is_refused_with_what_to_write(inspect, net, name):
    code, error, hint = REFUSED[name]
    ended = inspect(name)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err == f"error: {error}\n" + (f"hint: {hint}\n" if hint else "")
    assert not Path("out").exists()


def test_a_module_that_is_made_already_takes_no_arguments(inspect, net):
    ended = inspect("net.py:net", "--model-arg", "width=3")
    assert ended.code == 2
    assert ended.err == "error: net.py:net is a module already, and takes no --model-arg\n"


def test_pretrained_weights_of_ones_own_model_are_for_its_own_code(inspect, net):
    code, _, err = inspect("net.py:make", "--weights", "pretrained")
    assert code == 4
    assert err == (
        "error: net.py:make has no known pretrained weights\n"
        "hint: let its own code load them, or pass a file: --weights FILE\n"
    )


# --- code that raises

RAISING = {
    "a way out of the file": ("import sys\nsys.exit(0)", "the code in net.py raised SystemExit: 0"),
    "a missing import": (
        "import nosuchpackage",
        "the code in net.py raised ModuleNotFoundError: No module named 'nosuchpackage'",
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


@pytest.mark.parametrize(
    "output",
    [
        *("'text'", "[x, None]", "x.flatten(1).to_sparse()", "torch.complex(x, x).flatten(1)"),
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
