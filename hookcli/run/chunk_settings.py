"""The settings of the chunks of a run, made from what was prepared."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hookcli.passes.backward import BackwardSettings, run_backward
from hookcli.passes.forward import ForwardSettings, run_forward
from hookcli.plan.prepared import require_eager
from hookcli.run.chunk_runner import ChunkSettings

if TYPE_CHECKING:
    from hookcli.passes.forward import Pass
    from hookcli.plan.prepared import PreparedRun


def make_chunk_settings(prepared: PreparedRun) -> ChunkSettings:
    """Return the settings of all chunks of a run."""
    return ChunkSettings(
        run_pass=_choose_pass(prepared),
        runner=prepared.model.runner,
        loaded=prepared.model.loaded,
        limits=prepared.settings.limits,
        on_error=prepared.model.request.on_error,
        merge_key=prepared.settings.merge_key,
        scope=prepared.settings.scope,
    )


def _choose_pass(prepared: PreparedRun) -> Pass:
    """Return what runs images through the model: forward only, or forward and backward."""
    config, focus, style = prepared.settings.config, prepared.focus, prepared.settings.style
    save, sketch = config.tensors.save, prepared.settings.plan.sketches
    if config.backward is None or prepared.scorer is None:
        runner = prepared.model.runner
        focus = None if focus is None else focus.to(runner.device)
        forward = ForwardSettings(runner, style, focus, save, sketch=sketch)
        return partial(run_forward, forward)
    score, wanted, cams = prepared.scorer, config.backward, prepared.cams
    eager = require_eager(prepared.model, "gradients").runner
    backward = BackwardSettings(eager, style, score, wanted, cams, save, sketch=sketch)
    return partial(run_backward, backward)
