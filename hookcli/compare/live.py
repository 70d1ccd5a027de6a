"""Two ways to run a model held against each other, on the same images, now.

Both sides run one image at a time. What a layer of A gave is kept on the host until B has run that
layer, and what B gives is measured inside its hook: nothing is kept of it, and nothing of an image once it has
gone through both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hookcli.activations.stats import to_dense
from hookcli.compare.diff import check_comparison, pair_ids
from hookcli.compare.variants import list_uncalled, list_variant_changes, make_ready, run_variant
from hookcli.distance.comparison import Comparison
from hookcli.distance.judge import CallPair, CallTensor, Judge
from hookcli.distance.metrics import measure_arrays
from hookcli.images.fit import require_image, skip_failing
from hookcli.images.prepare import prepare_like
from hookcli.records.images import SkippedImage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.compare.variants import Variant
    from hookcli.distance.metrics import Distance
    from hookcli.distance.tolerance import Tolerance
    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepare import PreparedModel
    from hookcli.records.calls import Call


_FLOATS = (torch.float64, torch.float32, torch.float16)  # of numpy


def compare_variants(
    a: Variant, b: Variant, tolerance: Tolerance, image_done: Callable[[int, int], None]
) -> Comparison:
    """Run the images both ways and measure how far each call of B is from that of A.

    Args:
        a: the reference.
        b: the other; its images are those of A, or one other image for the one of A.
        tolerance: how far they may be apart.
        image_done: is told how many images have gone through or been skipped, and how many of them skipped.

    Raises:
        RequestError: nothing could be compared, or an edit changed nothing.
        ForwardError: a model raised.
        NoImageError: no image could be used.
    """
    make_ready(a, b)
    judge = Judge(tolerance, tuple(variant.prepared.loaded.info.dtype for variant in (a, b)))
    keys: list[str] = []
    early = list_skipped(a.prepared, b.prepared)
    late: list[SkippedImage] = []
    called = set[str]()
    first: tuple[int, ...] | None = None
    with a.prepared.pruning.restored_on_exit(), b.prepared.pruning.restored_on_exit():
        for sources in pair_sources(a.prepared, b.prepared):
            one, two = (
                prepare_like(variant.prepared.fitter, source, first)
                for variant, source in zip((a, b), sources, strict=True)
            )
            bad = [image for image in (one, two) if image.pixels is None]
            late += [SkippedImage(image.file, image.reason) for image in bad[:1]]
            if not bad and (pairs := _try_image(a, b, one, two, called, late)) is not None:
                keys.append(one.key)
                first = first or tuple(one.pixels.shape if one.pixels is not None else ())
                for pair in pairs:
                    judge.add(pair)
            image_done(len(keys) + len(late), len(late))
        require_image(keys, [*early, *late])
        for variant in (a, b):
            variant.prepared.edits.check_used()
    comparison = Comparison(
        a.name, b.name, tolerance, judge.rows(), tuple(list_variant_changes(a, b)), tuple(keys),
        skipped=(*early, *late), uncalled=list_uncalled(a.prepared, called),
        notes=tuple(dict.fromkeys(n for variant in (a, b) for n in variant.prepared.loaded.info.notes)),
    )  # fmt: skip
    check_comparison(comparison, judge)
    return comparison


def list_skipped(a: PreparedModel, b: PreparedModel) -> list[SkippedImage]:
    """What either side cannot use, as far as that is known before anything runs."""
    return list({image.file: image for image in (*b.skipped, *a.skipped)}.values())


def pair_sources(a: PreparedModel, b: PreparedModel) -> list[tuple[Any, Any]]:
    """Each image of A that B can use too, and what it is held against: itself, or the one image of B."""
    if a.request.images != b.request.images:
        return list(zip(a.sources, b.sources, strict=True))
    others = {source.key: source for source in b.sources}
    return [(source, others[source.key]) for source in a.sources if source.key in others]


@dataclass(slots=True)
class _Kept:
    """What the calls of A gave, by call id; each goes when B has run it."""

    seen: dict[str, CallTensor] = field(default_factory=dict)
    values: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        self.seen[call.id] = _describe(call, tensor)
        self.values[call.id] = np.array(_to_array(tensor))


@dataclass(slots=True)
class _Measured:
    """What the calls of B gave, and how far it is from A."""

    kept: _Kept
    seen: dict[str, CallTensor] = field(default_factory=dict)
    distances: dict[str, Distance] = field(default_factory=dict)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        self.seen[call.id] = _describe(call, tensor)
        plain = self.kept.values.pop(call.id, None)
        if plain is not None and plain.shape == tuple(tensor.shape):
            self.distances[call.id] = measure_arrays(plain, _to_array(tensor))


def _try_image(
    a: Variant,
    b: Variant,
    one: PreparedImage,
    two: PreparedImage,
    called: set[str],
    skipped: list[SkippedImage],
) -> list[CallPair] | None:
    """The pairs of one image; None when a model fails on it and it is skipped.

    Raises:
        ForwardError: a model failed on it, and that ends the run.
    """
    ran = set[str]()
    pairs: list[CallPair] | None = None
    on_error, several = a.prepared.request.on_error, len(a.prepared.sources) > 1
    with (
        skip_failing(on_error, one.file, skipped, is_one_of_several=several),
        a.prepared.edits.forgotten_on_error(),
        b.prepared.edits.forgotten_on_error(),
    ):
        pairs = list(_compare_image(a, b, one, two, ran))
        called |= ran
    return pairs


def _compare_image(
    a: Variant, b: Variant, one: PreparedImage, two: PreparedImage, called: set[str]
) -> Iterator[CallPair]:
    """The pairs of one image, in the order in which the calls complete in A."""
    kept = _Kept()
    run_variant(a, one, kept, called)
    measured = _Measured(kept)
    run_variant(b, two, measured, called)
    for call_id, other in pair_ids(tuple(kept.seen), tuple(measured.seen)):
        yield CallPair(
            one.key,
            kept.seen.get(call_id),
            measured.seen.get(other),
            measured.distances.get(call_id),
        )


def _describe(call: Call, tensor: Tensor) -> CallTensor:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return CallTensor(call.id, call.layer.module_type, tuple(tensor.shape), dtype)


def _to_array(tensor: Tensor) -> NDArray[Any]:
    """The values on the host, maybe in the tensor's own memory; what numpy has no type for as float32 or complex64."""
    dense = to_dense(tensor)
    dense = dense.dequantize() if dense.is_quantized else dense
    if dense.is_floating_point() and dense.dtype not in _FLOATS:
        dense = dense.float()
    dense = dense.to(torch.complex64) if dense.dtype == torch.complex32 else dense
    array: NDArray[Any] = dense.cpu().resolve_conj().resolve_neg().numpy()
    return array
