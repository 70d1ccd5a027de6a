"""What a way of running a model cannot do unless it says how."""

from __future__ import annotations

import pytest
import torch

from hookcli.errors import RequestError
from hookcli.passes.runner import Batch, Runner


def test_a_runner_that_cannot_replace_outputs_refuses_blame():
    batch = Batch(["a"], torch.zeros(1, 3, 2, 2))
    with pytest.raises(RequestError) as refused:
        Runner().run_fed(batch, lambda _: None, lambda *_: None)
    assert refused.value.message == (
        "this way of running a model cannot replace the outputs of layers"
    )
    assert refused.value.hint == "compare without `blame`"
