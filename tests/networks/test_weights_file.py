"""Weights files: with other kinds of values, malicious, wrapped, and with versions of modules."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from hookcli.config import ModelRequest
from hookcli.errors import ModelError, WeightsError
from hookcli.networks.load import load_model

TOY = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)
        self.norm = nn.BatchNorm2d(2)
        self.register_buffer("places", torch.tensor([0, 1, 300]))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.eval()
    def forward(self, x):
        return self.norm(self.conv(x))
class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.wave = nn.Parameter(torch.tensor([1j, 2j, 3j]))
    def forward(self, x):
        return (x * self.wave.view(3, 1, 1)).imag
class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Net()
    def forward(self, x):
        return self.model(x)
"""


@pytest.fixture(autouse=True)
def toy():
    Path("net.py").write_text(TOY)


def state(**others):
    """What ``Net`` holds, with ``others`` in the place of some of it; dots are underlines twice."""
    kept = {
        "conv.weight": torch.arange(6.0).view(2, 3, 1, 1),
        "conv.bias": torch.tensor([0.5, -0.5]),
        "norm.weight": torch.tensor([2.0, 3.0]),
        "norm.bias": torch.tensor([4.0, 5.0]),
        "norm.running_mean": torch.tensor([6.0, 7.0]),
        "norm.running_var": torch.tensor([8.0, 9.0]),
        "norm.num_batches_tracked": torch.tensor(10),
        "places": torch.tensor([2, 1, 0]),
        "mask": torch.tensor([False, True]),
    }
    return kept | {name.replace("__", "."): value for name, value in others.items()}


def load(file="w.pth", name="net.py:Net", **arguments):
    words = tuple((key, str(value)) for key, value in arguments.items())
    return load_model(ModelRequest(name, weights=str(file), device="cpu", arguments=words))


def refusal(content, name="net.py:Net"):
    torch.save(content, "w.pth")
    with pytest.raises(ModelError) as caught:
        load(name=name)
    assert caught.value.exit_code == 4
    assert "\n" not in caught.value.message
    return caught.value.message


def misfit(what):
    return f"w.pth does not fit the model: {what}"


def assert_loaded(module, expected):
    mine = module.state_dict()
    assert set(mine) == set(expected)
    assert [key for key in mine if not torch.equal(mine[key], expected[key])] == []


@pytest.mark.parametrize(
    ("others", "what"),
    [
        ({"conv__bias": torch.tensor([1 + 2j, 3j])}, "conv.bias is complex64 and not float32"),
        ({"conv__bias": torch.tensor([1, 2])}, "conv.bias is int64 and not float32"),
        ({"places": torch.tensor([0.0, 1.0, 2.0])}, "places is float32 and not int64"),
        ({"mask": torch.tensor([0, 2])}, "mask is int64 and not bool"),  # 2 would become 1
        (
            {"norm__num_batches_tracked": torch.tensor(1j)},
            "norm.num_batches_tracked is complex64 and not int64",
        ),
    ],
)
def test_values_of_another_kind_are_refused_with_both_dtypes(others, what):
    assert refusal(state(**others)) == misfit(f"1 of a different kind ({what})")


def test_numbers_of_another_size_are_loaded_where_they_fit():
    others = {
        "conv__bias": torch.tensor([0.5, -0.5], dtype=torch.float16),
        "conv__weight": state()["conv.weight"].double(),
        "places": torch.tensor([2, 1, 0], dtype=torch.uint8),
        "norm__num_batches_tracked": torch.tensor(10.0),
    }
    torch.save(state(**others), "w.pth")
    loaded = load()
    assert_loaded(loaded.module, state())
    assert loaded.info.notes == ()


def test_complex_weights_of_ones_own_model_stay_complex():
    torch.save({"wave": torch.tensor([1 + 4j, 2 + 5j, 3 + 6j])}, "w.pth")
    loaded = load(name="net.py:Wave")
    assert loaded.module(torch.ones(1, 3, 1, 1)).flatten().tolist() == [4.0, 5.0, 6.0]
    unloaded = load_model(ModelRequest("net.py:Wave", device="cpu", dtype="bfloat16"))
    assert unloaded.module.wave.tolist() == [1j, 2j, 3j]


