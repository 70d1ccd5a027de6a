"""hookcli: see what a PyTorch vision model computed.

Every subcommand of ``hookcli`` is a function of this package. Importing this package is fast:
hookcli imports torch when you first use a name that needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hookcli.verbs.subjects import COMMANDS

_HOMES = {
    "Captured": "passes.capture",
    "HookcliError": "errors",
    "HookcliWarning": "errors",
    "LayerRecord": "records.layer_records",
    "Run": "reading.load",
    "TensorStats": "records.layer_records",
    "capture": "passes.capture",
    "load_run": "reading.load",
} | {name: f"verbs.{name}" for name in COMMANDS}
__all__ = list(_HOMES)  # tools/stub.py writes their types


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata  # takes 20 ms, which hookcli --help does not need

        return metadata.version("hookcli")
    if name not in _HOMES:
        known = ", ".join(_HOMES)
        raise AttributeError(f"module 'hookcli' has no attribute {name!r}; there are {known}")
    return getattr(import_module(f"hookcli.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
