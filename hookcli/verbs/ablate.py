"""Define ``hookcli ablate``, which zeroes channels: its options, its plan, and what it prints."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from hookcli.config import AblationConfig, DryRun
from hookcli.outside.flags import Flag
from hookcli.records.command import command_words, repeatable
from hookcli.records.rows import ChannelRow
from hookcli.records.runs import weights_text
from hookcli.records.text import count
from hookcli.verbs.call import Progress, VerbCall
from hookcli.verbs.documents import AblationDocument
from hookcli.verbs.inspection_outcome import Planned, finite_text, score_text
from hookcli.verbs.keywords import TABLES, Without, verb
from hookcli.verbs.messages import begin, describe_images, describe_uncalled, warn_of_skipped
from hookcli.verbs.outcome import MOST_ROWS, Look, Table, UnwrittenOutcome
from hookcli.verbs.runs import with_downloads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.run.ablation import AblationPlan, AblationResult

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
_MANY = 100  # forwards; fewer need no progress bar
_IMAGES = 10  # scores are shown for at most this many images


@dataclass(frozen=True, kw_only=True)
class Ablation(UnwrittenOutcome):
    """The result of ``ablate``: channels, ranked by how much zeroing each one changes the score.

    Attributes:
        result: the model, the images with their scores, the ranked channels, and the layers that
            did not run.
    """

    config: AblationConfig
    result: AblationResult
    top: int  # rows of the table

    @property
    def rows(self) -> tuple[ChannelRow, ...]:
        return self.result.rows

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    def document(self) -> AblationDocument:
        return AblationDocument(
            command=repeatable(command_words("ablate", self.config)),
            model=self.result.model,
            images=self.result.images,
            skipped=self.result.skipped,
            uncalled=tuple(layer.row() for layer in self.result.uncalled),
            channels=self.rows,
        )

    def table(self) -> Table[ChannelRow]:
        return Table(look=_LOOK, rows=self.rows[: self.top], caption=[*self._caption()])

    def _caption(self) -> Iterator[str]:
        if self.top < len(self.rows):
            yield f"the first {self.top} of {len(self.rows)} channels; all of them: `rows`"
        yield weights_text(self.result.model)
        images = self.result.images
        for image in images[:_IMAGES]:
            if image.score is not None:
                yield f"{image.file}: {score_text(image.score)}"
        if len(images) > _IMAGES:
            yield f"and {len(images) - _IMAGES} more images: `document()`"


@verb(*TABLES)
def ablate(
    call: VerbCall,
    config: Annotated[AblationConfig, Without("pair clip edit prune")],
    top: Annotated[
        int,
        Flag(
            "--top N",
            "Rows of the table; other formats have all channels.",
            at_least=1,
            panel="Output",
        ),
    ] = MOST_ROWS,
    dry_run: DryRun = False,
) -> Ablation | Planned:
    """Zero channels one by one, and rank them by how much the model's score changes.

    Examples:
        hookcli ablate resnet18 cat.jpg --layers 'conv[2]'
        hookcli ablate resnet18 cat.jpg --layers layer1.0.conv2 --target tabby --top 5
    """
    from hookcli.plan.prepare import prepare_ablation

    config = replace(config, run=with_downloads(call, config.run))
    if dry_run:
        return _plan(call, config)
    with call.listener.no_data():
        prepared = prepare_ablation(config)
    skipped = prepared.model.skipped
    begin(call, skipped, prepared.model.loaded.info)
    from hookcli.run.ablation import ablate_images

    bar = Progress()
    with ExitStack() as stack, call.listener.no_data():

        def begin_bar(plan: AblationPlan) -> None:
            nonlocal bar
            call.plan(_plan_text(config, plan))
            bar = call.listener.count(plan.forwards, "forwards", is_long=plan.forwards > _MANY)
            stack.enter_context(bar)

        result = ablate_images(prepared, begin_bar, lambda: bar.step())  # noqa: PLW0108  a later bar
    warn_of_skipped(call, result.skipped[len(skipped) :])
    call.listener.end()
    describe_images(call, result.images)
    describe_uncalled(call, result.uncalled)
    return Ablation(notes=call.notes, config=config, result=result, top=top)


def _plan(call: VerbCall, config: AblationConfig) -> Planned:
    from hookcli.plan.prepare import prepare_ablation

    with call.listener.no_data():
        outline = prepare_ablation(config, has_weights=False).model
        from hookcli.run.ablation import plan_ablation

        plan = plan_ablation(outline, config.style)
    call.answer(_plan_text(config, plan))
    warn_of_skipped(call, outline.skipped)
    return Planned(notes=call.notes, skipped=len(outline.skipped))


def _plan_text(config: AblationConfig, plan: AblationPlan) -> str:
    rows = max(batch.rows for batch in plan.batches)
    return (
        f"{config.run.model.name}: {count(len(plan.channels), 'channel')} "
        f"of {count(len(plan.layers), 'layer')}, "
        f"{count(plan.images, 'image')}, {count(plan.forwards, 'forward')}"
        + (f" of up to {rows}" if rows > 1 else "")
    )
