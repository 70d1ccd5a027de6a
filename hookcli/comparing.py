"""Two ways to run a model held against each other, on the same images, now.

Both sides run one image at a time. What a layer of A gave is kept on the host until B has run that
layer, and what B gives is measured inside its hook: nothing is kept of it, and nothing of an image once it has
gone through both.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hookcli import hooks
from hookcli.command import to_command
from hookcli.differences import Changed, Comparison
from hookcli.diffing import check_comparison, list_changed, pair_ids
from hookcli.errors import RequestError
from hookcli.fitting import need_one
from hookcli.judging import Judge, Pair, Seen
from hookcli.measuring import measure_arrays
from hookcli.preparing import prepare_image
from hookcli.results import SkippedImage
from hookcli.stats import to_dense
from hookcli.zeroing import run_model, to_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.measuring import Distance
    from hookcli.planning import PreparedRun
    from hookcli.preparing import PreparedImage
    from hookcli.records import Call
    from hookcli.tolerances import Tolerance


@dataclass(frozen=True, slots=True)
class Way:
    """One side: a model made ready, and what is not the model's.

    Attributes:
        prepared: of a request that is ``compared``.
        name: what the user calls it.
        channels_last: weights and pixels lie channels last in memory.
        threads: how many torch uses on the CPU; None for as many as it chose.
    """

    prepared: PreparedRun
    name: str
    channels_last: bool = False
    threads: int | None = None


def compare_ways(
    a: Way, b: Way, tolerance: Tolerance, image_done: Callable[[int, int], None]
) -> Comparison:
    """Run the images both ways and measure how far each call of B is from that of A.

    Args:
        a: the reference.
        b: the other; its images are those of A, in their order, or one other image.
        tolerance: how far they may be apart.
        image_done: is told how many images have gone through or been skipped, and how many of them skipped.

    Raises:
        RequestError: nothing could be compared.
        ForwardError: a model raised.
        NoImageError: no image could be used.
    """
    judge = Judge(tolerance, tuple(way.prepared.loaded.info.dtype for way in (a, b)))
    keys: list[str] = []
    skipped = list(a.prepared.skipped)
    for way in (a, b):
        if way.channels_last:
            way.prepared.loaded.module.to(memory_format=torch.channels_last)
    for one, two in zip(a.prepared.sources, b.prepared.sources, strict=True):
        images = [prepare_image(way.prepared.fitter, s) for way, s in ((a, one), (b, two))]
        bad = [image for image in images if image.pixels is None]
        skipped += [SkippedImage(image.file, image.reason) for image in bad[:1]]
        if not bad:
            keys.append(images[0].key)
            for pair in _compare_image(a, b, images[0], images[1]):
                judge.add(pair)
        image_done(len(keys) + len(skipped), len(skipped))
    need_one(keys, skipped)
    changed = (*list_changed(_facts(a), _facts(b)), *_list_ways(a, b))
    comparison = Comparison(
        a.name, b.name, tolerance, judge.rows(), changed, tuple(keys), skipped=tuple(skipped)
    )
    check_comparison(comparison, judge)
    return comparison


@dataclass(slots=True)
class _Kept:
    """What the calls of A gave, by call id; each goes when B has run it."""

    seen: dict[str, Seen] = field(default_factory=dict)
    values: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        self.seen[call.id] = _describe(call, tensor)
        self.values[call.id] = np.array(_to_array(tensor))


@dataclass(slots=True)
class _Measured:
    """What the calls of B gave, and how far it is from A."""

    kept: _Kept
    seen: dict[str, Seen] = field(default_factory=dict)
    distances: dict[str, Distance] = field(default_factory=dict)

    def __call__(self, call: Call, tensor: Tensor) -> None:
        self.seen[call.id] = _describe(call, tensor)
        plain = self.kept.values.pop(call.id, None)
        if plain is not None and plain.shape == tuple(tensor.shape):
            self.distances[call.id] = measure_arrays(plain, _to_array(tensor))


def _compare_image(a: Way, b: Way, one: PreparedImage, two: PreparedImage) -> Iterator[Pair]:
    """The pairs of one image, in the order in which the calls complete in A."""
    kept = _Kept()
    _run(a, one, kept)
    measured = _Measured(kept)
    _run(b, two, measured)
    for call_id, other in pair_ids(tuple(kept.seen), tuple(measured.seen)):
        yield Pair(
            one.key,
            kept.seen.get(call_id),
            measured.seen.get(other),
            measured.distances.get(call_id),
        )


def _run(way: Way, image: PreparedImage, observer: Callable[[Call, Tensor], None]) -> None:
    """One forward under hooks.

    Raises:
        RequestError: the pixels have no channels-last form.
        ForwardError: the model raised.
    """
    prepared = way.prepared
    loaded, edits = prepared.loaded, prepared.edits
    assert image.pixels is not None  # noqa: S101  the others are skipped
    pixels = to_batch(loaded, image.pixels)
    if way.channels_last:
        if pixels.dim() != 4:
            raise RequestError("only pictures can lie channels last", "leave out channels-last")
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    edits.size, edits.images = loaded.feed.size_of(pixels), 1
    edits.renew()
    with (
        _threads(way.threads),
        hooks.change(loaded.module, edits.changes),
        hooks.observe(loaded.module, prepared.layers, observer, prepared.config.at),
    ):
        run_model(loaded, pixels)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _describe(call: Call, tensor: Tensor) -> Seen:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Seen(call.id, call.layer.module_type, tuple(tensor.shape), dtype)


def _to_array(tensor: Tensor) -> NDArray[Any]:
    """The values on the host, maybe in the tensor's own memory; bfloat16 as float32."""
    dense = to_dense(tensor)
    dense = dense.dequantize() if dense.is_quantized else dense
    if dense.dtype == torch.bfloat16:
        dense = dense.float()
    array: NDArray[Any] = dense.cpu().resolve_conj().resolve_neg().numpy()
    return array


def _facts(way: Way) -> dict[str, Any]:
    info = way.prepared.loaded.info
    return {
        "model": {name: getattr(info, name) for name in info.__dataclass_fields__},
        "versions": {},
        "command": to_command(way.prepared.config),
    }


def _list_ways(a: Way, b: Way) -> Iterator[Changed]:
    """What is not the same beside the models."""
    formats = ["channels last" if way.channels_last else "contiguous" for way in (a, b)]
    if a.channels_last != b.channels_last:
        yield Changed("memory format", *formats)
    if a.threads != b.threads:
        yield Changed("threads", *(way.threads or torch.get_num_threads() for way in (a, b)))
    one, two = (way.prepared.sources[0] for way in (a, b))
    if one.key != two.key:
        yield Changed("image", one.file, two.file)
