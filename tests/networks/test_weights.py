"""Which part of a weights file belongs to the model, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hookcli.config import ModelRequest
from hookcli.errors import WeightsError
from hookcli.networks.load import load_model
from hookcli.networks.weights import fit_names
from hookcli.networks.weights_file import WeightsFile
from hookcli.outside.files import hash_file

STATE = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2)).state_dict()


def fit(tensors, versions=None):
    return fit_names("w.pt", WeightsFile(tensors, versions or {}), STATE)


def under(prefix):
    return {f"{prefix}{key}": value for key, value in STATE.items()}


@pytest.mark.parametrize("prefix", ["", "model.module.backbone.", "1."])
def test_the_prefix_of_all_names_is_removed(prefix):
    saved = fit(under(prefix))
    assert saved.tensors.keys() == STATE.keys()
    assert saved.note == ""


def test_what_is_beside_the_prefix_is_left_out_and_named():
    saved = fit({**under("net."), "criterion.weight": torch.ones(2), "steps": torch.ones(1)})
    assert saved.tensors.keys() == STATE.keys()
    assert saved.note == (
        "2 tensors of w.pt are not under 'net.', and left out: criterion.weight, steps"
    )


def test_a_name_under_the_prefix_that_the_model_has_not_is_kept_to_be_refused():
    assert "2.weight" in fit({**under("net."), "net.2.weight": torch.ones(2)}).tensors


def test_a_name_beside_the_model_without_a_prefix_is_kept_to_be_refused():
    assert "criterion.weight" in fit({**STATE, "criterion.weight": torch.ones(2)}).tensors


def test_a_model_that_is_there_twice_is_refused():
    with pytest.raises(WeightsError) as refused:
        fit({**under("student."), **under("teacher.")})
    assert refused.value.message == (
        "w.pt holds the weights of the model 2 times: under student., teacher."
    )


def test_a_prefix_with_few_of_the_names_is_not_removed():
    assert "net.0.weight" in fit({"net.0.weight": torch.ones(1), "other": torch.ones(1)}).tensors


def test_the_versions_of_modules_lose_the_prefix_too():
    saved = fit(under("net."), {"": 1, "net": 1, "net.1": 2, "other": 3})
    assert saved.versions == {"": 1, "1": 2}


NETS = """
import torch
from torch import nn
from torch.nn.utils import parametrizations

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)
        self.fc = nn.Linear(2, 4)
    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))

class Renamed(Plain):
    def __init__(self):
        super().__init__()
        self.register_load_state_dict_pre_hook(self.rename)
    @staticmethod
    def rename(module, state, prefix, *rest):
        for old, new in (("stem.", "conv."), ("head.", "fc.")):
            for key in list(state):
                if key.startswith(prefix + old):
                    state[key.replace(old, new)] = state.pop(key)

class Drops(Plain):
    def _load_from_state_dict(self, state, prefix, *rest):
        state.pop(prefix + "criterion", None)
        super()._load_from_state_dict(state, prefix, *rest)

class Copies(Plain):
    def load_state_dict(self, state):
        own = self.state_dict()
        for key, value in state.items():
            if key in own and own[key].shape == value.shape:
                own[key].copy_(value)

class Extra(Plain):
    kept = None
    def get_extra_state(self):
        return {"steps": 3}
    def set_extra_state(self, state):
        self.kept = state

class Own(Plain):
    def load_state_dict(self, state):
        super().load_state_dict({key.removeprefix("own_"): state[key] for key in state})

def weight_norm():
    net = Plain()
    parametrizations.weight_norm(net.conv)
    return net

def parallel():
    return nn.DataParallel(Plain())

