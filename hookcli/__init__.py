"""hookcli: see what a PyTorch vision model computed.

Every verb of the command line is a function. Importing this package is fast: hookcli imports torch
when you first use a name that needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookcli.errors import HookcliError, HookcliWarning
    from hookcli.passes.capture import Captured, capture
    from hookcli.reading.load import Run, load_run
    from hookcli.records.layer_records import LayerRecord, TensorStats
    from hookcli.verbs.ablate import ablate
    from hookcli.verbs.compare import compare
    from hookcli.verbs.diff import diff
    from hookcli.verbs.export import export
    from hookcli.verbs.golden import golden
    from hookcli.verbs.gradients import gradients
    from hookcli.verbs.inspect import inspect
    from hookcli.verbs.layers import layers
    from hookcli.verbs.map import map as map  # noqa: A004
    from hookcli.verbs.models import models
    from hookcli.verbs.places import places
    from hookcli.verbs.probe import probe
    from hookcli.verbs.report import report
    from hookcli.verbs.schema import schema
    from hookcli.verbs.similarity import similarity

    __version__: str

__all__ = [
    "Captured",
    "HookcliError",
    "HookcliWarning",
    "LayerRecord",
    "Run",
    "TensorStats",
    "ablate",
    "capture",
    "compare",
    "diff",
    "export",
    "golden",
    "gradients",
    "inspect",
    "layers",
    "load_run",
    "models",
    "places",
    "probe",
    "report",
    "schema",
    "similarity",
]

_VERBS = (
    *("ablate", "compare", "diff", "export", "golden", "gradients", "inspect", "layers", "map"),
    *("models", "places", "probe", "report", "schema", "similarity"),
)
_HOMES = {name: f"verbs.{name}" for name in _VERBS} | {
    "Captured": "passes.capture",
    "HookcliError": "errors",
    "HookcliWarning": "errors",
    "LayerRecord": "records.layer_records",
    "Run": "reading.load",
    "TensorStats": "records.layer_records",
    "capture": "passes.capture",
    "load_run": "reading.load",
}

if not TYPE_CHECKING:  # without this, mypy would accept a misspelt name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib import metadata  # takes 20 ms, which hookcli --help does not need

            return metadata.version("hookcli")
        if name not in _HOMES:
            raise AttributeError(f"module 'hookcli' has no attribute {name!r}")
        return getattr(import_module(f"hookcli.{_HOMES[name]}"), name)
