"""Print an outcome in the requested format, and fit its table to the width of the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from hookcli.cli.output import console
from hookcli.cli.output.wording import to_words
from hookcli.outside import escape, json_text, tables
from hookcli.records.text import and_more
from hookcli.verbs.documents import CommandError, ErrorDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hookcli.verbs.outcome import Look, Outcome, Table

BRIEF = ("table", "md")  # formats for people, with only the most important rows

_FOLDED = 32  # the width of a column with wrapped text
_WIDE = 400  # width of a table that is not on a terminal
_USUAL = 80  # width of a terminal that does not report its width
_HEIGHT = 25  # keeps Rich from reading COLUMNS, which may not be a number
_MOST_NAMED = 4  # rows to name for one text below a table
_NARROW = 20  # least width of a table


def print_outcome(outcome: Outcome, output_format: str) -> None:
    if (text := outcome.text()) is not None:
        console.print_data(text)
        return
    if output_format == "text":
        for row in outcome.rows:  # a program gets the unescaped name
            name = escape.for_terminal(row.file) if sys.stdout.isatty() else row.file
            console.print_data(f"{name}\n")
        return
    table = outcome.table()
    headlines = [*map(to_words, table.headlines)]
    if headlines and output_format != "table":
        for line in headlines:
            console.say(line)
    if output_format == "jsonl":
        for row in outcome.rows:
            console.print_data(json_text.render_line(row))
    elif output_format == "csv":
        console.print_data(tables.render_csv(table.look.kind, outcome.rows))
    elif output_format == "json":
        for piece in json_text.render_pieces(json_text.plain(outcome.document())):
            console.print_data(piece)
    else:
        _print_brief(table, headlines, output_format)


def _print_brief(table: Table[Any], headlines: Sequence[str], output_format: str) -> None:
    look = table.look
    cells = table.cells()
    cells |= {name: [*map(to_words, cells[name])] for name in look.messages}
    caption = [*map(to_words, table.caption)]
    if output_format == "md":
        above = "".join(f"**{escape.for_markdown(line)}**\n\n" for line in headlines)
        rows = [*zip(*cells.values(), strict=True)]
        below = "".join(f"\n{escape.for_markdown(line)}\n" for line in caption)
        console.print_data(above + tables.render_markdown([*cells], rows) + below)
        return
    _print_wrapped(map(escape.for_terminal, headlines))
    _print_table(look, cells)
    _print_wrapped(map(escape.for_terminal, caption))


def print_error_document(code: int, message: str, hint: str, output_format: str) -> None:
    document = ErrorDocument(error=CommandError(code=code, message=message, hint=hint))
    render = json_text.render_line if output_format == "jsonl" else json_text.render_json
    console.print_data(render(document))


def _print_wrapped(lines: Iterable[str]) -> None:
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        text = textwrap.fill(line, _text_width(), subsequent_indent=indent, break_long_words=False)
        console.print_data(f"{text}\n")


def _text_width() -> int:
    with contextlib.suppress(ValueError):
        if (asked := int(os.environ.get("COLUMNS", "0"))) > 0:
            return max(_NARROW, asked)
    if not sys.stdout.isatty():
        return _WIDE
    with contextlib.suppress(OSError):
        width = os.get_terminal_size(sys.stdout.fileno()).columns
        return max(_NARROW, width) if width else _USUAL
    return _USUAL


def _print_table(look: Look[Any], cells: Mapping[str, Sequence[str]]) -> None:
    from rich import table as rich_table
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.text import Text

    filled = look.filled(cells)
    kept = _fitting_columns(look, filled)
    table = rich_table.Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in kept:
        table.add_column(
            name,
            justify="left" if name in look.words else "right",
            no_wrap=name not in look.fold,
            overflow="fold",
        )
    for texts in zip(*(cells[name] for name in kept), strict=True):
        table.add_row(*(Text(escape.for_terminal(text)) for text in texts))
    printed = io.StringIO()
    Console(
        file=printed,
        width=_text_width(),
        height=_HEIGHT,
        force_terminal=sys.stdout.isatty() and not console.is_plain(),
        highlight=False,
        markup=False,
    ).print(table)
    drawn = printed.getvalue().splitlines()
    console.print_data("".join(line.rstrip() + "\n" for line in drawn if line.strip()))
    left_out = [name for name in filled if name not in kept]
    lines = [line for name in left_out if name in look.foot for line in _foot(look, cells, name)]
    if hidden := ", ".join(name for name in left_out if name not in look.foot):
        lines.append(f"columns that do not fit: {hidden}")
    _print_wrapped(lines)


def _foot(look: Look[Any], cells: Mapping[str, Sequence[str]], column: str) -> Iterator[str]:
    named: dict[str, list[str]] = {}
    for texts, name in zip(cells[column], cells[look.fold[0]], strict=True):
        for text in filter(None, texts.split("; ")):
            named.setdefault(look.brief(text), []).append(name)
    yield f"{column}:"
    for text, names in named.items():
        more = and_more(len(names) - _MOST_NAMED, ", and {} more")
        yield escape.for_terminal(f"  {text}: {', '.join(names[:_MOST_NAMED])}{more}")


def _fitting_columns(look: Look[Any], cells: Mapping[str, Sequence[str]]) -> list[str]:
    widths = {}
    for name, texts in cells.items():
        longest = max(map(len, [name, *texts]))
        widths[name] = 3 + (min(longest, _FOLDED) if name in look.fold else longest)
    for name in look.drop:
        if sum(widths.values()) <= _text_width():
            break
        widths.pop(name, None)
    return [*widths]
