"""The files that an ONNX model consists of: the graph, and weights in other files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hookcli.errors import ModelError
from hookcli.outside.files import hash_file, read_regular
from hookcli.outside.foreign import ForeignCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_graph(file: Path) -> Any:
    """Return the model in an ONNX file, without the weights that are in other files."""
    import onnx

    try:
        content = read_regular(file)
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    with guard_onnx(file):
        model = onnx.load_model_from_string(content)
        if not model.graph.node:
            raise ModelError(f"{str(file)!r} holds no graph", "export the model again")
        for tensor in _list_external(model):
            _check_external(file, tensor)
    return model


def guard_onnx(file: Path) -> ForeignCode:
    """Return a block in which the content of an ONNX file may raise any exception."""
    verb, hint = "is damaged, or no ONNX file", "export the model again"
    return ForeignCode(repr(str(file)), verb=verb, hint=hint)


def read_small_weights(file: Path, model: Any, most: int) -> None:
    """Read tensors of at most ``most`` values from other files into the model."""
    import onnx

    for tensor in _list_external(model):
        if math.prod(tensor.dims) > most:
            continue
        with guard_onnx(file):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(file.parent))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def hash_graph(file: Path) -> str:
    """Return the sha256 of a file with a graph; with weights in other files, of all together."""
    others = []
    if file.suffix == ".onnx":
        others = sorted({_find(tensor).location for tensor in _list_external(read_graph(file))})
    try:
        hashes = [hash_file(file), *(hash_file(file.parent / place) for place in others)]
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror}") from error
    return hashlib.sha256("".join(hashes).encode()).hexdigest() if others else hashes[0]


def _list_external(message: Any) -> Iterator[Any]:
    import onnx

    for field, value in message.ListFields():
        parts = value if isinstance(value, Iterable) else [value]
        for part in parts if field.message_type else ():
            if not isinstance(part, onnx.TensorProto):
                yield from _list_external(part)
            elif onnx.external_data_helper.uses_external_data(part):
                yield part


def _find(tensor: Any) -> Any:
    import onnx

    return onnx.external_data_helper.ExternalDataInfo(tensor)


def _check_external(file: Path, tensor: Any) -> None:
    found = _find(tensor)
    place = found.location
    data = (file.parent / place).resolve()
    if not data.is_relative_to(file.parent.resolve()):
        raise ModelError(
            f"{str(file)!r} has weights outside its folder, in {place!r}",
            "move them into the folder of the file",
        )
    if not data.is_file():
        raise ModelError(f"the weights of {str(file)!r} are missing: {place!r}", "copy both files")
    if (found.offset or 0) + (found.length or 0) > data.stat().st_size:
        raise ModelError(f"the weights of {str(file)!r} are cut short: {place!r}", "copy it again")
