"""The files that an ONNX model consists of: the graph, and weights in other files."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from hookcli.errors import ModelError
from hookcli.outside.files import hash_file, read_regular
from hookcli.outside.foreign import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_graph(file: Path) -> Any:
    """Return the model in an ONNX file, without the weights that are in other files.

    Raises:
        ModelError: the file cannot be read, or its weights are missing or outside its folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(read_regular(file))
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except (DecodeError, ValueError) as error:
        raise ModelError(
            f"{str(file)!r} is damaged, or no ONNX file", "export the model again"
        ) from error
    if not model.graph.node:
        raise ModelError(f"{str(file)!r} holds no graph", "export the model again")
    for tensor in _list_external(model.graph):
        _check_external(file, tensor)
    return model


def read_small_weights(file: Path, model: Any, most: int) -> None:
    """Read tensors of at most ``most`` values from other files into the model.

    Raises:
        ModelError: another file is damaged.
    """
    import onnx

    for tensor in _list_external(model.graph):
        if math.prod(tensor.dims) > most:
            continue
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(file.parent))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            message = f"{str(file)!r}: {first_line(error)}"
            raise ModelError(message, "export the model again") from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def hash_graph(file: Path) -> str:
    """Return the sha256 of a file with a graph; with weights in other files, of all together.

    Raises:
        ModelError: a file cannot be read.
    """
    others = []
    if file.suffix == ".onnx":
        graph = read_graph(file).graph
        others = sorted({_find_place(tensor) for tensor in _list_external(graph)})
    try:
        hashes = [hash_file(file), *(hash_file(file.parent / place) for place in others)]
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror}") from error
    return hashlib.sha256("".join(hashes).encode()).hexdigest() if others else hashes[0]


def _list_external(graph: Any) -> Iterator[Any]:
    """Yield the tensors of a graph, and of the graphs inside it, that are in other files."""
    import onnx

    for tensor in _list_tensors(graph):
        if onnx.external_data_helper.uses_external_data(tensor):
            yield tensor


def _list_tensors(graph: Any) -> Iterator[Any]:
    """Yield the weights of a graph, and the constants in its nodes and in the graphs inside it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _list_tensors(inner)


def _find_place(tensor: Any) -> str:
    import onnx

    place: str = onnx.external_data_helper.ExternalDataInfo(tensor).location
    return place


def _check_external(file: Path, tensor: Any) -> None:
    """Check that the other file of a tensor exists, and is in the folder of the model."""
    place = _find_place(tensor)
    data = (file.parent / place).resolve()
    if not data.is_relative_to(file.parent.resolve()):
        raise ModelError(
            f"{str(file)!r} has weights outside its folder, in {place!r}",
            "move them into the folder of the file",
        )
    if not data.is_file():
        raise ModelError(f"the weights of {str(file)!r} are missing: {place!r}", "copy both files")
