"""Define the base class of the runners of graphs: exported and compiled models, and ONNX files."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

import torch

from hookcli.hooks.filter import Entry, choose_layers, make_entry
from hookcli.hooks.operations import FoundOperation
from hookcli.networks import hub
from hookcli.passes.runner import ForwardOutcome, Runner
from hookcli.records.calls import Call, LayerInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from torch import Tensor

    from hookcli.hooks.observe import Observer
    from hookcli.networks.graph_file import GraphInput
    from hookcli.networks.tasks import Reading
    from hookcli.passes.graph import Graph, GraphCall
    from hookcli.passes.runner import Batch, Feed

    Arguments: TypeAlias = tuple[object, ...]
    Tensors: TypeAlias = Mapping[str, Tensor]
    Receive: TypeAlias = Callable[[str, Tensor], None]  # takes the name of a value, and the value

_QUANTIZED = re.compile(r"quantize|integer|qlinear|qgemm|nbits")  # in the names of operators


@dataclass(slots=True)
class GraphRunner(Runner):
    graph: Graph
    arguments_of: Callable[[Tensor], Arguments]  # takes pixels (1, …)
    layers: Sequence[LayerInfo] = field(default=(), kw_only=True)  # (): all and the model itself
    # of the values in the last run
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict, kw_only=True)
    input_layout: str | None = field(default=None, kw_only=True)  # if the user names it
    merges_calls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.layers = self.layers or self.graph.layers

    @property
    def names_modules(self) -> bool:
        return self.graph.names_modules

    @property
    def inputs(self) -> Sequence[GraphInput]:
        raise NotImplementedError

    @property
    def reading(self) -> Reading | None:
        """What the model returns (logits, probabilities or other values), as its last layers show.

        The result is None if the last layer, apart from activations, is not linear.
        """
        leaves = [call for call in reversed(self.graph.calls) if call.layer.is_leaf]
        acts = [*itertools.takewhile(lambda call: "act" in call.families, leaves)]
        if "linear" not in (*(call.families for call in leaves[len(acts) :]), ())[0]:
            return None
        kinds = {call.layer.module_type.lower() for call in acts} - {"logsoftmax"}
        if kinds and kinds <= {"sigmoid", "hardsigmoid", "softmax"}:
            return "probabilities"
        return "values" if kinds else "logits"

    @property
    def alone(self) -> bool:
        return True  # graphs may fix the batch size

    def choosing(self, forms: Sequence[str], exclude: Sequence[str] = ()) -> Self:
        layers = choose_layers([*self._list_entries()], forms, exclude, self.operations)
        return replace(self, layers=layers)

    def judging_all(self) -> Self:
        whole = (replace(layer, chosen_calls=()) for layer in self.layers)
        leaves = (call.layer for call in self.graph.calls if call.layer.is_leaf)
        layers = {layer.module_path: layer for layer in (*whole, *leaves)}
        return replace(self, layers=tuple(layers.values()))

    def _list_entries(self) -> Iterator[Entry]:
        yield make_entry(self.graph.root, [self.graph.root.module_type], [])
        known: set[str] = set()
        for call in sorted(self.graph.calls, key=_starting):
            layer = call.layer
            if layer.module_path not in known and not layer.is_operation:
                known.add(layer.module_path)
                yield make_entry(layer, [layer.module_type], call.families)

    @property
    def operations(self) -> list[FoundOperation]:
        moments: dict[str, list[int]] = {}
        layers: dict[str, LayerInfo] = {}
        for moment, call in enumerate(sorted(self.graph.calls, key=_starting), 1):
            if call.layer.is_operation:
                layers.setdefault(call.layer.module_path, call.layer)
                moments.setdefault(call.layer.module_path, []).append(moment)
        return [FoundOperation(each, (*moments[p],), computes=True) for p, each in layers.items()]

    def count_flops(self, pixels: Tensor) -> tuple[Mapping[str, int | None], Sequence[str]]:
        return {}, ("a compiled model",)

    def find_quantized(
        self, nodes: Iterable[tuple[str, Iterable[str], Iterable[str]]]
    ) -> dict[str, bool]:
        # each node has an operator, and the names of the values that it reads and computes
        shown = {name for call in self.graph.calls if call.is_told for name in call.values}
        found: dict[str, bool] = {}
        for operator, inputs, outputs in nodes:
            is_quantizing = _QUANTIZED.search(operator.lower()) is not None
            if is_quantizing or found.keys() & ({*inputs} - shown):
                found |= dict.fromkeys(outputs, is_quantizing)
        last = {call.layer.module_path: call.values[-1] for call in self.graph.calls}
        paths = {path: found[name] for path, name in last.items() if name in found}
        around = (itertools.accumulate(path.split("."), "{}.{}".format) for path in paths)
        outer = ["", *itertools.chain(*around)] if found else []
        return dict.fromkeys(outer, True) | paths

    def compute(
        self, arguments: Arguments, values: Collection[str], receive: Receive, fed: Tensors
    ) -> list[Tensor]:
        """Run the graph on ``arguments``, and return its outputs.

        ``fed`` maps names of values to tensors that replace them. The runner calls ``receive`` with
        the name and tensor of each value in ``values`` before the tensor can be overwritten.
        """
        raise NotImplementedError

    def run(self, batch: Batch, observer: Observer) -> ForwardOutcome:
        outputs = self._run(batch, observer, {})
        output = outputs[0] if len(outputs) == 1 else tuple(outputs)
        return ForwardOutcome(output, {layer.module_path: "" for layer in self.layers})

    def run_fed(self, batch: Batch, feed: Feed, observer: Observer) -> None:
        fed: dict[str, Tensor] = {}
        for call, value in self._list_outputs():
            given = feed(call.id)
            fits = given is not None and given.shape == self.shapes.get(value)
            if given is not None and fits and value not in fed:
                fed[value] = torch.from_numpy(given)
        self._run(batch, observer, fed)

    def _run(self, batch: Batch, observer: Observer, fed: Mapping[str, Tensor]) -> list[Tensor]:
        chosen: dict[str, list[Call]] = {}  # a block and its last layer return the same value
        for call, value in self._list_outputs():
            chosen.setdefault(value, []).append(call)

        def receive(value: str, tensor: Tensor) -> None:
            self.shapes[value] = tuple(tensor.shape)
            for call in chosen[value]:
                observer(call, tensor)

        outputs = self.compute(self.arguments_of(batch.pixels), chosen, receive, fed)
        if self.graph.root in self.layers:
            for key, tensor in zip(name_outputs(outputs), outputs, strict=True):
                observer(Call(self.graph.root, 0, 1, output_key=key), tensor)
        return outputs

    def _list_outputs(self) -> Iterator[tuple[Call, str]]:
        paths = {layer.module_path: layer for layer in self.layers}
        known = [call for call in self.graph.calls if call.layer.module_path in paths]
        observed = [c for c in known if paths[c.layer.module_path].has_call(c.call_index)]
        indices = {id(call): index for index, call in enumerate(sorted(observed, key=_starting))}
        first = 2 if self.graph.root in self.layers else 1
        for call in observed:
            yield from call.outputs(indices[id(call)] + first)


def _starting(call: GraphCall) -> tuple[int, int]:
    return call.start, call.layer.depth


def name_outputs(outputs: Sequence[object]) -> list[str]:
    return [str(number) for number in range(len(outputs))] if len(outputs) != 1 else [""]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    # If torch.export fails, it prints the graph to stderr.
    nowhere = contextlib.redirect_stderr(io.StringIO())
    with hub.quiet(), warnings.catch_warnings(), contextlib.redirect_stdout(None), nowhere:
        warnings.simplefilter("ignore")
        yield
