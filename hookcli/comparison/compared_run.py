"""Read a run, or a golden file with its statistics, for a comparison that needs no torch."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hookcli.distance import sketch as sketches
from hookcli.distance.judge import CallTensor
from hookcli.errors import RequestError
from hookcli.outside.documents import (
    MOST_BYTES,
    MOST_VALUES,
    DamagedError,
    LaterVersionError,
    convert,
    decode,
    refuse_twice,
)
from hookcli.outside.files import read_regular
from hookcli.outside.foreign import first_line
from hookcli.outside.urls import choose, shown, to_local
from hookcli.reading.load import load_run
from hookcli.reading.run_files import AGAIN, UPGRADE
from hookcli.records.command import list_saved_options, read_command, split_saved
from hookcli.records.golden import KIND, VERSION, GoldenFile, golden_facts
from hookcli.records.layer_records import read_record
from hookcli.records.statistics import COUNTS, IN_EVERY_VERSION, TotalStats, figures_of
from hookcli.records.text import shape_text
from hookcli.store.locations import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.reading.load import Run
    from hookcli.reading.shards import Array
    from hookcli.records.golden import GoldenCall, ImageFacts
    from hookcli.records.layer_records import RecordRow

_GOLDEN = "make it with: `hookcli.golden`"
CallRow: TypeAlias = "RecordRow | GoldenCall"


@dataclass(frozen=True, slots=True)
class RunCall:
    tensor: CallTensor
    figures: TotalStats
    sketch: NDArray[np.float32] | None = None  # (67,)
    read: Callable[[], Array] | None = None  # reads the saved tensor
    layout: str = "unknown"  # as in ``Layout.name``: ``NCHW``, ``NLC``, …


@dataclass(frozen=True, slots=True)
class ComparedRun:
    name: str  # as the user gave it
    facts: Mapping[str, Any]  # on which results depend: ``command``, ``model`` and ``versions``
    images: Mapping[str, ImageFacts]  # by image key
    # by image key, in the order in which the calls completed
    calls: Mapping[str, Sequence[RunCall]] = field(default_factory=dict)
    # the options that reduced or converted tensors before saving, each with its value
    saved: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()  # sentences about missing files that the comparison does not need

    def __post_init__(self) -> None:
        for key, calls in self.calls.items():
            refuse_twice(f"call of {key!r}", [call.tensor.call_id for call in calls])

    @property
    def hashes(self) -> dict[str, str]:
        return {key: image.sha256 for key, image in self.images.items()}

    @property
    def pooled(self) -> tuple[str, ...]:
        return split_saved(self.saved)[0]

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.facts["model"]["dtype"], *split_saved(self.saved)[1])


def load_compared_run(name: str) -> ComparedRun:
    try:
        is_run = choose(name, Path(to_local(name)).is_dir(), not name.endswith(".json"))
        if not is_run and name.endswith((".pth", ".pt", ".safetensors")):
            hint = "two files of weights: `hookcli.compare`"
            raise RequestError(f"{name!r} is neither a run nor a golden file", hint)
        return _read_run(name) if is_run and name != "-" else _read_golden(name)
    except LaterVersionError as error:
        raise RequestError(f"{name!r} {error}", UPGRADE) from error
    except ValueError as error:
        raise RequestError(f"{name!r} is damaged: {first_line(error)}", "make it again") from error
    except storage.StorageError as error:
        raise error.explain(name) from error
    except OSError as error:
        raise RequestError(f"cannot read {name!r}: {error.strerror}") from error


def _read_run(name: str) -> ComparedRun:
    run = load_run(name)
    images = golden_facts(run.manifest).images
    saved = list_saved_options(read_command(run.manifest))
    with_tensor = {call_id: set(run.images_of(call_id)) for call_id in run.calls}
    calls: dict[str, list[RunCall]] = {image.key: [] for image in images}
    is_whole = not split_saved(saved)[0]
    for row in map(read_record, run.records.to_pylist()):
        check_call(row, calls)
        has_tensor = row.image in with_tensor.get(row.call_id, ())
        taken = None if row.sketch is None else sketches.from_bytes(row.sketch)
        read = _reader(run, row, is_whole=is_whole) if has_tensor else None
        calls[row.image].append(_make_call(row, taken, read, row.layout))
    by_key = {image.key: image for image in images}
    return ComparedRun(shown(name), run.manifest, by_key, calls, saved, run.damage)


def _reader(run: Run, row: RecordRow, *, is_whole: bool) -> Callable[[], Array]:
    def read() -> Array:
        values = run.tensor(row.call_id, row.image)
        if not is_whole:
            return values
        if values.size != math.prod(row.shape):
            raise RequestError(
                f"{str(run.folder)!r} is damaged: the tensor of {row.call_id!r} has the "
                f"shape {shape_text(values.shape)}, but its record says {shape_text(row.shape)}",
                AGAIN,
            )
        return values.reshape(row.shape)

    return read


def _read_golden(name: str) -> ComparedRun:
    document = _read_document(name)
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise RequestError(f"{name!r} is neither a run's folder nor a golden file", _GOLDEN)
    golden = convert(document, GoldenFile)
    version = golden.sketch.version
    if version != VERSION:
        raise RequestError(
            f"the sketches in {name!r} have version {version}, not {VERSION}",
            "make the golden file again with this version",
        )
    calls: dict[str, list[RunCall]] = {image.key: [] for image in golden.images}
    for index, (call, row) in enumerate(zip(golden.calls, document["calls"], strict=True)):
        lacking = [name for name in IN_EVERY_VERSION if name not in row]
        if lacking:
            raise DamagedError(f"calls[{index}] lacks {lacking[0]!r}")
        check_call(call, calls)
        sketch = None if call.sketch is None else sketches.from_text(call.sketch)
        calls[call.image].append(_make_call(call, sketch))
    return ComparedRun(shown(name), document, {image.key: image for image in golden.images}, calls)


def _read_document(name: str) -> object:
    try:
        read: Callable[[str], bytes] = choose(
            name, lambda file: read_regular(to_local(file), MOST_BYTES), storage.read_file
        )
        text = _read_stdin() if name == "-" else read(name)
    except FileNotFoundError as error:
        raise RequestError(
            f"there is no folder and no file {name!r}",
            "give a run's folder or a golden file; two models are compared with "
            "`hookcli.compare(A, IMAGE, against=['model=B'])`",
        ) from error
    if not text.strip():
        where = "standard input is empty" if name == "-" else f"{name!r} is empty"
        raise RequestError(where, _GOLDEN)
    try:
        return decode(text, object)
    except DamagedError as error:
        raise RequestError(
            f"{name!r} is not a complete golden file: {first_line(error)}", _GOLDEN
        ) from error


def _read_stdin() -> bytes:
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DamagedError(f"it has more than {MOST_BYTES:,} bytes")
    return data


def _make_call(
    row: CallRow,
    sketch: NDArray[np.float32] | None,
    read: Callable[[], Array] | None = None,
    layout: str = "unknown",
) -> RunCall:
    if sketch is not None and not np.isfinite(sketch).all():
        raise ValueError(f"the sketch of {row.call_id!r} is not finite")
    seen = CallTensor(row.call_id, row.module_type, row.shape, dtype=row.dtype, reason=row.reason)
    numel = row.nan_count + row.inf_count if row.mean is None else math.prod(row.shape)
    return RunCall(seen, TotalStats(numel=numel, **figures_of(row)), sketch, read, layout)


def check_call(row: CallRow, images: Collection[str]) -> None:
    call_id, shape = row.call_id, row.shape
    stranger = f"{call_id!r} belongs to the image {row.image!r}, which is not in the run"
    _expect(row.image in images, stranger)
    is_shape = all(length >= 0 for length in shape) and math.prod(shape) < MOST_VALUES
    _expect(is_shape, f"{call_id!r} has an impossible shape: {[*shape]!r:.80}")
    figures = figures_of(row)
    numbers = [figures[name] for name in IN_EVERY_VERSION if name not in COUNTS]
    known = [number is not None and math.isfinite(number) for number in numbers]
    has_figures = all(known) or numbers == [None] * len(numbers)
    counts = [row.nan_count, row.inf_count]
    _expect(
        has_figures and min(counts) >= 0 and sum(counts) <= math.prod(shape),
        f"{call_id!r} has impossible figures",
    )


def _expect(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(what)
