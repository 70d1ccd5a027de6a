"""Measure the memory and time of analyses of finished runs, for 2,000 and for 20,000 images.

The runs have random features: four layers of 512 channels, as --pool mean saves them; for places,
maps of 7 x 7 with 64 channels. Each row has the seconds, beside those of a plain script that uses
scikit-learn on one array of all features, and the peak memory in MB: in total; without
the peak of an analysis of 20 images; this difference relative to the size of one layer's features;
and the script's own peak.

    python benchmarks/analyses.py [--verbs map,probe] [--images 2000,20000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).parent
LAYERS, CHANNELS, SHARD = 4, 512, 32
SIDE, MAP_CHANNELS = 7, 64
CLASSES = 10
COMMAND = ["hookcli", "inspect"]
VERBS = ("places", "map", "probe", "similarity")
FEW = 20  # images of the analysis whose memory is that of the program itself
RUN_AND_TELL = """
import re, runpy, sys
sys.argv = sys.argv[1:]
if sys.argv[0] == "hookcli":
    from hookcli.__main__ import _run
    assert _run() == 0
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
with open("/proc/self/status") as status:
    print(re.search("VmHWM:[^0-9]*([0-9]+)", status.read())[1], file=sys.stderr)
"""


def write_run(folder: Path, images: int, *, maps: bool) -> None:
    """Write a finished run with saved tensors; beside it, features in one array, and labels."""
    (folder / "tensors").mkdir(parents=True)
    draw = np.random.default_rng(0)
    shape = (MAP_CHANNELS, SIDE, SIDE) if maps else (CHANNELS,)
    layers = 1 if maps else LAYERS
    labels = np.arange(images) % CLASSES
    means = draw.normal(size=(CLASSES, shape[0])).astype(np.float32)
    keys = [f"photo{number:06}" for number in range(images)]
    calls: dict[str, list[dict[str, object]]] = {f"layer{n}": [] for n in range(layers)}
    whole = np.empty((layers, images, *shape), np.float32)
    for start in range(0, images, SHARD):
        stop = min(start + SHARD, images)
        tensors = {}
        for number, name in enumerate(calls):
            values = draw.normal(size=(stop - start, *shape)).astype(np.float32)
            own = means[labels[start:stop]] * (number + 1) / layers / 3
            values += own.reshape(len(own), -1, *[1] * (len(shape) - 1))
            tensors[name] = whole[number, start:stop] = values
        shard = f"tensors/shard-{start // SHARD:06}.safetensors"
        save_file(tensors, folder / shard)
        for name, values in tensors.items():
            saved: dict[str, object] = {"shard": shard, "tensor": name, "images": keys[start:stop]}
            calls[name].append(saved | {"dtype": "F32", "shape": values.shape})
    places = np.moveaxis(whole, 2, -1).reshape(layers, images, -1, MAP_CHANNELS) if maps else whole
    np.save(folder.with_suffix(".npy"), places)
    np.save(folder.with_suffix(".labels.npy"), labels)
    lines = [f"{key},{label}" for key, label in zip(keys, labels, strict=True)]
    folder.with_suffix(".csv").write_text("\n".join(["image,label", *lines]) + "\n")
    write_facts(folder, keys, calls, maps=maps)


def write_facts(
    folder: Path, keys: list[str], calls: dict[str, list[dict[str, object]]], *, maps: bool
) -> None:
    """Write the JSON files and the layers.csv of a run."""
    facts: dict[str, object] = {
        "width": 224,
        "height": 224,
        "pixels_shape": [1, 3, 224, 224],
        "part": [0, 0, 224, 224],
    }
    images = [
        {"key": key, "file": f"{key}.jpg", "sha256": f"{n:064x}"} | facts
        for n, key in enumerate(keys)
    ]
    model = {"name": "random", "task": "own", "weights": "random", "trained": False}
    manifest = {
        "schema_version": 1,
        "hookcli": "0.1.0",
        "command": [*COMMAND, "random", "photos", *([] if maps else ["--pool", "mean"])],
        "model": model | {"sha256": "", "device": "cpu", "dtype": "float32"},
        "versions": {},
        "images": images,
        "files": ["layers.csv", "tensors/index.json"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "run.json").write_text(json.dumps({"hookcli": "0.1.0", "command": COMMAND}))
    (folder / "report.json").write_text(json.dumps({"images": images}))
    (folder / "tensors/index.json").write_text(json.dumps({"schema_version": 1, "calls": calls}))
    layout = "NCHW" if maps else "NC"
    lines = [f"{order},{name},{layout}" for order, name in enumerate(calls, 1)]
    (folder / "layers.csv").write_text("\n".join(["order,call_id,layout", *lines]) + "\n")


def measure(words: list[str], folder: Path) -> tuple[float, float]:
    """Run a hookcli command or a script; return its seconds, and its peak memory in MB.

    The process reads its peak from /proc: getrusage would begin with the memory of this process.
    """
    start = time.perf_counter()
    command = [sys.executable, "-c", RUN_AND_TELL, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stderr}")
    return time.perf_counter() - start, float(done.stderr.splitlines()[-1]) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verbs", default=",".join(VERBS))
    parser.add_argument("--images", default="2000,20000")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    counts = [int(each) for each in arguments.images.split(",")]
    head = ("seconds", "plain", "MB", "MB more", "features", "ratio", "plain MB")
    print(f"{'':<24}{''.join(f'{each:>10}' for each in head)}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for verb in arguments.verbs.split(","):
            maps = verb == "places"
            kind = "maps" if maps else "pooled"
            for count in (FEW, *counts):
                if not (home / f"{kind}{count}").exists():
                    write_run(home / f"{kind}{count}", count, maps=maps)
            alone = measure_verb(verb, home, f"{kind}{FEW}", arguments.turns)[1]
            for count in counts:
                seconds, memory = measure_verb(verb, home, f"{kind}{count}", arguments.turns)
                plain = [str(HERE / "plain_sklearn.py"), verb, f"{kind}{count}.npy"]
                theirs, their_memory = measure([*plain, f"{kind}{count}.labels.npy"], home)
                size = 4 * count * (MAP_CHANNELS if maps else CHANNELS) / 1e6
                more = memory - alone
                row = (seconds, theirs, memory, more, size, more / size, their_memory)
                what = f"{verb}, {count:,} images"
                print(f"{what:<24}{''.join(f'{each:>10.1f}' for each in row)}", flush=True)


def measure_verb(verb: str, home: Path, run: str, turns: int) -> tuple[float, float]:
    """Return the median seconds and the median peak memory (MB) of several turns of a verb."""
    command = ["hookcli", verb, run, "-q", "--format", "csv"]
    if verb == "probe":
        command += ["--labels", f"{run}.csv", "--folds", "2" if run.endswith(f"d{FEW}") else "5"]
    measured = sorted(measure(command, home) for _ in range(turns))
    return measured[turns // 2][0], sorted(memory for _, memory in measured)[turns // 2]


if __name__ == "__main__":
    main()
