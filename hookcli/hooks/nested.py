"""Find, name, choose and replace tensors in nested containers; find NaN and Inf in the tensors."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hookcli.errors import NestedTensorError, RequestError
from hookcli.outside.foreign import Forgiveness, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def named_tensors(value: object) -> Iterator[tuple[str, Tensor]]:
    # The keys are ``0``, ``1``, … in tuples and lists, the names in named tuples, dictionaries and
    # dataclasses, ``tensors`` in an ``ImageList`` of torchvision's detectors, and ``tensor`` in a
    # wrapper of one tensor, such as e2cnn's ``GeometricTensor``; dots join the levels. The key of
    # ``value`` itself is "". A container inside itself is walked once.
    inside = set[int]()
    waiting: list[tuple[str | None, object]] = [("", value)]
    while waiting:
        key, part = waiting.pop()
        if key is None:  # a container ends; until now, ``waiting`` kept its id from being reused
            inside.remove(id(part))
        elif isinstance(part, Tensor):
            yield key, part
        elif id(part) not in inside and (parts := _parts_of(part)):
            inside.add(id(part))
            waiting.append((None, part))
            waiting += [(_join(key, name), each) for name, each in reversed(parts)]


def tensors_in(value: object) -> list[Tensor]:
    return [tensor for _, tensor in named_tensors(value)]


def bytes_of(value: object) -> int:
    return sum(each.numel() * each.element_size() for each in tensors_in(value))


def map_tensors(
    value: object,
    change: Callable[[str, Tensor], Tensor],
    key: str = "",
    inside: tuple[int, ...] = (),
) -> object:
    """Return a copy of ``value`` in which ``change(key, tensor)`` replaces each tensor.

    If no tensor changes, return ``value`` itself. Only recursive calls pass ``key`` and ``inside``.
    """
    if isinstance(value, Tensor):
        return change(key, value)
    if id(value) in inside:
        return value
    parts, around = _parts_of(value), (*inside, id(value))
    changed = [map_tensors(part, change, _join(key, name), around) for name, part in parts]
    if all(new is old for new, (_, old) in zip(changed, parts, strict=True)):
        return value
    if isinstance(value, tuple):
        return value._make(changed) if hasattr(value, "_make") else type(value)(changed)
    if isinstance(value, list):
        return type(value)(changed)
    again: Any = copy.copy(value)
    for new, (name, old) in zip(changed, parts, strict=True):
        if isinstance(value, dict):
            again[name] = new
        elif new is not old:
            object.__setattr__(again, str(name), new)  # a dataclass may be frozen
    return again


def _parts_of(value: object) -> list[tuple[object, object]]:
    with Forgiveness():
        if isinstance(value, dict):
            return list(value.items())
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return list(zip(value._fields, value, strict=True))
        if isinstance(value, (tuple, list)):
            return list(enumerate(value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
        for name in ("tensors", "tensor"):
            if isinstance(tensor := ask(value, name), Tensor):
                return [(name, tensor)]
    return []


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def choose_tensor(output_key: str, output: object) -> Tensor:
    tensors = dict(named_tensors(output))
    if output_key in tensors:
        return tensors[output_key]
    keys, alone = name_keys(output), "leave it out: the model does not return several tensors"
    what = f"`output_key={output_key!r}`: the model returns no such tensor"
    raise RequestError(what, f"it returns {keys}" if keys else alone)


def name_keys(output: object) -> str:
    return ", ".join(key for key, _ in named_tensors(output) if key)


def to_dense(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        hint = "build the model on the CPU or a GPU; shapes alone: `hookcli.layers(MODEL)`"
        what = "a layer returned a tensor on the meta device, which holds no values"
        raise RequestError(what, hint)
    if tensor.is_nested:
        raise NestedTensorError
    values = tensor.detach()
    return values if values.layout == torch.strided else values.to_dense()


def memory_of(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse tensors, and inside torch.vmap
        return id(tensor)


def list_not_finite(nested: object) -> frozenset[str]:
    found = set[str]()
    for tensor in tensors_in(nested):
        if tensor.is_meta or tensor.is_nested:
            continue
        values = to_dense(tensor)
        values = values.dequantize() if values.is_quantized else values
        is_float = values.is_floating_point() or values.is_complex()
        if is_float and not bool(values.isfinite().all()):
            kinds = {"NaN": values.isnan(), "Inf": values.isinf()}
            found |= {kind for kind, where in kinds.items() if bool(where.any())}
    return frozenset(found)
