"""Training and evaluation mode: hookcli reports switched layers, and restores the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.models import GoogLeNetOutputs, InceptionOutputs

from hookcli.cli.output.wording import to_words
from hookcli.config import ModelRequest, ScoreRequest
from hookcli.networks.load import load_model
from hookcli.networks.mode import set_mode
from hookcli.networks.scores import score_output
from hookcli.networks.tasks import read_predictions
from hookcli.passes.call import run_model

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += 1
        return self.drop(self.bn(self.conv(x))).mean((2, 3)) + self.seen

def made():
    return Net()

def ready():
    return Net().eval()

def without_dropout():
    net = Net()
    net.drop = nn.Identity()
    return net

def frozen():
    net = Net()
    net.bn.eval()
    return net
"""
WARNING = (
    "the model was made in training mode and runs in evaluation mode, which changes "
    "1 BatchNorm2d, 1 Dropout: `model.mode='as-made'` runs it as it was made"
)


@pytest.fixture(autouse=True)
def own_model():
    Path("net.py").write_text(NET)
    Image.new("RGB", (40, 30), (200, 100, 50)).save("a.png")


def load(name, mode, seed=0):
    return load_model(ModelRequest(name, "random", seed, device="cpu", mode=mode))


def modes_of(loaded):
    return {path: module.training for path, module in loaded.module.named_modules()}


def test_a_warning_counts_the_layers_that_evaluation_mode_changes(run):
    assert to_words(WARNING) in run("inspect", "net.py:made", "a.png", "--grids", "none").err
    assert "training mode" not in run("inspect", "net.py:ready", "a.png", "--grids", "none").err


@pytest.mark.parametrize(
    "layer",
    [
        *("nn.MultiheadAttention(4, 2, dropout=0.1)", "nn.RReLU()", "nn.Dropout2d(0.1)"),
        *("ops.StochasticDepth(0.1, 'row')", "DropPath(0.1)"),
    ],
)
def test_every_kind_of_layer_that_draws_at_random_is_counted(layer):
    Path("net.py").write_text(
        "from timm.layers import DropPath\nfrom torch import nn\nfrom torchvision import ops\n"
        f"def made(): return nn.Sequential({layer}, nn.Dropout(0.0), nn.InstanceNorm2d(4))"
    )
    kind = layer.partition("(")[0].rpartition(".")[2]
    assert f"changes 1 {kind}: " in load("net.py:made", "eval").info.notes[0]


def test_many_kinds_of_layers_are_cut_short():
    kinds = [
        "Dropout()",
        *["BatchNorm2d(3)"] * 3,
        *["Dropout2d()"] * 2,
        "AlphaDropout()",
        "RReLU()",
    ]
    layers = ", ".join(f"nn.{kind}" for kind in kinds)
    Path("net.py").write_text(f"from torch import nn\ndef made(): return nn.Sequential({layers})")
    (note,) = load("net.py:made", "eval").info.notes
    assert "changes 3 BatchNorm2d, 2 Dropout2d, 1 Dropout and 2 other kinds of layers: " in note


def test_each_module_has_the_mode_that_was_asked_for():
    assert set(modes_of(load("net.py:frozen", "eval")).values()) == {False}
    assert set(modes_of(load("net.py:frozen", "train")).values()) == {True}
    assert modes_of(load("net.py:frozen", "as-made")) == {
        "": True, "conv": True, "bn": False, "drop": True
    }  # fmt: skip
    assert load("net.py:frozen", "as-made").info.notes == ()


def test_training_mode_computes_what_torch_computes_and_keeps_the_buffers():
    loaded = load("net.py:made", "train", seed=3)
    before = {name: buffer.clone() for name, buffer in loaded.module.named_buffers()}
    pixels = torch.rand(4, 3, 9, 9)
    outputs = [run_model(loaded, pixels) for _ in range(2)]
    after = dict(loaded.module.named_buffers())
    assert [name for name in before if not torch.equal(after[name], before[name])] == []
    torch.manual_seed(3)  # the seed that was asked for
    with torch.no_grad():
        expected = loaded.module(pixels)
    torch.testing.assert_close(outputs, [expected, expected], rtol=0, atol=0)
    assert not torch.equal(loaded.module.bn.running_mean, before["bn.running_mean"])


