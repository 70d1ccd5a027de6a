"""Read weights files without running code in them, and choose a set of weights (``FILE:KEY``)."""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from hookcli.errors import WeightsError
from hookcli.networks import elsewhere
from hookcli.networks.source import UNREACHABLE
from hookcli.networks.torch_archive import OtherArchiveError, load_archive
from hookcli.outside.files import NotRegularError, open_regular
from hookcli.outside.foreign import ForeignCode, first_line
from hookcli.records.text import and_more, shape_text

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"  # the format before torch 1.6
_MOST_VERSION = 2**31
_LONGEST = 120  # characters in a message for a name, or for a description with a name
_SAVE_WEIGHTS = "save only the weights: torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True, slots=True)
class WeightsFile:
    tensors: dict[str, Tensor]  # dense, on the CPU, and not larger than their storages
    versions: dict[str, int]  # of the saved modules, by module path; empty if the file has none
    note: str = ""  # which set of weights was chosen, or which tensors were left out
    # the values that are not tensors, such as the extra state of a module
    others: dict[str, object] = field(default_factory=dict)
    sha256: str = ""  # of the bytes that were read


def read_weights_file(file: Path, key: str = "") -> WeightsFile:
    # ``key`` names the part of the file that holds the weights: a key, several keys joined by dots,
    # or the beginning of the names of the tensors.
    content, sha256 = load_content(file)
    if shard := elsewhere.name_shard([file.suffix, *_list_keys(content)]):
        raise _refuse(file, shard)
    part = _find_part(content, key) if key else content
    if key and not isinstance(part, (dict, list, tuple)):
        named = ", ".join(_list_sets(content)) or "none"
        hint = f"sets of weights in the file: {named}"
        raise WeightsError(f"{file} holds no weights under {key!r}", hint)
    state, note = _unwrap(file, part)
    tensors, values = dict[str, Tensor](), dict.items(state)
    for name, value in values:
        if isinstance(name, str) and isinstance(value, Tensor):
            _refuse_odd(file, name, value)
            tensors[name] = Tensor.detach(value)
    if not tensors:
        raise WeightsError(f"{file} holds no tensors")
    if not sum(map(Tensor.numel, tensors.values())):  # ZeRO's stage 3 has the values in shards
        raise _refuse(file, elsewhere.ZERO)
    others = {n: value for n, value in values if isinstance(n, str) and n not in tensors}
    return WeightsFile(tensors, _list_versions(state), note, others, sha256)


def load_content(file: Path) -> tuple[object, str]:
    try:
        with ForeignCode("loading", error=WeightsError), open_regular(file) as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            with warnings.catch_warnings():  # on sparse tensors, which are refused later
                warnings.simplefilter("ignore")
                return _load(file, stream), sha256
    except WeightsError as error:
        if error.__cause__ is None:
            raise
        raise _explain(file, error.__cause__) from error.__cause__


def loading_weights(what: str, verb: str = "cannot be loaded") -> ForeignCode:
    """Turn errors in a ``with`` block into a WeightsError, except errors in ``UNREACHABLE``.

    The message begins with ``what`` and ``verb``: "the weights of NAME cannot be loaded: …".
    """
    return ForeignCode(what, hint="", verb=verb, error=WeightsError, passes=UNREACHABLE)


def _explain(file: Path, error: BaseException) -> WeightsError:
    if isinstance(error, NotRegularError):
        return WeightsError(f"cannot read the weights {file}: it is not a regular file")
    if isinstance(error, pickle.UnpicklingError):
        kind = elsewhere.find_kind(file)
        if kind.join:
            return _refuse(file, kind)
        if kind in (elsewhere.UNKNOWN, elsewhere.WEIGHTS):
            kind = elsewhere.FileKind("more than tensors")
        return _refuse(file, kind, "and loading it would run its code")
    kind = elsewhere.name_shard([file.suffix]) or elsewhere.find_kind(file)
    if kind not in (elsewhere.UNKNOWN, elsewhere.WEIGHTS):
        return _refuse(file, kind)
    if isinstance(error, OtherArchiveError):
        what = f"{file} is no archive that torch.save wrote ({error})"
        return WeightsError(what, "load it in Python and save it again")
    why = first_line(error)
    return WeightsError(f"cannot read the weights {file}: damaged or cut short ({why})")


def _load(file: Path, stream: BufferedReader) -> object:
    # Another process may have replaced ``file`` since ``stream`` was opened.
    if file.suffix == ".safetensors":
        tensors = load_file(file)  # mapped into memory
        if not os.path.samestat(os.fstat(stream.fileno()), os.stat(file)):  # noqa: PTH116
            raise WeightsError(f"cannot read the weights {file}: another process replaced it")
        return tensors
    beginning = stream.read(4)
    stream.seek(0)
    if beginning == _ZIP:
        return load_archive(stream)
    if file.suffix == ".onnx":
        raise _refuse(file, elsewhere.find_kind(file))
    if not beginning.startswith(_PICKLE):
        raise WeightsError(f"cannot read the weights {file}: torch.save did not write it")
    return torch.load(stream, map_location="cpu", weights_only=True)


