"""The import of torchvision: the one place in hookcli that does it, so that it is always done in the quick way."""

from __future__ import annotations

from importlib import metadata

import torch  # noqa: F401  before the block below, which is about torchvision alone

from hookcli.errors import EnvironmentMismatchError
from hookcli.without_compiler import importing_torchvision

try:
    with importing_torchvision():
        import torchvision
except (ImportError, RuntimeError, OSError) as error:  # "operator torchvision::nms does not exist"
    raise EnvironmentMismatchError(
        f"torchvision {metadata.version('torchvision')} does not work with torch {metadata.version('torch')}:"
        f" {str(error).splitlines()[0]}",
        "install a pair made for each other: pip install --upgrade torch torchvision",
    ) from error

__all__ = ["torchvision"]
