"""Run an image of B among other images, for ``--against batch=N``, and cut out its own part."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from hookcli.comparison.side import pixels_of, to_array
from hookcli.distance.metrics import measure_flat
from hookcli.hooks.nested import map_tensors, tensors_in, to_dense
from hookcli.images.prepare import prepare_image

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from hookcli.distance.metrics import TensorArray
    from hookcli.images.prepare import PreparedImage
    from hookcli.passes.runner import Feed, Side
    from hookcli.records.calls import Call

    _Observer: TypeAlias = Callable[[Call, Tensor], None]


@dataclass(slots=True)
class Neighbours:
    """Finds the images that share a forward pass with an image of side B.

    These are those of the command's first N + 1 images that are others and have pixels of the same
    shape, in turn. If there are none, hookcli makes noise with the image's mean and twice its
    standard deviation, so that the largest value of the batch is not the image's own.
    """

    side: Side
    _pixels: list[Tensor] | None = None  # (1, …) each, of the first images

    def add_to(self, image: PreparedImage) -> Tensor:
        """Return the pixels of a batch (N, …), in which ``image`` is at ``find_index(N)``."""
        own, number = pixels_of(image), self.side.request.among
        if not number:
            return own
        near = [each for each in self._read(number + 1) if each.shape == own.shape]
        others = [each for each in near if not torch.equal(each, own)]
        others = others or [make_noise(own, seed) for seed in range(number)]
        batch = [*itertools.islice(itertools.cycle(others), number)]
        batch.insert(find_index(number + 1), own)
        return torch.cat(batch)

    def _read(self, number: int) -> list[Tensor]:
        if self._pixels is None:
            images = (prepare_image(self.side.fitter, each) for each in self.side.sources[:number])
            self._pixels = [pixels_of(each) for each in images if each.pixels is not None]
        return self._pixels


def find_index(images: int) -> int:
    """Return the index of the image that is compared: the last but one of four or more.

    There it has neighbours on both sides, and no mirrored batch has it at the same index.
    """
    return images - 2 if images > 3 else images - 1


def make_noise(pixels: Tensor, seed: int) -> Tensor:
    known = pixels.nan_to_num(0, 0, 0)
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
    return known.mean() + 2 * (float(known.std(correction=0)) or 1) * noise


@dataclass(slots=True)
class Part:
    """Cuts the part of one of ``images`` images out of the tensors of B.

    The part is along the axis on which B's tensor is ``images`` times as long as A's: rows that
    follow each other, or every Nth row if these are nearer to A's values. If both shapes are equal,
    the part is the whole tensor. If the shapes differ otherwise, there is no part, and the whole
    tensor shows in the comparison as one of another shape.
    """

    images: int
    values: Mapping[str, TensorArray]  # A's tensors, by call id
    _last: Tensor = field(default_factory=lambda: torch.empty(0))  # the whole tensor observed last

    def observing(self, observer: _Observer) -> _Observer:
        def observe(call: Call, tensor: Tensor) -> None:
            self._last = tensor
            observer(call, self._cut(tensor, self.values.get(call.id)))

        return observer if self.images == 1 else observe

    def feeding(self, feed: Feed) -> Feed:
        """Return a feed that replaces only the part of the tensor that was observed last."""

        def put(call_id: str) -> TensorArray | None:
            given, whole = feed(call_id), np.array(to_array(self._last))
            where = None if given is None else self._find(self._last, self.values.get(call_id))
            if where is not None:
                whole[where] = given
            return None if where is None else whole

        return feed if self.images == 1 else put

    def cut_all(self, a: object, b: object) -> object:
        """Return B's output with the part of each tensor; ``a`` is A's output."""
        ones = tensors_in(a)
        if self.images == 1 or len(ones) != len(tensors_in(b)):
            return b
        left = iter(ones)
        return map_tensors(b, lambda _key, tensor: self._cut(tensor, to_array(next(left))))

    def _cut(self, tensor: Tensor, a: TensorArray | None) -> Tensor:
        where = self._find(tensor, a)
        return tensor if where is None else to_dense(tensor)[where]

    def _find(self, tensor: Tensor, a: TensorArray | None) -> tuple[slice, ...] | None:
        shape = tuple(tensor.shape)
        if a is None or a.ndim != len(shape) or a.shape == shape:
            return None if a is None or a.shape != shape else (slice(None),) * a.ndim
        axis, *more = (n for n, size in enumerate(shape) if size != a.shape[n])
        if more or shape[axis] != self.images * a.shape[axis]:
            return None
        rows, index = a.shape[axis], find_index(self.images)
        ways = slice(index * rows, (index + 1) * rows), slice(index, None, self.images)
        found = [(*(slice(None),) * axis, way) for way in ways[:rows]]
        dense = to_dense(tensor)
        far = [measure_flat(a, to_array(dense[each])) for each in found[1:] and found]
        return found[far.index(min(far))] if far else found[0]
