"""Complete model names in the shell from a file, so that completion need not import torch."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hookcli.errors import OutputError
from hookcli.outside.files import read_regular, write_atomic


def names_file(source: str | None = None) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hookcli"
    return folder / (f"models-{source}.txt" if source else "models.txt")


def complete_model(incomplete: str) -> list[str]:
    names: list[str] = []
    for file in sorted(names_file().parent.glob("models*.txt")):
        with contextlib.suppress(OSError, ValueError):
            names += read_regular(file).decode().split()
    return [name for name in names if name.startswith(incomplete)]


def save_model_names(source: str | None = None) -> None:
    """Save the model names of ``source`` for completion, if possible. None means torchvision."""
    from hookcli.networks.catalog import list_shelf_names

    data = ("\n".join(list_shelf_names(source)) + "\n").encode()
    with contextlib.suppress(OutputError):
        write_atomic(names_file(source), data)
