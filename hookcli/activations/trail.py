"""Trails: at which pixel each value of a tensor stands, and how functions move the places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# What a trail holds, for each value of a tensor: the index of a pixel counted from 1, or one of
# these: cells that ``pad`` put beside the image, tokens that are not computed from one part of it,
# tensors whose places could not be followed, and weights by which channels are mixed.
OUTSIDE, LEARNED, LOST, WEIGHTS = 0, -1, -2, -3


class Trail(NamedTuple):
    """The pixels at which the values of a tensor stand, each of the shape of the tensor.

    ``columns`` is None but for products of two tensors that stand at pixels, and what was made of
    them: then ``own`` is where the queries (rows) stand, and ``columns`` where the keys do.
    """

    own: Tensor
    columns: Tensor | None = None


def each_part(trail: Trail, change: Callable[[Tensor], Tensor]) -> Trail:
    """Return a trail with its rows, and its columns if it has some, changed alike."""
    return Trail(change(trail.own), None if trail.columns is None else change(trail.columns))


def everywhere(value: int, tensor: Tensor) -> Tensor:
    """Return a trail of one value for a tensor, which takes the memory of that value alone."""
    return torch.tensor(value, dtype=torch.int32, device=tensor.device).expand(tensor.shape)


def varies(trail: Tensor, axis: int) -> bool:
    """Return whether values at different indices of an axis stand at different pixels."""
    return trail.numel() > 0 and bool((trail != trail.narrow(axis, 0, 1)).any())


def sample(trail: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the trail of what a convolution or a pooling made, (N, C, …), of (N, C, …)."""
    picked = trail[:, :1]
    for axis in range(2, trail.dim()):
        step = torch.arange(shape[axis], device=trail.device) * trail.shape[axis] // shape[axis]
        picked = picked.index_select(axis, step)
    return picked.expand(*shape)


def reduce(trail: Tensor, *axes: Any, **options: Any) -> Tensor:
    """Return the trail of a mean or a maximum over axes: the first pixel of all those taken.

    What is taken over the whole image stands at no pixel.
    """
    options.pop("dtype", None)
    first = torch.amin(trail, *axes, **options)
    of_all = varies(trail.reshape(-1), 0) and not varies(first.reshape(-1), 0)
    return everywhere(LEARNED, first) if of_all else first


def is_product(trail: Trail) -> bool:
    """Return whether the last two axes of a trail are those of queries and keys."""
    own, columns = trail
    if columns is None or own.dim() < 2:
        return False
    return not (varies(own, -1) or varies(columns, -2))


def is_weights(trail: Trail) -> bool:
    """Return whether the tensor holds weights by which channels are mixed."""
    return trail.own.numel() > 0 and int(trail.own.reshape(-1)[0]) == WEIGHTS


def spread(
    trail: Tensor, inside: Sequence[str], in_output: Sequence[str], shape: Sequence[int]
) -> Tensor:
    """Return the trail of a factor of a product for the product, which has this shape.

    Each axis has a letter inside the factor, and in the output; the others are summed over.
    """
    summed = tuple(slice(None) if letter in in_output else 0 for letter in inside)
    kept = [letter for letter in inside if letter in in_output]
    ordered = trail[summed].permute([kept.index(each) for each in in_output if each in kept])
    new = tuple(slice(None) if letter in kept else None for letter in in_output)
    return ordered[new].expand(*shape)


def has_places(trail: Tensor) -> bool:
    """Return whether any value stands at a pixel of the image."""
    return bool((trail > OUTSIDE).any())


def spreads_to(shape: Sequence[int], larger: Sequence[int]) -> bool:
    """Return whether a tensor of one shape can be expanded to the other."""
    if len(shape) > len(larger):
        return False
    ends = zip(reversed(shape), reversed(larger), strict=False)
    return all(length in (1, wanted) for length, wanted in ends)


def tensors_in(values: object) -> Iterator[Tensor]:
    """Yield the tensors among values, and in lists and dictionaries of them."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from tensors_in(list(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors_in(value)
