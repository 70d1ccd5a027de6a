"""Run a program of ``torch.export``: exported from a model, or read from a ``.pt2`` file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hookcli.errors import ModelError
from hookcli.hooks.nested import named_tensors
from hookcli.models.file_kind import DAMAGED
from hookcli.outside.files import cannot_write
from hookcli.outside.foreign import first_line
from hookcli.passes.call import call_model
from hookcli.passes.fx_graph import list_nodes, take_apart
from hookcli.passes.graph import GraphRunner, find_calls, flatten, quiet
from hookcli.passes.program_archive import check_archive
from hookcli.records.calls import LayerInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, fx
    from torch.export import ExportedProgram

    from hookcli.passes.eager import EagerRunner

_REFUSED = (torch._dynamo.exc.TorchDynamoException, RuntimeError)


def export_program(runner: EagerRunner, pixels: Tensor) -> ExportedProgram:
    """Export a model for pixels (1, …) of one image.

    Raises:
        ModelError: the model cannot be exported.
    """
    arguments = runner.inputs.arguments_of(runner.place(pixels))
    with quiet(), torch.no_grad():
        try:
            return torch.export.export(runner.module, arguments)
        except _REFUSED as error:
            raise ModelError(
                f"torch.export cannot export the model: {first_line(error)}",
                "export it yourself, and name the file: torch-export=FILE",
            ) from error


def save_program(program: ExportedProgram, file: Path) -> None:
    """Write a program to a ``.pt2`` file.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        torch.export.save(program, file)
    except OSError as error:
        raise cannot_write(file, error) from error


def load_program(file: Path) -> ExportedProgram:
    """Read a program from a ``.pt2`` file.

    Torch evaluates expressions of the file, so the file may run code although hookcli refuses
    pickled objects.

    Raises:
        ModelError: the file cannot be read, or it holds pickled objects.
    """
    try:
        check_archive(file)
        with quiet():
            return torch.export.load(file)
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror}") from error
    except DAMAGED as error:
        raise ModelError(
            f"{str(file)!r} is damaged, or no exported program: {first_line(error)}",
            "make it with torch.export.save",
        ) from error


@dataclass(slots=True)
class ProgramRunner(GraphRunner):
    """Runs an exported program, node by node, with PyTorch's own functions.

    Attributes:
        module: the program as a module.
    """

    module: fx.GraphModule

    @classmethod
    def of(
        cls, program: ExportedProgram, arguments_of: Callable[[Tensor], tuple[object, ...]]
    ) -> ProgramRunner:
        """Return a runner of a program that observes all calls and the model itself."""
        module: Any = program.module()
        calls = find_calls(list(list_nodes(module.graph)))
        root = LayerInfo("", "Model", depth=0, is_leaf=False)
        layers = {call.layer.module_path: call.layer for call in calls}
        return cls(calls, (root, *layers.values()), root, arguments_of, module=module)

    def compute(
        self, arguments: tuple[object, ...], values: Sequence[str]
    ) -> tuple[list[Tensor], list[Tensor]]:
        return self.compute_fed(arguments, values, {})

    def compute_fed(
        self, arguments: tuple[object, ...], values: Sequence[str], fed: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        module = take_apart(self.module, values, [*fed])
        with torch.no_grad():
            given = (tensor.clone() for tensor in fed.values())
            returned = call_model(module, (*flatten(arguments), *given))
        outputs = [each for _, each in named_tensors(returned)]
        split = len(outputs) - len(values)
        return outputs[:split], outputs[split:]
