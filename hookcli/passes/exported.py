"""Export a model with torch.export and run it; run ``.pt2`` files, but refuse those with code."""

from __future__ import annotations

import io
import json
import operator
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn

from hookcli.errors import ModelError, OutputError
from hookcli.hooks.nested import tensors_in
from hookcli.networks.graph_file import GraphInput, fit_inputs
from hookcli.networks.inputs import split_arguments
from hookcli.networks.torch_archive import list_members, load_archive
from hookcli.outside.files import open_regular
from hookcli.outside.foreign import ForeignCode, Forgiveness, first_line
from hookcli.passes.call import call_model, explain_refusal
from hookcli.passes.flops import FlopCounter
from hookcli.passes.fx_graph import list_nodes, list_returned
from hookcli.passes.graph import Graph
from hookcli.passes.graph_runner import GraphRunner, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from torch.export import ExportedProgram

    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.graph_runner import Arguments, Receive, Tensors

# What torch.export, or the model's own code while it is traced, may raise
_REFUSED = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, OSError),
    *(RuntimeError, TypeError, ValueError, torch._dynamo.exc.TorchDynamoException),
)
_LIBRARIES = "data/aotinductor/"
_CONFIGS = ("weights_config.json", "constants_config.json")
_OBJECTS = ("custom_obj", "opaque_obj")
# Files of torch.save in archives from before torch 2.8
_PICKLED = ("serialized_state_dict", "serialized_constants", "serialized_example_inputs")


def export_program(runner: EagerRunner, pixels: Tensor) -> ExportedProgram:
    arguments = runner.inputs.arguments_of(runner.to_device(pixels))
    with quiet(), torch.no_grad():
        try:
            return torch.export.export(runner.module, *split_arguments(arguments))
        except _REFUSED as error:
            raise ModelError(
                f"torch.export cannot export the model: {explain_refusal(runner.module, error)}",
                "export it yourself, and name the file: torch-export=FILE",
            ) from error


def save_program(program: ExportedProgram, file: Path) -> None:
    try:
        torch.export.save(program, file)
    except (OSError, RuntimeError) as error:
        raise OutputError(f"cannot write {str(file)!r}: {first_line(error)}") from error


def load_program(file: Path) -> ExportedProgram:
    try:
        stream = open_regular(file)
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror}") from error
    verb, hint = "is damaged, or no exported program", "make it with torch.export.save"
    with stream, ForeignCode(repr(str(file)), hint=hint, verb=verb), quiet():
        check_archive(str(file), stream)
        return torch.export.load(stream)


