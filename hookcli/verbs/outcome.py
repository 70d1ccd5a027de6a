"""Define base classes for results of commands: their table (also in notebooks), files and page."""

from __future__ import annotations

import base64
import html
import mimetypes
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from hookcli.errors import DONE, RequestError
from hookcli.outside import tables
from hookcli.records.rows import FileRow
from hookcli.records.statistics import SHOWN
from hookcli.records.text import count, shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from _typeshed import DataclassInstance

    from hookcli.outside.documents import Document
    from hookcli.verbs.call import Note

Row = TypeVar("Row", bound="DataclassInstance")

_PRE = '<pre style="max-height:640px;overflow:auto;font-family:monospace">'
MOST_ROWS = 20
"""The default number of rows in a table that shows only the most important rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[Row]):
    """Says how to print rows; ``columns`` maps a heading to the function that makes its cells."""

    kind: type[Row]  # its fields are the columns of the CSV form
    columns: Mapping[str, Callable[[Row], str]]
    words: tuple[str, ...]  # hold text; the others hold numbers, aligned to the right
    fold: tuple[str, ...]  # may be wrapped
    drop: tuple[str, ...]  # matter least, and are left out where there is no room, in this order
    foot: tuple[str, ...] = ()  # if dropped, each text is below the table, with its rows' names
    messages: tuple[str, ...] = ()  # columns that may name keywords, as messages do
    brief: Callable[[str], str] = str  # shortens a text of ``foot``, so that more rows share it

    def filled(self, cells: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """Return ``cells`` without empty columns in ``drop``; without rows, keep all columns."""
        kept = (n for n, texts in cells.items() if any(texts) or n not in self.drop or not texts)
        return {name: cells[name] for name in kept}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Table(Generic[Row]):
    """The rows that a command shows to people, with the lines of text above and below them."""

    look: Look[Row]
    rows: Sequence[Row]
    headlines: Sequence[str] = ()
    caption: Sequence[str] = ()

    def cells(self) -> dict[str, Sequence[str]]:
        return {name: [*map(show, self.rows)] for name, show in self.look.columns.items()}

    def __repr__(self) -> str:  # as Markdown, which is easy to read as it is
        cells = self.cells()
        rows = [*zip(*cells.values(), strict=True)]
        lines = [tables.render_markdown([*cells], rows).rstrip("\n")] if rows else []
        parts = ["\n".join(self.headlines), *lines, "\n".join(self.caption)]
        return "\n\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        from hookcli.render.report.notebook import render_lines, render_table

        above, below = map(render_lines, (self.headlines, self.caption))
        cells = self.look.filled(self.cells())
        rows = [*zip(*cells.values(), strict=True)]
        return f"<div>{above}{render_table([*cells], rows, self.look.words)}{below}</div>"


class Outcome:
    """The base class of the results of functions such as ``hookcli.inspect``."""

    if TYPE_CHECKING:

        @property
        def notes(self) -> Sequence[Note]:
            """The verb's messages, in order."""

        @property
        def rows(self) -> Sequence[Any]:
            """All rows, as ``--format csv`` and ``jsonl`` print them."""

        @property
        def files(self) -> Mapping[str, Path | bytes]:
            """The path of each file, by its name; or its content if nothing was written to disk."""

        def document(self) -> Document:
            """Return what ``--format json`` prints."""

        def table(self) -> Table[Any]:
            """Return the table that ``--format table`` prints."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return DONE

    @property
    def page(self) -> Page | None:
        """The HTML page of the result; None if it has none."""
        return None

    def text(self) -> str | None:
        """Return the text that the command prints; None if it prints a table instead."""
        return None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__repr__" not in vars(cls):  # a dataclass would write its whole content
            cls.__repr__ = cls.__mro__[1].__repr__  # type: ignore[assignment, method-assign]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {count(len(getattr(self, 'rows', ())), 'row')}>"

    def __str__(self) -> str:
        table = repr(self.table()).replace("\\_", "_")  # call ids as they are
        return table if (text := self.text()) is None else text

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kinds = (property, cached_property, FunctionType)
            members = [item for each in type(self).__mro__ for item in vars(each).items()]
            names = {n for n, value in members if isinstance(value, kinds) and n[0] != "_"}
            known = ", ".join(sorted(names))
            what = f"{type(self).__name__!r} object has no attribute {name!r}; it has {known}"
            raise AttributeError(what, name=name, obj=self)

    def _repr_html_(self) -> str:
        text = self.text()
        return self.table()._repr_html_() if text is None else f"{_PRE}{html.escape(text)}</pre>"


@dataclass(frozen=True, kw_only=True)
class UnwrittenOutcome(Outcome):
    """The result of a command that writes no files."""

    notes: Sequence[Note]

    @property
    def files(self) -> Mapping[str, Path | bytes]:
        return {}


@dataclass(frozen=True, kw_only=True)
class FileOutcome(Outcome):
    """A result that consists of written files, with a row for each file."""

    notes: Sequence[Note]
    rows: tuple[FileRow, ...]
    files: Mapping[str, Path | bytes]

    def table(self) -> Table[FileRow]:
        columns: dict[str, Callable[[FileRow], str]] = {
            "file": lambda row: row.file,
            "call": lambda row: row.call_id,
            "shape": lambda row: "" if row.shape is None else shape_text(row.shape),
        }
        words = (*columns,)
        look = Look(kind=FileRow, columns=columns, words=words, fold=words[:1], drop=words[1:])
        return Table(look=look, rows=self.rows)


def statistic_text(name: str, row: object) -> str:
    """Format the statistic ``name`` of a row for a table."""
    return SHOWN[name].format(getattr(row, name))


@dataclass(frozen=True, slots=True)
class Page:
    """An HTML page in a file or in memory, which a notebook shows in a frame."""

    files: Mapping[str, Path | bytes] = field(repr=False)  # of the page and of its pictures
    name: str

    @property
    def path(self) -> Path | None:
        """The path of the page; None if the page is only in memory."""
        file = self.files[self.name]
        return None if isinstance(file, bytes) else file

    @property
    def html(self) -> str:
        """The HTML of the page, with its pictures embedded."""
        text = _read(self.files[self.name]).decode()
        for name in self.files:
            kind = mimetypes.guess_type(name)[0] or ""
            if kind.startswith("image/") and f'"{quote(name)}"' in text:
                data = base64.b64encode(_read(self.files[name])).decode()
                text = text.replace(f'"{quote(name)}"', f'"data:{kind};base64,{data}"')
        return text

    def save(self, file: str | Path) -> None:
        """Write the page to a file, with its pictures embedded."""
        with open(file, "w", encoding="utf-8") as stream:  # noqa: PTH123  Path costs an import
            stream.write(self.html)

    def _repr_html_(self) -> str:
        style = "width:100%;height:640px;border:0"
        return f'<iframe srcdoc="{html.escape(self.html)}" style="{style}"></iframe>'


def _read(file: Path | bytes) -> bytes:
    try:
        return file if isinstance(file, bytes) else file.read_bytes()
    except OSError as error:
        message = f"cannot read {str(file)!r}: {error.strerror or error}"
        raise RequestError(message, "call the function again") from error
