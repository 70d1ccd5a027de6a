"""Which names in a weights file belong to the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.errors import WeightsError
from hookcli.models.from_file import fit_names
from hookcli.models.weights_file import WeightsFile

STATE = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2)).state_dict()


def fit(tensors, versions=None):
    return fit_names("w.pt", WeightsFile(tensors, versions or {}), STATE)


def under(prefix):
    return {f"{prefix}{key}": value for key, value in STATE.items()}


@pytest.mark.parametrize("prefix", ["", "net.", "model.module.backbone.", "_orig_mod.", "1."])
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


def test_counters_do_not_decide_which_of_two_sets_is_meant():
    """Files without counters are loaded, too."""
    bare = {key: value for key, value in STATE.items() if not key.endswith("num_batches_tracked")}
    assert "ema.0.weight" in fit({**bare, **under("ema.")}).tensors  # and is refused later
    with pytest.raises(WeightsError):
        fit({**under("ema."), **{f"model.{key}": value for key, value in bare.items()}})


def test_a_prefix_with_few_of_the_names_is_not_removed():
    assert "net.0.weight" in fit({"net.0.weight": torch.ones(1), "other": torch.ones(1)}).tensors


def test_the_versions_of_modules_lose_the_prefix_too():
    saved = fit(under("net."), {"": 1, "net": 1, "net.1": 2, "other": 3})
    assert saved.versions == {"": 1, "1": 2}


def test_a_long_name_of_dots_takes_no_time():
    name = "." * 100_000
    assert fit({name: torch.ones(1)}).tensors.keys() == {name}
