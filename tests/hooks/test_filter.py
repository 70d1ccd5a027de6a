"""The filter language, form by form, and the reasons given for layers that never run."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.ao.nn import quantized
from torch.ao.nn.intrinsic import quantized as fused
from torchvision.ops import FrozenBatchNorm2d, StochasticDepth

from hookcli.config import ModelRequest
from hookcli.errors import FilterSyntaxError, HookcliError, NoLayerMatchedError, RequestError
from hookcli.hooks.filter import select_layers
from hookcli.hooks.layers import explain_uncalled, list_layers, list_watchable
from hookcli.networks.load import build_skeleton

# The convolutions of ResNet34 by the paper's table: 3, 4, 6 and 3 blocks of two, a shortcut where
# a stage begins with another width.
RESNET34_CONVS = ["conv1"] + [
    f"layer{stage}.{block}.{part}"
    for stage, blocks in ((1, 3), (2, 4), (3, 6), (4, 3))
    for block in range(blocks)
    for part in ("conv1", "conv2", *(["downsample.0"] if stage > 1 and block == 0 else []))
]


class Families(nn.Module):
    """One or more modules of every family; the names say what they are."""

    def __init__(self):
        super().__init__()
        self.flat = nn.Conv2d(1, 1, 1)
        self.line = nn.Conv1d(1, 1, 1)
        self.upward = nn.ConvTranspose2d(1, 1, 1)
        self.dense = nn.Linear(2, 2)
        self.batch = nn.BatchNorm2d(1)
        self.frozen = FrozenBatchNorm2d(1)
        self.group = nn.GroupNorm(1, 1)
        self.layer = nn.LayerNorm(2)
        self.bend = nn.ReLU()
        self.curve = nn.GELU()
        self.biggest = nn.MaxPool2d(1)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.look = nn.MultiheadAttention(2, 1)
        self.forget = nn.Dropout()
        self.skip = StochasticDepth(0.5, "row")
        self.same = nn.Identity()


class AliasNames(nn.Module):
    """Modules named like an alias and like a class."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Conv2d(1, 1, 1)
        self.other = nn.BatchNorm2d(1)
        self.Conv2d = nn.ReLU()


@pytest.fixture(scope="module")
def resnet34():
    return build_skeleton(ModelRequest("resnet34")).module


@pytest.fixture(scope="module")
def families():
    return Families().eval()


@pytest.fixture(scope="module")
def quantized_net():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: quantized tensors are to go
        return nn.ModuleDict(
            {
                "plain": quantized.Conv2d(1, 1, 1),
                "fused": fused.ConvReLU2d(1, 1, 1),
                "up": quantized.ConvTranspose2d(1, 1, 1),
                "dense": quantized.Linear(1, 1),
                "bend": quantized.ReLU6(),
            }
        ).eval()


def paths(model, *forms, exclude=()):
    return [layer.label for layer in select_layers(model, forms, exclude)]


def refusal(model, *forms, exclude=()):
    with pytest.raises(HookcliError) as caught:
        select_layers(model, forms, exclude)
    assert caught.value.exit_code == 2
    return type(caught.value), caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("conv", ["flat", "line", "upward"]),
        ("linear", ["dense", "look.out_proj"]),
        ("norm", ["batch", "frozen", "group", "layer"]),
        ("act", ["bend", "curve"]),
        ("pool", ["biggest", "average"]),
        ("attention", ["look"]),
        ("dropout", ["forget", "skip"]),
        ("Conv1d", ["line"]),
        ("Linear", ["dense", "look.out_proj"]),  # NonDynamicallyQuantizableLinear, a subclass
    ],
)
def test_an_alias_or_a_class_names_every_module_of_its_family(families, form, expected):
    assert paths(families, form) == expected


def test_all_names_every_module_and_leaf_those_without_children_and_attention(families):
    every = [name for name, _ in families.named_modules()][1:]
    assert paths(families, "all") == ["(model)", *every]
    names = [name for name, _ in families.named_children()]
    assert paths(families, "leaf") == [*names[:13], "look.out_proj", *names[13:]]


@pytest.mark.parametrize(
    ("alias", "expected"),
    [("conv", ["plain", "fused", "up"]), ("linear", ["dense"]), ("act", ["bend"])],
)
def test_quantized_and_fused_modules_are_of_the_families_of_plain_ones(
    quantized_net, alias, expected
):
    assert paths(quantized_net, alias) == expected


