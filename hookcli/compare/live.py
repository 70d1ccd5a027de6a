"""``hookcli compare``: run two sides, A and B, and compare their tensors layer by layer.

Both sides run one image at a time. hookcli keeps each tensor of A on the host until B has run the
same call. hookcli measures each tensor of B inside the hook, and keeps no copy. After both sides
have run an image, only figures remain.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from hookcli.compare.diff import check_comparison, pair_ids
from hookcli.compare.side import list_side_changes, list_uncalled, run_side
from hookcli.distance.comparison import Comparison
from hookcli.distance.judge import CallPair, CallTensor, Judge
from hookcli.distance.metrics import measure_arrays
from hookcli.hooks.dense import to_dense
from hookcli.images.fit import require_image, skip_failing
from hookcli.images.prepare import prepare_like
from hookcli.records.edit_effects import EditEffects
from hookcli.records.images import SkippedImage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.distance.metrics import Distance
    from hookcli.distance.tolerance import Tolerance
    from hookcli.images.prepare import PreparedImage
    from hookcli.images.read import ImageSource
    from hookcli.passes.runner import Side
    from hookcli.records.calls import Call


_NUMPY_FLOATS = (torch.float64, torch.float32, torch.float16)


def compare_sides(
    a: Side,
    b: Side,
    tolerance: Tolerance,
    image_done: Callable[[int, int], None],
    *,
    keeps_images: bool = False,
) -> Comparison:
    """Run the images through both sides, and compare each call of B with the same call of A.

    Args:
        a: the reference.
        b: the other side. Both sides must have the same images, or a single image each.
        tolerance: how much the two sides may differ.
        image_done: called after each image with the number of images done so far, which includes
            skipped images, and the number of skipped images.
        keeps_images: whether the comparison also has one row per call and image.

    Raises:
        RequestError: nothing could be compared, or an edit changed nothing.
        ForwardError: a model raised an exception.
        NoImageError: no image could be used.
    """
    dtypes = (a.info.dtype, b.info.dtype)
    judge = Judge(tolerance, dtypes, keeps_images)
    keys: list[str] = []
    skipped_before = list_skipped(a, b)
    skipped: list[SkippedImage] = []
    effects = _RunEffects()
    first_shape: tuple[int, ...] | None = None
    with closing(a.runner), closing(b.runner), a.runner.ready(), b.runner.ready():
        for sources in pair_sources(a, b):
            image_a, image_b = (
                prepare_like(side.fitter, source, first_shape)
                for side, source in zip((a, b), sources, strict=True)
            )
            unusable = [image for image in (image_a, image_b) if image.pixels is None]
            if unusable:
                skipped.append(SkippedImage(unusable[0].file, unusable[0].reason))
                pairs = None
            else:
                pairs = _try_image(a, b, image_a, image_b, effects=effects, skipped=skipped)
            if pairs is not None:
                keys.append(image_a.key)
                if first_shape is None and image_a.pixels is not None:
                    first_shape = tuple(image_a.pixels.shape)
                for pair in pairs:
                    judge.add(pair)
            image_done(len(keys) + len(skipped), len(skipped))
        all_skipped = (*skipped_before, *skipped)
        require_image(keys, all_skipped)
        a.runner.edits.check_used(effects.effects_a.used)
        b.runner.edits.check_used(effects.effects_b.used)
    notes = [*a.info.notes, *b.info.notes]
    comparison = Comparison(
        a.request.name,
        b.request.name,
        tolerance,
        judge.rows(),
        changed=tuple(list_side_changes(a, b)),
        images=tuple(keys),
        skipped=all_skipped,
        uncalled=list_uncalled(a, effects.called),
        notes=tuple(dict.fromkeys(notes)),
        image_rows=tuple(judge.image_rows()),
    )
    check_comparison(comparison, judge)
    return comparison


def list_skipped(a: Side, b: Side) -> list[SkippedImage]:
    """Return the images that A or B cannot use, as far as hookcli knows before the models run."""
    return list({image.file: image for image in (*b.skipped, *a.skipped)}.values())


def pair_sources(a: Side, b: Side) -> list[tuple[ImageSource, ImageSource]]:
    """Return the pairs of images to compare, each with an image of A and an image of B.

    If both requests name the same images, hookcli pairs each image with itself, and leaves out
    images that only one side can use. Otherwise, hookcli pairs the images in order.
    """
    if a.request.run.images != b.request.run.images:
        return list(zip(a.sources, b.sources, strict=True))
    others = {source.key: source for source in b.sources}
    return [(source, others[source.key]) for source in a.sources if source.key in others]


@dataclass(slots=True)
class _RunEffects:
    """The layers that ran on the images so far, and the effects of the edits on each side."""

    called: set[str] = field(default_factory=set)  # module paths that ran on either side
    effects_a: EditEffects = field(default_factory=EditEffects)
    effects_b: EditEffects = field(default_factory=EditEffects)

    def merge(self, later: _RunEffects) -> None:
        """Add the layers and effects of the next images."""
        self.called |= later.called
        self.effects_a.merge(later.effects_a)
        self.effects_b.merge(later.effects_b)


@dataclass(slots=True)
class _SeenCalls:
    """The calls of one image on both sides: ``keep`` observes A, and ``measure`` observes B.

    Attributes:
        a: the descriptions of A's tensors, by call id.
        b: the descriptions of B's tensors, by call id.
        values: copies of A's tensors on the host, by call id; a copy is deleted when B has run the
            same call.
        distances: the distance of each tensor of B from its counterpart in A, by call id.
    """

    a: dict[str, CallTensor] = field(default_factory=dict)
    b: dict[str, CallTensor] = field(default_factory=dict)
    values: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    distances: dict[str, Distance] = field(default_factory=dict)

    def keep(self, call: Call, tensor: Tensor) -> None:
        """Store a description and a copy of a tensor of A."""
        self.a[call.id] = _describe(call, tensor)
        self.values[call.id] = np.array(_to_array(tensor))

    def measure(self, call: Call, tensor: Tensor) -> None:
        """Measure the distance of a tensor of B from its counterpart in A.

        This deletes the copy of the counterpart. If the shapes differ, there is no distance.
        """
        self.b[call.id] = _describe(call, tensor)
        plain = self.values.pop(call.id, None)
        if plain is not None and plain.shape == tuple(tensor.shape):
            self.distances[call.id] = measure_arrays(plain, _to_array(tensor))


def _try_image(
    a: Side,
    b: Side,
    image_a: PreparedImage,
    image_b: PreparedImage,
    effects: _RunEffects,
    skipped: list[SkippedImage],
) -> list[CallPair] | None:
    """Return the pairs of calls of one image; None if a model fails and the image is skipped.

    ``effects`` receives the layers that ran and the effects of edits, unless a model fails.
    ``skipped`` receives the image if a model fails and the request allows skipping images.

    Raises:
        ForwardError: a model raised an exception, and the request does not allow skipping images.
    """
    now = _RunEffects()
    pairs: list[CallPair] | None = None
    on_error, several = a.request.run.on_error, len(a.sources) > 1
    with skip_failing(on_error, image_a.file, skipped, is_one_of_several=several):
        pairs = list(_compare_image(a, b, image_a, image_b, effects=now))
        effects.merge(now)
    return pairs


def _compare_image(
    a: Side, b: Side, image_a: PreparedImage, image_b: PreparedImage, effects: _RunEffects
) -> Iterator[CallPair]:
    """Yield the pairs of calls of one image, in the order in which the calls complete in A."""
    seen = _SeenCalls()
    run_side(a, image_a, seen.keep, called=effects.called, effects=effects.effects_a)
    run_side(b, image_b, seen.measure, called=effects.called, effects=effects.effects_b)
    for call_id, other in pair_ids(tuple(seen.a), tuple(seen.b)):
        distance = seen.distances.get(call_id)
        yield CallPair(image_a.key, seen.a.get(call_id), seen.b.get(other), distance)


def _describe(call: Call, tensor: Tensor) -> CallTensor:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return CallTensor(call.id, call.layer.module_type, tuple(tensor.shape), dtype)


def _to_array(tensor: Tensor) -> NDArray[np.generic]:
    """Return the values of a tensor as a NumPy array, which may share memory with the tensor.

    Values of a dtype that NumPy lacks are converted to float32 or complex64.
    """
    dense = to_dense(tensor)
    dense = dense.dequantize() if dense.is_quantized else dense
    if dense.is_floating_point() and dense.dtype not in _NUMPY_FLOATS:
        dense = dense.float()
    dense = dense.to(torch.complex64) if dense.dtype == torch.complex32 else dense
    array: NDArray[np.generic] = dense.cpu().resolve_conj().resolve_neg().numpy()
    return array
