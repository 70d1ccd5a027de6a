"""Define ``hookcli export``, which writes saved tensors as .npy or .csv: file names and limits."""

from __future__ import annotations

import csv
import io
import math
import os
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal, TypeAlias

from hookcli.config import StorageOptions
from hookcli.errors import OutputError, RequestError
from hookcli.outside import escape
from hookcli.outside.documents import DamagedError, Document, read_document
from hookcli.outside.files import open_atomic, write_atomic
from hookcli.outside.flags import Flag
from hookcli.outside.urls import to_location
from hookcli.records.rows import FileRow
from hookcli.store.locations.names import portable_name
from hookcli.verbs.call import VerbCall
from hookcli.verbs.documents import ExportDocument
from hookcli.verbs.keywords import FILES, verb
from hookcli.verbs.messages import warn_of_damage
from hookcli.verbs.outcome import FileOutcome
from hookcli.verbs.runs import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hookcli.reading.load import Run

    _Writer: TypeAlias = Callable[[IO[bytes]], None]

_FOLDER = Path("hookcli-exports")
_MOST_COLUMNS = 16_384  # the most columns that spreadsheets can open
_IMAGES = "images"
_VALUE = 4  # bytes, about
_LIST = ".hookcli-export.json"  # lists the files in a folder that exports wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExportList(Document):
    hookcli: str
    command: tuple[str, ...] = ("hookcli", "export")
    files: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Export(FileOutcome):
    """The files that ``export`` wrote: arrays or tables (a row per image), then lists of images."""

    def document(self) -> ExportDocument:
        return ExportDocument(files=self.rows)


@verb(*FILES)
def export(
    call: VerbCall,
    run: RunFolder,
    to: Annotated[
        Literal["npy", "csv"],
        Flag("--to npy|csv", "One array (images, …) per call, or one row per image."),
    ],
    out: Annotated[
        Path | None, Flag("-o --out DIR", "The folder.  [default: hookcli-exports/RUN]")
    ] = None,
    layers: Annotated[
        tuple[str, ...],
        Flag(
            "--layers CALL_ID", "Which calls, by id or glob: 'layer1.*'.  [default: all]", many=True
        ),
    ] = (),
    overwrite: Annotated[bool, Flag("--overwrite", "Replace files that an export wrote.")] = False,
    storage_option: StorageOptions = (),
) -> Export:
    """Write the saved tensors of a run to .npy or .csv files.

    Examples:
        hookcli export hookcli-runs/resnet34-photos --to npy
        hookcli export hookcli-runs/resnet34-photos --to csv -o tables
    """
    from hookcli.plan.check import check_memory
    from hookcli.reading.load import choose_calls, load_run
    from hookcli.store.locations.storage import use_options
    from hookcli.store.ownership import refuse_run_folder

    use_options(storage_option)
    opened = load_run(run)
    warn_of_damage(call, opened.damage)
    chosen = choose_calls(opened, layers or ("*",))
    folder = out
    if folder is None and call.listener.writes:
        folder = _FOLDER / to_location(run).resolve().name
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            message = f"{str(folder)!r} is a file, not a folder"
            raise OutputError(message, "choose another with `out`")
        refuse_run_folder(folder)
    for call_id in chosen:
        values = math.prod(opened.shape_of(call_id)[1:])
        if to == "csv" and values > _MOST_COLUMNS:
            what = f"{call_id!r} has {values:,} values per image"
            hint = "save with `pool='mean'`, or export `to='npy'`"
            raise RequestError(f"{what}, and a table at most {_MOST_COLUMNS:,} columns", hint)
    planned = dict(_plan_files(opened, chosen, to))
    if folder is None:
        values = sum(math.prod(opened.shape_of(call_id)) for call_id in chosen)
        check_memory(len(opened.images), values * _VALUE / 1e6)
        files: dict[str, Path | bytes] = {row.file: _render(planned[row]) for row in planned}
        return Export(notes=call.notes, rows=(*planned,), files=files)
    _write_files(folder, planned, overwrite=overwrite)
    paths = {row.file: folder / row.file for row in planned}
    rows = tuple(replace(row, file=str(paths[row.file])) for row in planned)
    return Export(notes=call.notes, rows=rows, files=paths)


