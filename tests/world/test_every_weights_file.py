"""All 121 models of torchvision, with weights from files of three forms: minutes, so run by ``make
test-slow``.

The other side is torchvision's builder and ``torch.save`` alone.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models as zoo

from hookcli.config import ModelRequest
from hookcli.networks.load import load_model

pytestmark = pytest.mark.slow

NAMES = zoo.list_models()
INCEPTIONS = ("googlenet", "inception_v3", "quantized_googlenet", "quantized_inception_v3")
FORMS = {
    "state_dict.pth": lambda state, file: torch.save(state, file),
    "plain_dict.pth": lambda state, file: torch.save(dict(state), file),
    "state.safetensors": lambda state, file: save_file(dict(state), file),
}


class Built(NamedTuple):
    name: str
    module: nn.Module


@pytest.fixture(scope="module", params=NAMES)
def built(request: pytest.FixtureRequest) -> Built:
    builder = zoo.get_model_builder(request.param)
    known = inspect.signature(builder).parameters
    arguments = {"weights_backbone": None} if "weights_backbone" in known else {}
    if request.param in INCEPTIONS:
        arguments["init_weights"] = False  # minutes
    module = builder(weights=None, **arguments)
    torch.manual_seed(0)
    for index, value in enumerate(module.state_dict().values()):
        if value.is_floating_point():
            value.uniform_(-0.01, 0.01)
        elif not value.dim():  # a counter of batches
            value.fill_(index + 1)
    return Built(request.param, module)


@pytest.mark.parametrize("form", FORMS)
def test_every_parameter_and_buffer_is_that_of_the_file(built, form):
    FORMS[form](built.module.state_dict(), form)
    loaded = load_model(ModelRequest(built.name, weights=form, device="cpu"))
    Path(form).unlink()  # up to 2.6 GB
    mine, expected = values_of(loaded.module), values_of(built.module)
    assert list(mine) == list(expected)
    for key, value in expected.items():
        assert mine[key].dtype == value.dtype, key
        assert torch.equal(mine[key], value), key
    assert (loaded.info.trained, loaded.info.warning) == (True, "")
    assert len(loaded.info.notes) == (built.name in INCEPTIONS)  # their inputs are rescaled


def values_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, those among them that no file holds."""
    return dict(module.named_parameters()) | dict(module.named_buffers())
