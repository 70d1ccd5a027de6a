"""Define ``hookcli sensitivity``: its outcome, its lists for other tools, and what it prints."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hookcli.config import LARGEST_ROUNDED, RoundedRun, RoundingStyle, SensitivityConfig
from hookcli.outside.flags import Flag
from hookcli.records.command import command_words, repeatable
from hookcli.records.rows import AnswerLoss, SensitivityRow
from hookcli.records.runs import weights_text
from hookcli.records.text import and_more, count, figure_text
from hookcli.verbs.call import Progress, VerbCall
from hookcli.verbs.documents import KeptLayers, SensitivityDocument
from hookcli.verbs.keywords import TABLES, Without, verb
from hookcli.verbs.messages import begin, describe_uncalled, warn_of_skipped
from hookcli.verbs.outcome import MOST_ROWS, Look, Table, UnwrittenOutcome
from hookcli.verbs.runs import with_downloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.comparison.sensitivity import Sensitivity

_LOOK = Look(
    kind=SensitivityRow,
    columns={
        "#": lambda row: str(row.rank),
        "layer": lambda row: row.layer,
        "type": lambda row: row.module_type,
        "agreement": lambda row: _percent(row.agreement),
        "divergence": lambda row: figure_text(row.divergence),
        "rel L2": lambda row: figure_text(row.rel_l2) if row.is_finite else "not finite",
        "own L2": lambda row: figure_text(row.own_rel_l2),
        "weights L2": lambda row: figure_text(row.weight_rel_l2),
        "channels: median, worst": lambda row: _channels_text(row),  # noqa: PLW0108  is defined below
    },
    words=("layer", "type"),
    fold=("layer",),
    drop=("type", "weights L2", "channels: median, worst", "agreement", "own L2"),
)
_MOST_NAMED = 8
_UNREADABLE = {",", "'"}  # trtexec splits its list at each comma, and drops quotes
_AUTOCAST = """\
import torch
from torch.utils._pytree import tree_map

def widen(value):
    return value.float() if torch.is_tensor(value) and value.is_floating_point() else value

def keep_in_float32(module, device="cuda"):
    forward = module.forward
    def run(*args, **kwargs):
        with torch.autocast(device, enabled=False):
            return forward(*tree_map(widen, args), **tree_map(widen, kwargs))
    module.forward = run

for name in {names}:
    keep_in_float32(model.get_submodule(name))