def test_compare_finds_what_training_mode_changes(run):
    words = ("compare", "net.py:ready", "a.png", "--layers", "all", "--format", "json")
    ended = run(*words, "--against", "mode=train")
    document = json.loads(ended.out)
    assert ended.code == 7
    assert document["first"] == "bn"
    assert document["changed"] == [{"name": "--mode", "a": "eval", "b": "train"}]
    assert run(*words, "--against", "mode=as-made").code == 0


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_gradients_are_those_of_the_mode(run, mode):
    """In training mode the sum of what BatchNorm gives is constant."""
    ended = run(
        *("gradients", "net.py:without_dropout", "a.png", "--mode", mode, "--layers", "conv"),
        *("--score", "sum", "--grids", "none", "-o", "out", "--format", "json"),
    )
    rows = json.loads(ended.out)["layers"]
    norms = [row["norm"] for row in rows if row["side"] == "grad_output"]
    assert (norms == pytest.approx([0], abs=1e-3)) == (mode == "train")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("net.py:made", "--mode", "test"), "mode"),
        (
            ("fasterrcnn_mobilenet_v3_large_320_fpn", "--mode", "train"),
            "needs labelled boxes in training mode, to compute its losses",
        ),
    ],
)
def test_a_mode_that_cannot_be_is_refused(run, words, said):
    name, *options = words
    ended = run("inspect", name, "a.png", "--weights", "random", *options)
    assert ended.code == 2
    assert said in ended.err


def test_a_norm_with_one_value_a_channel_asks_for_a_batch(run):
    Path("net.py").write_text(
        "from torch import nn\n"
        "def made(): return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3))"
    )
    ended = run("inspect", "net.py:made", "a.png", "--mode", "train", "--layers", "all")
    assert ended.code == 4
    assert "training mode cannot normalize one value of one image: --mode eval" in ended.err


def test_buffers_that_are_replaced_or_spread_out_are_as_they_were():
    Path("net.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.register_buffer('mean', torch.zeros(()))\n"
        "        self.register_buffer('wide', torch.ones(1).expand(4))\n"
        "        self.register_buffer('nothing', None)\n"
        "    def forward(self, x):\n"
        "        self.mean = 0.9 * self.mean + x.mean()\n"
        "        return self.mean.expand(1, 4) * self.wide\n"
    )
    loaded = load("net.py:Net", "train")
    first, second = (run_model(loaded, torch.ones(1, 3, 4, 4)) for _ in range(2))
    torch.testing.assert_close([first, second], [torch.ones(1, 4)] * 2)
    assert loaded.module.mean == 0


def test_in_training_mode_a_folder_gives_what_each_image_gives_alone(run):
    Path("photos").mkdir()
    for number in range(3):
        Image.new("RGB", (40, 30), (80 * number, 100, 50)).save(f"photos/{number}.png")
    words = ("--mode", "train", "--grids", "none", "--layers", "all", "--format", "json")
    together = json.loads(run("inspect", "net.py:made", "photos", *words, "-o", "together").out)
    for number, image in enumerate(together["images"]):
        alone = json.loads(run("inspect", "net.py:made", f"photos/{number}.png", *words).out)
        assert alone["images"][0]["predictions"] == image["predictions"]


@pytest.mark.parametrize("kind", [GoogLeNetOutputs, InceptionOutputs])
def test_the_logits_of_a_named_tuple_are_scored_and_read(kind):
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    found = kind(logits, *[None] * (len(kind._fields) - 1))
    assert [each.index for each in read_predictions(found, ())[0]] == [1, 2, 0]
    assert score_output(found, ScoreRequest(), None, (), needs_gradient=False).value == 3


def test_all_but_the_exported_part_is_put_into_evaluation_mode():
    exported = torch.export.export(nn.Sequential(nn.ReLU()), (torch.ones(1),)).module()
    model = nn.Sequential(nn.Dropout(), exported, nn.Sequential(nn.Dropout()))
    set_mode(model, "eval")
    assert [each.training for each in (model, *model)] == [False, False, True, False]
    assert not any(each.training for each in model[2].modules())
    set_mode(exported, "eval")
    with pytest.raises(NotImplementedError):
        set_mode(model, "train")
