"""List the packages, the processor and the settings on which the results of a run depend."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from hookcli.records.report import DEFINED_VERSIONS, PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping


def list_versions(device: torch.device | str, libraries: Mapping[str, str]) -> dict[str, str]:
    # entries that do not apply, such as ``timm``, are empty
    versions = list_packages() | {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _name_processor(torch.device(device)),
        "threads": str(torch.get_num_threads()),
        "matmul": torch.get_float32_matmul_precision(),
        "memory_format": "contiguous",
        "mha_fast_path": "",
    }
    return {**dict.fromkeys(DEFINED_VERSIONS["required"], ""), **libraries, **versions}


def list_packages() -> dict[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}


def _name_processor(device: torch.device) -> str:
    if device.type != "cuda":
        return torch.backends.cpu.get_cpu_capability()
    cudnn: Any = torch.backends.cudnn
    return (
        f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, cuDNN {cudnn.version()}"
    )
