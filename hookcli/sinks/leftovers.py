"""What runs leave in their folder, told by name: nothing else is ever deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
_RUN_FILES = (
    MANIFEST, "layers.csv", "skipped.csv", "top_images.csv", "records.parquet/part-*.parquet",
    "report.html", "report.json", "overview.png", "gradient_flow.png", "seen/*.jpg", "sheets/*.png",
    "grids/*/[0-9][0-9][0-9]*_*.png", "tensors/*.safetensors", "tensors/index.json",
    "parts/[0-9]*.json", "parts/top.npz", "cam/*/[0-9][0-9][0-9]*_*.png", "saliency/*.png",
)  # fmt: skip
_RUN_DIRS = (
    "grids/*",
    "grids",
    "cam/*",
    "cam",
    "saliency",
    "sheets",
    "seen",
    "tensors",
    "records.parquet",
    "parts",
)


def remove_run(run: Path) -> None:
    """Delete what is named like a run's file and, if there is a manifest, listed in it."""
    listed = _listed(run)
    found = set(list_files(run))
    remove_files(run, found if listed is None else found & listed)


def list_files(run: Path) -> list[str]:
    """What is named like a run's file, relative to the folder."""
    return [str(file.relative_to(run)) for pattern in _RUN_FILES for file in run.glob(pattern)]


def list_half_files(run: Path) -> list[str]:
    """What a writer that was killed left half written."""
    folders = [run, *(folder for pattern in _RUN_DIRS for folder in run.glob(pattern))]
    return [str(f.relative_to(run)) for folder in folders for f in folder.glob(".partial-*")]


def remove_files(run: Path, names: set[str]) -> None:
    """Delete these files, relative to the folder."""
    home = run.resolve()
    for file in (run / name for name in names):
        if file.parent.resolve().is_relative_to(home):  # never through a link
            file.unlink(missing_ok=True)
    for pattern in _RUN_DIRS:
        for folder in run.glob(pattern):
            if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
                folder.rmdir()


def _listed(run: Path) -> set[str] | None:
    """The files that the manifest lists, and itself; None where there is no manifest."""
    if not (run / MANIFEST).exists():
        return None
    return {MANIFEST, *json.loads((run / MANIFEST).read_bytes())["files"]}
