"""What becomes of the probabilities of attention before they weigh the values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.weak import WeakIdKeyDictionary

from hookcli.activations.products import FACTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping, Sequence

    from torch import Tensor

_PROJECTING = {"conv1d", "conv2d", "linear"}
_MIXERS = {"add", "addcmul", "lerp", "sub"}


class Shares:
    """Follows the probabilities of every attention, counted from 0, until they weigh the values.

    Attributes:
        mixed: the attentions whose probabilities are added to other weights on the way.
        projected: those whose probabilities a learned projection changes on the way.
    """

    def __init__(self) -> None:
        self.mixed: set[int] = set()
        self.projected: set[int] = set()
        self._of: MutableMapping[Tensor, frozenset[int]] = WeakIdKeyDictionary()
        self._count = 0

    def begin(self, probabilities: Iterable[Tensor]) -> None:
        """Begin to follow those of one more attention; none if it has weighed the values itself."""
        self._of.update(dict.fromkeys(probabilities, frozenset({self._count})))
        self._count += 1

    def follow(
        self,
        operation: str,
        tensors: Sequence[Tensor],
        outputs: Sequence[Tensor],
        are_learned: Callable[[Iterable[Tensor]], bool],
    ) -> None:
        """Follow them through one call of a function that does not begin or end an attention.

        Args:
            operation: the name of the function as an operation.
            tensors: the tensors that it was given.
            outputs: those that it returned.
            are_learned: returns whether tensors are computed without the pixels.
        """
        shares = frozenset[int]().union(*(self._of.get(part, ()) for part in tensors))
        others = [part for part in tensors if part not in self._of]
        is_product = operation in FACTORS
        if not shares or (is_product and not (others and are_learned(others))):
            return
        if is_product or operation in _PROJECTING:
            self.projected |= shares
        for part in outputs:
            self._of[part] = shares
            lengths = part.shape[-2:]
            alike = [each for each in tensors if each.shape[-2:] == lengths]
            if operation in _MIXERS and len(alike) > 1 and min(lengths, default=0) > 1:
                self.mixed |= shares
