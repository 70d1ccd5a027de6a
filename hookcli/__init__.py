"""hookcli: see what a PyTorch vision model computed.

Importing this package is fast: hookcli imports torch when you first use a name that needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookcli.config import (
        BackwardStyle,
        FindingRequest,
        FolderRequest,
        GradientsConfig,
        GridStyle,
        ImageRequest,
        InspectConfig,
        ModelRequest,
        RunRequest,
        SaveStyle,
        TensorRequest,
    )
    from hookcli.errors import HookcliError, HookcliWarning
    from hookcli.passes.capture import Captured, capture
    from hookcli.reading.load import Run, load_run
    from hookcli.records.layer_records import LayerRecord, TensorStats
    from hookcli.run.pipeline import inspect_images
    from hookcli.run.result import RunResult
    from hookcli.verbs.ablate import ablate
    from hookcli.verbs.compare import compare
    from hookcli.verbs.diff import diff
    from hookcli.verbs.export import export
    from hookcli.verbs.golden import golden
    from hookcli.verbs.gradients import gradients
    from hookcli.verbs.inspect import inspect
    from hookcli.verbs.layers import layers
    from hookcli.verbs.map import map  # noqa: A004
    from hookcli.verbs.models import models
    from hookcli.verbs.places import places
    from hookcli.verbs.probe import probe
    from hookcli.verbs.report import report
    from hookcli.verbs.schema import schema
    from hookcli.verbs.similarity import similarity

    __version__: str

__all__ = [
    "BackwardStyle",
    "Captured",
    "FindingRequest",
    "FolderRequest",
    "GradientsConfig",
    "GridStyle",
    "HookcliError",
    "HookcliWarning",
    "ImageRequest",
    "InspectConfig",
    "LayerRecord",
    "ModelRequest",
    "Run",
    "RunRequest",
    "RunResult",
    "SaveStyle",
    "TensorRequest",
    "TensorStats",
    "ablate",
    "capture",
    "compare",
    "diff",
    "export",
    "golden",
    "gradients",
    "inspect",
    "inspect_images",
    "layers",
    "load_run",
    "map",
    "models",
    "places",
    "probe",
    "report",
    "schema",
    "similarity",
]

_HOMES = dict.fromkeys(__all__, "config") | {
    "Captured": "passes.capture",
    "HookcliError": "errors",
    "HookcliWarning": "errors",
    "LayerRecord": "records.layer_records",
    "Run": "reading.load",
    "RunResult": "run.result",
    "TensorStats": "records.layer_records",
    "ablate": "verbs.ablate",
    "capture": "passes.capture",
    "compare": "verbs.compare",
    "diff": "verbs.diff",
    "golden": "verbs.golden",
    "export": "verbs.export",
    "gradients": "verbs.gradients",
    "inspect": "verbs.inspect",
    "inspect_images": "run.pipeline",
    "layers": "verbs.layers",
    "load_run": "reading.load",
    "map": "verbs.map",
    "probe": "verbs.probe",
    "places": "verbs.places",
    "models": "verbs.models",
    "report": "verbs.report",
    "schema": "verbs.schema",
    "similarity": "verbs.similarity",
}

if not TYPE_CHECKING:  # without this, mypy would accept a misspelt name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib import metadata  # takes 20 ms, which hookcli --help does not need

            return metadata.version("hookcli")
        if name not in _HOMES:
            raise AttributeError(f"module 'hookcli' has no attribute {name!r}")
        return getattr(import_module(f"hookcli.{_HOMES[name]}"), name)
