"""The command ``hookcli ablate``."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from hookcli import errors
from hookcli.cli import options
from hookcli.cli.option_groups import Without, command
from hookcli.cli.output import console
from hookcli.cli.output.run import finite_text, print_notes, score_text
from hookcli.cli.output.table import print_listing
from hookcli.cli.request import warn_before, warn_of_skipped, with_progress
from hookcli.config import AblationConfig
from hookcli.outside.flags import Flag
from hookcli.records.command import ablation_command
from hookcli.records.rows import ChannelRow
from hookcli.records.runs import weights_text
from hookcli.records.text import count
from hookcli.verbs.documents import AblationDocument
from hookcli.verbs.outcome import Look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.cli.output.progress import Bar as Progress
    from hookcli.run.ablation import AblationResult
    from hookcli.run.ablation_plan import AblationPlan

_LOOK = Look(
    kind=ChannelRow,
    columns={
        "#": lambda row: str(row.rank),
        "layer": lambda row: row.layer,
        "channel": lambda row: str(row.channel),
        "effect": lambda row: finite_text(row.effect),
        "score": lambda row: finite_text(row.score),
        "plain": lambda row: finite_text(row.plain_score),
    },
    words=("layer",),
    fold=("layer",),
    drop=("plain", "score"),
)
_IMAGES = 10  # scores are shown for at most this many images
_LONG = 10.0  # hookcli announces the duration of an ablation that takes more seconds


@command
def ablate(
    config: Annotated[AblationConfig, Without("pair", "clip", "edit", "prune")],
    top: Annotated[
        int,
        Flag(
            "--top N",
            "Rows of the table; other formats have all channels.",
            at_least=1,
            panel="Output",
        ),
    ] = options.MOST_ROWS,
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
    dry_run: options.DryRun = False,
) -> int:
    """Zero channels one by one, and rank them by the change of the score.

    Examples:
        hookcli ablate resnet18 cat.jpg --layers 'conv[2]'
        hookcli ablate resnet18 cat.jpg --layers layer1.0.conv2 --target tabby --top 5
    """
    config = replace(config, run=with_progress(config.run, quiet=quiet))
    if dry_run:
        return _print_dry_run(config)
    result = _run(config, quiet=quiet)
    rows = result.rows if output_format in ("csv", "jsonl") else result.rows[:top]
    document = AblationDocument(
        command=ablation_command(config),
        model=result.model,
        images=result.images,
        skipped=result.skipped,
        uncalled=tuple(layer.row() for layer in result.uncalled),
        channels=result.rows,
    )
    print_listing(
        _LOOK, rows, document, output_format=output_format, caption=_caption(result, len(rows))
    )
    chosen = {row.layer for row in result.rows}
    print_notes(result, chosen, quiet=quiet)
    return result.exit_code


def _print_dry_run(config: AblationConfig) -> int:
    from hookcli.plan.prepare import prepare_ablation

    with console.no_data():
        outline = prepare_ablation(config, has_weights=False).model
        from hookcli.run.ablation_plan import plan_ablation

        plan = plan_ablation(outline, config.style)
    console.say(_plan_text(config, plan))
    warn_of_skipped(outline.skipped)
    return errors.SKIPPED if outline.skipped else errors.DONE


def _run(config: AblationConfig, *, quiet: bool) -> AblationResult:
    from hookcli.plan.prepare import prepare_ablation

    with console.no_data():
        prepared = prepare_ablation(config)
    warn_before(prepared.model.skipped, prepared.model.loaded.info)
    from hookcli.cli.completion import save_model_names
    from hookcli.run.ablation import ablate_images

    save_model_names()
    with ExitStack() as stack, console.no_data():
        forwards = _Forwards(config, stack, quiet=quiet)
        result = ablate_images(prepared, forwards.planned, forwards.done)
    warn_of_skipped(result.skipped[len(prepared.model.skipped) :])
    return result


class _Forwards:
    """Prints the plan before the first forward pass, and the progress of a long ablation."""

    def __init__(self, config: AblationConfig, stack: ExitStack, *, quiet: bool) -> None:
        self._config, self._stack, self._quiet = config, stack, quiet
        self._total = self._count = 0
        self._began = 0.0
        self._bar: Progress | None = None

    def planned(self, plan: AblationPlan) -> None:
        console.say(_plan_text(self._config, plan), quiet=self._quiet)
        self._total = plan.forwards
        self._began = time.monotonic()

    def done(self) -> None:
        """After the first pass of a long ablation, print about how long the others will take."""
        from hookcli.cli.output.progress import Bar as Progress

        self._count += 1
        if self._count == 1:
            left = (time.monotonic() - self._began) * (self._total - 1)
            is_long = left > _LONG
            console.say(f"about {left:.0f} s", quiet=self._quiet or not is_long)
            if is_long and not self._quiet:
                bar = Progress(self._total, "forwards", is_shown=True)
                self._bar = self._stack.enter_context(bar)
        if self._bar is not None:
            self._bar.chunk_done(self._count, 0)


def _plan_text(config: AblationConfig, plan: AblationPlan) -> str:
    rows = max(batch.rows for batch in plan.batches)
    return (
        f"{config.run.model.name}: {count(len(plan.places), 'channel')} "
        f"of {count(len(plan.layers), 'layer')}, "
        f"{count(plan.images, 'image')}, {count(plan.forwards, 'forward')}"
        + (f" of up to {rows}" if rows > 1 else "")
    )


def _caption(result: AblationResult, shown: int) -> Iterator[str]:
    if shown < len(result.rows):
        yield f"the first {shown} of {len(result.rows)} channels; all of them: --format csv"
    yield weights_text(result.model)
    for image in result.images[:_IMAGES]:
        if image.score is not None:
            yield f"{image.file}: {score_text(image.score)}"
    if len(result.images) > _IMAGES:
        yield f"and {len(result.images) - _IMAGES} more images: --format json"
