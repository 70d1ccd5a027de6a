"""What the figures depend on besides the model and the images: packages, processor, settings."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import torch
from torch import nn

from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PACKAGES = ("hookcli", "torch", "torchvision", "pillow", "numpy")


def list_versions(
    module: nn.Module | None,
    device: torch.device | str,
    *,
    channels_last: bool = False,
    uses_operations: bool = False,
) -> dict[str, str]:
    """Return the versions and settings that a run of a model depends on, by name.

    ``module`` is None for a model that PyTorch does not run. The versions of other libraries that
    the model comes from are included, by their names. ``timm`` is empty if no module of the model
    comes from timm. ``mha_fast_path`` is ``off`` if operations are observed or changed in a model
    with an ``nn.MultiheadAttention``, which then computes its attention in single steps, and empty
    otherwise.
    """
    modules = () if module is None else tuple(module.modules())
    has_mha = any(isinstance(each, nn.MultiheadAttention) for each in modules)
    libraries = list_libraries(modules)
    versions = {name: metadata.version(name) for name in _PACKAGES} | {
        "timm": libraries.get("timm", ""),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _name_processor(torch.device(device)),
        "threads": str(torch.get_num_threads()),
        "matmul": torch.get_float32_matmul_precision(),
        "memory_format": "channels last" if channels_last else "contiguous",
        "mha_fast_path": "off" if uses_operations and has_mha else "",
    }
    return versions | {name: libraries[name] for name in libraries if name not in versions}


def list_libraries(modules: Iterable[nn.Module], name: str = "") -> dict[str, str]:
    """Return the versions of the libraries that a model and its parts come from, by their names.

    Args:
        modules: the modules of the model.
        name: the name of the model, which may begin with that of a library.
    """
    packages = {type(each).__module__.partition(".")[0] for each in modules}
    packages.add(name.partition(":")[0].partition(".")[0])
    loaded = {package: sys.modules[package] for package in packages if package in sys.modules}
    versions = {package: ask(it, "__version__") for package, it in loaded.items()}
    return {
        package: version
        for package, version in sorted(versions.items())
        if version and isinstance(version, str)
    }


def _name_processor(device: torch.device) -> str:
    """Return the GPU and its libraries or, on a CPU, the instructions that torch uses: ``AVX2``."""
    if device.type != "cuda":
        return torch.backends.cpu.get_cpu_capability()
    cudnn_version: Callable[[], int | None] = torch.backends.cudnn.version
    name = torch.cuda.get_device_name(device)
    return f"{name}, CUDA {torch.version.cuda}, cuDNN {cudnn_version()}"
