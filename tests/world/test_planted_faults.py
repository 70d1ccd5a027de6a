"""Faults planted in real networks: tensors, sketches and ``compare`` all find the right layer.

The expected first layer follows from the code of the network, not from hookcli's output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torchvision import models

from hookcli.__main__ import _run

PLAIN = ("--device", "cpu", "--layers", "all", "--seed", "0", "-q")
SIZES = {
    "squeezenet1_1": ("--size", "64"),
    "mobilenet_v3_small": ("--size", "64"),
    "resnet18": ("--size", "64"),
    "densenet121": ("--size", "64"),
    "swin_t": ("--size", "64"),
    "vit_b_16": ("--size", "64", "--model-arg", "image_size=64"),
    "convnext_tiny": ("--size", "64"),
    "efficientnet_b0": ("--size", "64"),
    "vgg11_bn": ("--size", "64"),
}


class Fault(NamedTuple):
    model: str
    entry: str
    what: str
    first: str


def weight(model, module, first=""):
    return Fault(model, f"{module}.weight", "one weight, 1e-3 more", first or module)


def mean(model, module):
    return Fault(model, f"{module}.running_mean", "the means of a norm, shifted", module)


def channel(model, module):
    return Fault(model, f"{module}.weight", "a channel, pruned", module)


# The weights of an attention's projection are used by the attention itself: it is the first that
# differs.
FAST = (
    weight("squeezenet1_1", "features.0"),
    channel("squeezenet1_1", "features.12.squeeze"),
)
SLOW = (
    weight("mobilenet_v3_small", "features.12.0"),
    channel("mobilenet_v3_small", "classifier.0"),
    mean("mobilenet_v3_small", "features.6.block.1.1"),
    mean("resnet18", "layer2.0.bn1"),
    weight("resnet18", "layer4.1.conv2"),
    weight("mobilenet_v3_small", "features.0.0"),
    weight("resnet18", "layer2.0.downsample.0"),
    channel("resnet18", "layer3.0.conv1"),
    weight("mobilenet_v3_small", "features.4.block.2.fc1"),
    weight("densenet121", "features.conv0"),
    weight("densenet121", "features.denseblock4.denselayer16.conv2"),
    mean("densenet121", "features.transition2.norm"),
    channel("densenet121", "features.denseblock3.denselayer12.conv1"),
    weight("swin_t", "features.7.1.mlp.3"),
    weight("swin_t", "features.5.2.attn.proj", "features.5.2.attn"),
    channel("swin_t", "features.5.0.mlp.3"),
    weight("vit_b_16", "conv_proj"),
    weight("vit_b_16", "encoder.layers.encoder_layer_5.mlp.0"),
    channel("vit_b_16", "encoder.layers.encoder_layer_3.mlp.0"),
    weight("convnext_tiny", "features.0.0"),
    weight("convnext_tiny", "features.5.4.block.0"),
    weight("efficientnet_b0", "features.5.1.block.1.0"),
    mean("efficientnet_b0", "features.8.1"),
    weight("vgg11_bn", "features.25"),
    mean("vgg11_bn", "features.12"),
)


def plant(state, fault):
    """Return a copy of the state dict with the fault, at a weight in the middle of a kernel."""
    other = {name: value.clone() for name, value in state.items()}
    value = other[fault.entry]
    if fault.what.startswith("one weight"):
        value[(len(value) // 2, 0, *(side // 2 for side in value.shape[2:]))] += 1e-3
    elif fault.what.startswith("the means"):
        value += 0.01
    else:
        value[len(value) // 2] = 0
    return other


def command(*words, code=0):
    before, sys.argv = sys.argv, ["hookcli", *map(str, words)]
    try:
        assert _run() == code
    finally:
        sys.argv = before


@pytest.fixture(scope="module")
def plain(tmp_path_factory, request):
    """The sound network: its weights, a run with tensors and sketches, and its golden file, once
    for all its faults."""
    made = {}

    def make(name):
        if name not in made:
            home = tmp_path_factory.mktemp(name)
            torch.manual_seed(0)
            arguments = {"image_size": 64} if name == "vit_b_16" else {}
            state = models.get_model(name, weights=None, **arguments).state_dict()
            torch.save(state, home / "plain.pt")
            record(name, home / "plain.pt", home / "run")
            command("golden", home / "run", "-o", home / "golden.json")
            made.clear()  # tests of one network follow each other
            made[name] = home, state
        return made[name]

    return make


def record(name, file, out):
    words = ("--weights", file, *SIZES[name], *PLAIN, "--grids", "none", "--top-images", "0")
    command("inspect", name, PHOTO, *words, "--save", "tensors", "--sketch", "-o", out)


PHOTO = Path(__file__).parents[2] / "sample_images" / "cat.png"


@pytest.mark.parametrize(
    "fault",
    [
        *(pytest.param(fault) for fault in FAST),
        *(pytest.param(fault, marks=pytest.mark.slow) for fault in SLOW),
    ],
    ids=lambda fault: f"{fault.model}, {fault.entry}: {fault.what}",
)
def test_a_fault_is_found_at_its_layer(fault, plain, run):
    assert find(fault, plain, run) == dict.fromkeys(WAYS, (7, fault.first))


WAYS = ("tensors", "sketches", "both", "compare")


def find(fault, plain, run, *more):
    home, state = plain(fault.model)
    torch.save(plant(state, fault), "fault.pt")
    if not Path("golden.json").exists():
        record(fault.model, "fault.pt", "run")
        command("golden", "run", "-o", "golden.json")
    words = (fault.model, PHOTO, *SIZES[fault.model], *PLAIN, "--weights", home / "plain.pt")
    run("models", "none")  # takes in what was printed so far
    asked = (
        ("diff", home / "run", "run"),
        ("diff", home / "golden.json", "golden.json"),
        ("diff", home / "golden.json", "run"),
        ("compare", *words, "--against", "weights=fault.pt"),
    )
    ended = [run(*each, "--format", "json", *more) for each in asked]
    firsts = [(each.code, json.loads(each.out)["first"]) for each in ended]
    return dict(zip(WAYS, firsts, strict=True))


def test_the_hash_of_the_file_reveals_a_weight_that_only_meets_zeros(run):
    """A corner of the last kernels: on 2 x 2 places it meets one value, which the ReLU before has
    made 0."""
    torch.manual_seed(0)
    state = models.resnet18(weights=None).state_dict()
    torch.save(state, "plain.pt")
    state["layer4.1.conv2.weight"][256, 0, 0, 0] += 1e-3
    torch.save(state, "fault.pt")
    words = ("resnet18", PHOTO, *SIZES["resnet18"], *PLAIN, "--weights", "plain.pt")
    ended = run("compare", *words, "--against", "weights=fault.pt", "--format", "json")
    document = json.loads(ended.out)
    assert (ended.code, max(row["max_abs"] for row in document["layers"])) == (0, 0.0)
    assert {each["name"] for each in document["changed"]} == {"model weights", "model sha256"}


# A block that begins with its ReLU, and adds what came in: in place, the ReLU writes over what is
# added.
BLOCKS = """
from torch import nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock


