"""Run the images of one chunk through the model in batches, and collect the results."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from hookcli.errors import NoBoxError
from hookcli.hooks.dense import list_not_finite
from hookcli.images.fit import refuse_unlike
from hookcli.passes.backward import BackwardSettings, run_backward
from hookcli.passes.failure import is_out_of_memory
from hookcli.passes.forward import BrokenForwardError, ForwardSettings, broken_forwards, run_forward
from hookcli.plan.prepared import require_eager
from hookcli.products.product import EndedChunk, Forward
from hookcli.records.images import SkippedImage
from hookcli.summary.chunks import Chunk
from hookcli.summary.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from hookcli.activations.collector import BatchResult
    from hookcli.images.prepare import PreparedImage
    from hookcli.networks.description import ModelDescription
    from hookcli.passes.forward import PassResult
    from hookcli.plan.prepared import PreparedRun
    from hookcli.products.product import Job, Product
    from hookcli.records.images import Box, ImageResult, Prediction
    from hookcli.records.layer_records import LayerRecord
    from hookcli.render.draw.grid_writer import GridWriter


@dataclass(frozen=True, slots=True)
class ChunkStart:
    """The facts about earlier chunks on which the next chunk depends.

    Attributes:
        first_shape: the shape of the pixels of the first image that went through the model, without
            the leading axis; empty if no image has gone through.
        alone: whether each image needs a forward pass of its own from now on.
    """

    first_shape: tuple[int, ...] = ()
    alone: bool = False

    @classmethod
    def after(cls, totals: Chunk) -> ChunkStart:
        """Return the facts for the next chunk; ``totals`` is the sum of all earlier chunks."""
        shape = totals.images[0].pixels_shape[1:] if totals.images else ()
        return cls(tuple(shape), totals.alone)


@dataclass(frozen=True, slots=True)
class _Forwards:
    results: Sequence[BatchResult]  # one per forward pass
    predictions: Sequence[tuple[Prediction, ...]]  # for each image
    kinds: Sequence[frozenset[str]]  # for each result, which of NaN and Inf the model's output has


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    is_memory: bool  # whether the model ran out of memory


class ChunkRunner:
    """Runs the chunks of a run through the model, one after the other.

    Attributes:
        chunk: the chunk that is running.
        stopped: whether to stop before the next batch; the caller sets this to stop the run.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        products: Sequence[Product],
        writer: GridWriter,
        warn: Callable[[str], None],
        start: ChunkStart,
    ) -> None:
        """Take the facts about earlier chunks from ``start``; no image runs yet."""
        self.chunk = Chunk()
        self.stopped = False
        self._model, self._settings = prepared.model, prepared.settings
        self._run_images = _choose_pass(prepared)
        self._products, self._writer, self._warn = products, writer, warn
        self._first_shape = start.first_shape
        self._parts: dict[tuple[tuple[int, int], bool], Box | None] = {}
        self._one_at_a_time = start.alone
        self._has_halved = False
        self._images: dict[str, ImageResult] = {}
        self._records: dict[str, list[LayerRecord]] = {}
        self._skipped: dict[str, SkippedImage] = {}

    def run(self, number: int, images: Sequence[PreparedImage]) -> tuple[EndedChunk, list[Job]]:
        """Run the images of a chunk; ``number`` is the chunk's number, from 0.

        Returns:
            The finished chunk, and functions that write the remaining files of the chunk.

        Raises:
            BrokenForwardError: the model failed, and failing images must not be skipped. The
                attribute ``chunk`` then holds the observations so far.
            NoBoxError: the model found no box to score in an image, and failing images must not be
                skipped.
            KeyboardInterrupt: the caller stopped the run.
        """
        self.chunk = Chunk(
            number, files=[image.state for image in images], merge_key=self._settings.merge_key
        )
        self._images, self._records = {}, {}
        self._skipped = {i.key: SkippedImage(i.file, i.reason) for i in images if i.pixels is None}
        ready = [image for image in images if image.pixels is not None]
        try:
            while ready and not self._first_shape:  # alone: see ``run_forward``
                self._run_batch([ready.pop(0)])
                self._stop_if_asked()
            for batch in list_batches(self._find_like(ready), self._settings.config.batch_size):
                self._run_batch(batch)
                self._stop_if_asked()
        except BrokenForwardError as error:
            self._add(error.partial, {}, {})
            raise
        finally:
            ended = self._sum_up(images)
        jobs = (product.end_chunk(ended, self._writer) for product in self._products)
        return ended, [job for job in jobs if job is not None]

    def _stop_if_asked(self) -> None:
        if self.stopped:
            raise KeyboardInterrupt

    def _find_like(self, images: Sequence[PreparedImage]) -> list[PreparedImage]:
        """Skip images unlike the first that the model took, unless its input is known."""
        if self._model.loaded.knows_input:
            return list(images)
        fitting = []
        for image in images:
            shape = () if image.pixels is None else tuple(image.pixels.shape)
            if reason := refuse_unlike(self._first_shape, shape):
                self._skipped[image.key] = SkippedImage(image.file, reason)
            else:
                fitting.append(image)
        return fitting

    def _sum_up(self, images: Sequence[PreparedImage]) -> EndedChunk:
        tally = Tally(self._settings.limits)
        for image in images:
            tally.add(self._records.get(image.key, ()))
        self.chunk.calls = tally.calls
        self.chunk.skipped = [self._skipped[i.key] for i in images if i.key in self._skipped]
        self.chunk.images = [self._images[i.key] for i in images if i.key in self._images]
        self.chunk.alone = self._one_at_a_time
        records = [record for image in images for record in self._records.get(image.key, ())]
        return EndedChunk(self.chunk, [image.key for image in images], records)

    def _run_batch(self, batch: Sequence[PreparedImage]) -> int:
        """Run images of one shape; if that fails, run halves. Return how many failed."""
        stacked = torch.stack([i.pixels for i in batch if i.pixels is not None])
        pixels = self._model.runner.place(stacked)
        done = self._run_forward(batch, pixels)
        if not isinstance(done, _Failure):
            self._collect(batch, pixels, done)
            return 0
        if len(batch) == 1:
            self._skipped[batch[0].key] = SkippedImage(batch[0].file, done.reason)
            return 1
        if done.is_memory:
            self._warn_of_halves(len(batch))
        half = len(batch) // 2
        failed = self._run_batch(batch[:half]) + self._run_batch(batch[half:])
        if not (failed or done.is_memory or self._one_at_a_time):
            self._run_one_at_a_time(len(batch), done.reason)
        return failed

    def _run_forward(self, batch: Sequence[PreparedImage], pixels: Tensor) -> _Forwards | _Failure:
        """Keep no error that the run survives: its traceback would hold tensors in memory."""
        loaded = self._model.loaded
        try:
            with broken_forwards():
                results = self._run_pass([image.key for image in batch], pixels)
                sizes = {image.key: image.size for image in batch}
                predictions = [
                    each
                    for result in results
                    for each in loaded.read(result.output, [sizes[key] for key in result.keys])
                ]
                with loaded.guard():
                    kinds = [list_not_finite(result.output) for result in results]
        except (BrokenForwardError, NoBoxError) as error:
            if isinstance(error, BrokenForwardError):
                self._one_at_a_time |= error.one_at_a_time
            if len(batch) == 1 and self._model.request.on_error == "stop":
                if self._settings.has_several:
                    error.name_image(batch[0].file)
                raise
            return _Failure(error.message, is_out_of_memory(error.__cause__ or error))
        if len(predictions) != len(batch):  # the output has an unknown form
            predictions = [()] * len(batch)
        return _Forwards(results, predictions, kinds)

    def _run_pass(self, keys: Sequence[str], pixels: Tensor) -> list[BatchResult]:
        """Run images, (N, …), together or one by one; return one result per forward pass."""
        batches = [(keys, pixels)]
        if self._one_at_a_time:
            batches = [([key], pixels[i : i + 1]) for i, key in enumerate(keys)]
        results: list[BatchResult] = []
        for batch_keys, batch_pixels in batches:
            done = self._run_images(batch_keys, batch_pixels, first_image=not self._first_shape)
            self._one_at_a_time |= done.one_at_a_time
            self.chunk.written |= done.overwritten
            results += done.results
        return results

    def _collect(self, batch: Sequence[PreparedImage], pixels: Tensor, forwards: _Forwards) -> None:
        loaded = self._model.loaded
        self._first_shape = self._first_shape or tuple(pixels.shape[1:])
        for image, predictions in zip(batch, forwards.predictions, strict=True):
            self._images[image.key] = image.record(predictions)
        seen = {image.key: image.pixels for image in batch if image.pixels is not None}
        for result, kinds in zip(forwards.results, forwards.kinds, strict=True):
            sizes = [(self._images[key].width, self._images[key].height) for key in result.keys]
            for key in result.keys:
                self._images[key] = _add_effects(self._images[key], result, loaded, sizes)
            self._add(result, seen, {image.key: image for image in batch})
            for kind in sorted(kinds, reverse=True):  # NaN before Inf
                self.chunk.broken.setdefault(kind, result.keys[0])

    def _add(
        self, result: BatchResult, seen: Mapping[str, Tensor], images: Mapping[str, PreparedImage]
    ) -> None:
        """Add a forward pass to the chunk and all products; ``seen`` has the images' pixels."""
        chunk, loaded = self.chunk, self._model.loaded
        chunk.called |= result.called
        chunk.edits.merge(result.effects)
        drawn = {(p.image, p.call.id): self._writer.file_of(p) for p in result.pictures}
        for record in result.records:
            grid = drawn.get((record.image, record.call.id), "")
            self._records.setdefault(record.image, []).append(replace(record, grid=grid))
            for kind, count in (("NaN", record.stats.nan_count), ("Inf", record.stats.inf_count)):
                if count:
                    chunk.broken.setdefault(kind, record.image)
        show = functools.cache(lambda key: loaded.show(seen[key]))
        forward = Forward(
            result, chunk, self._images, show, lambda key: self._find_part(images[key])
        )
        for product in self._products:
            product.collect(forward, self._writer)

    def _find_part(self, image: PreparedImage) -> Box | None:
        known = (image.size, image.is_tensor)
        if known not in self._parts:
            self._parts[known] = self._model.loaded.find_part(image.size, as_pixels=image.is_tensor)
        return self._parts[known]

    def _warn_of_halves(self, count: int) -> None:
        if not self._has_halved:
            self._warn(
                f"a batch of {count} images ran out of memory and is run in halves: "
                "last digits can differ from another run's; "
                f"fewer at once: `batch_size={count // 2}`"
            )
        self._has_halved = True
        self.chunk.halved += 1

    def _run_one_at_a_time(self, count: int, reason: str) -> None:
        """A batch of ``count`` images has failed, but its halves have not."""
        self._one_at_a_time = True
        self._warn(
            f"a batch of {count} images failed ({reason}), and its halves do not: "
            "from here on images go through one at a time, as with `batch_size=1`"
        )


