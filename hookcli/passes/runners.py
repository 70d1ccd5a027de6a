"""Make a runner for an exported or compiled model, or for a model in a graph file."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.config import GRAPH_FILES
from hookcli.networks.graph_file import describe_graph, hash_graph
from hookcli.networks.modules import find_aliases, find_modules
from hookcli.networks.tasks import CLASSIFICATION
from hookcli.outside.files import cannot_write, scratch_folder, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from hookcli.config import ExportRequest, ModelRequest
    from hookcli.networks.graph_file import GraphDescription
    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.graph_runner import GraphRunner


def make_runner(
    export: ExportRequest, runner: EagerRunner, pixels: Tensor, provider: str | None = None
) -> GraphRunner:
    if export.way == "onnx":
        from hookcli.passes.onnx_file import OnnxRunner, export_onnx

        arguments_of = runner.inputs.arguments_of
        if export.file is not None:
            aliases = find_aliases(runner.module)
            modules = find_modules(runner.module).items()
            classes = {path: f"{type(m).__module__}.{type(m).__name__}" for path, m in modules}
            return OnnxRunner.of(export.file, arguments_of, provider, aliases, classes)
        if export.keep is not None:
            with _kept(export.keep) as file:
                export_onnx(runner, pixels, file)
            return OnnxRunner.of(export.keep, arguments_of, provider)
        with ExitStack() as stack:
            file = stack.enter_context(scratch_folder()) / "model.onnx"
            export_onnx(runner, pixels, file, has_weights=False)
            return replace(OnnxRunner.of(file, arguments_of, provider), folder=stack.pop_all())
    if export.way == "torch-export":
        from hookcli.passes.exported import (
            ProgramRunner,
            export_program,
            load_program,
            save_program,
        )
        from hookcli.passes.fx_graph import name_calls

        program = (
            export_program(runner, pixels) if export.file is None else load_program(export.file)
        )
        name_calls(program.graph, find_aliases(runner.module))
        if export.keep is not None:
            with _kept(export.keep) as file:
                save_program(program, file)
        return ProgramRunner.of(program, runner.inputs.arguments_of)
    from hookcli.passes.compiled import CompiledRunner

    return CompiledRunner.of(runner, pixels)


@contextmanager
def _kept(file: Path) -> Iterator[Path]:
    try:
        with temporary_folder(file.parent) as folder:
            yield folder / file.name
            for written in sorted(folder.iterdir()):
                written.replace(file.parent / written.name)
    except OSError as error:
        raise cannot_write(file, error) from error


def open_graph(request: ModelRequest) -> tuple[GraphRunner, GraphDescription]:
    file = Path(request.name)
    runner: GraphRunner
    if file.suffix == GRAPH_FILES["onnx"]:
        from hookcli.passes.onnx_file import OnnxRunner

        runner = OnnxRunner.of(file, CLASSIFICATION.arguments, request.provider)
    else:
        from hookcli.passes.exported import ProgramRunner, load_program

        runner = ProgramRunner.of(load_program(file), CLASSIFICATION.arguments)
    runner = replace(runner, input_layout=request.input_layout)
    described = describe_graph(request, runner.inputs, hash_graph(file), runner.reading)
    arguments_of, extra = described.task.arguments, described.extra
    if extra is not None:
        names = {each.name: Parameter.empty for each in runner.inputs}
        arguments_of = partial(extra.bind, arguments_of, names)
    return replace(runner, arguments_of=arguments_of), described