DEEP_CONV1 = [p for p in RESNET34_CONVS if p[:6] in ("layer3", "layer4") and p.endswith(".conv1")]
CHOSEN = {
    "conv": RESNET34_CONVS,  # in model order
    "BasicBlock[3]": ["layer1.2"],
    "conv[1]": RESNET34_CONVS[:1],
    "conv[-1]": ["layer4.2.conv2"],
    "conv[-36]": ["conv1"],
    "conv[2:4]": ["layer1.0.conv1", "layer1.0.conv2", "layer1.1.conv1"],
    "conv[-2:-1]": ["layer4.2.conv1", "layer4.2.conv2"],
    "all[1]": ["(model)"],
    "layer1.0": ["layer1.0"],
    "(model)": ["(model)"],
    "input:layer1.0.relu#12[0.mask]": ["layer1.0.relu"],  # a whole call id
    "layer[24].0.downsample.0": ["layer2.0.downsample.0", "layer4.0.downsample.0"],
    r"re:^layer[34]\.\d+\.conv1$": DEEP_CONV1,
    r"re:^(?:fc|a,b)$|,|^bn\d{1,2}$": ["bn1", "fc"],
    "layer[2,3].0.conv1, fc,conv[1]": ["conv1", "layer2.0.conv1", "layer3.0.conv1", "fc"],
}


@pytest.mark.parametrize("form", CHOSEN)
def test_a_form_chooses_layers_of_resnet34(resnet34, form):
    assert paths(resnet34, form) == CHOSEN[form]


@pytest.mark.parametrize(
    ("form", "expected"),
    [("norm", "other"), ("path:norm", "norm"), ("path:Conv2d", "Conv2d")],
)
def test_path_names_the_module_whose_path_equals_an_alias_or_a_class(form, expected):
    assert paths(AliasNames(), form) == [expected]


@pytest.mark.parametrize(
    ("content", "forms", "expected"),
    [
        (
            (
                b"# the beginning\n\nconv[1]   # the first\nlayer1.0.relu#1\n"
                b"re:^layer2\\.0\\.conv[1,2]$"
            ),
            "@layers.txt",
            ["conv1", "layer1.0.relu", "layer2.0.conv1", "layer2.0.conv2"],
        ),
        (b"\xef\xbb\xbffc\r\nconv1\r\n", "@layers.txt", ["conv1", "fc"]),
    ],
)
def test_a_file_gives_one_form_a_line_with_comments(resnet34, content, forms, expected):
    Path("layers.txt").write_bytes(content)
    assert paths(resnet34, forms) == expected


def test_exclude_takes_away_from_what_was_chosen(resnet34):
    chosen = paths(resnet34, "conv", exclude=["layer1.*,layer2.*", "re:^layer[34]"])
    assert chosen == ["conv1"]
    assert paths(resnet34, "conv[1:3]", exclude=["conv[1]"]) == ["layer1.0.conv1", "layer1.0.conv2"]


OUT_OF_RANGE = "this model has 36: [1] to [36], or [-1]"


@pytest.mark.parametrize(
    ("form", "message", "hint"),
    [
        ("conv[37]", "'conv[37]' is out of range", OUT_OF_RANGE),
        ("conv[-37]", "'conv[-37]' is out of range", OUT_OF_RANGE),
        ("conv[1:37]", "'conv[1:37]' is out of range", OUT_OF_RANGE),
        ("conv[4:2]", "'conv[4:2]' is out of range", OUT_OF_RANGE),
        ("conv[0:2]", "'conv[0:2]' has the index 0", "layers are counted from 1: [1] is the first"),
        ("conv[1:]", "cannot read the index of 'conv[1:]'", "write [3], [-1] or [2:5], counted"),
        ("Conv2d[1,2]", "cannot read the index of 'Conv2d[1,2]'", "write [3], [-1] or [2:5]"),
        ("re:layer(", "not a regular expression: 'layer('", ""),
        ("re:" + "(" * 2000, "not a regular expression: '(((", ""),
        ("@nowhere.txt", "cannot read the layer list 'nowhere.txt': No such file or directory", ""),
        ("  ", "an empty layer filter", "for all convolutions: `layers=('conv',)`"),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(resnet34, form, message, hint):
    kind, said, advice = refusal(resnet34, form)
    assert kind is FilterSyntaxError
    assert said.startswith(message)
    assert len(said) < 300
    assert advice.startswith(hint)


@pytest.mark.parametrize(
    ("form", "near"),
    [
        ("conv,convv", "conv"),
        ("layer1.0.conv3", "layer1.0.conv2"),
        ("path:layer9.0", "layer4.0"),
        ("path:layer1.*", ""),  # takes no glob
        ("Conv2D", "Conv2d"),
        ("attention[1]", ""),  # a family that the model lacks
        ("qqqqqqqq", "list them with: `hookcli.layers(MODEL)`"),
    ],
)
def test_a_form_that_matches_nothing_is_answered_with_near_names(resnet34, form, near):
    kind, message, hint = refusal(resnet34, form)
    missing = form.rpartition(",")[2]
    assert (kind, message) == (NoLayerMatchedError, f"no layer matches {missing!r}")
    assert near in ("", hint, *hint.removeprefix("did you mean ").removesuffix("?").split(", "))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "cannot read the layer list 'layers.txt': not UTF-8 text"),
        (b"@layers.txt\n", ""),  # names itself
        (b"# nothing\n", ""),
    ],
)
def test_a_file_without_forms_is_refused(resnet34, content, message):
    Path("layers.txt").write_bytes(content)
    _, said, _ = refusal(resnet34, "@layers.txt")
    assert said.startswith(message)
    assert "layers.txt" in said
    assert "without" not in said  # nothing was excluded


