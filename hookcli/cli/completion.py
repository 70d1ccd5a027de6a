"""The small list from which model names complete, without importing torch."""

from __future__ import annotations

import contextlib

from hookcli.cli.options import names_file
from hookcli.errors import OutputError
from hookcli.files import write_atomic


def save_model_names() -> None:
    """Leave the model names for the next completion; a cache folder that refuses is no error."""
    from hookcli.models import list_names

    text = "\n".join(list_names()) + "\n"
    file = names_file()
    with contextlib.suppress(OSError):
        if file.read_text(encoding="utf-8") == text:
            return
    with contextlib.suppress(OutputError):
        write_atomic(file, text.encode())