class Block(BasicBlock):
    '''As of a network whose activations come first.'''

    def forward(self, x):
        out = self.conv1(self.relu(x))
        out = self.conv2(self.bn2(out).relu())
        return out + (x if self.downsample is None else self.downsample(x))


def make(inplace=False):
    model = ResNet(Block, [2, 2, 1, 1])
    for module in model.modules():
        if isinstance(module, Block):
            module.relu = nn.ReLU()
            nn.init.normal_(module.bn2.running_mean)
    model.layer2[1].relu.inplace = inplace
    return model


def wrong():
    return make(inplace=True)
"""


def test_a_wrong_in_place_relu_is_found_at_the_block_that_adds(run):
    """The ReLU gives the same, and so do the convolutions after it: the sum is the first that
    differs."""
    Path("blocks.py").write_text(BLOCKS)
    words = (PHOTO, *PLAIN, "--size", "64")
    more = ("--grids", "none", "--save", "tensors", "--sketch")
    command("inspect", "blocks.py:make", *words, *more, "-o", "plain")
    command(
        "inspect", "blocks.py:make", *words, *more, "--model-arg", "inplace=True", "-o", "wrong"
    )
    run("models", "none")
    model = ("blocks.py:make", *words, "--against", "model=blocks.py:wrong")
    for asked in (("diff", "plain", "wrong"), ("compare", *model)):
        ended = run(*asked, "--format", "json")
        assert (ended.code, json.loads(ended.out)["first"]) == (7, "layer2.1")


OTHERS = (
    "mobilenet_v3_small",
    "densenet121",
    "swin_t",
    "vit_b_16",
    "convnext_tiny",
    "efficientnet_b0",
    "vgg11_bn",
)
ALL = [
    "resnet18",
    *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS),
]


def compared(run, name, *words):
    plain = (*SIZES[name], *PLAIN, "--weights", "random", "--format", "json")
    ended = run("compare", name, PHOTO, *plain, *words)
    return ended.code, json.loads(ended.out)


@pytest.mark.parametrize("name", ALL)
def test_channels_last_is_no_difference(run, name):
    code, document = compared(run, name, "--against", "channels-last")
    assert (code, document["first"]) == (0, None)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("against", ["repeat", "batch=3"])
def test_a_second_run_and_a_batch_are_no_difference(run, name, against):
    code, document = compared(run, name, "--against", against, "--blame")
    assert (code, document["first"], document["culprits"]) == (0, None, [])


@pytest.mark.parametrize("name", ALL)
def test_bfloat16_passes_at_its_own_tolerance_and_fails_at_that_of_float32(run, name):
    """The pixels are rounded already, so the first layer is the first that differs."""
    code, document = compared(run, name, "--against", "dtype=bfloat16")
    assert (code, document["first"]) == (0, None)
    assert {row["tolerance"] for row in document["layers"]} == {0.05}
    code, document = compared(run, name, "--against", "dtype=bfloat16", "--rtol", "1e-5")
    first = min(document["layers"], key=lambda row: row["order"])["call_id"]
    assert (code, document["first"]) == (7, first)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet18", "layer3.0.conv1"),
        pytest.param("swin_t", "features.5.0.mlp.0", marks=pytest.mark.slow),
    ],
)
def test_one_channel_that_is_zeroed_on_the_way_is_found(run, name, layer):
    code, document = compared(run, name, "--against", f"edit={layer}{{7}}:zero")
    assert (code, document["first"]) == (7, layer)


def test_the_smallest_share_of_weights_that_is_pruned_is_found(run):
    code, document = compared(run, "resnet18", "--against", "prune=layer4.1.conv2=0.01")
    assert (code, document["first"]) == (7, "layer4.1.conv2")


# No false alarm


def test_no_repeated_run_is_a_false_alarm(run):
    words = ("tests.toy_models:Squeezed", PHOTO, "--size", "64", *PLAIN, "--weights", "random")
    command("golden", *words, "-o", "golden.json")
    assert run("golden", *words, "-o", "again.json").code == 0
    assert run("diff", "golden.json", "again.json").code == 0
    assert run("compare", *words, "--against", "threads=2").code == 0
