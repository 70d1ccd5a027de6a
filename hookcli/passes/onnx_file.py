"""Run an ONNX file with ONNX Runtime, or export a model to such a file.

``torch.onnx.export(dynamo=True)`` writes into the metadata of each node the module paths that the
node comes from (``pkg.torch.onnx.name_scopes``). A convolution that was merged with its BatchNorm
has the path of the BatchNorm.
"""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hookcli.errors import ForwardError, ModelError, RequestError
from hookcli.hooks.operations import name_aten
from hookcli.outside.files import cannot_write
from hookcli.outside.foreign import first_line
from hookcli.passes.graph import GraphNode, GraphRunner, Scope, find_calls, flatten, quiet
from hookcli.records.calls import LayerInfo
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from hookcli.passes.eager import EagerRunner

SUFFIX = ".onnx"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
_GIVEN = "//given"  # the end of the name of an input that replaces a value
_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_QUANTIZING = ("QuantizeLinear", "DequantizeLinear")


def require_onnx() -> None:
    """Check that the packages for ONNX files are installed.

    Raises:
        RequestError: a package is missing.
    """
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise RequestError(
                f"ONNX files need {name}, which is not installed", "pip install 'hookcli[onnx]'"
            )


def export_onnx(runner: EagerRunner, pixels: Tensor, file: Path) -> None:
    """Export a model for pixels (1, …) of one image to an ONNX file.

    Raises:
        RequestError: a package is missing.
        ModelError: the model cannot be exported.
        OutputError: the file cannot be written.
    """
    require_onnx()
    arguments = runner.inputs.arguments_of(runner.place(pixels))
    with quiet():
        try:
            program = torch.onnx.export(runner.module, arguments, dynamo=True, verbose=False)
        except torch.onnx.errors.OnnxExporterError as error:
            raise ModelError(
                f"the model cannot be exported to ONNX: {_find_cause(error)}",
                "export it yourself, and name the file: onnx=FILE",
            ) from error
    assert program is not None  # noqa: S101  None only with dynamo=False
    try:
        program.save(file)
    except OSError as error:
        raise cannot_write(file, error) from error


