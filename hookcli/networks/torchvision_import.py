"""Import torchvision without torch's compiler; all other modules import torchvision from here."""

from __future__ import annotations

from importlib import metadata

import torch  # noqa: F401  imported first: the block below is for torchvision's import alone

from hookcli.errors import EnvironmentMismatchError
from hookcli.networks.without_compiler import importing_torchvision

try:
    with importing_torchvision():
        import torchvision
except (ImportError, RuntimeError, OSError) as error:  # "operator torchvision::nms does not exist"
    raise EnvironmentMismatchError(
        f"torchvision {metadata.version('torchvision')} does not work with"
        f" torch {metadata.version('torch')}: {str(error).splitlines()[0]}",
        "install matching versions: pip install --upgrade torch torchvision",
    ) from error

__all__ = ["torchvision"]
