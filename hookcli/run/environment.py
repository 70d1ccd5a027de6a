"""What the figures depend on besides the model and the images: packages, processor, settings."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGES = ("hookcli", "torch", "torchvision", "pillow", "numpy")


def list_versions(
    module: nn.Module, device: str, *, channels_last: bool, uses_operations: bool = False
) -> dict[str, str]:
    """Return the versions and settings that a run of ``module`` depends on, by name.

    ``timm`` is empty if no module of the model comes from timm. ``mha_fast_path`` is ``off`` if
    operations are observed or changed in a model with an ``nn.MultiheadAttention``, which then
    computes its attention in single steps, and empty otherwise.
    """
    has_mha = any(isinstance(each, nn.MultiheadAttention) for each in module.modules())
    return {name: metadata.version(name) for name in _PACKAGES} | {
        "timm": _timm_version(module),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _name_processor(torch.device(device)),
        "threads": str(torch.get_num_threads()),
        "matmul": torch.get_float32_matmul_precision(),
        "memory_format": "channels last" if channels_last else "contiguous",
        "mha_fast_path": "off" if uses_operations and has_mha else "",
    }


def _name_processor(device: torch.device) -> str:
    """Return the GPU and its libraries or, on a CPU, the instructions that torch uses: ``AVX2``."""
    if device.type != "cuda":
        return torch.backends.cpu.get_cpu_capability()
    cudnn_version: Callable[[], int | None] = torch.backends.cudnn.version
    name = torch.cuda.get_device_name(device)
    return f"{name}, CUDA {torch.version.cuda}, cuDNN {cudnn_version()}"


def _timm_version(module: nn.Module) -> str:
    """Return the version of timm if the model, or a part of the user's own model, comes from it."""
    if not any(type(each).__module__.startswith("timm.") for each in module.modules()):
        return ""
    version: str = getattr(sys.modules.get("timm"), "__version__", "")
    return version