def _refuse(file: Path, kind: elsewhere.FileKind, why: str = "not a state dict") -> WeightsError:
    hint = kind.join or _SAVE_WEIGHTS
    if kind.state:
        hint = f"if you trust it, save its weights: {elsewhere.save_line(file, kind.state)}"
    return WeightsError(f"{file} holds {kind.what}, {why}", hint)


def _unwrap(file: Path, content: object) -> tuple[dict[object, object], str]:
    # Methods are called as ``dict.get(content, …)``, since an ordered dict from a file may have
    # attributes that hide them.
    note = ""
    for wrapper in elsewhere.WRAPPERS:
        inner = dict.get(content, wrapper) if isinstance(content, dict) else None
        if isinstance(content, dict) and isinstance(inner, dict):
            keys = _bare_names(inner)
            others = [
                repr(name)
                for name, each in _list_parts(content)
                if name != wrapper
                and isinstance(name, str)
                and isinstance(each, dict)
                and 2 * len(keys & _bare_names(each)) > len(keys)
            ]
            if others:
                note = (
                    f"{file} holds several sets of weights: the one under {wrapper!r} is used, not"
                    f" {name_some(others)}; `weights='FILE:KEY'` chooses another"
                )
            content = inner
    content = _unwrap_other(file, content)
    if not isinstance(content, dict):
        raise WeightsError(f"{file} holds a {type(content).__name__}, not a state dict")
    return content, note


def _unwrap_other(file: Path, content: object) -> object:
    sizes = {
        key: len(_bare_names(dict(_list_parts(_find_part(content, key)))))
        for key in _list_sets(content)
    }
    most = max(sizes.values(), default=0)
    if isinstance(content, dict) and len(_bare_names(content)) >= most:
        return content
    if len(sizes) > 1:
        what = f"{file} holds several sets of weights: {', '.join(map(repr, sizes))}"
        raise WeightsError(what, "choose one of them: `weights='FILE:KEY'`")
    return next((_find_part(content, key) for key in sizes), content)


def _list_parts(content: object) -> list[tuple[object, object]]:
    if isinstance(content, dict):
        parts = dict.items(content)
        return [(str(name) if type(name) is int else name, each) for name, each in parts]
    items = content if isinstance(content, (list, tuple)) else ()
    return [(str(index), each) for index, each in enumerate(items)]


def _find_part(content: object, key: str) -> object:
    parts = dict(_list_parts(content))
    if key in parts:
        return parts[key]
    for name, inner in parts.items():
        rest = key.removeprefix(f"{name}.")
        if rest != key and (part := _find_part(inner, rest)) is not None:
            return part
    names = [name for name in parts if isinstance(name, str) and name.startswith(f"{key}.")]
    return {name.removeprefix(f"{key}."): parts[name] for name in names} or None


def _list_sets(content: object, prefix: str = "", depth: int = 3) -> list[str]:
    found = []
    for name, inner in _list_parts(content) if depth else ():
        if isinstance(name, str) and "param_groups" not in dict(_list_parts(inner)):
            found += [f"{prefix}{name}"] if isinstance(inner, dict) and _bare_names(inner) else []
            found += _list_sets(inner, f"{prefix}{name}.", depth - 1)
    return found


def _list_keys(content: object) -> list[str]:
    items = dict.items(content) if isinstance(content, dict) else ()
    inner = [key for _, value in items if isinstance(value, dict) for key in dict.keys(value)]
    names = [name for key, value in items for name in (key, type(value).__name__)]
    return [name for name in (*names, *inner) if isinstance(name, str)]


def _bare_names(state: dict[object, object]) -> set[str]:
    return {
        key.removeprefix("module.")
        for key, value in dict.items(state)
        if isinstance(key, str) and isinstance(value, Tensor)
    }


def _refuse_odd(file: Path, key: str, tensor: Tensor) -> None:
    form = kind_name(tensor.layout)
    if type(tensor) not in (Tensor, nn.Parameter):
        form = type(tensor).__name__
    elif tensor.is_quantized or tensor.is_meta or tensor.is_nested:
        form = "quantized" if tensor.is_quantized else "meta" if tensor.is_meta else "nested"
    if form != "strided":
        hint = "save dense ones with values: tensor.dequantize() or tensor.to_dense()"
        raise WeightsError(f"{file} holds tensors that are not dense: {_clip(key)} is {form}", hint)
    room = Tensor.untyped_storage(tensor).nbytes() // tensor.itemsize
    room = max(0, room - int(Tensor.storage_offset(tensor)))
    if Tensor.numel(tensor) > room:
        raise WeightsError(
            f"{file} holds {room:,} values for the {Tensor.numel(tensor):,} of {_clip(key)}"
            f" ({shape_text(tensor.shape)}): an expanded view",
            "save the values themselves: tensor.contiguous()",
        )


def _list_versions(state: dict[object, object]) -> dict[str, int]:
    metadata = getattr(state, "_metadata", None)
    versions: dict[str, int] = {}
    for path, local in dict.items(metadata) if isinstance(metadata, dict) else ():
        version = dict.get(local, "version") if isinstance(local, dict) else None
        if isinstance(path, str) and type(version) is int and 0 < version < _MOST_VERSION:
            versions[path] = version
    return versions


def kind_name(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.").lstrip("_")


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def name_some(texts: list[str]) -> str:
    return ", ".join(map(_clip, texts[:3])) + and_more(len(texts) - 3)
