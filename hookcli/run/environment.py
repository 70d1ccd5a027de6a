"""What can change a figure beside the model and the images: versions of packages, the processor, how torch is set."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn

_PACKAGES = ("hookcli", "torch", "torchvision", "pillow", "numpy")


def list_versions(module: nn.Module, device: str, *, channels_last: bool) -> dict[str, str]:
    """What a run of ``module`` depends on, by name; ``timm`` is empty where no part of the model is timm's."""
    return {name: metadata.version(name) for name in _PACKAGES} | {
        "timm": _timm_version(module),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _name_processor(torch.device(device)),
        "threads": str(torch.get_num_threads()),
        "matmul": torch.get_float32_matmul_precision(),
        "memory_format": "channels last" if channels_last else "contiguous",
    }


def _name_processor(device: torch.device) -> str:
    """The GPU and what drives it or, elsewhere, the instructions that torch uses of the CPU: ``AVX2``."""
    if device.type != "cuda":
        return torch.backends.cpu.get_cpu_capability()
    name, cudnn = torch.cuda.get_device_name(device), torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return f"{name}, CUDA {torch.version.cuda}, cuDNN {cudnn}"


def _timm_version(module: nn.Module) -> str:
    """Of the timm that is loaded; a model of the user's own may be built of its parts."""
    if not any(type(part).__module__.startswith("timm.") for part in module.modules()):
        return ""
    version: str = getattr(sys.modules.get("timm"), "__version__", "")
    return version
