"""Print a comparison of two runs: the verdict, the calls, and other changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from hookcli.cli.output import console
from hookcli.cli.output.table import print_listing, print_wrapped
from hookcli.cli.output.wording import to_words
from hookcli.distance.comparison import DiffRow
from hookcli.distance.verdict import (
    blame_text,
    changed_text,
    first_text,
    list_notes,
    verdict_text,
)
from hookcli.outside import escape
from hookcli.records.text import figure_text, shape_text
from hookcli.verbs.documents import ComparisonDocument, Keep
from hookcli.verbs.outcome import Look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookcli.distance.comparison import Comparison

_OWN = {  # with ``--blame``, these columns show own errors
    "median channel": lambda row: figure_text(row.own_channel_median),
    "worst channel": lambda row: figure_text(row.own_channel_worst),
}
_LOOK = Look(
    kind=DiffRow,
    columns={
        "#": lambda row: str(row.order),
        "call": lambda row: row.names,
        "type": lambda row: row.module_type,
        "shape": lambda row: shape_text(row.shape or row.other_shape),
        "rel L2": lambda row: figure_text(row.rel_l2),
        "own L2": lambda row: figure_text(row.own_rel_l2),
        "max abs": lambda row: figure_text(row.max_abs),
        "mean abs": lambda row: figure_text(row.mean_abs),
        "median channel": lambda row: figure_text(row.channel_median),
        "worst channel": lambda row: figure_text(row.channel_worst),
        "cosine": lambda row: "" if row.cosine is None else f"{row.cosine:.7g}",
        "tolerance": lambda row: figure_text(row.tolerance),
        "holds": lambda row: "yes" if row.holds else to_words(row.reason) or "no",
    },
    words=("call", "type", "shape", "holds", "mark"),
    fold=("call", "holds"),
    drop=(
        *("type", "shape", "cosine", "mean abs", "max abs", "tolerance"),
        *("median channel", "worst channel"),
    ),
)


def has_every_image(output_format: str) -> bool:
    """Return whether a format has a row for every image of a call, not only for the worst image."""
    return output_format not in ("table", "md")


def print_comparison(
    comparison: Comparison, command: tuple[str, ...], output_format: str, top: int, sort: str
) -> None:
    """Print the verdict, and the ``top`` worst calls with the worst image of each call.

    The culprits are printed, too. The formats json, jsonl and csv have all calls and all images.
    ``command`` holds the words of the command, for the JSON document.
    """
    culprits = comparison.blame.ids if comparison.blame else ()
    verdict = verdict_text(comparison)
    lines = [to_words(verdict)]
    lines += [blame_text(comparison.blame)] if comparison.blame else []
    lines += [line for line in [to_words(first_text(comparison))] if line not in lines]
    by = attrgetter("order" if sort == "order" else "rank")
    every, rows = (tuple(sorted(s, key=by)) for s in (comparison.image_rows, comparison.rows))
    comparison = replace(comparison, rows=rows, image_rows=every)
    shown = [row for row in rows if row.rank <= top or row.call_id in culprits]
    if output_format == "md":
        console.print_data("".join(f"**{escape.for_markdown(line)}**\n\n" for line in lines))
    if output_format == "table":
        print_wrapped(map(escape.for_terminal, lines))
    else:
        console.say("\n".join(lines))
    columns: dict[str, Callable[[DiffRow], str]] = dict(_LOOK.columns)
    if any(_mark(comparison, row) for row in shown):
        columns["mark"] = partial(_mark, comparison)
    if comparison.blame is None:
        del columns["own L2"]
    else:
        columns |= _OWN
    look = replace(_LOOK, columns=columns)
    caption = map(to_words, _caption(comparison, len(shown)))
    document = _document(comparison, command, verdict)
    listed = every if has_every_image(output_format) else shown
    print_listing(look, listed, document, output_format=output_format, caption=caption)


def _mark(comparison: Comparison, row: DiffRow) -> str:
    first, blame = comparison.first, comparison.blame
    marks = {
        "culprit": blame is not None and row.call_id in blame.ids,
        "first": first is not None and row.rank == first.rank,
        "worst": row.rank == 1 and bool(row.reason or row.max_abs or row.rel_l2),
    }
    return ", ".join(mark for mark, is_it in marks.items() if is_it)


def _caption(comparison: Comparison, shown: int) -> Iterator[str]:
    calls = len(comparison.rows)
    some = f"the worst {shown} of {calls} calls"
    if comparison.blame and comparison.blame.culprits:
        some = f"{shown} of {calls} calls: the worst, and the culprits"
    shown_calls = [some] if shown < calls else []
    if len(comparison.images) > 1:
        shown_calls.append("the figures are from each call's worst image")
    if shown_calls:
        yield f"{', and '.join(shown_calls)}; all of them: --format csv"
    yield f"A (the reference): {comparison.a}; B: {comparison.b}"
    yield from list_notes(comparison)
    for each in comparison.changed:
        yield changed_text(each)


def _document(comparison: Comparison, command: tuple[str, ...], verdict: str) -> ComparisonDocument:
    first, blame = comparison.first, comparison.blame
    return ComparisonDocument(
        command=command,
        equal=comparison.equal,
        first=None if first is None else first.call_id,
        verdict=verdict,
        culprits=None if blame is None else blame.ids,
        blame="" if blame is None else blame_text(blame),
        keep=None if comparison.keep is None else Keep(comparison.keep, comparison.keep),
        answer=comparison.answer,
        a=comparison.a,
        b=comparison.b,
        tolerance=comparison.tolerance,
        changed=comparison.changed,
        images=comparison.images,
        only_in_a=comparison.only_in_a,
        only_in_b=comparison.only_in_b,
        skipped=comparison.skipped,
        uncalled=tuple(layer.row() for layer in comparison.uncalled),
        left_out=comparison.left_out,
        notes=comparison.notes,
        remarks=tuple(list_notes(comparison)),
        layers=comparison.rows,
        calls=comparison.image_rows,
    )