"""


@dataclass(frozen=True, kw_only=True)
class SensitivityOutcome(UnwrittenOutcome):
    """The result of ``sensitivity``: layers, ranked by what rounding each one alone costs.

    Attributes:
        result: the model, the images, the ranked layers, and the list of layers to leave alone.
        nodes: the names of the ONNX nodes that compute the layers of that list; None without a
            file.
    """

    config: SensitivityConfig
    result: Sensitivity
    top: int  # rows of the table
    nodes: tuple[str, ...] | None = None

    @property
    def rows(self) -> tuple[SensitivityRow, ...]:
        return self.result.rows

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    @property
    def kept(self) -> KeptLayers | None:
        """The layers to leave alone, as other tools take them; None without a list."""
        kept, nodes = self.result.kept, self.nodes
        if kept is None:
            return None
        readable = [name for name in nodes or () if not _UNREADABLE & {*name}]
        return KeptLayers(
            loss=kept.loss,
            reached=kept.reached,
            modules=kept.modules,
            autocast=_AUTOCAST.format(names=repr([*kept.modules])),
            node_block_list=nodes,
            nodes_to_exclude=nodes,
            layer_precisions=None if nodes is None else ",".join(f"{n}:fp32" for n in readable),
        )

    def document(self) -> SensitivityDocument:
        result = self.result
        words = command_words("sensitivity", self.config)
        return SensitivityDocument(
            command=repeatable(words),
            model=result.model,
            images=result.images,
            skipped=result.skipped,
            uncalled=tuple(layer.row() for layer in result.uncalled),
            rounded=result.rounded,
            keep=self.kept,
            layers=self.rows,
        )

    def table(self) -> Table[SensitivityRow]:
        caption = [*self._caption()]
        return Table(
            look=_LOOK, rows=self.rows[: self.top], headlines=[*self._headlines()], caption=caption
        )

    def _headlines(self) -> Iterator[str]:
        result, goal = self.result, self.config.style.reach
        what = f"all {len(self.rows)} layers" if self.rows[1:] else "the layer"
        yield f"{what} rounded to {self.config.style.to}: {_loss_text(result.rounded)}"
        if result.kept is None:
            return
        loss, layers = _loss_text(result.kept.loss), len(result.kept.modules)
        some = f"{count(layers, 'layer')} left alone" if layers else "all rounded"
        if result.kept.reached:
            yield f"{some}: {loss}{f', which reaches {goal}' if goal else ''}"
        else:
            yield f"no list that was tried reaches {goal}; the best, {some}: {loss}"

    def _caption(self) -> Iterator[str]:
        kept, rows, style = self.result.kept, self.rows, self.config.style
        if self.top < len(rows):
            yield f"the first {self.top} of {len(rows)} layers; all of them: `rows`"
        yield weights_text(self.result.model)
        images = count(len(self.result.images), "image")
        yield f"each layer alone, over {images}, in {style.to}: {_scheme_text(style)}"
        yield "rel L2: the mean over images; own L2: the layer's outputs, over all images at once"
        if kept is not None and kept.modules:
            yield f"leave alone: {_list_text(kept.modules)}"
            hint = "" if self.nodes is not None else ", and names of ONNX nodes with `nodes_of`"
            yield f"the list for other tools is in `document()`{hint}"


def _list_text(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_MOST_NAMED])}{and_more(len(names) - _MOST_NAMED)}"


def _warn_of_nodes(call: VerbCall, file: Path | None, named: Mapping[str, Sequence[str]]) -> None:
    if missing := [path for path, names in named.items() if not names]:
        hint = "; is it an export of this model itself?" if len(missing) == len(named) else ""
        call.warn(f"no node of {file} says that it computes {_list_text(missing)}{hint}")
    if nameless := [path for path, names in named.items() if "" in names]:
        call.warn(f"nodes of {file} have no names, so they are not listed: {_list_text(nameless)}")
    names = dict.fromkeys(itertools.chain(*named.values()))
    if unreadable := [name for name in names if _UNREADABLE & {*name}]:
        call.warn(
            f"layer_precisions lacks names that trtexec cannot read: {_list_text(unreadable)}"
        )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{int(round(1e4 * share, 6)) / 100:g} %"  # only all is 100 %


def _channels_text(row: SensitivityRow) -> str:
    if row.channel_worst is None:
        return ""
    worst = f"{figure_text(row.channel_worst)} ({row.worst_channel})"
    return f"{figure_text(row.channel_median)}, {worst}"


def _loss_text(loss: AnswerLoss) -> str:
    agreement = "" if loss.agreement is None else f"answers agree to {_percent(loss.agreement)}"
    divergence = "" if loss.divergence is None else f"KL {figure_text(loss.divergence)}"
    apart = "" if loss.rel_l2 is None else f"rel L2 {figure_text(loss.rel_l2)}"
    finite = "" if loss.is_finite else "the output is not finite"
    return ", ".join(filter(None, (agreement, divergence, apart, finite)))


def _scheme_text(style: RoundingStyle) -> str:
    if style.to not in LARGEST_ROUNDED:
        return "weights and outputs" if style.what == "both" else style.what
    p = style.percentile
    top = "largest magnitude" if p is None else f"percentile {p:g} of magnitudes"
    scales = {
        "weights": "each weight" if style.per_tensor else "each output channel of a weight",
        "outputs": f"each output tensor, by its {top}",
    }
    chosen = (text for what, text in scales.items() if style.what in (what, "both"))
    return f"symmetric, with a scale for {', and one for '.join(chosen)}"


@verb(*TABLES)
def sensitivity(
    call: VerbCall,
    run: Annotated[RoundedRun, Without("pair clip edit prune categories")],
    style: RoundingStyle,
    nodes_of: Annotated[
        Path | None,
        Flag(
            "--nodes-of FILE.onnx",
            "Also name the nodes of this export that compute the layers to leave alone.",
            needs="--keep|--reach",
            panel="Output",
        ),
    ] = None,
    top: Annotated[
        int,
        Flag(
            "--top N",
            "Rows of the table; other formats have all layers.",
            at_least=1,
            panel="Output",
        ),
    ] = MOST_ROWS,
) -> SensitivityOutcome:
    """Round layers to a smaller format one by one, and rank them by what the answers lose.

    A list of layers to leave alone is tested by a run in which all others are rounded. Ends with
    code 7 if no list reaches the goal of --reach.

    Examples:
        hookcli sensitivity resnet18 photos/ --to int8
        hookcli sensitivity resnet18 photos/ --to int8 --reach 'agreement>=0.99'
    """
    from hookcli.plan.prepare import prepare_sensitivity

    config = SensitivityConfig(with_downloads(call, run), style)
    with call.listener.no_data():
        model = prepare_sensitivity(config)
        from hookcli.comparison.sensitivity import measure_sensitivity, open_nodes
        from hookcli.networks.modules import find_aliases

        name_nodes = None if nodes_of is None else open_nodes(nodes_of)
    begin(call, model.skipped, model.loaded.info)
    bar = Progress()
    with ExitStack() as stack, call.listener.no_data():

        def begin_bar(layers: int, passes: int) -> None:
            nonlocal bar
            images = count(len(model.sources), "image")
            most = f"{'' if style.reach is None else 'at most '}{passes} passes"
            call.plan(f"{run.model.name}: {count(layers, 'layer')}, {images}, {most}")
            bar = call.listener.count(passes, "passes", is_long=True)
            stack.enter_context(bar)

        result = measure_sensitivity(
            model,
            style,
            begin_bar,
            lambda: bar.step(),  # noqa: PLW0108  a later bar
            all_weights=not run.layers,
        )
    warn_of_skipped(call, result.skipped[len(model.skipped) :])
    call.listener.end()
    describe_uncalled(call, result.uncalled, "not rounded")
    nodes = None
    if name_nodes is not None and result.kept is not None:
        first = find_aliases(model.runner.module)  # a file may name a module by any of its paths
        named = {
            path: [name for each in first if first[each] == path for name in name_nodes(each)]
            for path in result.kept.modules
        }
        nodes = tuple(dict.fromkeys(filter(None, itertools.chain(*named.values()))))
        _warn_of_nodes(call, nodes_of, named)
    return SensitivityOutcome(notes=call.notes, config=config, result=result, top=top, nodes=nodes)
