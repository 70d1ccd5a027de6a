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
from hookcli.hooks.filter import select_layers, to_pattern
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


# --- aliases and classes


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("conv", ["flat", "line", "upward"]),
        ("linear", ["dense", "look.out_proj"]),
        ("norm", ["batch", "frozen", "group", "layer"]),
        ("act", ["bend", "curve"]),
        ("pool", ["biggest", "average"]),
        ("attention", ["look"]),
        ("dropout", ["forget", "skip"]),
    ],
)
def test_an_alias_names_every_module_of_its_family(families, alias, expected):
    assert paths(families, alias) == expected


def test_all_names_every_module_and_the_model_itself(families):
    assert paths(families, "all") == [
        "(model)",
        *[name for name, _ in families.named_modules()][1:],
    ]


def test_leaf_names_modules_without_children_and_attention(families):
    names = [name for name, _ in families.named_children()]
    assert paths(families, "leaf") == [*names[:13], "look.out_proj", *names[13:]]


def test_leaf_leaves_out_the_blocks(resnet34):
    assert "layer1.0" not in paths(resnet34, "leaf")


def test_quantized_fused_and_transposed_convolutions_are_conv(quantized_net):
    assert paths(quantized_net, "conv") == ["plain", "fused", "up"]


def test_a_quantized_linear_is_one_linear_layer_and_its_packed_weights_are_none(quantized_net):
    assert paths(quantized_net, "linear") == ["dense"]


def test_a_quantized_activation_is_act(quantized_net):
    assert paths(quantized_net, "act") == ["bend"]


def test_conv_is_every_convolution_of_resnet34_in_model_order(resnet34):
    assert paths(resnet34, "conv") == RESNET34_CONVS


def test_a_class_name_names_its_modules(families):
    assert paths(families, "Conv1d") == ["line"]


def test_a_class_name_names_subclasses_too(families):
    assert paths(families, "Linear") == [
        "dense",
        "look.out_proj",
    ]  # NonDynamicallyQuantizableLinear


def test_a_class_name_of_the_models_own_works(resnet34):
    assert paths(resnet34, "BasicBlock[3]") == ["layer1.2"]


def test_a_class_name_in_the_wrong_case_is_refused_with_the_right_one(families):
    kind, message, hint = refusal(families, "conv1D")
    assert (kind, message) == (NoLayerMatchedError, "no layer matches 'conv1D'")
    assert "Conv1d" in hint


# --- indices


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("conv[1]", RESNET34_CONVS[:1]),
        ("conv[16]", RESNET34_CONVS[15:16]),
        ("conv[36]", RESNET34_CONVS[35:]),
        ("conv[-1]", ["layer4.2.conv2"]),
        ("conv[-36]", ["conv1"]),
        ("conv[2:4]", ["layer1.0.conv1", "layer1.0.conv2", "layer1.1.conv1"]),
        ("conv[-2:-1]", ["layer4.2.conv1", "layer4.2.conv2"]),
        ("conv[35:-1]", ["layer4.2.conv1", "layer4.2.conv2"]),
        ("conv[3:3]", ["layer1.0.conv2"]),
        ("Conv2d[1:2]", ["conv1", "layer1.0.conv1"]),
        ("linear[1]", ["fc"]),
        ("all[1]", ["(model)"]),
    ],
)
def test_an_index_counts_from_one_and_a_range_includes_both_ends(resnet34, form, expected):
    assert paths(resnet34, form) == expected


@pytest.mark.parametrize(
    "form", ["conv[37]", "conv[-37]", "conv[1:37]", "conv[4:2]", "conv[37:40]"]
)
def test_an_index_out_of_range_is_refused_with_the_count(resnet34, form):
    assert refusal(resnet34, form) == (
        FilterSyntaxError,
        f"{form!r} is out of range",
        "this model has 36: [1] to [36], or [-1]",
    )


@pytest.mark.parametrize("form", ["conv[0]", "conv[0:2]", "conv[-1:0]"])
def test_the_index_0_is_refused_because_layers_are_counted_from_one(resnet34, form):
    assert refusal(resnet34, form) == (
        FilterSyntaxError,
        f"{form!r} has the index 0",
        "layers are counted from 1: [1] is the first",
    )


