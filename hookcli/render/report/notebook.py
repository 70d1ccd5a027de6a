"""Render a result as HTML for a notebook, without script; limit its rows, pictures and findings."""

from __future__ import annotations

import base64
import io
from contextlib import suppress
from html import escape
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_terminal
from hookcli.outside.png import decode_png
from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from hookcli.records.runs import Finding

MOST_ROWS = 30
MOST_PICTURES = 4
MOST_NOTES = 4
_SIDE = 360  # pixels of the longest side of a picture: about 40 kB each
_CELL = "padding:1px 6px;border-bottom:1px solid rgba(128,128,128,.3);"
_WORDS = 3  # the number of columns with text; all later columns hold numbers
_PICTURES = "display:flex;flex-wrap:wrap;gap:12px;margin-top:8px;align-items:start"


def render_layers(
    title: str,
    notes: Iterable[str],
    rows: Sequence[Mapping[str, str]],
    total: int,
    pictures: Iterable[tuple[str, bytes]] = (),
) -> str:
    names = [*rows[0]] if rows else []
    table = render_table(names, [[*row.values()] for row in rows], names[:_WORDS]) if rows else ""
    more = f"<div>and {total - len(rows)} more</div>" if total > len(rows) else ""
    shown = "".join(_image(caption, data) for caption, data in pictures)
    below = f'<div style="{_PICTURES}">{shown}</div>' if shown else ""
    return f"<div><div><b>{_text(title)}</b></div>{render_lines(notes)}{table}{more}{below}</div>"


def render_lines(lines: Iterable[str]) -> str:
    return "".join(f"<div>{_text(line)}</div>" for line in lines)


def render_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str]
) -> str:
    """Return a table as HTML. Columns whose names are not in ``words`` hold numbers."""
    styles = [f"{_CELL}text-align:{'left' if name in words else 'right'}" for name in names]
    body = "".join(_row(row, styles, "td") for row in rows)
    return f"<table><thead>{_row(names, styles, 'th')}</thead><tbody>{body}</tbody></table>"


def read_pictures(
    names: Iterable[str], read: Callable[[str], bytes]
) -> Iterator[tuple[str, bytes]]:
    for name in islice(names, MOST_PICTURES):
        with suppress(OSError, ValueError):
            yield PurePosixPath(name).stem, read(name)


def describe_run(weights: str, findings: Sequence[Finding]) -> Iterator[str]:
    yield f"weights: {weights}"
    yield from (f"{finding.rule}: {finding.sentence}" for finding in findings[:MOST_NOTES])
    if len(findings) > MOST_NOTES:
        yield and_more(len(findings) - MOST_NOTES, "and {} more finding{s}")


def _row(cells: Sequence[str], styles: Sequence[str], tag: str) -> str:
    pairs = zip(cells, styles, strict=True)
    shown = (f'<{tag} style="{style}">{_text(cell)}</{tag}>' for cell, style in pairs)
    return f"<tr>{''.join(shown)}</tr>"


def _text(text: str) -> str:
    return escape(for_terminal(text))


def _image(caption: str, data: bytes) -> str:
    try:
        picture = decode_png(data)
    except ValueError:
        return ""
    picture.thumbnail((_SIDE, _SIDE))
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=70)
    coded = base64.b64encode(stream.getvalue()).decode("ascii")
    return f'<img src="data:image/jpeg;base64,{coded}" alt="feature maps of {_text(caption)}">'
