"""Run an ONNX file with ONNX Runtime, or export a model to such a file.

``torch.onnx.export(dynamo=True)`` stores the paths of the modules that a node comes from in the
metadata of the node (``pkg.torch.onnx.name_scopes``). A convolution that was merged with its
BatchNorm has the path of the BatchNorm.
"""

from __future__ import annotations

import ast
import importlib
import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hookcli.distance.tolerance import coarser
from hookcli.errors import ForwardError, ModelError, RequestError
from hookcli.hooks.layers import family_of_operation
from hookcli.hooks.nested import tensors_in
from hookcli.hooks.operations import name_aten
from hookcli.networks.graph_file import (
    GraphInput,
    fit_inputs,
    guard_onnx,
    read_graph,
    read_small_weights,
)
from hookcli.networks.inputs import split_arguments
from hookcli.networks.modules import find_aliases
from hookcli.outside.files import cannot_write
from hookcli.outside.foreign import first_line, require_package
from hookcli.passes.call import explain_refusal
from hookcli.passes.fx_graph import count_functions, explain_missing, list_module_calls, name_calls
from hookcli.passes.graph import ONNX, Graph, GraphNode, ModuleScope
from hookcli.passes.graph_runner import GraphRunner, name_outputs, quiet
from hookcli.passes.node_names import NamedValues, read_names
from hookcli.passes.onnx_operators import (
    count_flops,
    find_channel_axis,
    find_weights,
    list_multiplied,
    list_weights,
    read_stored_weights,
)
from hookcli.records.calls import FOLDED, Call
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from torch import Tensor

    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.graph_runner import Arguments, Receive, Tensors
    from hookcli.passes.onnx_operators import StoredWeight

