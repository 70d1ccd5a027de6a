"""Choose the device that a model runs on, and the number of threads on a CPU."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from hookcli.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.config import MachineRequest


def find_device(name: str) -> torch.device:
    if name == "auto":
        best = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else best)
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps"):
            raise DeviceError(f"unknown device {name!r}", "one of: auto, cpu, cuda, cuda:N, mps")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        is_known = name.partition(":")[0] in ("cpu", "cuda", "mps")
        hint = "use `device='auto'` or cpu" if is_known else "one of: auto, cpu, cuda, cuda:N, mps"
        raise DeviceError(f"there is no device {name!r} here", hint) from error
    return device


def count_threads(machine: MachineRequest) -> int:
    if machine.cluster is not None:
        return machine.cluster.cpus
    return machine.threads or torch.get_num_threads()


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