@pytest.mark.filterwarnings("ignore")  # torch's own, of quantized tensors and their storages
@pytest.mark.parametrize(
    ("make", "form"),
    [
        (lambda: torch.eye(2).to_sparse(), "sparse_coo"),
        (lambda: torch._empty_affine_quantized([2], scale=1.0, dtype=torch.quint8), "quantized"),
        (lambda: torch.zeros(2, device="meta"), "meta"),
    ],
)
def test_a_tensor_that_is_not_dense_is_refused(make, form):
    message = refusal(state(conv__bias=make()))
    assert message == f"w.pth holds tensors that are not dense: conv.bias is {form}"


def test_an_expanded_view_is_refused_with_what_the_file_has_of_it():
    expanded = torch.zeros(1, 512, 1, 1).expand(10_000_000, 512, 1, 1)  # 20 GB of 2 kB
    whole = torchvision.models.squeezenet1_1(weights=None).state_dict()
    message = refusal(whole | {"classifier.1.weight": expanded}, "squeezenet1_1")
    assert message == (
        "w.pth holds 512 values for the 5,120,000,000 of classifier.1.weight "
        "(10000000x512x1x1): an expanded view"
    )


def test_a_view_into_a_larger_tensor_is_loaded():
    kept = state()["conv.weight"]
    many = torch.zeros(4, 3, 1, 1)
    many[::2] = kept
    torch.save(state(conv__weight=many[::2], conv__bias=kept.flatten()[1:3]), "w.pth")
    assert_loaded(load().module, state(conv__bias=torch.tensor([1.0, 2.0])))


def test_a_tensor_without_values_gives_no_model_its_size(monkeypatch):
    # 10,000,000 rows of nothing have no bytes; a classifier of so many rows has 20 GB
    whole = torchvision.models.squeezenet1_1(weights=None).state_dict()
    nothing = torch.zeros(10_000_000, 0, 1, 1)
    built = note_builds_with_values(monkeypatch, torchvision.models.SqueezeNet)
    message = refusal(whole | {"classifier.1.weight": nothing}, "squeezenet1_1")
    assert message == misfit(
        "1 of a different shape (classifier.1.weight is 10000000x0x1x1 and not 1000x512x1x1)"
    )
    assert built == []


def note_builds_with_values(monkeypatch, kind):
    built = []
    usual = kind.__init__

    def make(self, *arguments, **more):
        usual(self, *arguments, **more)
        if not next(self.parameters()).is_meta:
            built.append(more.get("num_classes", 1000))

    monkeypatch.setattr(kind, "__init__", make)
    return built


def repack(compression, *, shorten=""):
    with zipfile.ZipFile("w.pth") as archive:
        parts = {part.filename: archive.read(part) for part in archive.infolist()}
    with zipfile.ZipFile("w.pth", "w", compression) as archive:
        for name, data in parts.items():
            archive.writestr(name, data[:4] if shorten and name.endswith(shorten) else data)


def test_a_file_that_would_unpack_to_a_thousand_times_its_size_is_refused():
    torch.save(state(more=torch.zeros(1_000_000)), "w.pth")
    repack(zipfile.ZIP_DEFLATED)
    size = Path("w.pth").stat().st_size
    with pytest.raises(WeightsError) as caught:
        load()
    assert re.fullmatch(
        (
            rf"w\.pth is no archive that torch\.save wrote \(its {size:,} bytes would "
            r"become 4,\d\d\d,\d\d\d\)"
        ),
        caught.value.message,
    )
    assert caught.value.hint == "load it in Python and save it again"


def test_a_file_from_before_torch_1_6_is_loaded():
    torch.save(state(), "w.pth", _use_new_zipfile_serialization=False)
    assert_loaded(load().module, state())


class Made:
    """Pickled as the call of a function; with attributes and items for what it returns."""

    def __init__(self, function, *arguments, attributes=None, items=()):
        self.parts = (function, arguments, attributes, None, iter(items))

    def __reduce__(self):
        return self.parts


