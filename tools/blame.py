"""Plant faults in models, and check whether ``hookcli compare --blame`` names them (an hour).

``faults`` prints the culprits of each fault, and the first call above the tolerance, which a
comparison without ``--blame`` names. ``healthy`` compares models without
faults, in which no layer may be a culprit.

    python tools/blame.py faults [--ways eager,onnx] [--models resnet18] [--each 3]
    python tools/blame.py healthy [--ways bfloat16,float16] [--models resnet18]

A way is how the second model runs; the kinds of ONNX files of ``tools/foreign_files.py`` are ways,
too. In a quantized file, every layer differs from the model by the noise of quantizing, and a
culprit is a layer that differs by much more than layers of its type. A fault below the noise has no
culprit, so each row has the own error of the planted layers in float32 (``size``), and in the
quantized file of the healthy model (``noise``). The way ``new-static-pair`` compares two quantized
files, of the healthy and of the faulty model, so that the noise is the same on both sides.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hookcli.comparison.live import compare_sides
from hookcli.comparison.side import pixels_of
from hookcli.config import (
    CompareConfig,
    ExportRequest,
    ImageRequest,
    ModelRequest,
    RunRequest,
    VariantRequest,
)
from hookcli.distance.culprits import blame_text
from hookcli.distance.tolerance import Tolerance
from hookcli.errors import HookcliError
from hookcli.images.prepare import prepare_like
from hookcli.plan.prepare import prepare_comparison

sys.path.insert(0, str(Path(__file__).parent))
import faulty_models
import foreign_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.config import Dtype, Match
    from hookcli.distance.comparison import Comparison
    from hookcli.distance.culprits import Blame

FILE = Path(__file__).parent / "faulty_models.py"
PHOTO = Path(__file__).parent.parent / "sample_images" / "cat.png"
SIDES = {"vit_b_16": None}  # all other models take pictures of 128 pixels
WAYS = ("eager", "torch-export", "onnx", "compile")
HEALTHY = ("threads", "channels-last", "torch-export", "onnx")
DTYPES = ("bfloat16", "float16")
PAIR = "-pair"  # the end of the name of a way that compares two files
QUIET = 10  # a fault stands out if it is as many times larger than the noise of quantizing
EACH = 12  # faults in each model


def compare_with(name: str, way: str, **fault: str) -> Comparison:
    """Compare a healthy model with the same model run another way, with the ``fault`` if given."""
    one = _request("healthy", {"name": name})
    two = _request("faulty", {"name": name, **fault}) if fault else one
    if way.partition("-")[0] in foreign_files.EXPORTERS:
        return _compare_file(name, way, one, fault)
    if way in DTYPES:
        two = replace(two, model=replace(two.model, dtype=cast("Dtype", way)))
    other = VariantRequest(way, two)
    if way in ("torch-export", "onnx", "compile"):
        other = replace(other, export=ExportRequest(way))
    elif way == "threads":
        other = replace(other, threads=1)
    elif way == "channels-last":
        other = replace(other, channels_last=True)
    return _compare(one, other)


def _request(function: str, arguments: dict[str, str]) -> RunRequest:
    model = ModelRequest(
        f"{FILE}:{function}",
        device="cpu",
        size=SIDES.get(arguments["name"], 128),
        arguments=tuple(arguments.items()),
    )
    return RunRequest(model, ImageRequest((str(PHOTO),)), layers=("leaf", "op:*"))


def _compare(one: RunRequest, other: VariantRequest) -> Comparison:
    a, b = prepare_comparison(CompareConfig(one, other, blame=True))
    match: Match = "id" if b.runner.names_modules else "order"
    return compare_sides(a, b, Tolerance(), lambda *_: None, blames=True, match=match)


def _compare_file(name: str, way: str, one: RunRequest, fault: dict[str, str]) -> Comparison:
    """Compare the healthy model with an ONNX file of the healthy or the faulty model."""
    kind, healthy = way.removesuffix(PAIR), faulty_models.healthy(name)
    model = faulty_models.faulty(name, **fault) if fault else healthy
    pixels = _read_pixels(one)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        file = foreign_files.write_file(kind, model, pixels, Path(folder))
        if way.endswith(PAIR):
            whole = foreign_files.write_file(kind, healthy, pixels, Path(other))
            one = replace(one, model=ModelRequest(str(whole), like="resnet18"))
        return _compare(one, VariantRequest(way, one, export=ExportRequest("onnx", file)))


def _read_pixels(request: RunRequest) -> Tensor:
    """Return the pixels (1, 3, H, W) that a model gets."""
    config = CompareConfig(request, VariantRequest("threads", request, threads=1))
    side, _ = prepare_comparison(config)
    return pixels_of(prepare_like(side.fitter, side.sources[0], None))


def blame_of(comparison: Comparison) -> Blame:
    if comparison.blame is None:
        raise ValueError("the comparison did not look for culprits")
    return comparison.blame


def choose_faults(name: str, number: int) -> list[tuple[str, str]]:
    """Return ``number`` faults that are possible in a model, each with a random site."""
    model = faulty_models.healthy(name)
    draw = random.Random(name)  # noqa: S311
    possible = [each for each in faulty_models.FAULTS if faulty_models.list_sites(model, each)]
    chosen = [(fault, str(draw.randrange(1000))) for fault in possible * number]
    return chosen[:number]


def try_faults(names: Sequence[str], ways: Sequence[str], number: int) -> None:
    """Print, for each planted fault, the culprits and the first call above the tolerance."""
    right: Counter[str] = Counter()
    first: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    loud: Counter[tuple[str, bool]] = Counter()
    noises = {}  # the healthy model in a quantized file, by model and way
    for name in names:
        for fault, site in choose_faults(name, number):
            planted = faulty_models.faulty(name, fault, site).planted
            try:
                plain = compare_with(name, "eager", fault=fault, site=site)
            except HookcliError as error:
                print(json.dumps({"model": name, "fault": fault, "error": error.message}))
                continue
            layers = list_right(plain, planted)
            for way in ways:
                row: dict[str, Any] = {"model": name, "way": way, "fault": fault}
                row["planted"] = planted
                start = time.perf_counter()
                try:
                    comparison = plain
                    if way != "eager":
                        comparison = compare_with(name, way, fault=fault, site=site)
                    if way.endswith(foreign_files.QUANTIZERS) and (name, way) not in noises:
                        noises[name, way] = compare_with(name, way)
                except HookcliError as error:
                    print(json.dumps(row | {"error": error.message}), flush=True)
                    continue
                row |= judge(comparison, layers)
                if (name, way) in noises:
                    row["size"] = own_error(plain, layers)
                    noise = noises[name, way]
                    row["noise"] = own_error(noise, list_merged(noise, layers))
                    if row["size"] > QUIET * row["noise"]:
                        loud[way, row["by_blame"]] += 1
                row["seconds"] = round(time.perf_counter() - start, 1)
                print(json.dumps(row), flush=True)
                tried[way] += 1
                right[way] += row["by_blame"]
                first[way] += row["by_first"]
    for way in ways:
        print(f"{way}: {right[way]} of {tried[way]} by blame, {first[way]} by the first call")
        if way.endswith(foreign_files.QUANTIZERS):
            found = loud[way, True]
            print(f"{way}, {QUIET} times above the noise: {found} of {found + loud[way, False]}")


def list_right(plain: Comparison, planted: Sequence[str]) -> list[str]:
    """Return the layers that a comparison may name for a fault; ``plain`` compares in PyTorch.

    The weights of a layer that is never called, such as ``out_proj``, are used by the module around
    it or by an operation in that module. A convolution may be merged into its BatchNorm.
    """
    uncalled = {each.layer.module_path for each in plain.uncalled}
    around = [path.rpartition(".")[0] for path in planted if path in uncalled]
    rows = sorted((row for row in plain.rows if row.call_id), key=lambda row: row.order)
    norms = [
        after.call_id
        for row, after in itertools.pairwise(rows)
        if row.call_id in planted and after.module_type == "BatchNorm2d"
    ]
    return [*planted, *around, *(f"{path}/op:linear" for path in around), *norms]


def own_error(comparison: Comparison, layers: Sequence[str]) -> float:
    """Return the largest own error of some layers (the error that a layer adds itself)."""
    rows = [row for row in comparison.rows if _is_planted(row.call_id, layers)]
    return max((row.own_rel_l2 or 0.0 for row in rows), default=0.0)


def judge(comparison: Comparison, layers: Sequence[str]) -> dict[str, Any]:
    """Return the culprits, the first differing call, and whether the first of each is planted."""
    culprits = [each.call_id for each in blame_of(comparison).culprits]
    first = comparison.first.call_id if comparison.first else ""
    layers = list_merged(comparison, layers)
    return {
        "by_blame": bool(culprits) and _is_planted(culprits[0], layers),
        "by_first": _is_planted(first, layers),
        "culprits": culprits[:6],
        "first": first,
    }


def list_merged(comparison: Comparison, layers: Sequence[str]) -> list[str]:
    """Return ``layers``, and the layers that they are merged into or are a part of."""
    found = [*layers]
    for each in comparison.left_out:
        if each.call_id in found and each.kind != "idle":
            found.append(each.reason.rpartition(" ")[2])
    return found


def _is_planted(call_id: str, planted: Sequence[str]) -> bool:
    path = call_id.partition("#")[0].partition("[")[0]
    return any(path == each.partition("#")[0] for each in planted)


def try_healthy(names: Sequence[str], ways: Sequence[str]) -> None:
    for name in names:
        for way in ways:
            try:
                comparison = compare_with(name, way)
            except HookcliError as error:
                print(f"{name}, {way}: {error.message}", flush=True)
                continue
            print(f"{name}, {way}: {blame_text(blame_of(comparison))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("faults", "healthy"))
    parser.add_argument("--models", default=",".join(faulty_models.MODELS))
    parser.add_argument("--ways", default="")
    parser.add_argument("--each", type=int, default=EACH)
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    if arguments.what == "faults":
        try_faults(names, arguments.ways.split(",") if arguments.ways else WAYS, arguments.each)
    else:
        try_healthy(names, arguments.ways.split(",") if arguments.ways else HEALTHY)


if __name__ == "__main__":
    main()
