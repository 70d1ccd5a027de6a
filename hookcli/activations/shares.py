"""What a model does to attention probabilities before they weigh the values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch.utils.weak import WeakIdKeyDictionary

from hookcli.activations.function_call import FACTORS, REDUCING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, MutableMapping, Sequence

    from torch import Tensor

_ADDING = {"add", "addcmul", "lerp", "sub"}
_CHANGING = {"div", "mul"}
_PROJECTING = {"conv1d", "conv2d", "linear"}
_UNKNOWN = -1  # the result of a softmax that is an attention if it weighs values


@dataclass(slots=True)
class Shares:
    """Follows attentions' probabilities, numbered by their calls, until they weigh values."""

    added: set[int] = field(default_factory=set)  # attentions whose probabilities are added up
    projected: set[int] = field(default_factory=set)  # attentions whose heads are mixed
    changed: set[int] = field(default_factory=set)  # attentions changed in another way
    over_queries: set[int] = field(default_factory=set)  # attentions with a softmax over queries
    weighs_unknown: bool = False  # whether the last call weighed values by ``begin_unknown``
    _of: MutableMapping[Tensor, frozenset[int]] = field(default_factory=WeakIdKeyDictionary)
    _keys: list[int] = field(default_factory=list)

    def begin(self, probabilities: Iterable[Tensor], keys: int) -> None:
        """Follow the next attention's probabilities, unless its own function weighed the values."""
        # ``keys`` is the part of their ``Trail`` with the softmax: 0 for ``own``, 1 for
        # ``columns``.
        self._of.update(dict.fromkeys(probabilities, frozenset({len(self._keys)})))
        self._keys.append(keys)

    def begin_unknown(self, probabilities: Iterable[Tensor]) -> None:
        """Begin to follow the result of a softmax that may be an attention."""
        self._of.update(dict.fromkeys(probabilities, frozenset({_UNKNOWN})))

    def follow(
        self,
        operation: str,
        tensors: Sequence[Tensor],
        outputs: Sequence[Tensor],
        summed: Collection[int],
    ) -> None:
        """Follow the probabilities through a call that neither begins nor ends an attention."""
        # ``summed``: the parts of their ``Trail`` over which a product sums; none for a sum over
        # heads
        shares = frozenset[int]().union(*(self._of.get(part, ()) for part in tensors))
        weighs = operation in FACTORS and bool(summed)
        self.weighs_unknown = weighs and _UNKNOWN in shares
        if weighs:
            known = shares - {_UNKNOWN}
            self.over_queries |= {each for each in known if self._keys[each] not in summed}
        if weighs or not shares:
            return
        if operation in FACTORS or operation in _PROJECTING:
            self.projected |= shares
        given = {part.shape[-2:] for part in tensors if part in self._of}
        for part in outputs:
            if operation == "mul" and part.shape[-2:] not in given:
                continue  # the call multiplies each of them with all numbers of a value
            self._of[part] = shares
            self._note_change(operation, tensors, part)

    def _note_change(self, operation: str, tensors: Sequence[Tensor], output: Tensor) -> None:
        shares, lengths = self._of[output], output.shape[-2:]
        alike = [each for each in tensors if each.shape[-2:] == lengths]
        if min(lengths, default=0) < 2 or not alike:
            return
        if operation in REDUCING and output.numel() < alike[0].numel():
            (self.added if len(shares) > 1 else self.projected).update(shares)
        elif operation in _ADDING and len(alike) > 1:
            self.added |= shares
        elif operation == "pow" or (operation in _CHANGING and len(alike) > 1):
            self.changed |= shares