def plant(made):
    torch.save({"a": torch.zeros(1)}, "w.pth")
    with zipfile.ZipFile("w.pth") as archive:
        parts = {part.filename: archive.read(part) for part in archive.infolist()}
    with zipfile.ZipFile("w.pth", "w") as archive:
        for name, data in parts.items():
            kept = pickle.dumps(made, protocol=2) if name.endswith("data.pkl") else data
            archive.writestr(name, kept)


def test_what_torchs_own_reader_raises_is_one_line():
    for made in (
        Made(torch._utils._rebuild_tensor_v2, 1, 2, 3, 4, 5, 6),  # AttributeError
        Made(torch._utils._rebuild_tensor_v2),  # TypeError
        Made(bytearray, 2**62),
        Made(OrderedDict, 5),
    ):
        plant({"a": made})
        with pytest.raises(WeightsError) as caught:
            load()
        assert caught.value.message.startswith("cannot read the weights w.pth: ")


def test_attributes_in_the_place_of_methods_are_not_called():
    fives = dict.fromkeys(("items", "get", "keys", "values", "copy"), 5)
    hostile = Made(OrderedDict, attributes=fives, items=state().items())
    torch.save({"state_dict": hostile}, "w.pth")
    assert_loaded(load().module, state())
    parameter = nn.Parameter(torch.tensor([0.5, -0.5]))
    parameter.detach = parameter.dim = parameter.numel = parameter.storage_offset = 5
    parameter.is_complex = parameter.is_floating_point = parameter.to = 5
    torch.save(state(conv__bias=parameter), "w.pth")
    assert_loaded(load().module, state())


def test_a_checkpoint_that_holds_itself_is_loaded_or_refused():
    content = {"epoch": 1}
    content["state_dict"] = content
    assert refusal(content) == "w.pth holds no tensors"


def test_a_pipe_is_no_file_of_weights():
    os.mkfifo("w.pth")
    with pytest.raises(
        WeightsError, match=r"^cannot read the weights w\.pth: it is not a regular file$"
    ):
        load()


def test_a_model_whose_own_names_begin_like_a_prefix_keeps_them():
    wrapped = {f"model.{key}": value for key, value in state().items()}
    for prefix in ("", "module.", "_orig_mod.module."):
        torch.save({prefix + key: value for key, value in wrapped.items()}, "w.pth")
        assert_loaded(load(name="net.py:Wrapped").module, wrapped)


def test_which_of_several_sets_of_weights_is_used_is_said():
    mean = {f"module.{key}": value for key, value in state().items()}
    optimizer = {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]}
    torch.save({"model": state(), "model_ema": mean, "optimizer": optimizer, "epoch": 3}, "w.pth")
    loaded = load()
    assert_loaded(loaded.module, state())
    (note,) = loaded.info.notes
    assert note == (
        "w.pth holds several sets of weights: the one under 'model' is used, not 'model_ema';"
        " `weights='FILE:KEY'` chooses another"
    )


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"net": {"student": state(), "teacher": state()}}, "'net.student', 'net.teacher'"),
        ({"folds": {0: state(), 1: state()}}, "'folds.0', 'folds.1'"),
        ({"net": {"g": state()}, "d": {"mean": torch.ones(3)}}, "'net.g', 'd'"),  # much smaller
    ],
)
def test_sets_of_weights_that_lie_deeper_are_named(content, names):
    assert refusal(content) == f"w.pth holds several sets of weights: {names}"


def test_a_set_of_weights_in_a_list_is_chosen_by_its_index():
    torch.save({"net": [{"ema": state()}, state(), 5]}, "w.pth")
    assert_loaded(load("w.pth:net.0.ema").module, state())