@pytest.mark.parametrize(
    "form",
    ["conv[1:]", "conv[:2]", "conv[:]", "conv[]", "conv[a]", "Conv2d[1,2]", "conv[1", "act[1]x"],
)
def test_an_index_that_cannot_be_read_is_refused_and_not_taken_for_a_glob(resnet34, form):
    assert refusal(resnet34, form) == (
        FilterSyntaxError,
        f"cannot read the index of {form!r}",
        "write [3], [-1] or [2:5], counted from 1",
    )


def test_an_index_on_a_family_that_the_model_lacks_says_that_nothing_matches(resnet34):
    kind, message, _ = refusal(resnet34, "attention[1]")
    assert (kind, message) == (NoLayerMatchedError, "no layer matches 'attention[1]'")


# --- module paths, call ids, globs, regular expressions


def test_a_module_path_names_that_module_alone(resnet34):
    assert paths(resnet34, "layer1.0") == ["layer1.0"]


def test_the_root_is_named_as_it_is_shown(resnet34):
    assert paths(resnet34, "(model)") == ["(model)"]


@pytest.mark.parametrize(
    "call_id",
    [
        "layer1.0.relu#1",
        "layer1.0.relu[0]",
        "layer1.0.relu#1[out]",
        "input:layer1.0.relu",
        "output:layer1.0.relu",
        "input:layer1.0.relu#12[0.mask]",
    ],
)
def test_a_call_id_pasted_from_a_table_names_its_module(resnet34, call_id):
    assert paths(resnet34, call_id) == ["layer1.0.relu"]


def test_a_star_in_a_glob_crosses_dots():
    model = nn.ModuleDict({"a": nn.Sequential(nn.Sequential(nn.ReLU())), "b": nn.ReLU()})
    assert paths(model, "a.*") == ["a.0", "a.0.0"]


def test_brackets_in_a_glob_are_a_choice_of_characters(resnet34):
    assert paths(resnet34, "layer[24].0.downsample.0") == [
        "layer2.0.downsample.0",
        "layer4.0.downsample.0",
    ]


def test_a_glob_is_case_sensitive(resnet34):
    assert refusal(resnet34, "LAYER1.*")[0] is NoLayerMatchedError


def test_a_regular_expression_searches_the_module_path(resnet34):
    expected = [p for p in RESNET34_CONVS if p[:6] in ("layer3", "layer4") and p.endswith(".conv1")]
    assert paths(resnet34, r"re:^layer[34]\.\d+\.conv1$") == expected


def test_a_regular_expression_takes_the_whole_option_commas_and_colons_included(resnet34):
    assert paths(resnet34, r"re:^(?:fc|a,b)$|,|^layer1\.\d{1,2}\.conv2$") == [
        *[f"layer1.{block}.conv2" for block in range(3)],
        "fc",
    ]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(" * 2000, "it is nested too deeply"),
        ("a{99999999999}", "the repetition number is too large"),
    ],
)
def test_a_regular_expression_that_python_cannot_compile_is_refused(pattern, reason):
    with pytest.raises(FilterSyntaxError) as caught:
        to_pattern(pattern)
    assert caught.value.message.endswith(f"({reason})")
    assert len(caught.value.message) < 300


def test_an_index_of_5000_digits_is_refused(resnet34):
    for form in (f"conv[{'9' * 5000}]", f"conv[1:{'9' * 5000}]"):
        with pytest.raises(FilterSyntaxError, match="cannot read the index"):
            select_layers(resnet34, [form])


def test_a_broken_regular_expression_is_refused(resnet34):
    kind, message, _ = refusal(resnet34, "re:layer(")
    assert kind is FilterSyntaxError
    assert message.startswith("not a regular expression: 'layer('")


# --- path:


def test_a_bare_alias_is_read_as_the_family_where_a_module_has_its_name():
    assert paths(AliasNames(), "norm") == ["other"]


def test_path_names_the_module_whose_path_equals_an_alias():
    assert paths(AliasNames(), "path:norm") == ["norm"]


def test_path_names_the_module_whose_path_equals_a_class():
    assert paths(AliasNames(), "path:Conv2d") == ["Conv2d"]


def test_path_reaches_the_last_norm_of_swin():
    model = build_skeleton(ModelRequest("swin_t")).module
    assert paths(model, "path:norm") == ["norm"]


