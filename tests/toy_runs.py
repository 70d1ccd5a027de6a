"""Run folders and golden files that tests write by hand, from arrays, without torch or a run."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from hookcli.distance import sketch as sketches

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "U8": "u1", "BOOL": "?", "C64": "c8"}
KINDS = {np.dtype(kind): name for name, kind in NAMES.items()}
VERSIONS = {"hookcli": "0.1.0", "torch": "2.15.0", "threads": "2"}
TEXTS = ("image", "call_id", "module_type", "side", "dtype", "layout", "reason")
FIGURES = ("mean", "std", "min", "max", "zero_fraction")
COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        ("shape", pa.list_(pa.int64())),
        *((name, pa.float64()) for name in FIGURES),
        ("nan_count", pa.int64()),
        ("inf_count", pa.int64()),
        ("sketch", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class ToyRun:
    """The content of a run.

    Attributes:
        images: by image key and call id, the output of each call, with the leading axis 1, in
        the order of the calls.
        kept: ``tensors``, ``sketches``, ``both`` or ``nothing``.
        model: facts about the model in the manifest that differ from the usual ones.
        command: further words at the end of the run's command.
        layouts: the layouts of calls that are neither NCHW nor NC.
        reasons: by call id, why there is no gradient.
        hashes: the sha256 of images, unless it is derived from the key.
        saved: arrays that the run saved instead of the tensors.
        parts: by image key, the part of the image that the network saw.
    """

    images: dict[str, dict[str, np.ndarray]]
    kept: str = "tensors"
    model: dict[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    layouts: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    saved: dict[str, np.ndarray] = field(default_factory=dict)
    parts: dict[str, list[float]] = field(default_factory=dict)

    def write(self, folder: str | Path) -> Path:
        """Write the folder of a finished run."""
        folder = Path(folder)
        folder.mkdir(parents=True)
        write_json(folder / "run.json", {"hookcli": "0.1.0", "command": ["hookcli", "inspect"]})
        (folder / "records.parquet").mkdir()
        rows = [row for key in self.images for row in self._rows(key)]
        table = pa.Table.from_pylist(rows, COLUMNS)
        pq.write_table(table, folder / "records.parquet/part-000000.parquet")
        self._write_layers(folder / "layers.csv", rows)
        write_json(folder / "report.json", {"images": self._facts()["images"]})
        files = ["layers.csv", "records.parquet/part-000000.parquet"]
        if self.kept in ("tensors", "both"):
            self._write_tensors(folder)
            files.append("tensors/index.json")
        write_json(folder / "manifest.json", self._facts() | {"files": files})
        return folder

    def golden(self) -> dict[str, Any]:
        """Return the document of a golden file."""
        rows = [row for key in self.images for row in self._rows(key)]
        for row in rows:
            row["sketch"] = base64.b64encode(row["sketch"]).decode() if row["sketch"] else None
        sketch = {"version": 1, "buckets": 67, "dtype": "float32"}
        return self._facts() | {"kind": "golden", "sketch": sketch, "calls": rows}

    def write_golden(self, file: str | Path, **other: Any) -> Path:
        """Write a golden file, with different values for some keys."""
        return write_json(Path(file), self.golden() | other)

    def _facts(self) -> dict[str, Any]:
        model = {"name": "toy", "task": "own", "weights": "random (seed 0)", "trained": False}
        model |= {"sha256": "", "device": "cpu"}
        images = [
            {
                "key": key,
                "file": f"{key}.png",
                "sha256": self.hashes.get(key, f"hash of {key}"),
                "width": 8,
                "height": 8,
                "pixels_shape": [1, 3, 8, 8],
                "note": "",
                "part": self.parts.get(key),
            }
            for key in self.images
        ]
        return {
            "schema_version": 1,
            "hookcli": "0.1.0",
            "command": ["hookcli", "inspect", "toy", "photo.png", *self.command],
            "model": model | {"dtype": "float32"} | self.model,
            "versions": VERSIONS,
            "layers": [],
            "uncalled": [],
            "images": images,
            "skipped": [],
        }

    def _rows(self, image: str) -> list[dict[str, Any]]:
        rows = []
        for call_id, values in self.images[image].items():
            reason = self.reasons.get(call_id, "")
            flat = np.abs(values.ravel()) if values.dtype.kind == "c" else values.ravel()
            finite = flat[np.isfinite(flat)].astype(float)
            some = bool(finite.size) and not reason
            rows.append(
                {
                    "image": image,
                    "call_id": call_id,
                    "module_type": "Conv2d",
                    "side": "output",
                    "shape": list(values.shape),
                    "dtype": str(values.dtype),
                    "layout": self.layouts.get(
                        call_id, {2: "NC", 4: "NCHW"}.get(values.ndim, "unknown")
                    ),
                    "mean": finite.mean() if some else None,
                    "std": finite.std() if some else None,
                    "min": finite.min() if some else None,
                    "max": finite.max() if some else None,
                    "zero_fraction": float((flat == 0).mean()) if flat.size else None,
                    "nan_count": int(np.isnan(flat).sum()),
                    "inf_count": int(np.isinf(flat).sum()),
                    "reason": reason,
                    "sketch": sketches.to_bytes(sketches.sketch_values(values))
                    if self.kept in ("sketches", "both")
                    else None,
                }
            )
        return rows

    def _write_layers(self, file: Path, rows: list[dict[str, Any]]) -> None:
        layouts = {row["call_id"]: row["layout"] for row in rows}
        lines = [f"{order},{name},{layouts[name]}" for order, name in enumerate(layouts, 1)]
        file.write_text("\n".join(["order,call_id,layout", *lines]) + "\n")

    def _write_tensors(self, folder: Path) -> None:
        """Write one shard per image."""
        calls: dict[str, list[dict[str, Any]]] = {}
        (folder / "tensors").mkdir()
        for number, (image, tensors) in enumerate(self.images.items()):
            shard = f"tensors/shard-{number:06d}.safetensors"
            held = {name: self.saved.get(name, values) for name, values in tensors.items()}
            held = {name: held[name] for name in held if name not in self.reasons}
            save_file({name: np.ascontiguousarray(held[name]) for name in held}, folder / shard)
            for name, values in held.items():
                entry = {"shard": shard, "tensor": name, "shape": list(values.shape)}
                entry |= {"dtype": KINDS[values.dtype], "images": [image]}
                calls.setdefault(name, []).append(entry)
        write_json(folder / "tensors/index.json", {"schema_version": 1, "calls": calls})


def write_json(file: Path, document: object) -> Path:
    """Write JSON, and replace the file if it exists."""
    file.write_text(json.dumps(document))
    return file


def write_into(folder: str | Path) -> Callable[[str, bytes], str]:
    """Return a function that writes files into a run folder, as a run would."""

    def write(name: str, data: bytes) -> str:
        file = Path(folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return name

    return write


def read_from(folder: str | Path) -> Callable[[str, int, int], bytes]:
    """Return a function that reads a part of a file in a run folder."""
    return lambda name, start, stop: Path(folder, name).read_bytes()[start:stop]


def edit_json(file: Path, **values: Any) -> None:
    """Change the values of some keys in a JSON file."""
    write_json(file, json.loads(file.read_bytes()) | values)


def run_of(images: dict[str, Any] | None = None, /, **calls: Any) -> ToyRun:
    """Return a run of one image ``cat`` with float32 values; a list becomes an array (1, C)."""
    return ToyRun(
        {"cat": {name: array(calls[name]) for name in calls}} if images is None else images
    )


def array(values: Any, kind: str = "f4") -> np.ndarray:
    """Return a list as an array (1, C), and an array unchanged."""
    return values if isinstance(values, np.ndarray) else np.array([values], kind)