def _render(write: _Writer) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def _write_files(folder: Path, planned: Mapping[FileRow, _Writer], *, overwrite: bool) -> None:
    names = [row.file for row in planned]
    written = {*_check_names(folder, names, overwrite=overwrite), *names}
    _write_list(folder, written)
    try:
        for row, write in planned.items():
            with open_atomic(folder / row.file) as stream:
                write(stream)
    finally:  # a file that was never written must not count as hookcli's if somebody makes it later
        _write_list(folder, {name for name in written if os.path.lexists(folder / name)})


def _plan_files(run: Run, chosen: Sequence[str], to: str) -> Iterator[tuple[FileRow, _Writer]]:
    # Lists of images come after the tensors. All tables share one list, and so do all arrays that
    # have every image of the run.
    write = _write_npy if to == "npy" else _write_csv
    names = _name_files(chosen)
    for call_id, name in names.items():
        row = FileRow(f"{name}.{to}", call_id, run.shape_of(call_id))
        yield row, partial(write, run=run, call_id=call_id)
    of_all = FileRow(f"{_IMAGES}.csv")
    if to == "csv":
        yield of_all, partial(_write_keys, run=run, keys=run.images)
        return
    for call_id, name in names.items():
        keys = run.images_of(call_id)
        own = FileRow(f"{name}.{_IMAGES}.csv", call_id)
        yield of_all if keys == run.images else own, partial(_write_keys, run=run, keys=keys)


def _name_files(chosen: Iterable[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    taken = {_IMAGES}
    for call_id in chosen:
        stem = portable_name(call_id)
        numbered = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        names[call_id] = next(name for name in numbered if name.lower() not in taken)
        taken.add(names[call_id].lower())
    return names


def _check_names(folder: Path, names: Iterable[str], *, overwrite: bool) -> set[str]:
    known: set[str] = set()
    try:
        if (folder / _LIST).is_symlink():
            raise DamagedError("a link is not followed")
        known = set(read_document(folder / _LIST, _ExportList).files)
    except (OSError, DamagedError):
        names = [*names, _LIST]
    for name in names:
        file = folder / name
        if not os.path.lexists(file):
            continue
        if name not in known or file.is_symlink() or not file.is_file():
            message = f"{str(file)!r} was not written by `hookcli.export`"
            raise OutputError(message, "choose another folder with `out`")
        if not overwrite:
            hint = "replace it with `overwrite`, or choose another `out`"
            raise OutputError(f"{str(file)!r} already exists", hint)
    return known


def _write_list(folder: Path, names: set[str]) -> None:
    from hookcli.outside.json_text import render_json

    listed = _ExportList(hookcli=metadata.version("hookcli"), files=tuple(sorted(names)))
    write_atomic(folder / _LIST, render_json(listed).encode())


def _write_npy(stream: IO[bytes], run: Run, call_id: str) -> None:
    import numpy as np

    np.save(stream, run[call_id], allow_pickle=False)


def _write_csv(stream: IO[bytes], run: Run, call_id: str) -> None:
    values = run[call_id]
    flat = values.reshape(len(values), -1)
    kept = {tensor.channels for tensor in run.saved[call_id]}
    channels = kept.pop() if len(kept) == 1 else ()
    is_pooled = values.shape[1:] == (len(channels),)
    header = ["image", *map(str, channels if is_pooled else range(flat.shape[1]))]
    keys = map(escape.for_csv, run.images_of(call_id))
    rows = ([key, *map(str, row)] for key, row in zip(keys, flat, strict=True))
    _write_rows(stream, [header], rows)


def _write_keys(stream: IO[bytes], run: Run, keys: Sequence[str]) -> None:
    from hookcli.analysis.images import list_files

    files = list_files(run)
    rows = ([row, *map(escape.for_csv, (key, files[key]))] for row, key in enumerate(keys))
    _write_rows(stream, [["row", "image", "file"]], rows)


def _write_rows(stream: IO[bytes], *tables: Iterable[Sequence[object]]) -> None:
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    for rows in tables:
        writer.writerows(rows)
    text.detach()  # flushes, and leaves the stream open for its owner