def test_path_takes_no_glob(resnet34):
    assert refusal(resnet34, "path:layer1.*")[0] is NoLayerMatchedError


# --- lists and files


def test_forms_are_separated_by_commas_and_come_back_in_model_order(resnet34):
    assert paths(resnet34, "fc, conv[1] ,bn1") == ["conv1", "bn1", "fc"]


def test_several_options_add_up_without_repeats(resnet34):
    assert paths(resnet34, "conv[1:2]", "conv1", "Conv2d[1]") == ["conv1", "layer1.0.conv1"]


def test_a_comma_inside_brackets_does_not_separate(resnet34):
    assert paths(resnet34, "layer[2,3].0.conv1,fc") == ["layer2.0.conv1", "layer3.0.conv1", "fc"]


def test_a_file_gives_one_form_a_line_with_comments(resnet34, tmp_path):
    lines = [
        "# the beginning",
        "",
        "conv[1]   # the first",
        "layer1.0.relu#1",
        r"re:^layer2\.0\.conv[1,2]$",
    ]
    Path("layers.txt").write_text("\n".join(lines), encoding="utf-8")
    expected = ["conv1", "layer1.0.relu", "layer2.0.conv1", "layer2.0.conv2"]
    assert paths(resnet34, "@layers.txt") == expected


def test_an_indented_comment_in_a_file_is_a_comment(resnet34):
    Path("layers.txt").write_text("fc\n    #bn1\n", encoding="utf-8")
    assert paths(resnet34, "@layers.txt") == ["fc"]


def test_a_file_is_among_other_forms(resnet34):
    Path("layers.txt").write_text("fc\r\n", encoding="utf-8")
    assert paths(resnet34, "conv1,@layers.txt") == ["conv1", "fc"]


def test_a_byte_order_mark_at_the_beginning_of_a_file_is_no_part_of_a_form(resnet34):
    Path("layers.txt").write_bytes(b"\xef\xbb\xbffc\r\nconv1\r\n")
    assert paths(resnet34, "@layers.txt") == ["conv1", "fc"]


def test_a_file_that_is_missing_is_refused(resnet34):
    assert refusal(resnet34, "@nowhere.txt")[:2] == (
        FilterSyntaxError,
        "cannot read the layer list 'nowhere.txt': No such file or directory",
    )


def test_a_file_that_is_not_text_is_refused(resnet34):
    Path("layers.txt").write_bytes(b"\xff\xfe\x00")
    assert refusal(resnet34, "@layers.txt")[:2] == (
        FilterSyntaxError,
        "cannot read the layer list 'layers.txt': not UTF-8 text",
    )


def test_a_file_that_names_itself_is_refused(resnet34):
    Path("layers.txt").write_text("@layers.txt\n", encoding="utf-8")
    assert refusal(resnet34, "@layers.txt")[0] is FilterSyntaxError


def test_a_file_with_nothing_but_comments_is_refused_by_name(resnet34):
    Path("layers.txt").write_text("# nothing\n", encoding="utf-8")
    _, message, _ = refusal(resnet34, "@layers.txt")
    assert "layers.txt" in message
    assert "without" not in message  # nothing was excluded


@pytest.mark.parametrize("option", ["", "  "])
def test_an_empty_option_is_refused(resnet34, option):
    assert refusal(resnet34, option)[:2] == (FilterSyntaxError, "an empty layer filter")


# --- nothing matched, and exclude


@pytest.mark.parametrize(
    ("form", "near"),
    [
        ("convv", "conv"),
        ("layer1.0.conv3", "layer1.0.conv2"),
        ("path:layer9.0", "layer4.0"),
        ("Conv2D", "Conv2d"),
    ],
)
def test_a_form_that_matches_nothing_is_answered_with_near_names(resnet34, form, near):
    kind, message, hint = refusal(resnet34, form)
    assert (kind, message) == (NoLayerMatchedError, f"no layer matches {form!r}")
    assert near in hint.removeprefix("did you mean ").removesuffix("?").split(", ")


def test_a_form_like_no_name_is_answered_with_the_command_that_lists_them(resnet34):
    hint = refusal(resnet34, "qqqqqqqq")[2]
    assert hint == "list them with: `hookcli.layers(MODEL)`"


