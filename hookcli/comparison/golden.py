"""Make and write golden files: the statistics of a run in a small file, for ``hookcli diff``."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hookcli.distance import sketch as sketches
from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import DamagedError, to_fields
from hookcli.outside.files import cannot_write, open_regular, write_atomic
from hookcli.reading.run_files import cannot_read
from hookcli.records.command import SAVED_IN_PART, read_command
from hookcli.records.golden import KIND, GoldenCall, GoldenFile, SketchForm, golden_facts
from hookcli.records.layer_records import read_record
from hookcli.records.runs import ModelInfo
from hookcli.records.statistics import figures_of
from hookcli.store.locations.names import MANIFEST
from hookcli.store.ownership import refuse_in_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hookcli.reading.load import Run
    from hookcli.records.layer_records import RecordRow

_BEGINNING = re.compile(rb'\s*\{\s*"schema_version":\s*\d+,\s*"kind":\s*"%b"' % KIND.encode())


def make_golden(run: Run) -> GoldenFile:
    rows = [read_record(cells) for cells in run.records.to_pylist()]
    has_sketches = any(row.sketch is not None for row in rows)
    kept = {} if has_sketches else _find_tensors(run)
    try:
        golden = golden_facts(run.manifest)
    except DamagedError as error:
        raise cannot_read(run.folder / MANIFEST, error) from error
    calls = (
        _describe_call(row, row.sketch if has_sketches else _sketch_saved(run, row, kept))
        for row in rows
    )
    return replace(golden, calls=tuple(calls))


def render_golden(golden: GoldenFile) -> str:
    facts = [f"{_one_line(name)}: {_render_fact(fact)}" for name, fact in to_fields(golden).items()]
    return "{\n" + ",\n".join(facts) + "\n}\n"


def write_golden(golden: GoldenFile, file: Path) -> Path:
    return write_atomic(file, render_golden(golden).encode())


def check_replaceable(file: Path, *, overwrite: bool) -> None:
    # Reading a device or a pipe could block forever.
    name = str(file)
    if file.is_symlink():
        raise OutputError(f"{name!r} is a link, which is never followed", "name the file itself")
    refuse_in_run(file)
    if file.is_dir():
        raise OutputError(f"{name!r} is a folder", "name a file: `out='golden.json'`")
    try:
        if not file.exists():
            return
        if not file.is_file():
            raise OutputError(
                f"{name!r} is a device or a pipe, not a regular file",
                "name a file, or leave out `out` to write to stdout",
            )
        if overwrite:
            return
        with open_regular(file) as stream:
            if _BEGINNING.match(stream.read(200)) is not None:
                return
    except OSError as error:
        raise cannot_write(file, error) from error
    raise OutputError(
        f"{name!r} already exists and is not a golden file",
        "replace it with `overwrite=True`, or choose another `out`",
    )


def _find_tensors(run: Run) -> dict[str, frozenset[str]]:
    again = "run `hookcli.inspect` again, with `sketch=True`"
    if not run.calls:
        raise RequestError(f"the run in {str(run.folder)!r} kept no sketches", again)
    for option in SAVED_IN_PART:
        if option in read_command(run.manifest):
            what = f"kept no sketches, and its tensors only with {option}"
            raise RequestError(f"the run in {str(run.folder)!r} {what}", again)
    return {call_id: frozenset(run.images_of(call_id)) for call_id in run.calls}


def _sketch_saved(run: Run, row: RecordRow, kept: Mapping[str, frozenset[str]]) -> bytes | None:
    if 0 in row.shape:
        return sketches.to_bytes(sketches.sketch_values(np.empty(0)))
    if row.image not in kept.get(row.call_id, ()):
        return None
    return sketches.to_bytes(sketches.sketch_values(run.tensor(row.call_id, row.image)))


def _describe_call(row: RecordRow, sketch: bytes | None) -> GoldenCall:
    columns = {each.name: getattr(row, each.name) for each in fields(GoldenCall)}
    for name, figure in figures_of(row).items():
        columns[name] = figure if figure is None or math.isfinite(figure) else None
    columns["sketch"] = None if sketch is None else sketches.to_text(sketch)
    return GoldenCall(**columns)


def _render_fact(fact: object) -> str:
    named = to_fields(fact) if isinstance(fact, (ModelInfo, SketchForm)) else fact
    if isinstance(named, dict) and named:
        lines = [f" {_one_line(name)}: {_one_line(value)}" for name, value in named.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    if isinstance(fact, tuple) and fact and is_dataclass(fact[0]):
        return "[\n" + ",\n".join(f" {_one_line(each)}" for each in fact) + "\n]"
    return _one_line(fact)


def _one_line(value: object) -> str:
    return json.dumps(value, allow_nan=False, default=to_fields)


def rename_image(golden: GoldenFile, file: str, shown: str) -> GoldenFile:
    images = (replace(image, file=image.file.replace(file, shown)) for image in golden.images)
    command = tuple(shown if word == file else word for word in golden.command or ()) or None
    return replace(golden, command=command, images=tuple(images))
