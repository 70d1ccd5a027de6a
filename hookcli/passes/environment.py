"""What the figures depend on besides the model and the images: packages, processor, settings."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING

import torch
from torch import nn

from hookcli.records.report import DEFINED_VERSIONS, PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def list_versions(
    module: nn.Module | None,
    device: torch.device | str,
    libraries: Mapping[str, str],
    *,
    channels_last: bool = False,
    uses_operations: bool = False,
) -> dict[str, str]:
    """Return the versions and settings that a run of a model depends on, by name.

    ``module`` is None for a model that PyTorch does not run, and ``libraries`` has the versions of
    the packages that the model comes from. An entry that the schema requires but the model lacks,
    such as ``timm``, is empty. ``mha_fast_path`` is ``off`` if operations are observed or changed
    in a model with an ``nn.MultiheadAttention``, because the module then computes its attention in
    single steps. Otherwise it is empty.
    """
    modules = () if module is None else module.modules()
    has_mha = any(isinstance(each, nn.MultiheadAttention) for each in modules)
    versions = list_packages() | {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _name_processor(torch.device(device)),
        "threads": str(torch.get_num_threads()),
        "matmul": torch.get_float32_matmul_precision(),
        "memory_format": "channels last" if channels_last else "contiguous",
        "mha_fast_path": "off" if uses_operations and has_mha else "",
    }
    empty = dict.fromkeys(DEFINED_VERSIONS["required"], "")
    return {**empty, **libraries, **versions}


def list_packages() -> dict[str, str]:
    """Return the versions of hookcli and the packages that every run uses, by name."""
    return {name: metadata.version(name) for name in PACKAGES}


def _name_processor(device: torch.device) -> str:
    """Return the GPU and its libraries or, on a CPU, the instruction set of torch: ``AVX2``."""
    if device.type != "cuda":
        return torch.backends.cpu.get_cpu_capability()
    cudnn_version: Callable[[], int | None] = torch.backends.cudnn.version
    name = torch.cuda.get_device_name(device)
    return f"{name}, CUDA {torch.version.cuda}, cuDNN {cudnn_version()}"
