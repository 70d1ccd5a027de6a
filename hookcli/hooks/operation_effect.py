"""What a call of an operation does to tensors: whether it returns any, and computes new values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.hooks.nested import named_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hookcli.hooks.operations import OperationCall

# These return values that exist already, as views or as copies, depending on their inputs.
_COPIES = frozenset(
    {"clone", "contiguous", "flatten", "getitem", "reshape", "reshape_as", "to", "type", "type_as"}
    | {"float", "double", "half", "bfloat16", "int", "long", "bool", "cpu", "cuda"}
)
# In-place operators, ``x += y`` and so on.
_IN_PLACE = frozenset(
    f"__i{name}__"
    for name in (
        "add",
        "and",
        "floordiv",
        "lshift",
        "mod",
        "mul",
        "or",
        "pow",
        "rshift",
        "sub",
        "xor",
    )
) | {"__idiv__", "__itruediv__", "__setitem__"}


@dataclass(frozen=True, slots=True)
class BegunOperation:
    """A call that has begun.

    Attributes:
        path: the operation, as ``OperationCall`` has it.
        inputs: the tensors that it was given.
        writes: how often they had been written by then.
        in_place: its name or an argument says that it writes to them, which tensors of an inference
            mode do not count.
    """

    path: str
    inputs: tuple[Tensor, ...]
    writes: int
    in_place: bool

    def computes(self, output: object) -> bool:
        """Return whether it computed values of its inputs: it wrote to them, or made a tensor."""
        tensors = [tensor for _, tensor in named_tensors(output)]
        if not (tensors and self.inputs):
            return False
        given = {_memory(tensor) for tensor in self.inputs}
        is_written = self.in_place or _count_writes(self.inputs) > self.writes
        return is_written or any(_memory(tensor) not in given for tensor in tensors)


def begin_operation(operation: OperationCall) -> BegunOperation:
    """Return what must be known of a call before it runs."""
    inputs = tuple(tensor for _, tensor in named_tensors((operation.args, operation.kwargs)))
    name = getattr(operation.function, "__name__", "")
    in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    in_place = in_place or operation.kwargs.get("inplace") is True
    return BegunOperation(operation.path, inputs, _count_writes(inputs), in_place)


def may_compute(name: str) -> bool:
    """Return whether an operation of this name may compute new values of tensors.

    Others return views and copies of values, or make tensors of nothing.
    """
    return not (name in _COPIES or name.startswith("new_") or name.endswith("_like"))


def _count_writes(tensors: Iterable[Tensor]) -> int:
    """Return how often the tensors have been written; those of an inference mode do not count."""
    return sum(tensor._version for tensor in tensors if not tensor.is_inference())


def _memory(tensor: Tensor) -> int:
    """Return the identity of the memory that a tensor shares with its views.

    A sparse tensor, and one inside ``torch.vmap``, has no memory of its own to be told by.
    """
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor)
