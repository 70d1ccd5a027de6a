"""Run a model compiled by ``torch.compile``, with the tensors of its layers as extra outputs.

The extra outputs can change what the compiler fuses. torch.compile splits the model into several
graphs if it has code that cannot be traced. Inductor compiles each graph.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn

from hookcli.errors import ForwardError, ModelError
from hookcli.hooks.nested import named_tensors
from hookcli.networks.modules import find_modules
from hookcli.outside.foreign import first_line
from hookcli.passes.call import call_model
from hookcli.passes.fx_graph import expose_values, list_nodes, list_returned
from hookcli.passes.graph import Graph
from hookcli.passes.graph_runner import GraphRunner, quiet
from hookcli.passes.unchanged import list_restorers, restoring, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from torch import fx

    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.graph import GraphNode
    from hookcli.passes.graph_runner import Arguments, Receive, Tensors


@dataclass(slots=True)
class CompiledRunner(GraphRunner):
    module: nn.Module  # the model before it is compiled
    move: Callable[[Tensor], Tensor]  # to the model's device and dtype
    graphs: Sequence[Sequence[GraphNode]]  # into which torch.compile splits the model
    fresh: Sequence[Callable[[], object]]  # restore the state in which the model was first traced
    note: ClassVar[str] = (
        "the compiled model returns the tensors of its layers, which can change what is fused"
    )

    @classmethod
    def of(cls, runner: EagerRunner, pixels: Tensor) -> CompiledRunner:
        graphs: list[list[GraphNode]] = []
        returned: list[str] = []
        runs: Counter[int] = Counter()
        paths = _list_paths(runner.module)

        def collect(module: fx.GraphModule, _examples: Sequence[Tensor]) -> Callable[..., object]:
            number = len(graphs)
            returned.extend(f"{number}/{name}" for name in list_returned(module.graph))
            graphs.append([each.within(f"{number}/") for each in list_nodes(module, paths)])

            def run(*inputs: Tensor) -> object:
                runs[number] += 1
                return module.forward(*inputs)

            return run

        arguments_of, fresh = runner.inputs.arguments_of, [*list_restorers(runner.module)]
        _run_with(runner.module, arguments_of(runner.to_device(pixels)), collect)
        # the calls in a graph that runs several times cannot be told apart
        graphs = [nodes if runs[number] == 1 else [] for number, nodes in enumerate(graphs)]
        graph = Graph.of((node for nodes in graphs for node in nodes), returned)
        return cls(graph, arguments_of, runner.module, runner.to_device, graphs, fresh)

    def to_device(self, pixels: Tensor) -> Tensor:
        return self.move(pixels)

    def compute(
        self, arguments: Arguments, values: Collection[str], receive: Receive, fed: Tensors
    ) -> list[Tensor]:
        found: dict[str, Tensor] = {}
        paths = _list_paths(self.module)
        graphs = 0
        is_other = False

        def compile_graph(module: fx.GraphModule, examples: list[Tensor]) -> Callable[..., object]:
            nonlocal graphs, is_other
            prefix = f"{graphs}/"
            known = self.graphs[graphs] if graphs < len(self.graphs) else ()
            nodes = [each.within(prefix) for each in list_nodes(module, paths)]
            is_other |= bool(known) and nodes != known
            graphs += 1
            if is_other:
                return module.forward
            wanted = [name for name in values if name.startswith(prefix)]
            given = {name: each for name, each in fed.items() if name.startswith(prefix)}
            bare = [[name.removeprefix(prefix) for name in names] for names in (wanted, given)]
            whole = expose_values(module, *bare)
            fakes = [*given.values()]
            # If torch could make the shapes symbols, it would check them at every call, and miss
            # the names of the tensors.
            if (mode := torch._guards.detect_fake_mode(examples)) is not None:
                fakes = [mode.from_tensor(each, static_shapes=True) for each in fakes]
            compiled = torch._inductor.compile(whole, [*examples, *fakes])

            def run(*inputs: Tensor) -> object:
                returned = compiled(*inputs, *(tensor.clone() for tensor in given.values()))
                split = len(returned) - len(wanted)
                found.update(zip(wanted, returned[split:], strict=True))
                return returned[:split]

            return run

        with unchanged(self.module):
            with restoring(self.module, self.fresh):  # what the model kept would change its trace
                pass
            output = _run_with(self.module, arguments, compile_graph)
        if is_other or graphs != len(self.graphs):
            raise ForwardError(
                "torch.compile traces the model in another way for this image than at first",
                "compare the images one by one; the model may also keep state between its calls",
            )
        for name in values:
            receive(name, found.pop(name))
        return [each for _, each in named_tensors(output)]


def _list_paths(module: nn.Module) -> dict[str, str]:
    return {str(id(each)): path for path, each in find_modules(module).items()}


def _run_with(module: nn.Module, given: tuple[object, ...], backend: Callable[..., Any]) -> object:
    torch._dynamo.reset()
    compiled = cast("nn.Module", torch.compile(module, backend=backend))
    with quiet(), torch.no_grad():
        try:
            return call_model(compiled, given)
        except ForwardError as error:
            if not isinstance(error.__cause__, torch._dynamo.exc.TorchDynamoException):
                raise
            raise ModelError(
                f"torch.compile cannot compile the model: {first_line(error.__cause__)}",
                "let torch.compile alone compile the model, to see the whole error",
            ) from error
        finally:
            torch._dynamo.reset()