def list_batches(images: Sequence[PreparedImage], size: int) -> Iterator[Sequence[PreparedImage]]:
    """Yield batches of up to ``size`` images whose pixels have the same shape.

    Images without pixels are left out.
    """
    shapes: dict[tuple[int, ...], list[PreparedImage]] = {}
    for image in images:
        if image.pixels is not None:
            shapes.setdefault(tuple(image.pixels.shape), []).append(image)
    for group in shapes.values():
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _add_effects(
    image: ImageResult,
    result: BatchResult,
    loaded: ModelDescription,
    sizes: Sequence[tuple[int, int]],
) -> ImageResult:
    """Add the score and, with edits, the results without them; ``sizes`` are (width, height)."""
    predictions = [] if result.unedited is None else loaded.read(result.unedited, sizes)
    index = result.keys.index(image.key)
    unedited = predictions[index] if len(predictions) == len(result.keys) else ()
    return replace(
        image, score=result.score, unedited=unedited, unedited_score=result.unedited_score
    )


def _choose_pass(prepared: PreparedRun) -> Callable[..., PassResult]:
    config, focus, style = prepared.settings.config, prepared.focus, prepared.settings.style
    save, sketch = config.tensors.save, prepared.settings.plan.sketches
    if config.backward is None or prepared.scorer is None:
        runner = prepared.model.runner
        focus = None if focus is None else focus.to(runner.device)
        forward = ForwardSettings(runner, style, focus, save, sketch=sketch, heat=config.heat)
        return partial(run_forward, forward)
    score, wanted, cams = prepared.scorer, config.backward, prepared.cams
    eager = require_eager(prepared.model, "gradients").runner
    backward = BackwardSettings(
        eager, style, score, wanted=wanted, cams=cams, save=save, sketch=sketch
    )
    return partial(run_backward, backward)
