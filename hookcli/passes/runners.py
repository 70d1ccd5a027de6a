"""The ways of running a model other than PyTorch's own: exported, compiled, or from a file."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.errors import ModelError, RequestError
from hookcli.models.graph_file import describe_graph
from hookcli.models.tasks import CLASSIFICATION
from hookcli.outside.files import hash_file

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.config import ExportRequest, ModelRequest
    from hookcli.models.graph_file import GraphDescription
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


def open_graph(request: ModelRequest) -> tuple[GraphRunner, GraphDescription]:
    """Return a runner of the model in a file, and the description of the model.

    The runner observes all layers.

    Raises:
        RequestError: a package is missing, or the file does not take pictures.
        ModelError: the file cannot be read.
    """
    file = Path(request.name)
    runner: GraphRunner
    if file.suffix == ".onnx":
        from hookcli.passes.onnx_file import OnnxRunner

        runner = OnnxRunner.of(file, CLASSIFICATION.arguments, request.provider)
    else:
        from hookcli.passes.exported import ProgramRunner, load_program

        runner = ProgramRunner.of(load_program(file), CLASSIFICATION.arguments)
    try:
        sha256 = hash_file(file)
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror}") from error
    inputs, has_classifier = runner.inputs, runner.has_classifier
    described = describe_graph(request, inputs, sha256, has_classifier=has_classifier)
    return replace(runner, arguments_of=described.task.arguments), described
