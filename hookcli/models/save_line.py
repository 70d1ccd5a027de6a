"""The line of shell that saves the weights in a file of another kind alone, for hints."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def save_line(file: Path, state: str) -> str:
    """Return a command that writes the weights in a file into one beside it.

    Args:
        file: the file.
        state: the Python expression that makes a state dict of it; it may run what is in the file.
    """
    name = json.dumps(weights_name(file), ensure_ascii=False)
    return f"python -c {shlex.quote(f'import torch; torch.save({state}, {name})')}"


def weights_name(file: Path) -> str:
    """Return the name of the file that the command writes."""
    return str(file.with_name(f"{file.stem}-weights.pt"))