def test_an_exclude_that_leaves_nothing_or_matches_nothing_is_refused(resnet34):
    kind, message, _ = refusal(resnet34, "conv", exclude=["all"])
    assert (kind, message) == (RequestError, "`exclude` all leaves no layer")
    assert refusal(resnet34, "conv", exclude=["fcc"])[1] == "no layer matches 'fcc'"


def test_a_layer_knows_its_type_depth_and_parameters(resnet34):
    layer = select_layers(resnet34, ["layer1.0.conv2"])[0]
    # 64 filters of 3 x 3 over 64 channels, no bias
    assert (layer.module_type, layer.depth, layer.params) == ("Conv2d", 3, 64 * 64 * 9)
    root = list_layers(resnet34)[0]
    # torchvision's documented count
    assert (root.module_path, root.label, root.params) == ("", "(model)", 21_797_672)


def test_a_module_that_is_in_two_places_is_listed_once():
    shared = nn.ReLU()
    assert paths(nn.Sequential(shared, nn.Tanh(), shared), "act") == ["0", "1"]


class Uses(nn.Module):
    """It has layers that hooks do not see, or that nobody calls."""

    def __init__(self):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.scripted = torch.jit.script(nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)))
        self.holds = nn.Module()
        self.kept = nn.ReLU()
        self.stored = self.kept.forward
        self.shut = Shut()
        self.own = nn.ReLU()
        self.own.forward = torch.relu


class Shut(nn.Module):
    def __call__(self, x):
        return x

    def forward(self, x):
        return x


NOT_CALLED = "the model did not call it for this input"
INSIDE = "its weights are used inside {} without calling it"


@pytest.mark.parametrize(
    ("model", "path", "why"),
    [
        (Families, "look.out_proj", INSIDE.format("look (MultiheadAttention)")),
        (Families, "forget", "dropout does nothing in evaluation mode"),
        (Families, "dense", NOT_CALLED),
        (Uses, "scripted.0", "its hooks are passed by: it is TorchScript"),
        (Uses, "scripted", f"{NOT_CALLED}, or called only its forward"),
        (Uses, "kept", f"{NOT_CALLED}, or called only its forward"),
        (Uses, "own", f"{NOT_CALLED}, or called only its forward"),
        (
            Uses,
            "holds",
            "it has no forward: it only holds parameters or modules that the model uses",
        ),
        (Uses, "shut", f"{NOT_CALLED}, or its own __call__ passes the hooks by"),
        ("googlenet", "aux1.fc1", "auxiliary head, runs only in training mode"),
        (
            "swin_t",
            "features.1.0.attn.qkv",
            INSIDE.format("features.1.0.attn (ShiftedWindowAttention)"),
        ),
    ],
)
def test_a_layer_that_did_not_run_has_the_reason(model, path, why):
    own = build_skeleton(ModelRequest(model)).module if isinstance(model, str) else model().eval()
    layer = next(layer for layer in list_layers(own) if layer.module_path == path)
    assert explain_uncalled(own, layer) == why


def test_a_family_and_a_class_have_the_scripted_modules():
    model = Uses()
    assert paths(model, "conv") == paths(model, "Conv2d") == ["scripted.0"]
    assert paths(model, "norm") == ["scripted.1"]
    assert paths(model, "Sequential") == ["scripted"]
    assert [layer.module_type for layer in list_layers(model)][2] == "Conv2d"


def test_hooks_fire_on_a_scripted_part_but_not_inside_it():
    watchable = [layer.module_path for layer in list_watchable(Uses())]
    assert watchable == ["", "scripted", "holds", "kept", "shut", "own"]
