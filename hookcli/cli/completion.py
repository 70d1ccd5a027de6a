"""The list of model names that completion in the shell reads, so that it need not import torch."""

from __future__ import annotations

import contextlib

from hookcli.cli.options import names_file
from hookcli.errors import OutputError
from hookcli.files import read_regular, write_atomic


def save_model_names() -> None:
    """Write the list for the next completion; a cache folder that cannot be written is no error."""
    from hookcli.models.zoo.catalog import list_names

    data = ("\n".join(list_names()) + "\n").encode()
    file = names_file()
    with contextlib.suppress(OSError):
        if read_regular(file) == data:
            return
    with contextlib.suppress(OutputError):
        write_atomic(file, data)
