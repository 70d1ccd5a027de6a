"""Prepare a run, and execute it: steps of the verbs that run images through a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli import errors
from hookcli.records.text import count
from hookcli.verbs.messages import begin, warn_of_skipped

if TYPE_CHECKING:
    from hookcli.config import RunConfig
    from hookcli.plan.estimate import Plan
    from hookcli.plan.prepared import PreparedRun
    from hookcli.run.listener import ProgressListener
    from hookcli.run.result import RunResult
    from hookcli.verbs.call import Call

_PICTURES = {"layers": "one grid per layer", "sheet": "one sheet per image", "none": "no grids"}


def prepare(call: Call, config: RunConfig, *, keeps: bool = True) -> PreparedRun:
    """Prepare a run, and say the plan and the warnings.

    If the run folder will be kept (``keeps``), the plan names the folder and its size.
    """
    from hookcli.plan.prepare import prepare_run

    if call.listener.starts_workers and "workers" not in call.given:
        config = replace(config, machine=replace(config.machine, workers=None))
    with call.listener.no_data():
        prepared = prepare_run(config)
    call.plan(plan_text(config, prepared.settings.plan, keeps=keeps))
    begin(call, prepared.model.skipped, prepared.model.loaded.info)
    return prepared


def execute(call: Call, prepared: PreparedRun, *, keeps: bool = True) -> RunResult:
    """Execute a prepared run with a bar, and warn of skipped images.

    If the run folder will be kept (``keeps``), errors mention ``resume``.
    """
    is_long = prepared.settings.is_long
    bar = call.listener.count(len(prepared.model.sources), "images", is_long=is_long)
    try:
        with call.listener.no_data(), bar as progress:
            result = _run(prepared, progress)
    except (errors.ForwardError, errors.NoBoxError) as error:
        if keeps and prepared.settings.has_several:
            error.hint += ", and `resume` continues the run"
        raise
    except KeyboardInterrupt as error:
        if not (keeps and is_long and bar.done):
            raise
        hint = "finished chunks are kept; `resume` continues a long run"
        raise errors.InterruptError("interrupted", hint) from error
    warn_of_skipped(call, result.skipped[len(prepared.model.skipped) :])
    return result


def _run(prepared: PreparedRun, progress: ProgressListener) -> RunResult:
    cluster = prepared.settings.config.machine.cluster
    if cluster is None:
        from hookcli.run.pipeline import run

        return run(prepared, progress)
    from hookcli.cluster.run import run_on_cluster

    return run_on_cluster(prepared, cluster, progress)


def plan_text(config: RunConfig, plan: Plan, *, keeps: bool = True) -> str:
    """Return the plan of a run in a sentence."""
    what = f"{config.run.model.name}: {count(plan.layers, 'layer')}, {count(plan.images, 'image')}"
    if not keeps:
        return what
    pictures = [_PICTURES[plan.grids]]
    if config.attention is not None and plan.grids != "layers":
        pictures.append("no pictures of attention")
    if plan.sketches:
        pictures.append("sketches")
    if config.tensors.save is not None:
        pictures.append("tensors")
    cluster = config.machine.cluster
    where = "" if cluster is None else f", on the Ray cluster {cluster.address}"
    return (
        f"{what}{where}, {', '.join(pictures)}, "
        f"about {count(plan.files, 'file')}, up to about {plan.megabytes:.1f} MB, "
        f"into {plan.out_dir}"
    )
