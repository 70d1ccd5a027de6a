"""Golden files: what a run gave, in one small text that is kept beside the code, for ``hookcli diff``. No torch.

A golden file holds the figures and the sketch of every call, and what the run depended on. It is made
from a run folder, and the same folder gives the same bytes.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from hookcli.compare.facts import KIND, SAVED_IN_PART
from hookcli.distance import sketch as sketches
from hookcli.documents import SCHEMA_VERSION
from hookcli.errors import OutputError, RequestError
from hookcli.files import cannot_write, open_regular, write_atomic
from hookcli.store.names import MANIFEST
from hookcli.store.ownership import find_holder
from hookcli.store.shards import cannot_read

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hookcli.documents import RecordRow
    from hookcli.store.load import Run


_BEGINNING = re.compile(rb'\s*\{\s*"schema_version":\s*\d+,\s*"kind":\s*"%b"' % KIND.encode())
_FACTS = ("hookcli", "command", "model", "versions", "layers", "uncalled")
_IMAGE = ("key", "file", "sha256", "width", "height", "pixels_shape", "note")


def make_golden(run: Run) -> dict[str, object]:
    """The golden document of a run: its calls image by image, in the order in which their tensors were seen.

    A call without values, such as a gradient that does not exist, has null for a sketch and says why
    under ``reason``.

    Raises:
        RequestError: the run kept neither sketches nor whole tensors, or a table or shard of it is
            damaged.
    """
    rows: list[RecordRow] = run.records.to_pylist()
    has_sketches = any(row.get("sketch") is not None for row in rows)
    kept = {} if has_sketches else _find_tensors(run)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "sketch": {
            "version": sketches.VERSION,
            "buckets": sketches.BUCKETS,
            "dtype": sketches.DTYPE,
        },
        **_read_facts(run),
        "calls": [
            _describe_call(
                row, row.get("sketch") if has_sketches else _sketch_saved(run, row, kept)
            )
            for row in rows
        ],
    }


def render_golden(document: Mapping[str, object]) -> str:
    """The document as text, a call a line and a fact a line, so that what changed reads well."""
    facts = [f"{_one_line(name)}: {_render_fact(fact)}" for name, fact in document.items()]
    return "{\n" + ",\n".join(facts) + "\n}\n"


def write_golden(document: Mapping[str, object], file: Path) -> Path:
    """Write the document; the file is complete or as it was.

    Raises:
        OutputError: it cannot be written.
    """
    return write_atomic(file, render_golden(document).encode())


def check_replaceable(file: Path, *, overwrite: bool) -> None:
    """See that ``file`` is not there, or a golden file, or may go whatever regular file it is.

    Devices and pipes are never opened: a read could last for ever, and what is written takes their place.

    Raises:
        OutputError: it may not be replaced.
    """
    name = str(file)
    if file.is_symlink():
        raise OutputError(f"{name!r} is a link, which is never followed", "name the file itself")
    holder = find_holder(file)
    if holder is not None:
        raise OutputError(
            f"{name!r} is a file of the run in {str(holder)!r}", "name a file outside of runs"
        )
    if file.is_dir():
        raise OutputError(f"{name!r} is a folder", "name a file: -o golden.json")
    try:
        if not file.exists():
            return
        if not file.is_file():
            raise OutputError(
                f"{name!r} is a device or a pipe, and a golden file would take its place",
                "name a file, or leave out -o: it then goes to stdout",
            )
        if overwrite or _is_golden(file):
            return
    except OSError as error:
        raise cannot_write(file, error) from error
    raise OutputError(
        f"{name!r} is there already and is not a golden file",
        "replace it with --overwrite, or choose another -o",
    )


def _is_golden(file: Path) -> bool:
    """Whether it begins as golden files do; only the beginning is read."""
    with open_regular(file) as stream:
        return _BEGINNING.match(stream.read(200)) is not None


def _read_facts(run: Run) -> dict[str, object]:
    """What the run depended on.

    Raises:
        RequestError: the manifest lacks some of it.
    """
    manifest = run.manifest
    try:
        images = [{name: image[name] for name in _IMAGE} for image in manifest["images"]]
        facts = {name: manifest[name] for name in _FACTS}
        return facts | {"images": images, "skipped": manifest["skipped"]}
    except KeyError as error:
        raise cannot_read(run.folder / MANIFEST, ValueError(f"it has no {error}")) from error


def _find_tensors(run: Run) -> dict[str, frozenset[str]]:
    """Of which images a whole tensor was saved, by call id.

    Raises:
        RequestError: none was, or only a part of each.
    """
    again = "run hookcli inspect again, with --sketch"
    if not run.calls:
        raise RequestError(f"the run in {str(run.folder)!r} kept no sketches", again)
    for option in SAVED_IN_PART:
        if option in run.manifest["command"]:
            raise RequestError(
                f"the run in {str(run.folder)!r} kept no sketches, and its tensors only with {option}",
                again,
            )
    return {call_id: frozenset(run.images_of(call_id)) for call_id in run.calls}


def _sketch_saved(run: Run, row: RecordRow, kept: Mapping[str, frozenset[str]]) -> bytes | None:
    """The sketch of the tensor that was saved of a call; None where there was none."""
    call_id, image = row["call_id"], row["image"]
    if 0 in row["shape"]:
        return sketches.to_bytes(sketches.sketch_values(np.empty(0)))
    if image not in kept.get(call_id, ()):
        return None
    return sketches.to_bytes(sketches.sketch_values(run.tensor(call_id, image)))


def _describe_call(row: RecordRow, sketch: bytes | None) -> dict[str, object]:
    reason = row.get("reason")
    return {
        "image": row["image"],
        "call_id": row["call_id"],
        "module_type": row["module_type"],
        "side": row["side"],
        "shape": row["shape"],
        "dtype": row["dtype"],
        "mean": _finite(row["mean"]),
        "std": _finite(row["std"]),
        "min": _finite(row["min"]),
        "max": _finite(row["max"]),
        "zero_fraction": _finite(row["zero_fraction"]),
        "nan_count": row["nan_count"],
        "inf_count": row["inf_count"],
        "sketch": None if sketch is None else sketches.to_text(sketch),
        **({"reason": reason} if reason else {}),
    }


def _finite(figure: float | None) -> float | None:
    return figure if figure is None or math.isfinite(figure) else None


def _render_fact(fact: object) -> str:
    """Objects a name a line, lists of objects one a line, anything else on one line."""
    if isinstance(fact, dict) and fact:
        lines = [f" {_one_line(name)}: {_one_line(value)}" for name, value in fact.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    if isinstance(fact, list) and fact and isinstance(fact[0], dict):
        return "[\n" + ",\n".join(f" {_one_line(each)}" for each in fact) + "\n]"
    return _one_line(fact)


def _one_line(value: object) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=True)
