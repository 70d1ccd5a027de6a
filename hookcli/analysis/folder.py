"""Check and write the folder of an analysis, whose files ``analysis.json`` lists."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

from hookcli.errors import OutputError
from hookcli.outside.documents import DamagedError, Document, decode, keywords
from hookcli.outside.json_text import render_json
from hookcli.records.shared_fields import Command
from hookcli.store.locations.names import ANALYSIS
from hookcli.store.results import Kind, check_results, make_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hookcli.store.results import ResultFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisList(Document):
    """The content of ``analysis.json``: how an analysis was made, and its files.

    Attributes:
        hookcli: the version of hookcli that made the analysis.
        files: the names of all other files, relative to the folder.
    """

    hookcli: str
    command: Command
    files: Annotated[tuple[str, ...], keywords(uniqueItems=True)]


def check_folder(folder: Path, *, overwrite: bool) -> None:
    if check_results(folder, _ANALYSIS) and not overwrite:
        what = f"{str(folder)!r} already has an analysis"
        raise OutputError(what, "replace it with `overwrite=True`, or choose another `out`")


def make_folder(
    folder: Path | None, command: tuple[str, ...] | None
) -> AbstractContextManager[ResultFolder]:
    def make_list(names: Sequence[str]) -> bytes:
        version = metadata.version("hookcli")
        listed = AnalysisList(hookcli=version, command=command, files=tuple(names))
        return render_json(listed).encode()

    return make_results(folder, _ANALYSIS, make_list)


def _read_list(data: bytes) -> Iterable[str] | None:
    try:
        return decode(data, AnalysisList).files
    except DamagedError:
        return None


_ANALYSIS = Kind("analysis", "an", ANALYSIS, _read_list)
