"""A Lightning callback that logs activations and gradients to TensorBoard every N steps."""

from contextlib import ExitStack

from lightning import Callback

import hookcli


class ActivationLog(Callback):
    """Log the layers that ``layers`` chooses, in every ``every_n_steps``-th step.

    With ``pictures=True`` small grids of the feature maps are logged too.
    """

    def __init__(self, layers="conv", every_n_steps=50, *, pictures=False):
        self.layers, self.every_n_steps, self.pictures = layers, every_n_steps, pictures
        self.block, self.captured = ExitStack(), None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step % self.every_n_steps == 0:
            self.step = trainer.global_step
            capture = hookcli.capture(module, self.layers, gradients=True, keep=self.pictures)
            self.captured = self.block.enter_context(capture)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.block.close()
        if self.captured is not None:
            self.captured.log_to(trainer.logger.experiment, self.step)
            self.captured = None

    def on_exception(self, trainer, module, exception):
        self.block.close()