@dataclass(slots=True)
class ProgramRunner(GraphRunner):
    module: fx.GraphModule  # the program as a module

    @classmethod
    def of(
        cls, program: ExportedProgram, arguments_of: Callable[[Tensor], tuple[object, ...]]
    ) -> ProgramRunner:
        module: Any = program.module()
        for inner in module.modules():  # the model that was exported has the same buffers
            for name, buffer in inner.named_buffers(recurse=False):
                setattr(inner, name, buffer.clone())
        return cls(Graph.of(list_nodes(module), list_returned(module.graph)), arguments_of, module)

    @property
    def inputs(self) -> list[GraphInput]:
        found = []
        for name, each in self._placeholders.items():
            shape = tuple(length if isinstance(length, int) else None for length in each.shape)
            taken = GraphInput(shape, str(each.dtype).removeprefix("torch."), name)
            found.append(taken.with_layout(self.input_layout))
        return found

    def list_quantized(self) -> Mapping[str, bool]:
        return self.find_quantized(
            (str(node.target), [each.name for each in node.all_input_nodes], [node.name])
            for node in self.module.graph.nodes
            if node.op == "call_function"  # other targets are names of the model's weights
        )

    @property
    def _placeholders(self) -> dict[str, Tensor]:
        nodes = self.module.graph.find_nodes(op="placeholder")
        values = {str(node.target): node.meta.get("val") for node in nodes}
        return {name: each for name, each in values.items() if isinstance(each, Tensor)}

    def to_device(self, pixels: Tensor) -> Tensor:
        return pixels.to(device=next(iter(self._placeholders.values()), pixels).device)

    def count_flops(self, pixels: Tensor) -> tuple[Mapping[str, int | None], Sequence[str]]:
        counter, nodes = FlopCounter(), {node.name: node for node in self.module.graph.nodes}
        flops: dict[str, int | None] = {}
        before = 0, 0

        def receive(name: str, _result: object) -> None:
            nonlocal before
            counted, before = before, (counter.total, len(counter.uncounted))
            own = None if before[1] > counted[1] else before[0] - counted[0]
            picks = (user.name for user in nodes[name].users if user.target is operator.getitem)
            flops.update({name: own} | dict.fromkeys(picks, own and 0))

        with counter:
            self.compute(self.arguments_of(pixels), nodes, receive, {})
        return flops, counter.uncounted

    def compute(
        self, arguments: Arguments, values: Collection[str], receive: Receive, fed: Tensors
    ) -> list[Tensor]:
        def pass_on(name: str, result: Any) -> Any:
            if name in values:
                receive(name, result)
            return fed[name].clone() if name in fed else result

        watched = _Watched(self.module, pass_on)
        given = iter(fit_inputs(tensors_in(arguments), self.inputs))
        nodes = self.module.graph.find_nodes(op="placeholder")
        examples = [node.meta.get("val") for node in nodes]  # a number is part of the program
        taken = (next(given).to(e.dtype) if isinstance(e, Tensor) else e for e in examples)
        with torch.no_grad():
            returned = call_model(watched, tuple(taken))
        return tensors_in(returned)


class _Watched(nn.Module):
    def __init__(self, module: fx.GraphModule, pass_on: Callable[[str, Any], Any]) -> None:
        super().__init__()
        self._module, self._pass_on = module, pass_on

    def forward(self, *inputs: Tensor) -> object:
        interpreter = _Interpreter(self._module)
        interpreter.pass_on = self._pass_on
        return interpreter.run(*inputs, enable_io_processing=False)


class _Interpreter(fx.Interpreter):
    pass_on: Callable[[str, Any], Any]

    def run_node(self, n: fx.Node) -> Any:
        return self.pass_on(n.name, super().run_node(n))


def check_archive(file: str, stream: BinaryIO) -> None:
    """Raise a ModelError if torch would unpickle objects or load libraries to read an archive."""
    # That is no complete protection: torch also evaluates expressions of the archive. Damaged
    # archives raise other exceptions than ``ModelError``.
    reason = _find_reason(stream)
    stream.seek(0)
    if reason:
        what = f"{file!r} {reason}, and loading it would run its code"
        raise ModelError(what, "export the model with tensors alone")


def _find_reason(stream: BinaryIO) -> str:
    """Return why loading an archive could run code in it, or "" if hookcli finds no reason."""
    if any(member.compress_type != zipfile.ZIP_STORED for member in list_members(stream)):
        raise ValueError("its members are compressed, which torch never does")
    archive = zipfile.ZipFile(stream)
    for name in archive.namelist():
        # Before torch 2.8, the members were in no folder. Torch ignores the case of their names.
        member = (name.partition("/")[2] or name).lower()
        if member.startswith(_LIBRARIES):
            return "holds a compiled library"
        if member.endswith(".pt") or member.startswith(_PICKLED):
            content = archive.read(name)
            if content and not _is_loadable(content):
                return f"holds a pickled object, in {name}"
        if member.endswith(_CONFIGS) and _asks_for_pickle(json.loads(archive.read(name))):
            return f"holds a pickled object, according to {name}"
    return ""


def _is_loadable(content: bytes) -> bool:
    with Forgiveness():  # whatever fails here, torch tries again and unpickles objects
        load_archive(io.BytesIO(content))
        return True
    return False


def _asks_for_pickle(document: Any) -> bool:
    entries = document.get("config") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise ValueError("the index of its tensors has another form")
    return any(
        each.get("use_pickle") or str(each.get("path_name")).startswith(_OBJECTS)
        for each in entries.values()
    )