class Inside(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.DataParallel(Plain())
    def forward(self, x):
        return self.net(x)
"""


@pytest.fixture
def made():
    Path("net.py").write_text(NETS)
    return {
        "conv.weight": torch.full((2, 3, 1, 1), 5.0),
        "conv.bias": torch.full((2,), 6.0),
        "fc.weight": torch.full((4, 2), 7.0),
        "fc.bias": torch.full((4,), 8.0),
    }


def load(name, content, key=""):
    torch.save(content, "w.pth")
    return load_model(ModelRequest(f"net.py:{name}", weights="w.pth" + key, device="cpu"))


def read(module):
    return [float(p.detach().flatten()[0]) for p in module.parameters()]


def renamed(state, **names):
    return {
        names.get(key.partition(".")[0], key.partition(".")[0]) + "." + key.partition(".")[2]: value
        for key, value in state.items()
    }


def test_names_that_a_hook_of_the_model_translates_are_loaded(made):
    for names in ({"conv": "stem"}, {"fc": "head"}, {"conv": "stem", "fc": "head"}):
        loaded = load("Renamed", renamed(made, **names))
        assert read(loaded.module) == [5, 6, 7, 8]
        assert (loaded.info.trained, loaded.info.warning) == (True, "")


def test_a_name_that_no_hook_translates_is_refused_as_the_model_reports_it(made):
    with pytest.raises(WeightsError) as refused:
        load("Renamed", renamed(made, conv="trunk"))
    assert refused.value.message == (
        "w.pth does not fit the model: 2 missing (conv.weight, conv.bias); "
        "2 unexpected (trunk.weight, trunk.bias)"
    )


def test_a_tensor_that_the_model_drops_itself_is_no_fault(made):
    assert read(load("Drops", made | {"criterion": torch.ones(3)}).module) == [5, 6, 7, 8]
    with pytest.raises(WeightsError, match=r"1 unexpected \(criterion\)"):
        load("Plain", made | {"criterion": torch.ones(3)})


def test_extra_state_reaches_the_model_and_may_not_be_missing(made):
    assert load("Extra", made | {"_extra_state": {"steps": 9}}).module.kept == {"steps": 9}
    with pytest.raises(WeightsError, match=r"1 missing \(_extra_state\)"):
        load("Extra", made)


def test_a_load_state_dict_of_the_models_own_decides(made):
    assert read(load("Own", {f"own_{key}": made[key] for key in made}).module) == [5, 6, 7, 8]
    with pytest.raises(WeightsError, match="1 missing"):
        load("Own", {key: made[key] for key in list(made)[:-1]} | {"own_fc.bia": torch.ones(4)})


def test_what_a_silent_loader_left_as_it_was_is_missing(made):
    assert read(load("Copies", made).module) == [5, 6, 7, 8]
    with pytest.raises(WeightsError, match=r"missing \(conv\.weight"):
        load("Copies", {key: made[key] for key in made if key.startswith("fc")})


def test_the_old_names_of_weight_norm_are_loaded(made):
    size = made["conv.weight"].flatten(1).norm(dim=1).view(2, 1, 1, 1)
    old = {"conv.weight_g": size, "conv.weight_v": 2 * made.pop("conv.weight")}
    module = load("weight_norm", made | old).module
    assert module.conv.weight.allclose(torch.full((2, 3, 1, 1), 5.0))


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("Plain", "module."),
        ("Plain", "_orig_mod.module."),
        ("parallel", ""),
        ("parallel", "net.module."),
        ("Inside", "net."),
        ("Inside", "module.net."),
    ],
)
def test_parallel_models_and_plain_weights_fit_each_other(made, name, prefix):
    state = {f"{prefix}{key}": value for key, value in made.items()}
    assert read(load(name, state).module) == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (lambda state: {"student": {}, "teacher": {"state_dict": state}}, "teacher"),
        (lambda state: {"runs.best": {"ema": state}}, "runs.best.ema"),
        (lambda state: {f"teacher.{key}": state[key] for key in state}, "teacher"),
        (lambda state: {"nets": {f"teacher.{key}": state[key] for key in state}}, "nets.teacher"),
    ],
)
def test_a_key_chooses_a_part_of_a_checkpoint(made, content, key):
    loaded = load("Plain", content(made) | {"epoch": 3}, f":{key}")
    assert read(loaded.module) == [5, 6, 7, 8]
    assert loaded.info.weights == f"w.pth:{key}"


def test_a_file_whose_name_has_a_colon_is_read_whole(made):
    torch.save({"a": made}, "w.pth")
    torch.save(made, "w.pth:a")
    request = ModelRequest("net.py:Plain", weights="w.pth:a", device="cpu")
    assert load_model(request).info.sha256 == hash_file("w.pth:a")


ZERO = "w.pth holds a shard of DeepSpeed's ZeRO: one process's part of the weights"
FSDP = "w.pth holds a shard of FSDP: one process's part of the weights"


class ShardedTensor:
    """Stands for torch's, which needs other processes."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"module": {"fc.weight": torch.ones(0)}, "param_shapes": [{}], "ds_version": "0"}, ZERO),
        ({"model": {"layer._flat_param": torch.ones(9)}}, FSDP),
        ({"fc.weight": ShardedTensor()}, FSDP),
    ],
)
def test_a_shard_is_called_one(made, content, message):
    with pytest.raises(WeightsError) as refused:
        load("Plain", content)
    assert refused.value.message == f"{message}, not a state dict"
