"""Configs for tests, from flat words; each word goes into the request that it belongs to."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hookcli.config import (
    FolderRequest,
    ImageRequest,
    InspectConfig,
    MachineRequest,
    ModelRequest,
    RunRequest,
    TensorRequest,
)


def inspect_config(model: ModelRequest, *images: str, **words: Any) -> InspectConfig:
    """The config of ``hookcli inspect`` with these words."""
    if "out" in words:
        words["out"] = Path(words["out"])
    pieces = {
        kind: {f.name: words.pop(f.name) for f in fields(kind) if f.name in words}
        for kind in (RunRequest, FolderRequest, TensorRequest, MachineRequest)
    }
    return InspectConfig(
        RunRequest(model, ImageRequest(images), **pieces[RunRequest]),
        FolderRequest(**pieces[FolderRequest]),
        tensors=TensorRequest(**pieces[TensorRequest]),
        machine=MachineRequest(**pieces[MachineRequest]),
        **words,
    )


def changed(config: InspectConfig, **words: Any) -> InspectConfig:
    """The config with other words."""
    if "out" in words:
        words["out"] = Path(words["out"])
    for name in ("run", "folder", "tensors", "machine"):
        piece = getattr(config, name)
        mine = {f.name: words.pop(f.name) for f in fields(piece) if f.name in words}
        config = replace(config, **{name: replace(piece, **mine)})
    return replace(config, **words)
