"""Steps that the commands with images share: prepare a run, execute it, and print warnings."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli import errors
from hookcli.cli import memory
from hookcli.cli.output import console
from hookcli.records.text import and_more, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import RunConfig, RunRequest
    from hookcli.plan.estimate import Plan
    from hookcli.plan.prepared import PreparedRun
    from hookcli.records.images import SkippedImage
    from hookcli.records.runs import ModelInfo
    from hookcli.run.listener import ProgressListener
    from hookcli.run.result import RunResult

_PICTURES = {"layers": "one grid per layer", "sheet": "one sheet per image", "none": "no grids"}


def with_progress(request: RunRequest, *, quiet: bool) -> RunRequest:
    """Return the request with torch's download bar switched on or off.

    The bar is on if stderr is a terminal, unless the command is ``quiet``.
    """
    model = replace(request.model, progress=not quiet and sys.stderr.isatty())
    return replace(request, model=model)


def prepare_config(config: RunConfig, *, quiet: bool, keeps: bool = True) -> PreparedRun:
    """Prepare a run, and print the plan and the warnings on stderr.

    If the run folder will be kept (``keeps``), the plan names the folder and its size.
    """
    from hookcli.plan.prepare import prepare_run

    with console.no_data():
        prepared = prepare_run(config)
    console.say(_plan_text(config, prepared.settings.plan, keeps=keeps), quiet=quiet)
    warn_before(prepared.model.skipped, prepared.model.loaded.info)
    from hookcli.cli.completion import save_model_names

    save_model_names()
    return prepared


def run_prepared(prepared: PreparedRun, *, quiet: bool, keeps: bool = True) -> RunResult:
    """Execute a prepared run, and print progress and warnings on stderr.

    If the run folder will be kept (``keeps``), errors mention ``--resume``.
    """
    from hookcli.cli.output.progress import Bar as Progress

    is_long = prepared.settings.is_long
    bar = Progress(len(prepared.model.sources), is_shown=is_long and not quiet, quiet=quiet)
    try:
        with console.no_data(), bar as progress:
            result = _run(prepared, progress)
    except (errors.ForwardError, errors.NoBoxError) as error:
        if keeps and prepared.settings.has_several:
            error.hint += ", and --resume continues the run"
        raise
    except KeyboardInterrupt as error:
        if not (keeps and is_long and bar.done):
            raise
        hint = "finished chunks are kept; --resume continues a long run"
        raise errors.InterruptError("interrupted", hint) from error
    warn_of_skipped(result.skipped[len(prepared.model.skipped) :])
    return result


def _run(prepared: PreparedRun, progress: ProgressListener) -> RunResult:
    cluster = prepared.settings.config.machine.cluster
    if cluster is None:
        from hookcli.run.pipeline import run

        return run(prepared, progress)
    from hookcli.cluster.run import run_on_cluster

    return run_on_cluster(prepared, cluster, progress)


def warn_before(skipped: Sequence[SkippedImage], *models: ModelInfo) -> None:
    """Print the warnings that are known before the models run.

    From now on, Python collects garbage as usual again.
    """
    warn_of_skipped(skipped)
    texts = (text for model in models for text in (model.warning, *model.notes))
    for text in dict.fromkeys(filter(None, texts)):
        console.warn(text)
    memory.collect_as_usual()


def warn_of_skipped(skipped: Sequence[SkippedImage]) -> None:
    """Warn about the images that could not be used, with one line for each reason."""
    for reason in dict.fromkeys(image.reason for image in skipped):
        files = [repr(image.file) for image in skipped if image.reason == reason]
        some = f"{count(len(files), 'image')} ({', '.join(files[:3])}{and_more(len(files) - 3)})"
        console.warn(f"skipped {some if files[1:] else files[0]}: {reason}")


def _plan_text(config: RunConfig, plan: Plan, *, keeps: bool = True) -> str:
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
