"""Print a comparison of two runs: the verdict, the calls, and other changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.cli.output import console
from hookcli.cli.output.documents import ComparisonDocument
from hookcli.cli.output.table import Look, print_listing, print_wrapped
from hookcli.cli.output.wording import to_words
from hookcli.distance.comparison import DiffRow
from hookcli.distance.verdict import blame_text, changed_text, list_notes, verdict_text
from hookcli.outside import escape
from hookcli.records.text import figure_text, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.distance.comparison import Comparison

_LOOK = Look(
    kind=DiffRow,
    columns={
        "#": lambda row: str(row.order),
        "call": lambda row: row.names,
        "type": lambda row: row.module_type,
        "shape": lambda row: shape_text(row.shape or row.other_shape),
        "rel L2": lambda row: figure_text(row.rel_l2),
        "max abs": lambda row: figure_text(row.max_abs),
        "mean abs": lambda row: figure_text(row.mean_abs),
        "cosine": lambda row: "" if row.cosine is None else f"{row.cosine:.7g}",
        "tolerance": lambda row: figure_text(row.tolerance),
        "holds": lambda row: "yes" if row.holds else to_words(row.reason) or "no",
    },
    words=("call", "type", "shape", "holds"),
    fold=("call", "holds"),
    drop=("type", "shape", "cosine", "mean abs", "max abs", "tolerance"),
)
_OWN = "own L2"  # the column of the own errors


def has_every_image(output_format: str) -> bool:
    """Return whether a format has a row for every image of a call, not only for the worst image."""
    return output_format not in ("table", "md")


def print_comparison(
    comparison: Comparison, command: tuple[str, ...], output_format: str, top: int
) -> None:
    """Print the verdict, and the ``top`` worst calls with the worst image of each call.

    The formats json, jsonl and csv have all calls and all images. ``command`` holds the words of
    the command, for the JSON document.
    """
    verdict = to_words(verdict_text(comparison))
    blame = "" if comparison.blame is None else blame_text(comparison.blame)
    lines = [line for line in (blame, verdict) if line]
    rows = comparison.image_rows if has_every_image(output_format) else comparison.rows[:top]
    if output_format == "md":
        console.print_data("".join(f"**{escape.for_markdown(line)}**\n\n" for line in lines))
    if output_format == "table":
        print_wrapped(map(escape.for_terminal, lines))
    else:
        console.say("\n".join(lines))
    caption = map(to_words, _caption(comparison, len(rows)))
    look = _LOOK if comparison.blame is None else _with_own(_LOOK)
    print_listing(
        look, rows, _document(comparison, command), output_format=output_format, caption=caption
    )


def _with_own(look: Look[DiffRow]) -> Look[DiffRow]:
    columns = {}
    for name, show in look.columns.items():
        columns[name] = show
        if name == "rel L2":
            columns[_OWN] = lambda row: figure_text(row.own_rel_l2)
    return replace(look, columns=columns)


def _caption(comparison: Comparison, shown: int) -> Iterator[str]:
    calls = len(comparison.rows)
    shown_calls = [f"the worst {shown} of {calls} calls"] if shown < calls else []
    if len(comparison.images) > 1:
        shown_calls.append("the figures are from each call's worst image")
    if shown_calls:
        yield f"{', and '.join(shown_calls)}; all of them: --format csv"
    yield f"A (the reference): {comparison.a}; B: {comparison.b}"
    yield from list_notes(comparison)
    for each in comparison.changed:
        yield changed_text(each)


def _document(comparison: Comparison, command: tuple[str, ...]) -> ComparisonDocument:
    first, blame = comparison.first, comparison.blame
    return ComparisonDocument(
        command=command,
        equal=comparison.equal,
        first=None if first is None else first.call_id,
        verdict=verdict_text(comparison),
        culprits=None if blame is None else blame.ids,
        blame="" if blame is None else blame_text(blame),
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
