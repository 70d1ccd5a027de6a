"""The ways of running a model that ``hookcli compare`` compares with PyTorch itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.errors import RequestError

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.config import ExportRequest
    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.graph_runner import GraphRunner


def make_runner(
    export: ExportRequest, runner: EagerRunner, pixels: Tensor, provider: str | None = None
) -> GraphRunner:
    """Return a runner that runs the model of ``runner`` in another way.

    Args:
        export: the way, and the file to read or write.
        runner: runs the same model with PyTorch.
        pixels: the pixels (1, …) of the first image.
        provider: the execution provider of ONNX Runtime; None for the CPU.

    Raises:
        RequestError: a package or the provider is missing.
        ModelError: the model cannot be exported, or the file cannot be read.
        OutputError: the exported file cannot be written.
    """
    if export.way == "onnx":
        from hookcli.passes.onnx_file import OnnxRunner, export_onnx

        folder, file = None, export.file or export.keep
        if file is None:
            folder = tempfile.TemporaryDirectory()
            file = Path(folder.name, "model.onnx")
        if export.file is None:
            export_onnx(runner, pixels, file, apart=folder is not None)
        return OnnxRunner.of(file, runner.inputs.arguments_of, provider, folder)
    if export.way == "torch-export":
        from hookcli.passes.exported import (
            ProgramRunner,
            export_program,
            load_program,
            save_program,
        )

        program = (
            export_program(runner, pixels) if export.file is None else load_program(export.file)
        )
        if export.keep is not None:
            save_program(program, export.keep)
        return ProgramRunner.of(program, runner.inputs.arguments_of)
    if export.way == "compile":
        from hookcli.passes.compiled import CompiledRunner

        return CompiledRunner.of(runner, pixels)
    raise RequestError(f"there is no way {export.way!r} to run a model")