def test_a_set_of_weights_in_dotted_names_is_not_one_whose_name_begins_alike():
    named = {f"teacher.{key}": value for key, value in state().items()}
    torch.save(named | {f"teacher_ema.{key}": value * 0 for key, value in state().items()}, "w.pth")
    assert_loaded(load("w.pth:teacher").module, state())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("w.pth:epoch", "w.pth holds no weights under 'epoch'"),
        ("w.pth:", "`weights='w.pth:'`: the key after the colon is missing"),
        ("gone.pth:ema", "`weights='gone.pth:ema'`: there is no file 'gone.pth'"),
    ],
)
def test_a_key_that_leads_to_no_weights_is_refused(weights, message):
    torch.save({"net": state(), "epoch": 3}, "w.pth")
    with pytest.raises(WeightsError) as refused:
        load(weights)
    assert refused.value.message == message


@pytest.fixture(scope="module")
def mnasnet():
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return torchvision.models.mnasnet0_5(weights=None, num_classes=2)


@pytest.mark.parametrize("file", ["w.pth", "w.safetensors", "checkpoint.pth"])
def test_an_mnasnet_is_loaded_from_a_file_of_any_form(file, mnasnet):
    state = mnasnet.state_dict()
    if file.endswith("safetensors"):
        save_file(dict(state), file)
    else:
        torch.save({"state_dict": state, "epoch": 3} if "checkpoint" in file else state, file)
    assert_loaded(load(file, "mnasnet0_5").module, state)


OLD = """
from torch import nn
class Inner(nn.Linear):
    _version = 3
    def _load_from_state_dict(self, state, prefix, local, *more):
        self.told = local.get("version")
        super()._load_from_state_dict(state, prefix, local, *more)
class Outer(nn.Module):
    _version = 2
    def __init__(self):
        super().__init__()
        self.inner = Inner(1, 1)
    def _load_from_state_dict(self, state, prefix, local, *more):
        self.told = local.get("version")
        super()._load_from_state_dict(state, prefix, local, *more)
"""


def told(versions, prefix=""):
    Path("old.py").write_text(OLD)
    saved = OrderedDict((f"{prefix}inner.{k}", torch.zeros(n)) for k, n in PARTS.items())
    if versions is not None:
        saved._metadata = versions  # type: ignore[attr-defined]
    torch.save(saved, "w.pth")
    outer = load(name="old.py:Outer").module
    return outer.told, outer.inner.told


PARTS = {"weight": (1, 1), "bias": (1,)}


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"": {"version": 1}, "inner": {"version": 2}}, (1, 2)),
        (None, (2, 3)),
        ({"": {"version": 10**40}, "inner": {"version": -1}}, (2, 3)),
        ({"": 5, "inner": [1], 7: {"version": 1}, None: None}, (2, 3)),
    ],
)
def test_each_module_receives_the_version_in_the_file_or_its_own(versions, expected):
    assert told(versions) == expected


def test_an_own_models_code_for_loading_that_raises_is_a_line():
    Path("bad.py").write_text(
        "from torch import nn\n"
        "class Bad(nn.Linear):\n"
        "    def __init__(self): super().__init__(1, 1)\n"
        "    def load_state_dict(self, *_): raise KeyError('no')\n"
    )
    message = refusal({"weight": torch.zeros(1, 1), "bias": torch.zeros(1)}, "bad.py:Bad")
    assert message == "loading w.pth into bad.py:Bad raised KeyError: 'no'"


def test_an_own_model_with_lazy_layers_takes_their_sizes_from_the_file():
    Path("lazy.py").write_text("from torch import nn\ndef make(): return nn.LazyLinear(2)\n")
    weights = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    torch.save(weights, "w.pth")
    assert_loaded(load(name="lazy.py:make").module, weights)


@pytest.mark.parametrize(("shared", "is_said"), [(5, True), (4, False)])
def test_a_set_with_more_than_half_of_the_names_is_another_set_of_weights(shared, is_said):
    """The network has nine tensors; fewer of them are, for example, sums of an optimizer."""
    other = dict([*state().items()][:shared])
    torch.save({"model": state(), "mean": other}, "w.pth")
    loaded = load()
    assert_loaded(loaded.module, state())
    assert bool(loaded.info.notes) is is_said


def test_fewer_tensors_outside_than_in_a_set_inside_are_not_the_weights():
    outside = dict([*state().items()][:8])
    torch.save({key: value * 0 for key, value in outside.items()} | {"best": state()}, "w.pth")
    assert_loaded(load().module, state())
