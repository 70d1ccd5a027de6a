"""The settings of the chunks of a run, made from what was prepared."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hookcli.passes.backward import BackwardSettings, run_backward
from hookcli.passes.forward import ForwardSettings, run_forward
from hookcli.run.chunk_runner import ChunkSettings

if TYPE_CHECKING:
    from hookcli.passes.forward import Pass
    from hookcli.plan.prepared import PreparedRun


def make_chunk_settings(prepared: PreparedRun) -> ChunkSettings:
    """Return the settings of all chunks of a run."""
    return ChunkSettings(
        run_pass=_choose_pass(prepared),
        loaded=prepared.model.loaded,
        limits=prepared.settings.limits,
        on_error=prepared.model.request.on_error,
        merge_key=prepared.settings.merge_key,
        channels_last=prepared.settings.channels_last,
        scope=prepared.settings.scope,
    )


def _choose_pass(prepared: PreparedRun) -> Pass:
    """Return what runs images through the model: forward only, or forward and backward."""
    loaded, config, focus = prepared.model.loaded, prepared.settings.config, prepared.focus
    if config.backward is None or prepared.scorer is None:
        forward = ForwardSettings(
            loaded.module,
            prepared.model.layers,
            config.at,
            prepared.settings.style,
            focus=None if focus is None else focus.to(loaded.info.device),
            save=config.tensors.save,
            sketch=prepared.settings.plan.sketches,
            feed=loaded.feed,
            edits=prepared.model.edits,
            pruning=prepared.model.pruning,
            attention=prepared.attention,
        )
        return partial(run_forward, forward)
    backward = BackwardSettings(
        loaded.module,
        prepared.model.layers,
        prepared.settings.style,
        prepared.scorer,
        config.backward,
        cams=prepared.cams,
        save=config.tensors.save,
        sketch=prepared.settings.plan.sketches,
        feed=loaded.feed,
        edits=prepared.model.edits,
        pruning=prepared.model.pruning,
    )
    return partial(run_backward, backward)