def test_one_form_that_matches_nothing_is_refused_though_others_match(resnet34):
    assert refusal(resnet34, "conv,convv")[1] == "no layer matches 'convv'"


def test_exclude_takes_away_from_what_was_chosen(resnet34):
    chosen = paths(resnet34, "conv", exclude=["layer1.*,layer2.*", "re:^layer[34]"])
    assert chosen == ["conv1"]


def test_an_index_counts_before_exclude_takes_away(resnet34):
    assert paths(resnet34, "conv[1:3]", exclude=["conv[1]"]) == ["layer1.0.conv1", "layer1.0.conv2"]


def test_an_exclude_that_leaves_nothing_is_refused(resnet34):
    kind, message, _ = refusal(resnet34, "conv", exclude=["all"])
    assert (kind, message) == (RequestError, "`exclude` all leaves no layer")


def test_an_exclude_that_matches_nothing_is_refused(resnet34):
    assert refusal(resnet34, "conv", exclude=["fcc"])[1] == "no layer matches 'fcc'"


# --- facts


def test_a_layer_knows_its_type_depth_and_parameters(resnet34):
    layer = select_layers(resnet34, ["layer1.0.conv2"])[0]
    # 64 filters of 3 x 3 over 64 channels, no bias
    assert (layer.module_type, layer.depth, layer.params) == ("Conv2d", 3, 64 * 64 * 9)


def test_the_model_itself_is_listed_first_with_all_parameters(resnet34):
    root = list_layers(resnet34)[0]
    # torchvision's documented count
    assert (root.module_path, root.label, root.params) == ("", "(model)", 21_797_672)


def test_a_module_that_is_in_two_places_is_listed_once():
    shared = nn.ReLU()
    assert paths(nn.Sequential(shared, nn.Tanh(), shared), "act") == ["0", "1"]


# --- why a layer did not run


def reason(model, path):
    layer = next(layer for layer in list_layers(model) if layer.module_path == path)
    return explain_uncalled(model, layer)


def test_weights_used_inside_attention_are_said_to_be(families):
    assert reason(families, "look.out_proj") == (
        "its weights are used inside look (MultiheadAttention) without calling it"
    )


def test_swins_qkv_is_said_to_be_used_inside_its_attention():
    model = build_skeleton(ModelRequest("swin_t")).module
    assert reason(model, "features.1.0.attn.qkv") == (
        "its weights are used inside features.1.0.attn (ShiftedWindowAttention) without calling it"
    )


def test_an_auxiliary_head_is_said_to_run_in_training_mode_only():
    model = build_skeleton(ModelRequest("googlenet")).module
    assert reason(model, "aux1.fc1") == "auxiliary head, runs only in training mode"


def test_a_dropout_is_said_to_do_nothing_in_evaluation(families):
    assert reason(families, "forget") == "dropout does nothing in evaluation mode"


def test_a_layer_with_no_known_reason_is_said_not_to_have_been_called(families):
    assert reason(families, "dense") == "the model did not call it for this input"


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


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("scripted.0", "its hooks are passed by: it is TorchScript"),
        ("scripted", "the model did not call it for this input, or called only its forward"),
        ("kept", "the model did not call it for this input, or called only its forward"),
        ("own", "the model did not call it for this input, or called only its forward"),
        ("holds", "it has no forward: it only holds parameters or modules that the model uses"),
        (
            "shut",
            "the model did not call it for this input, or its own __call__ passes the hooks by",
        ),
    ],
)
def test_a_layer_that_hooks_may_not_see_is_said_to_be_one(path, why):
    assert reason(Uses(), path) == why


def test_a_family_and_a_class_have_the_scripted_modules():
    model = Uses()
    assert paths(model, "conv") == paths(model, "Conv2d") == ["scripted.0"]
    assert paths(model, "norm") == ["scripted.1"]
    assert paths(model, "Sequential") == ["scripted"]
    assert [layer.module_type for layer in list_layers(model)][2] == "Conv2d"


def test_hooks_fire_on_a_scripted_part_but_not_inside_it():
    watchable = [layer.module_path for layer in list_watchable(Uses())]
    assert watchable == ["", "scripted", "holds", "kept", "shut", "own"]


def test_a_skeleton_holds_no_values(resnet34):
    assert {p.device for p in resnet34.parameters()} == {torch.device("meta")}