PACKAGES = ("onnx", "onnxruntime")
_GIVEN = "//given"  # the end of the name of an input that replaces a value
_SCOPES = "pkg.torch.onnx.name_scopes"
_FUNCTION = "hookcli.function"  # hookcli's own: the function, its call, and the call's index
_CALLS = "hookcli.calls"  # hookcli's own: path#index of each call of a module around the node
_REASONS = "hookcli.reasons"  # hookcli's own: ids of calls, and why an exporter leaves them out
_CLASSES = "pkg.torch.onnx.class_hierarchy"
# The beginnings of the names of layers that compute a single function
_SIMPLE = (
    *("torch.nn.modules.batchnorm.", "torch.nn.modules.conv.", "torch.nn.modules.linear."),
    *("torch.nn.modules.normalization.", "torch.nn.modules.pooling."),
    *("torch.nn.modules.activation.ReLU", "torch.nn.modules.activation.GELU"),
)
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    **{f"tensor(int{bits})": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"tensor(uint{bits})": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
_QUANTIZING = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_OF_SHAPES = ("Shape", "Size")
_PASSING = (  # operators that change no value, apart from rounding
    *("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"),
    *("Cast", *_QUANTIZING),
)
PROVIDER = "CPUExecutionProvider"
_PROVIDER_END = "executionprovider"
_FOLDER = "session.model_external_initializers_file_folder_path"
_MOST_SESSIONS = 4
_DIGITS = 6  # of the index of a call
_FEW_VALUES = 1 << 14  # a smaller tensor may be a shape


def require_onnx(*, exports: bool = False) -> None:
    for name in (*PACKAGES, *(["onnxscript"] if exports else [])):
        require_package("ONNX files need", name, name, "onnx")


def export_onnx(
    runner: EagerRunner, pixels: Tensor, file: Path, *, has_weights: bool = True
) -> None:
    require_onnx(exports=True)
    positional, by_name = split_arguments(runner.inputs.arguments_of(runner.to_device(pixels)))
    arguments = (*positional, by_name)  # torch takes the last dictionary for keyword arguments
    with quiet():
        try:
            program = torch.onnx.export(runner.module, arguments, dynamo=True, verbose=False)
        except torch.onnx.errors.OnnxExporterError as error:
            raise ModelError(
                f"the model cannot be exported to ONNX: {explain_refusal(runner.module, error)}",
                "export it yourself, and name the file: onnx=FILE",
            ) from error
    assert program is not None  # noqa: S101  None only with dynamo=False
    if not len(program.model.graph):
        raise ModelError(
            f"the model cannot be exported to ONNX: {type(runner.module).__name__} returns nothing "
            "that it computes",
            "its method forward must return the output",
        )
    _note_functions(program, find_aliases(runner.module))
    try:
        # in another file, ONNX Runtime reads the weights itself
        program.save(file, external_data=None if has_weights else True)
    except OSError as error:
        raise cannot_write(file, error) from error


def _note_functions(program: Any, aliases: Mapping[str, str]) -> None:
    # The exporter merges two calls of a module in a row, computes functions such as ``normalize``
    # with several operators, and folds constants.
    exported = program.exported_program
    name_calls(exported.graph, aliases)
    functions = count_functions(exported.graph)
    modules = {node.name: list_module_calls(node) for node in exported.graph.nodes}
    reasons = explain_missing(exported.graph, exported.graph_signature.user_inputs)
    program.model.metadata_props[_REASONS] = repr([" ".join(each) for each in reasons.items()])
    for node in program.model.graph:
        names = _read_list(node.metadata_props, _SCOPES)
        if names and names[-1] in functions:
            node.metadata_props[_FUNCTION] = repr([*map(str, functions[names[-1]])])
        if names and names[-1] in modules:
            node.metadata_props[_CALLS] = repr(modules[names[-1]])


@dataclass(slots=True)
class OnnxRunner(GraphRunner):
    file: Path
    provider: str = PROVIDER  # the execution provider of ONNX Runtime
    folder: ExitStack | None = None  # deletes the file's temporary folder; None if it is a user's
    _model: Any = None
    _sessions: dict[tuple[tuple[str, ...], tuple[str, ...]], Any] = field(default_factory=dict)
    _types: dict[str, str] = field(default_factory=dict)
    _uses_all_kernels: bool = True

    @classmethod
    def of(
        cls,
        file: Path,
        arguments_of: Callable[[Tensor], tuple[object, ...]],
        provider: str | None = None,
        aliases: Mapping[str, str] = MappingProxyType({}),
        classes: Mapping[str, str] = MappingProxyType({}),
    ) -> OnnxRunner:
        # ``aliases`` maps every path of a module of the original model to its first path, and
        # ``classes`` maps the first path to the full name of the module's class.
        require_onnx()
        chosen = PROVIDER if provider is None else find_provider(provider)
        model = read_graph(file)
        read_small_weights(file, model, most=_FEW_VALUES)  # from which ONNX Runtime infers shapes
        metadata = {each.key: each.value for each in model.metadata_props}
        reasons = dict(each.split(" ", 1) for each in _read_list(metadata, _REASONS) if " " in each)
        returned = [each.name for each in model.graph.output]
        has_scopes = any(e.key == _SCOPES for node in model.graph.node for e in node.metadata_props)
        dependent = _find_dependent(model.graph)
        named = [] if has_scopes else read_names(model.graph.node, dependent, classes)
        nodes = _list_nodes(model.graph, aliases, named)
        with guard_onnx(file):
            graph = replace(Graph.of(nodes, returned, reasons), is_inferred=bool(named))
        return cls(graph, arguments_of, file, chosen, _model=model)

    def close(self) -> None:
        self._sessions.clear()
        if self.folder is not None:
            self.folder.close()

    @property
    def name(self) -> str:
        return "the exported model" if self.folder else repr(str(self.file))

    @property
    def inputs(self) -> list[GraphInput]:
        graph = self._model.graph
        axes = ((each, find_channel_axis(graph, each.name)) for each in _list_inputs(graph))
        return [_describe_value(each).with_layout(self.input_layout, axis) for each, axis in axes]

    def libraries(self) -> Mapping[str, str]:
        import onnxruntime

        return {"onnxruntime": onnxruntime.__version__, "provider": self.provider}

    def count_flops(self, pixels: Tensor) -> tuple[Mapping[str, int | None], Sequence[str]]:
        arguments = self.arguments_of(pixels)
        graph, known = self._model.graph, zip(self.inputs, tensors_in(arguments), strict=False)
        shapes = {each.name: tuple(tensor.shape) for each, tensor in known}
        shapes |= {each.name: tuple(each.dims) for each in graph.initializer}
        wanted = {name for node in graph.node for name in list_multiplied(node)} - shapes.keys()

        def receive(name: str, tensor: Tensor) -> None:
            shapes[name] = tuple(tensor.shape)

        self.compute(arguments, wanted, receive, {})
        replaced, flops, uncounted = _find_dequantized(graph), dict[str, int | None](), []
        for node in graph.node:
            counted = count_flops(node, shapes)
            if counted is None:
                uncounted.append(f"{node.op_type} in {node.name or node.output[0]}")
            for name in filter(None, node.output):
                flops.setdefault(replaced.get(name, name), counted)
                counted = counted and 0
        return flops, uncounted

    def list_quantized(self) -> Mapping[str, bool]:
        nodes = self._model.graph.node
        return self.find_quantized((node.op_type, node.input, node.output) for node in nodes)

    def read_weights(self) -> Iterator[StoredWeight]:
        return read_stored_weights(self.file, self._model)

    def compute(
        self, arguments: Arguments, values: Collection[str], receive: Receive, fed: Tensors
    ) -> list[Tensor]:
        fed = {name: each for name, each in fed.items() if self._types[name].startswith("float")}
        results = self._run_session(arguments, tuple(values), fed)
        outputs = {name: results[name] for name in self._outputs if name in results}
        for name in filter(results.__contains__, values):
            self._types[name] = str(results[name].numpy().dtype)
            receive(name, results[name].clone() if name in outputs else results.pop(name))
        return [fed.get(name, outputs[name]) for name in self._outputs if name in outputs]

    def list_origins(self) -> Mapping[str, tuple[str, str]]:
        origins = _find_origins(self._model.graph)
        return {key: origins[name] for key, name in self._values.items() if name in origins}

    def name_nodes_of(self, path: str) -> tuple[str, ...]:
        """Return the names of the nodes that compute a module, in running order.

        A node without a name is "". Nodes that only pass values on or compute shapes are left out.
        """
        own = (each.outputs for each in self.graph.nodes if _computes(each, f"{path}."))
        values = _find_dependent(self._model.graph).intersection(itertools.chain(*own))
        nodes = (n for n in self._model.graph.node if not values.isdisjoint(n.output))
        return tuple(dict.fromkeys(n.name for n in nodes if n.op_type not in _PASSING))

    def name_nodes(self, call_ids: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the nodes that compute the given calls, in running order.

        Nodes that only pass values on, or compute shapes, are left out.
        """
        # If a value is quantized, the nodes that take the value are among them.
        made = {name: node for node in self._model.graph.node for name in node.output}
        ends = {value for call in self.graph.calls for value in call.values}
        waiting = [self._values[call_id] for call_id in call_ids if call_id in self._values]
        quantized = {name for name in waiting if name in made and made[name].op_type in _QUANTIZING}
        takers = (n for n in self._model.graph.node if quantized.intersection(n.input))
        known = {node.output[0] for node in takers}
        while waiting:
            node = made.get(waiting.pop())
            if node is not None and node.output[0] not in known:
                known.add(node.output[0])
                waiting += [name for name in node.input if name not in ends]
        known &= _find_dependent(self._model.graph)
        nodes = (each for each in self._model.graph.node if each.output[0] in known)
        names = (each.name for each in nodes if each.op_type not in _PASSING)
        # onnxruntime's quantizer appends this to the names of the nodes that it replaces
        return tuple(dict.fromkeys(name.removesuffix("_quant") for name in names if name))

    @property
    def _values(self) -> dict[str, str]:
        root = [Call(self.graph.root, output_key=key) for key in name_outputs(self._outputs)]
        values = (*self._list_outputs(), *zip(root, self._outputs, strict=True))
        return {call.id: name for call, name in values}

    @property
    def _outputs(self) -> list[str]:
        return [each.name for each in self._model.graph.output]

    def _run_session(
        self, arguments: Arguments, values: tuple[str, ...], fed: Tensors
    ) -> dict[str, Tensor]:
        # Some kernels of ONNX Runtime fail when a value between them is an output, because they use
        # a memory layout of their own: after a failure, the file runs again without them.
        given = {
            f"{name}{_GIVEN}": each.numpy().astype(self._types[name]) for name, each in fed.items()
        }
        while True:
            session = self._session(values, tuple(fed))
            feeds = self._feeds(session, fit_inputs(tensors_in(arguments), self.inputs)) | given
            names = [each.name for each in session.get_outputs()]
            try:
                arrays = session.run(names, feeds)
            except _errors() as error:
                if self._uses_all_kernels:
                    self._uses_all_kernels = False
                    self._sessions.clear()
                    continue
                raise ForwardError(
                    f"ONNX Runtime cannot run {self.name}: {first_line(error)}",
                    "the model may be exported for images of another size"
                    if type(error) is not RuntimeError
                    else "leave out layers that return such values: `exclude=('LAYER',)`",
                ) from error
            # a value may also be a list, or texts
            return {
                name: torch.from_numpy(each)
                for name, each in zip(names, arrays, strict=True)
                if isinstance(each, np.ndarray) and each.dtype.kind in "fiub"
            }

    def _feeds(self, session: Any, arguments: Sequence[Tensor]) -> dict[str, Any]:
        inputs = [each for each in session.get_inputs() if not each.name.endswith(_GIVEN)]
        if len(inputs) != len(arguments):
            raise ForwardError(
                f"{self.name} takes {len(inputs)} inputs, and the model {len(arguments)}",
                "use a file that was exported from the same model",
            )
        feeds: dict[str, Any] = {}
        for wanted, tensor in zip(inputs, arguments, strict=True):
            shape = tuple(tensor.shape)
            lengths = zip(wanted.shape, shape, strict=False)
            wrong = [n for n, (a, b) in enumerate(lengths) if isinstance(a, int) and a != b]
            if len(wanted.shape) != len(shape) or wrong:
                raise ForwardError(
                    f"{self.name} takes an input of the shape {shape_text(wanted.shape)}, "
                    f"and {'the image' if not feeds else wanted.name} has {shape_text(shape)}",
                    "choose the size with `size`"
                    if len(wanted.shape) == len(shape) and min(wrong) > 1
                    else "export the model for images of this shape, or with a free batch axis",
                )
            if wanted.type not in _DTYPES:
                raise ForwardError(
                    f"{self.name} takes {wanted.type}, which pixels cannot be",
                    f"export the model for one of: {', '.join(sorted(set(_DTYPES.values())))}",
                )
            feeds[wanted.name] = tensor.cpu().numpy().astype(_DTYPES[wanted.type])
        return feeds

    def _session(self, values: tuple[str, ...], fed: tuple[str, ...]) -> Any:
        key = (values, fed)
        if key not in self._sessions:
            if len(self._sessions) == _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[key] = self._start(values, fed)
        return self._sessions[key]

    def _start(self, values: Sequence[str], fed: tuple[str, ...]) -> Any:
        import onnx
        import onnxruntime

        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        graph = model.graph
        known = {each.name for each in graph.output}
        for name in dict.fromkeys(values):
            if name not in known:
                graph.output.append(onnx.ValueInfoProto(name=name))
        if fed:
            renamed = {name: f"{name}{_GIVEN}" for name in fed}
            for node in graph.node:
                for index, name in enumerate(node.input):
                    node.input[index] = renamed.get(name, name)
            for name, given in renamed.items():
                kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self._types[name]))
                graph.input.append(onnx.helper.make_tensor_value_info(given, kind, None))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry(_FOLDER, str(self.file.parent.resolve()))
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if self._uses_all_kernels else levels.ORT_ENABLE_EXTENDED
        )
        try:
            content = model.SerializeToString()
            return onnxruntime.InferenceSession(content, options, providers=[self.provider])
        except _errors() as error:
            raise ModelError(
                f"ONNX Runtime cannot load {self.name}: {first_line(error)}",
                "it needs more memory than there is"
                if "bad_alloc" in str(error)
                else "export the model again, with operators that ONNX Runtime has",
            ) from error


def _computes(node: GraphNode, prefix: str) -> bool:
    if any(f"{scope.path}.".startswith(prefix) for scope in node.scopes):
        return True
    is_layer = node.family in ("conv", "linear")  # others may read an equal bias of another layer
    weight = next((name for name, _ in node.weights), "") if is_layer else ""
    if not node.scopes:
        return f"{weight.rpartition('.')[0]}." == prefix
    # Only its weight tells the node of a convolution into which a BatchNorm was merged.
    return weight.startswith(prefix) and family_of_operation(node.operation) != node.family


def find_provider(name: str) -> str:
    import onnxruntime

    every = onnxruntime.get_available_providers()
    known = {each.lower().removesuffix(_PROVIDER_END): each for each in every}
    plain = name.lower().removesuffix(_PROVIDER_END)
    if plain not in known:
        hint = f"one of: {', '.join(known)}"
        raise RequestError(f"ONNX Runtime has no provider {name!r} here", hint)
    return str(known[plain])


def _list_inputs(graph: Any) -> list[Any]:
    weights = {each.name for each in graph.initializer}
    return [each for each in graph.input if each.name not in weights]


def _describe_value(value: Any) -> GraphInput:
    kind = value.type.tensor_type
    lengths = (each.dim_value if each.dim_value > 0 else None for each in kind.shape.dim)
    return GraphInput(tuple(lengths), _name_dtype(kind.elem_type), value.name)


def _name_dtype(number: int) -> str:
    import onnx

    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(number).name) if number else ""
    except KeyError:
        return "an unknown type"  # of which this version of onnx does not know


def _errors() -> tuple[type[Exception], ...]:
    # ONNX Runtime's errors have no base class. A ``RuntimeError`` says that numpy lacks the type of
    # a value, such as bfloat16, and a ``UnicodeDecodeError`` that a message quotes a damaged name.
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    names = (
        *("EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf"),
        *("ModelLoaded", "NoModel", "NoSuchFile", "NotImplemented", "RuntimeException"),
    )
    return (RuntimeError, UnicodeDecodeError, *(getattr(state, name) for name in names))


def _list_nodes(
    graph: Any, aliases: Mapping[str, str], named: Sequence[Sequence[NamedValues]]
) -> Iterator[GraphNode]:
    dequantized = _find_dequantized(graph)
    used = {name for node in graph.node for name in node.input}
    used |= {each.name for each in graph.output}
    held = find_weights(graph)
    alive = _find_dependent(graph)
    repeats = _Repeats()
    names: set[str] = set()
    owned: Counter[str] = Counter()
    for number, node in enumerate(graph.node):
        metadata = {each.key: each.value for each in node.metadata_props}
        given = [each for each in node.output if each]
        own = [name for name in given if name in used] or given
        outputs = tuple(dequantized.get(name, name) for name in own)
        inputs = tuple(name for name in _list_read(node) if name in alive)
        weights = () if alive.isdisjoint(node.output) else list_weights(node, held)
        common = weights, family_of_operation(node.op_type)
        scopes = _read_scopes(metadata, repeats, aliases)
        is_blocked = node.domain.endswith(".nchwc") and node.op_type != "ReorderOutput"
        if named and named[number] and not is_blocked:
            for each in named[number]:
                outputs = tuple(dequantized.get(name, name) for name in each.outputs)
                found = (each.scopes, each.function, each.step, outputs)
                yield GraphNode(*found, *common, None, inputs)
        elif scopes is None or is_blocked:
            base = node.name or own[0] if own else node.op_type
            numbered = (f"{base}_{number}" for number in itertools.count(1))
            name = next(each for each in itertools.chain([base], numbered) if each not in names)
            names.add(name)
            left_out = "only quantizes" if node.op_type in _QUANTIZING else ""
            left_out = "has a memory layout of ONNX Runtime" if is_blocked else left_out
            if alive.isdisjoint(node.output):
                left_out = "does not depend on the input"
            added = GraphNode((), node.op_type, name, outputs, *common, None, inputs)
            owner = _find_owner(node, held, owned)
            yield replace(added, owner=owner, is_told=False, left_out=left_out)
        else:
            operation, index = name_aten(_read_list(metadata, _CLASSES)[-1]), None
            step = _read_list(metadata, _SCOPES)[-1] or str(number)
            function = _read_list(metadata, _FUNCTION)
            if len(function) == 3 and _is_index(function[2]):
                operation, step, index = function[0], function[1], int(function[2])
            yield GraphNode(scopes, operation, step, outputs, *common, index, inputs)


def _find_owner(node: Any, held: Collection[str], owned: Counter[str]) -> ModuleScope | None:
    # The name of a quantized weight may show its layer: ``conv1.weight_quantized`` belongs to
    # ``conv1``. ``held`` has the names of constants; ``owned`` counts each layer's nodes by path.
    index = {"ConvInteger": 1, "MatMulInteger": 1, "QLinearAdd": 3}.get(node.op_type)
    weight = "" if index is None else node.input[index].removesuffix("_quantized")
    if not weight or (index == 3 and not weight.endswith(".bias")):
        return None
    path = weight.rpartition(".")[0]
    kind = FOLDED if f"{weight}_bias" in held else node.op_type  # the exporter merged a BatchNorm
    owned[path] += 1
    return ModuleScope(path, f"{ONNX}{kind}", index=owned[path] - 1) if path else None


def _find_dependent(graph: Any) -> set[str]:
    found = {each.name for each in _list_inputs(graph)}
    for node in graph.node:
        if node.op_type not in _OF_SHAPES and not found.isdisjoint(_list_read(node)):
            found.update(filter(None, node.output))
    return found


def _list_read(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _list_read(inner)


def _read_scopes(
    metadata: Mapping[str, str], repeats: _Repeats, aliases: Mapping[str, str]
) -> tuple[ModuleScope, ...] | None:
    paths, kinds = _read_list(metadata, _SCOPES), _read_list(metadata, _CLASSES)
    if not paths or len(paths) != len(kinds):
        return None
    pairs = zip(paths[:-1], kinds[:-1], strict=True)
    scopes = [ModuleScope(aliases.get(path, path), kind) for path, kind in pairs if path]
    calls = [call.rpartition("#") for call in _read_list(metadata, _CALLS)]
    if len(calls) == len(scopes) and all(_is_index(number) for *_, number in calls):
        known = zip(scopes, calls, strict=True)
        return tuple(ModuleScope(path, each.kind, index=int(n)) for each, (path, _, n) in known)
    return tuple(repeats.mark(scopes, kinds[-1], paths[-1]))


def _is_index(text: str) -> bool:
    return text.isdecimal() and len(text) <= _DIGITS


class _Repeats:
    # Counts the calls of each layer while nodes run in order. A node begins a new call of its layer
    # if the layer's previous node has the same operator.

    def __init__(self) -> None:
        self._last: tuple[str, str, str] | None = None
        self._calls = 0

    def mark(
        self, scopes: Sequence[ModuleScope], operator: str, step: str
    ) -> Iterator[ModuleScope]:
        yield from scopes[:-1]
        if not scopes or not scopes[-1].kind.startswith(_SIMPLE):
            yield from scopes[-1:]
            self._last = None
            return
        now = (scopes[-1].path, operator, step)
        if self._last is None or self._last[0] != now[0]:
            self._calls = 0
        elif self._last[1] == operator and self._last[2] != step:
            self._calls += 1
        self._last = now
        yield replace(scopes[-1], call=str(self._calls))


def _find_origins(graph: Any) -> dict[str, tuple[str, str]]:
    found = {each.name: (_describe_value(each).dtype, "") for each in graph.input}
    found |= {each.name: (_name_dtype(each.data_type), "") for each in graph.initializer}
    for node in graph.node:
        before = [found[name] for name in node.input if name in found]
        made = [_name_dtype(each.i or each.t.data_type) for each in node.attribute]
        known = (*(made if node.op_type in ("Cast", "Constant") else ()), *(e[0] for e in before))
        operator = before[0][1] if before and node.op_type in _PASSING else node.op_type
        found |= dict.fromkeys(node.output, (coarser(*known), operator))
    return found


def _read_list(metadata: Mapping[str, str], key: str) -> list[str]:
    """Parse a list that the exporter wrote as Python code; return an empty one if it is damaged."""
    try:
        value = ast.literal_eval(metadata.get(key, "[]"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return value if is_list else []


def _find_dequantized(graph: Any) -> dict[str, str]:
    """Map the name of each value that is only quantized and dequantized to the result's name."""
    users: dict[str, list[Any]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            users[name].append(node)
    found = {}
    for name, nodes in users.items():
        if len(nodes) == 1 and nodes[0].op_type == "QuantizeLinear" and nodes[0].input[0] == name:
            after = users.get(nodes[0].output[0], [])
            if len(after) == 1 and after[0].op_type == "DequantizeLinear":
                found[name] = after[0].output[0]
    return found
