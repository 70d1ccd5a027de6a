"""``hookcli export``."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal
from urllib.parse import unquote

import typer

from hookcli import escape
from hookcli.cli import console
from hookcli.errors import OutputError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.runs import Run

_MOST_COLUMNS = 16_384  # what a spreadsheet opens
_IMAGES = "images"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    to: Annotated[
        Literal["npy", "csv"],
        typer.Option(help="npy: an array (images, …) a call; csv: a row an image."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="DIR", help="The folder.  [default: hookcli-exports/RUN]"
        ),
    ] = None,
    layers: Annotated[
        list[str],
        typer.Option(
            metavar="CALL_ID",
            help="Which calls, by id or glob: 'layer1.*'. Repeatable.  [default: all that were saved]",
        ),
    ] = [],  # noqa: B006
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
) -> None:
    """Write the tensors that a run saved as files that other tools read.

    Example: hookcli export hookcli-runs/resnet34-photos --to npy
    """
    from hookcli.files import open_atomic
    from hookcli.runs import choose_calls, load_run

    opened = load_run(run)
    chosen = choose_calls(opened, layers or ["*"])
    folder = out or Path("hookcli-exports") / run.resolve().name
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{str(folder)!r} is a file, not a folder", "choose another with -o")
    if any((folder / name).exists() for name in ("run.json", "manifest.json")):
        raise OutputError(f"{str(folder)!r} is a run's folder", "choose another folder with -o")
    _check_shapes(opened, chosen, to)
    names = _name_files(chosen)
    keys = _list_keys(opened, names, to)
    files = {call_id: folder / f"{name}.{to}" for call_id, name in names.items()}
    _check_absent([*files.values(), *(folder / name for name in keys)], overwrite=overwrite)
    for call_id, file in files.items():
        write = _write_npy if to == "npy" else _write_csv
        with open_atomic(file) as stream:
            write(stream, opened, call_id)
        console.print_data(f"{file}\n")
    for name, rows in keys.items():
        with open_atomic(folder / name) as stream:
            _write_keys(stream, opened, rows)
        console.print_data(f"{folder / name}\n")


def _check_shapes(run: Run, chosen: Sequence[str], to: str) -> None:
    """Refuse before anything is written what cannot become one array, or is too wide for a table."""
    for call_id in chosen:
        values = math.prod(run.shape_of(call_id)[1:])
        if to == "csv" and values > _MOST_COLUMNS:
            raise RequestError(
                f"{call_id!r} has {values:,} values an image, and a table at most {_MOST_COLUMNS:,} columns",
                "save with --pool mean, or export --to npy",
            )


def _name_files(chosen: Iterable[str]) -> dict[str, str]:
    """A file name for each call id, without its ending; safe, and unique whatever the case."""
    from hookcli.files import safe_name

    names: dict[str, str] = {}
    taken = {_IMAGES}
    for call_id in chosen:
        stem = name = safe_name(call_id)
        number = 2
        while name.lower() in taken:
            name = f"{stem}-{number}"
            number += 1
        taken.add(name.lower())
        names[call_id] = name
    return names


def _list_keys(run: Run, names: dict[str, str], to: str) -> dict[str, tuple[str, ...]]:
    """Files that name the rows of the arrays: one for all, and one for each call that lacks images.

    A table names its rows itself.
    """
    if to == "csv":
        return {f"{_IMAGES}.csv": run.images}
    files = {}
    for call_id, name in names.items():
        keys = run.images_of(call_id)
        files[f"{_IMAGES}.csv" if keys == run.images else f"{name}.{_IMAGES}.csv"] = keys
    return files


def _check_absent(files: Iterable[Path], *, overwrite: bool) -> None:
    for file in files:
        if file.exists() and not overwrite:
            raise OutputError(
                f"{str(file)!r} is there already",
                "replace it with --overwrite, or choose another -o",
            )


def _write_npy(stream: IO[bytes], run: Run, call_id: str) -> None:
    import numpy as np

    np.save(stream, run[call_id], allow_pickle=False)


def _write_csv(stream: IO[bytes], run: Run, call_id: str) -> None:
    """A row an image, a column a value in the order of the axes, in as few digits as give it back."""
    values = run[call_id]
    flat = values.reshape(len(values), -1)
    header = ["image", *map(str, _name_columns(run, call_id, values.shape[1:]))]
    keys = map(escape.for_csv, run.images_of(call_id))
    rows = ([key, *map(str, row)] for key, row in zip(keys, flat, strict=True))
    _write_rows(stream, [header], rows)


def _name_columns(run: Run, call_id: str, shape: tuple[int, ...]) -> Iterable[int]:
    """The channels, where one value of each was saved, or else the values counted from 0."""
    kept = {tensor.channels for tensor in run.saved[call_id]}
    channels = kept.pop() if len(kept) == 1 else ()
    return channels if shape == (len(channels),) else range(math.prod(shape))


def _write_keys(stream: IO[bytes], run: Run, keys: Sequence[str]) -> None:
    files = {
        image["key"]: unquote(image.get("file", ""), errors="surrogateescape")
        for image in run.manifest["images"]
    }
    rows = ([row, *map(escape.for_csv, (key, files[key]))] for row, key in enumerate(keys))
    _write_rows(stream, [["row", "image", "file"]], rows)


def _write_rows(stream: IO[bytes], *parts: Iterable[Sequence[object]]) -> None:
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    for part in parts:
        writer.writerows(part)
    text.detach()  # flushed, and the stream left open for whoever opened it
