"""Export torchvision's models, and check that ``hookcli compare`` pairs and bounds every call.

This compares each model, with random weights, with its export: all classifiers, and one model of
each other task. It prints one line of JSON per model and way, then a summary and the findings: the
results that a developer should look at. Findings make the exit code 1. All classifiers take hours.

    python tools/exports.py [--ways onnx,torch-export,compile] [--models resnet18] [--short]
    python tools/exports.py [--kinds classification,video] [--seconds 600] [--memory 16]

Each model runs in a process of its own: a crash becomes a row, and all memory is freed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.config import (
    CompareConfig,
    ExportRequest,
    ImageRequest,
    ModelRequest,
    RunRequest,
    VariantRequest,
)
from hookcli.distance.tolerance import Tolerance
from hookcli.errors import HookcliError, NoLayerMatchedError
from hookcli.outside.tables import render_markdown
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.distance.comparison import Comparison
    from hookcli.passes.runner import Side

PHOTO = Path(__file__).parent.parent / "sample_images" / "cat.png"
WAYS = ("onnx", "torch-export", "compile")
KINDS = ("classification", "segmentation", "detection", "video", "optical_flow", "quantization")
OTHERS = (  # one model of each kind, besides the classifiers
    "lraspp_mobilenet_v3_large",
    "ssdlite320_mobilenet_v3_large",
    "mc3_18",
    "raft_small",
    "quantized_shufflenet_v2_x0_5",
)
SHORT = ("mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1")
SHORT_WAYS = ("onnx", "torch-export")
FEW = 3  # reasons to print
LIMIT = 1e-4  # a larger relative L2 norm of the difference is a finding
PART = "computed as a part of "
OUTPUT = f"{PART}the model's output"
GIB = 1 << 30
HEADER = (
    *("way", "models compared", "refused", "crashed", "calls matched", "merged", "left out"),
    *("worst relative L2", "median seconds"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """The comparison of one model with its export; numbers count calls unless described otherwise.

    Attributes:
        calls: the calls in PyTorch, A.
        matched: calls with a counterpart in the export, B.
        merged: calls that B merges into others.
        left_out: the other calls that B lacks for a known reason, by the reason.
        left_out_types: the calls in ``left_out``, by the types of their layers.
        missing: the ids of calls that B lacks without a reason.
        only_in_b: the ids of calls that A lacks.
        failing: matched calls that fail regardless of the distance.
        reasons: why the first of the ``failing`` calls fail, by id.
        worst: the largest relative L2 norm of the difference of a matched call.
        worst_call: the id of the call with the norm ``worst``.
        output: this norm of the model's output; the largest if there are several outputs.
        seconds: the time that the comparison took, in seconds.
        gib: the peak memory of the process, in GiB.
        refused: the message of the error with which hookcli refused the model.
        hint: the hint of the error in ``refused``.
        crash: how the process ended, if it printed no row.
    """

    model: str
    way: str
    calls: int | None = None
    matched: int | None = None
    merged: int | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    left_out_types: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    only_in_b: list[str] = field(default_factory=list)
    failing: int | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    worst: float | None = None
    worst_call: str | None = None
    output: float | None = None
    refused: str | None = None
    hint: str | None = None
    crash: str | None = None
    seconds: float = 0.0
    gib: float | None = None

    def to_json(self) -> str:
        """Return the row as a line of JSON, without empty fields."""
        filled = {key: value for key, value in asdict(self).items() if value not in (None, {}, [])}
        return json.dumps(filled)

    def list_findings(self) -> Iterator[str]:
        """Yield, in words, what a developer should look at."""
        if self.crash:
            yield self.crash
        if self.missing:
            yield f"B lacks {len(self.missing)} calls without a reason, first {self.missing[0]}"
        if self.only_in_b:
            yield f"only B has {len(self.only_in_b)} calls, first {self.only_in_b[0]}"
        for call_id, reason in [*self.reasons.items()][:1]:
            yield f"{self.failing} calls fail, first {call_id}: {reason}"
        if self.worst is not None and not self.worst <= LIMIT:
            yield f"{self.worst_call} differs by {self.worst:.1e}"


def compare_model(name: str, way: str) -> Row:
    from hookcli.comparison.live import compare_sides
    from hookcli.plan.prepare import prepare_comparison

    start = time.perf_counter()
    model = ModelRequest(name, weights="random", device="cpu")
    run = RunRequest(model, ImageRequest((str(PHOTO),)), layers=("leaf", "op:*"))
    try:
        try:
            a, b = prepare_comparison(_compare(run, way))
        except NoLayerMatchedError:  # alexnet and vgg have no operations
            a, b = prepare_comparison(_compare(replace(run, layers=("leaf",)), way))
        comparison = compare_sides(a, b, Tolerance(), lambda *_: None)
    except HookcliError as error:
        taken = round(time.perf_counter() - start, 1)
        return Row(name, way, refused=error.message, hint=error.hint, seconds=taken)
    return make_row(name, way, a, comparison, time.perf_counter() - start)


def _compare(run: RunRequest, way: str) -> CompareConfig:
    return CompareConfig(run, VariantRequest(way, run, export=ExportRequest(way)))


def make_row(name: str, way: str, a: Side, comparison: Comparison, seconds: float) -> Row:
    """Return the row of a comparison; its side ``a`` is the model in PyTorch."""
    types = {layer.module_path: layer.module_type for layer in a.layers}
    in_a = [row for row in comparison.rows if row.dtype]
    matched = [row for row in in_a if row.other_dtype]
    measured = {row.call_id: row.rel_l2 for row in matched if row.rel_l2 is not None}
    others = [each for each in comparison.left_out if each.kind != "merged"]
    failing = sorted((row for row in matched if row.reason), key=lambda row: row.order)
    worst = max(measured, key=lambda call_id: measured[call_id], default=None)
    roots = [each for call_id, each in measured.items() if call_id.startswith(ROOT_LABEL)]
    return Row(
        name,
        way,
        calls=len(in_a) + len(comparison.left_out),
        matched=len(matched),
        merged=len(comparison.left_out) - len(others),
        left_out=dict(Counter(_shorten(each.reason) for each in others)),
        left_out_types=dict(Counter(types[_path_of(each.call_id)] for each in others)),
        missing=[row.call_id for row in in_a if not row.other_dtype],
        only_in_b=[row.call_id for row in comparison.rows if not row.dtype],
        failing=len(failing),
        reasons={row.call_id: row.reason for row in failing[:FEW]},
        worst=None if worst is None else measured[worst],
        worst_call=worst,
        output=max(roots, default=None),
        seconds=round(seconds, 1),
        gib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 1),
    )


def _shorten(reason: str) -> str:
    is_part = reason.startswith(PART) and reason != OUTPUT
    return f"{PART}another call" if is_part else reason


def _path_of(call_id: str) -> str:
    path = call_id.partition("#")[0].partition("[")[0]
    return "" if path == ROOT_LABEL else path


def compare_apart(name: str, way: str, seconds: int, memory: int) -> Row:
    """Compare in a new process, which has ``seconds`` of time and ``memory`` GiB."""
    words = ["--models", name, "--ways", way, "--memory", str(memory), "--here"]
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, __file__, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # a compiler has processes of its own
            return Row(name, way, crash=f"no answer in {seconds} seconds", seconds=float(seconds))
    if process.returncode == 0:
        return Row(**json.loads(out.splitlines()[-1]))
    lines = err.strip().splitlines() or ["no message"]
    crash = f"the process ended with code {process.returncode}: {lines[-1]}"
    return Row(name, way, crash=crash, seconds=round(time.perf_counter() - start, 1))


def list_models(kinds: Sequence[str]) -> list[str]:
    """Return the names of the models to compare, those with few parameters first."""
    from hookcli.networks.catalog import list_catalog

    entries = [
        entry
        for entry in list_catalog()
        if entry.task in kinds and (entry.task == "classification" or entry.name in OTHERS)
    ]
    return [entry.name for entry in sorted(entries, key=lambda entry: entry.params or 0)]


def print_summary(rows: Sequence[Row]) -> None:
    lines = []
    for way in dict.fromkeys(row.way for row in rows):
        of_way = [row for row in rows if row.way == way]
        done = [row for row in of_way if row.calls is not None]
        worst = max(done, key=lambda row: row.worst or 0.0, default=None)
        lines.append(
            (
                way,
                str(len(done)),
                str(sum(row.refused is not None for row in of_way)),
                str(sum(row.crash is not None for row in of_way)),
                f"{sum(row.matched or 0 for row in done):,}",
                f"{sum(row.merged or 0 for row in done):,}",
                f"{sum(sum(row.left_out.values()) for row in done):,}",
                f"{worst.worst or 0.0:.1e} ({worst.model})" if worst else "",
                f"{statistics.median(row.seconds for row in done):.1f}" if done else "",
            )
        )
    print(f"\n{render_markdown(HEADER, lines)}")
    for row in rows:
        for finding in row.list_findings():
            print(f"- {row.model}, {row.way}: {finding}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", default="")
    parser.add_argument("--models", default="")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--short", action="store_true", help="three small models in two ways")
    parser.add_argument("--seconds", type=int, default=600, help="of one comparison, at most")
    parser.add_argument("--memory", type=int, default=16, help="of one process, at most, in GiB")
    parser.add_argument("--here", action="store_true", help="compare in this process; no summary")
    arguments = parser.parse_args()
    models = SHORT if arguments.short else ()
    models = arguments.models.split(",") if arguments.models else models
    ways = SHORT_WAYS if arguments.short else WAYS
    ways = arguments.ways.split(",") if arguments.ways else ways
    if arguments.here:
        resource.setrlimit(resource.RLIMIT_DATA, (arguments.memory * GIB,) * 2)
        for name in models:
            for way in ways:
                print(compare_model(name, way).to_json(), flush=True)
        return 0
    rows = []
    for way in ways:
        for name in models or list_models(arguments.kinds.split(",")):
            rows.append(compare_apart(name, way, arguments.seconds, arguments.memory))
            print(rows[-1].to_json(), flush=True)
    print_summary(rows)
    return int(any(any(row.list_findings()) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