def _find_cause(error: BaseException) -> str:
    """Return the first line of the innermost exception, which says what the exporter lacks."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


@dataclass(slots=True)
class OnnxRunner(GraphRunner):
    """Runs an ONNX file with ONNX Runtime.

    Attributes:
        file: the file.
    """

    file: Path
    _model: Any = None
    _sessions: dict[tuple[tuple[str, ...], tuple[str, ...]], Any] = field(default_factory=dict)
    _types: dict[str, str] = field(default_factory=dict)
    _uses_all_kernels: bool = True

    @classmethod
    def of(cls, file: Path, arguments_of: Callable[[Tensor], tuple[object, ...]]) -> OnnxRunner:
        """Return a runner of a file that observes all calls and the model itself.

        Raises:
            RequestError: a package is missing.
            ModelError: the file cannot be read.
        """
        require_onnx()
        model = _load(file)
        calls = find_calls(list(_list_nodes(model.graph)))
        root = LayerInfo("", "Model", depth=0, is_leaf=False)
        layers = {call.layer.module_path: call.layer for call in calls}
        observed = (root, *layers.values())
        return cls(calls, observed, root, arguments_of, file=file, _model=model)

    def compute(
        self, arguments: tuple[object, ...], values: Sequence[str]
    ) -> tuple[list[Tensor], list[Tensor]]:
        results = self._run(arguments, values, {})
        self._types |= {name: str(each.numpy().dtype) for name, each in results.items()}
        return [results[name] for name in self._outputs], [results[name] for name in values]

    def compute_fed(
        self, arguments: tuple[object, ...], values: Sequence[str], fed: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        fed = {name: each for name, each in fed.items() if self._types[name].startswith("float")}
        results = self._run(arguments, values, fed)
        outputs = [fed.get(name, results[name]) for name in self._outputs]
        return outputs, [results[name] for name in values]

    @property
    def _outputs(self) -> list[str]:
        """The names of the model's outputs."""
        return [each.name for each in self._model.graph.output]

    def _run(
        self, arguments: tuple[object, ...], values: Sequence[str], fed: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the model's outputs and the values, by name.

        Some kernels of ONNX Runtime fail when a value between them is an output, because they use
        a memory layout of their own. If the file fails, it runs again without these kernels.

        Raises:
            ForwardError: the file cannot be run.
        """
        given = {_given(name): each.numpy().astype(self._types[name]) for name, each in fed.items()}
        while True:
            session = self._session(values, tuple(fed))
            feeds = self._feeds(session, flatten(arguments)) | given
            names = [each.name for each in session.get_outputs()]
            try:
                arrays = session.run(names, feeds)
            except _errors() as error:
                if self._uses_all_kernels:
                    self._uses_all_kernels = False
                    self._sessions.clear()
                    continue
                raise ForwardError(
                    f"ONNX Runtime cannot run {str(self.file)!r}: {first_line(error)}",
                    "the model may be exported for images of another size",
                ) from error
            return {name: torch.from_numpy(each) for name, each in zip(names, arrays, strict=True)}

    def _feeds(self, session: Any, arguments: Sequence[Tensor]) -> dict[str, Any]:
        """Return the inputs of the file by name.

        Raises:
            ForwardError: the model takes other inputs.
        """
        inputs = [each for each in session.get_inputs() if not each.name.endswith(_GIVEN)]
        if len(inputs) != len(arguments):
            raise ForwardError(
                f"{str(self.file)!r} takes {len(inputs)} inputs, and the model {len(arguments)}",
                "use a file that was exported from the same model",
            )
        feeds = {}
        for wanted, tensor in zip(inputs, arguments, strict=True):
            lengths = zip(wanted.shape, tensor.shape, strict=False)
            fits = all(isinstance(a, str) or a is None or a == b for a, b in lengths)
            if len(wanted.shape) != tensor.dim() or not fits:
                raise ForwardError(
                    f"{str(self.file)!r} takes an input of the shape {shape_text(wanted.shape)}, "
                    f"and the image has {shape_text(tuple(tensor.shape))}",
                    "choose the size with `size`",
                )
            feeds[wanted.name] = tensor.cpu().numpy().astype(_DTYPES.get(wanted.type, "float32"))
        return feeds

    def _session(self, values: Sequence[str], fed: tuple[str, ...]) -> Any:
        """Return a session that also returns ``values``, and takes the ``fed`` values as inputs."""
        key = (tuple(values), fed)
        if key not in self._sessions:
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
            renamed = {name: _given(name) for name in fed}
            for node in graph.node:
                for place, name in enumerate(node.input):
                    node.input[place] = renamed.get(name, name)
            for name in fed:
                kind = onnx.helper.np_dtype_to_tensor_dtype(_numpy_type(self._types[name]))
                graph.input.append(onnx.helper.make_tensor_value_info(_given(name), kind, None))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if self._uses_all_kernels else levels.ORT_ENABLE_EXTENDED
        )
        try:
            return onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except _errors() as error:
            raise ModelError(
                f"ONNX Runtime cannot load {str(self.file)!r}: {first_line(error)}",
                "export the model again, with operators that ONNX Runtime has",
            ) from error


_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int64)": "int64",
}


def _numpy_type(name: str) -> Any:
    import numpy as np

    return np.dtype(name)


def _given(name: str) -> str:
    """Return the name of the input that replaces a value for its users."""
    return f"{name}{_GIVEN}"


def _errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of ONNX Runtime, which have no base class of their own."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    names = (
        *("EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf"),
        *("ModelLoaded", "NoModel", "NoSuchFile", "NotImplemented", "RuntimeException"),
    )
    return tuple(getattr(state, name) for name in names)


def _load(file: Path) -> Any:
    """Return the model of an ONNX file, with its weights.

    Raises:
        ModelError: the file cannot be read.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(file, load_external_data=False)
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror}") from error
    except DecodeError as error:
        raise ModelError(
            f"{str(file)!r} is damaged, or no ONNX file", "export the model again"
        ) from error
    if not model.graph.node:
        raise ModelError(f"{str(file)!r} holds no graph", "export the model again")
    _check_external(file, model)
    try:
        onnx.load_external_data_for_model(model, str(file.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"{str(file)!r}: {first_line(error)}", "export the model again") from error
    return model


def _check_external(file: Path, model: Any) -> None:
    """Check that weights outside the file exist, and are in its folder.

    Raises:
        ModelError: a file is missing, or in another folder.
    """
    import onnx

    for tensor in model.graph.initializer:
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        place = onnx.external_data_helper.ExternalDataInfo(tensor).location
        data = (file.parent / place).resolve()
        if not data.is_relative_to(file.parent.resolve()):
            raise ModelError(
                f"{str(file)!r} has weights outside its folder, in {place!r}",
                "move them into the folder of the file",
            )
        if not data.is_file():
            raise ModelError(
                f"the weights of {str(file)!r} are missing: {place!r}", "copy both files"
            )


def _list_nodes(graph: Any) -> Iterator[GraphNode]:
    """Yield the nodes of an ONNX graph in running order.

    If no node says from which module it comes, nodes that do not depend on the inputs are left out.
    """
    dequantized = _find_dequantized(graph)
    known = [{each.key: each.value for each in node.metadata_props} for node in graph.node]
    if not any(_SCOPES in each for each in known):
        yield from _list_bare_nodes(graph, dequantized)
        return
    for number, (node, metadata) in enumerate(zip(graph.node, known, strict=True)):
        paths, kinds = _read_list(metadata, _SCOPES), _read_list(metadata, _CLASSES)
        if not paths or len(paths) != len(kinds):
            continue
        pairs = zip(paths[:-1], kinds[:-1], strict=True)
        scopes = tuple(Scope(path, kind) for path, kind in pairs if path)
        outputs = tuple(dequantized.get(name, name) for name in node.output if name)
        yield GraphNode(scopes, name_aten(kinds[-1]), paths[-1] or str(number), outputs)


def _list_bare_nodes(graph: Any, dequantized: Mapping[str, str]) -> Iterator[GraphNode]:
    weights = {each.name for each in graph.initializer}
    alive = {each.name for each in graph.input} - weights
    names: set[str] = set()
    for node in graph.node:
        if node.op_type in _QUANTIZING or not alive.intersection(node.input):
            alive.update(node.output if node.op_type in _QUANTIZING else ())
            continue
        alive.update(node.output)
        name = node.name if node.name and node.name not in names else node.output[0]
        names.add(name)
        outputs = tuple(dequantized.get(each, each) for each in node.output if each)
        yield GraphNode((), node.op_type, name, outputs)


def _read_list(metadata: Mapping[str, str], key: str) -> list[str]:
    """Return a list of texts that the exporter wrote as Python code; empty if it is damaged."""
    try:
        value = ast.literal_eval(metadata.get(key, "[]"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return value if is_list else []


def _find_dequantized(graph: Any) -> dict[str, str]:
    """Return the value that replaces each quantized value: what its users get instead of it."""
    users: dict[str, list[Any]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            users[name].append(node)
    found = {}
    for name, nodes in users.items():
        if len(nodes) == 1 and nodes[0].op_type == "QuantizeLinear" and nodes[0].input[0] == name:
            after = users[nodes[0].output[0]]
            if len(after) == 1 and after[0].op_type == "DequantizeLinear":
                found[name] = after[0].output[0]
    return found
