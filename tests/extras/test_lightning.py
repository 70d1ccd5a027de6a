"""The callback of docs/examples with the real Lightning and TensorBoard."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
FILE = Path(__file__).parents[2] / "docs" / "examples" / "lightning_callback.py"


def load_callback():
    spec = importlib.util.spec_from_file_location("lightning_callback", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ActivationLog


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning")


@pytest.fixture
def network(lightning):
    """1x1 convolutions times 2 and times 3 on pixels of 1, which a learning rate of 0 keeps."""

    class Network(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(*(nn.Conv2d(1, 1, 1, bias=False) for _ in range(2)))
            for index, weight in enumerate((2.0, 3.0)):
                nn.init.constant_(self.get_parameter(f"net.{index}.weight"), weight)

        def training_step(self, batch):
            if self.global_step == self.fails_at:
                raise RuntimeError("broken")
            return self.net(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    network = Network()
    network.fails_at = -1
    return network


def train(lightning, network, steps, **options):
    logger = lightning.pytorch.loggers.TensorBoardLogger("logs")
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=logger,
        callbacks=[load_callback()(**options)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(network, torch.utils.data.DataLoader(torch.ones(4, 1, 2, 2), batch_size=1))  # type: ignore[arg-type]
    return logger


def read(logger):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(logger.log_dir).Reload()


def test_every_second_step_is_logged_with_its_gradients(lightning, network):
    events = read(train(lightning, network, 4, every_n_steps=2, pictures=True))
    assert [(e.step, e.value) for e in events.Scalars("activations/net.0/mean")] == [(0, 2), (2, 2)]
    assert [(e.step, e.value) for e in events.Scalars("activations/net.1/mean")] == [(0, 6), (2, 6)]
    # the mean of 3 * (w * 1): the gradient of w is 3
    (tag,) = [tag for tag in events.Tags()["scalars"] if tag.endswith("net.0.weight/norm")]
    gradients = events.Scalars(tag)
    assert [(e.step, e.value) for e in gradients] == [(0, 3), (2, 3)]
    image = events.Images("activations/net.0")[0]
    assert image.encoded_image_string.startswith(b"\x89PNG")


def test_no_hook_is_left_when_a_step_fails(lightning, network):
    network.fails_at = 0
    with pytest.raises(RuntimeError, match="broken"):
        train(lightning, network, 1, every_n_steps=1)
    assert not any(module._forward_hooks for module in network.modules())
