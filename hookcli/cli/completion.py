"""Complete model names in the shell from a file, so that completion need not import torch."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hookcli.errors import OutputError
from hookcli.outside.files import read_regular, write_atomic


def names_file() -> Path:
    """Return the file in which each run saves the list of model names."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hookcli" / "models.txt"
    )


def complete_model(incomplete: str) -> list[str]:
    """Return the model names that begin with ``incomplete``, from the list of the last run."""
    try:
        names = read_regular(names_file()).decode().split()
    except (OSError, ValueError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def save_model_names() -> None:
    """Save the list of model names for completion; ignore a cache folder that cannot be written."""
    from hookcli.models.sources import list_names

    data = ("\n".join(list_names()) + "\n").encode()
    file = names_file()
    with contextlib.suppress(OSError):
        if read_regular(file) == data:
            return
    with contextlib.suppress(OutputError):
        write_atomic(file, data)
