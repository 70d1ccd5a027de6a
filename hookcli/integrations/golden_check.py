"""Run a model on one image for the pytest plugin; write a golden file, or compare with one."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from torch import Tensor, nn

from hookcli.comparison.compared_run import load_compared_run
from hookcli.comparison.diff import diff_runs
from hookcli.comparison.golden import check_replaceable, make_golden, rename_image, write_golden
from hookcli.config import (
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    MachineRequest,
    ModelRequest,
    RunRequest,
    TensorRequest,
)
from hookcli.distance.verdict import describe_difference
from hookcli.outside.files import scratch_folder
from hookcli.reading.load import load_run
from hookcli.run.pipeline import inspect_images
from hookcli.verbs.memory import held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hookcli.distance.tolerance import Tolerance

_PIXELS = "pixels.npy"


def check_golden(
    model: nn.Module | str | ModelRequest,
    image: Path | Tensor | NDArray[Any],
    golden: Path,
    layers: tuple[str, ...],
    tolerance: Tolerance,
    *,
    update: bool,
) -> str:
    """Describe how a model differs from a golden file; write the file instead if ``update``."""
    if update:
        check_replaceable(golden, overwrite=False)
    with scratch_folder() as folder, pytest.MonkeyPatch.context() as patch, _name(model) as request:
        patch.setattr(sys, "path", [*sys.path])  # loading a model adds a folder
        file = image if isinstance(image, Path) else folder / _PIXELS
        if isinstance(image, Tensor):
            image = image.detach().cpu().float().numpy()
        if not isinstance(image, Path):
            np.save(file, image)
        config = InspectConfig(
            RunRequest(request, ImageRequest((str(file),)), layers),
            FolderRequest(folder / "run"),
            GridStyle("none"),
            TensorRequest(sketch=True),
            machine=MachineRequest(workers=0),
        )
        inspect_images(config)
        if update:
            document = make_golden(load_run(folder / "run"))
            shown = os.path.relpath(file, golden.parent) if file is image else _PIXELS
            write_golden(rename_image(document, str(file), Path(shown).as_posix()), golden)
            return ""
        now = replace(load_compared_run(str(folder / "run")), name="this run")
        comparison = diff_runs(load_compared_run(str(golden)), now, tolerance)
    return "" if comparison.equal else describe_difference(comparison)


@contextmanager
def _name(model: nn.Module | str | ModelRequest) -> Iterator[ModelRequest]:
    if isinstance(model, ModelRequest):
        yield model
        return
    with held({"model": model}, {"model", "device", "dtype"}) as named:
        yield ModelRequest(named.pop("model"), **({"device": "cpu"} | named))
