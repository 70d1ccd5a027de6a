"""Trails: the pixel of origin of each value of a tensor, and the effect of functions on trails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A trail holds, for each value of a tensor, the index of a pixel counted from 1, or a constant:
# OUTSIDE for cells that ``pad`` added beside the image, LEARNED for tokens that do not come from
# one part of the image, LOST for tensors that hookcli could not follow, and WEIGHTS for weights
# that mix channels.
OUTSIDE, LEARNED, LOST, WEIGHTS = 0, -1, -2, -3


class Trail(NamedTuple):
    """The pixels of origin of a tensor's values, in its shape.

    In a product of tensors with positions, such as queries and keys, and in what is made from it,
    ``own`` is the pixel of each value's row, and ``columns`` of its column. All others have no
    ``columns``.
    """

    own: Tensor
    columns: Tensor | None = None

    @property
    def is_product(self) -> bool:
        """Whether the last two axes are queries and keys."""
        own, columns = self
        if columns is None or own.dim() < 2:
            return False
        return not (varies(own, -1) or varies(columns, -2))

    @property
    def is_weights(self) -> bool:
        """Whether this is the trail of weights that mix channels (``WEIGHTS``)."""
        return self.own.numel() > 0 and int(self.own.reshape(-1)[0]) == WEIGHTS

    def change(self, change: Callable[[Tensor], Tensor]) -> Trail:
        """Return a trail with ``change`` applied to each part."""
        return Trail(change(self.own), None if self.columns is None else change(self.columns))


def everywhere(value: int, tensor: Tensor) -> Tensor:
    """Return a trail like ``tensor`` with the same ``value`` everywhere, an expanded scalar."""
    return torch.tensor(value, dtype=torch.int32, device=tensor.device).expand(tensor.shape)


def varies(trail: Tensor, axis: int) -> bool:
    """Return whether the pixels of a trail differ along ``axis``."""
    return trail.numel() > 0 and bool((trail != trail.narrow(axis, 0, 1)).any())


def sample(trail: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the trail (N, C, …) of what a convolution, pooling or interpolation returns."""
    picked = trail[:, :1]
    for axis in range(2, trail.dim()):
        step = torch.arange(shape[axis], device=trail.device) * trail.shape[axis] // shape[axis]
        picked = picked.index_select(axis, step)
    return picked.expand(*shape)


def reduce(trail: Tensor, *axes: Any, **options: Any) -> Tensor:
    """Return the trail of a sum, mean or maximum: the first pixel of the reduced values."""
    # A reduction of several pixels to one covers the whole image: its trail is ``LEARNED``.
    options.pop("dtype", None)
    first = torch.amin(trail, *axes, **options)
    of_all = varies(trail.reshape(-1), 0) and not varies(first.reshape(-1), 0)
    return everywhere(LEARNED, first) if of_all else first


def spread(
    trail: Tensor, inside: Sequence[str], in_output: Sequence[str], shape: Sequence[int]
) -> Tensor:
    """Return the trail of a product's factor, expanded to the shape of the product."""
    # There is a letter for each axis; the product sums over letters that it does not have.
    summed = tuple(slice(None) if letter in in_output else 0 for letter in inside)
    kept = [letter for letter in inside if letter in in_output]
    ordered = trail[summed].permute([kept.index(each) for each in in_output if each in kept])
    new = tuple(slice(None) if letter in kept else None for letter in in_output)
    return ordered[new].expand(*shape)


def has_places(trail: Tensor) -> bool:
    """Return whether any value of a tensor comes from a pixel, according to its trail."""
    return bool((trail > OUTSIDE).any())


def spreads_to(shape: Sequence[int], larger: Sequence[int]) -> bool:
    """Return whether a tensor of ``shape`` can be expanded to the shape ``larger``."""
    if len(shape) > len(larger):
        return False
    ends = zip(reversed(shape), reversed(larger), strict=False)
    return all(length in (1, wanted) for length, wanted in ends)
