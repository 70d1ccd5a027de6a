"""Image processors, with a toy in place of one of transformers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hookcli.config import ModelRequest
from hookcli.errors import ModelError
from hookcli.networks.processors import choose_task


class Cropper:
    def __call__(self, images, return_tensors):
        return {"pixel_values": torch.ones(1, 3, 8, 8)[..., :0, :0]}


def test_a_processor_whose_result_is_empty_is_refused_before_the_model_runs():
    task = choose_task("Module")(Cropper, SimpleNamespace())
    with pytest.raises(ModelError) as caught:
        task.prepare(ModelRequest("hf:own"), nn.Module(), None)
    assert caught.value.message == (
        "a picture of 640x480 pixels has no pixels after the Cropper of the model"
    )
    assert "preprocessor_config.json" in caught.value.hint
