"""Run a chunk's images in batches, run a failed batch again in halves, and skip failing images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import torch

from hookcli.errors import NoBoxError
from hookcli.hooks.nested import list_not_finite
from hookcli.images.fit import refuse_unlike
from hookcli.networks.tasks import BoxTask
from hookcli.passes.call import is_out_of_memory
from hookcli.passes.forward import (
    BackwardSettings,
    BrokenForwardError,
    ForwardSettings,
    broken_forwards,
    run_backward,
    run_forward,
)
from hookcli.plan.prepared import require_eager
from hookcli.products.heats import is_judged, place_in_part
from hookcli.products.product import RunningChunk
from hookcli.summary.chunks import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from hookcli.activations.collector import BatchResult
    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepared import PreparedRun
    from hookcli.products.product import Product
    from hookcli.records.images import Box, Prediction, Score
    from hookcli.render.draw.grid_writer import GridWriter


@dataclass(frozen=True, slots=True)
class ChunkStart:
    first_shape: tuple[int, ...] = ()  # (C, …) of the first image that went through; empty before
    alone: bool = False  # whether each image needs a forward pass of its own from now on

    @classmethod
    def after(cls, totals: Chunk) -> ChunkStart:
        return cls(tuple(totals.images[0].pixels_shape[1:]) if totals.images else (), totals.alone)


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    is_memory: bool  # whether the model ran out of memory


class ChunkRunner:
    def __init__(
        self,
        prepared: PreparedRun,
        products: Sequence[Product],
        writer: GridWriter,
        warn: Callable[[str], None],
        start: ChunkStart,
    ) -> None:
        self.stopped = False  # whether to stop before the next batch; the caller sets it
        self._model, self._settings = prepared.model, prepared.settings
        self._run_images = _choose_pass(prepared)
        self._products, self._writer, self._warn = products, writer, warn
        self._first_shape = start.first_shape
        self._alone = start.alone
        self._has_halved = False
        self._find_part = cache(prepared.model.loaded.find_part)
        self.running = self._start(0, ())

    def run(self, number: int, images: Sequence[PreparedImage]) -> RunningChunk:
        # If the model fails, and failing images must not be skipped, ``running`` then holds the
        # observations so far. A caller that sets ``stopped`` gets a KeyboardInterrupt.
        self.running = running = self._start(number, images)
        try:
            for batch in self._choose_batches([each for each in images if each.pixels is not None]):
                self._run_batch(batch)
                if self.stopped:
                    raise KeyboardInterrupt
        except BrokenForwardError as error:
            self._add(error.partial)
            raise
        finally:
            running.sum_up(self._settings.limits)
            running.chunk.alone = self._alone
        jobs = (product.end_chunk(running, self._writer) for product in self._products)
        running.jobs = [job for job in jobs if job is not None]
        return running

    def _start(self, number: int, images: Sequence[PreparedImage]) -> RunningChunk:
        files, key = [image.state for image in images], self._settings.merge_key
        chunk = Chunk(number, files=files, merge_key=key)
        return RunningChunk(chunk, images, self._model.loaded.show, self._find_part)

    def _choose_batches(self, images: list[PreparedImage]) -> Iterator[Sequence[PreparedImage]]:
        while images and not self._first_shape:  # alone: see ``run_forward``
            yield [images.pop(0)]
        shapes: dict[tuple[int, ...], list[PreparedImage]] = {}
        for image in self._find_like(images):
            if image.pixels is not None:
                shapes.setdefault(tuple(image.pixels.shape), []).append(image)
        size = self._settings.config.batch_size
        for group in shapes.values():
            yield from (group[start : start + size] for start in range(0, len(group), size))

    def _find_like(self, images: Sequence[PreparedImage]) -> list[PreparedImage]:
        """Return the images with as many axes and channels as the first image; skip all others."""
        # If hookcli knows what input the model takes, no image is skipped.
        if self._model.loaded.knows_input:
            return list(images)
        fitting = []
        for image in images:
            shape = () if image.pixels is None else tuple(image.pixels.shape)
            if reason := refuse_unlike(self._first_shape, shape):
                self.running.skip(image, reason)
            else:
                fitting.append(image)
        return fitting

    def _run_batch(self, batch: Sequence[PreparedImage]) -> int:
        """Run images of one shape; if they fail, run each half. Return how many images failed."""
        stacked = torch.stack([i.pixels for i in batch if i.pixels is not None])
        pixels = self._model.runner.to_device(stacked)
        done = self._run_forward(batch, pixels)
        if not isinstance(done, _Failure):
            self._first_shape = self._first_shape or tuple(pixels.shape[1:])
            for result in done:
                self.running.images |= {image.key: image for image in result.images}
                self._add(result)
                for kind in sorted(result.not_finite, reverse=True):  # NaN before Inf
                    self.running.chunk.broken.setdefault(kind, result.keys[0])
            return 0
        if len(batch) == 1:
            self.running.skip(batch[0], done.reason)
            return 1
        if done.is_memory:
            self._warn_of_halves(len(batch))
        half = len(batch) // 2
        failed = self._run_batch(batch[:half]) + self._run_batch(batch[half:])
        if not (failed or done.is_memory or self._alone):
            self._alone = True
            self._warn(
                f"a batch of {len(batch)} images failed ({done.reason}), and its halves do not: "
                "from here on images go through one at a time, as with `batch_size=1`"
            )
        return failed

    def _run_forward(
        self, batch: Sequence[PreparedImage], pixels: Tensor
    ) -> list[BatchResult] | _Failure:
        """Run a batch; return a failure as text, since an exception would keep tensors alive."""
        try:
            with broken_forwards():
                return [*map(self._read, self._run_pass([image.key for image in batch], pixels))]
        except (BrokenForwardError, NoBoxError) as error:
            if isinstance(error, BrokenForwardError):
                self._alone |= error.alone
            if len(batch) == 1 and self._model.request.on_error == "stop":
                if self._settings.has_several:
                    error.name_image(batch[0].file)
                raise
            return _Failure(error.message, is_out_of_memory(error.__cause__ or error))

    def _run_pass(self, keys: Sequence[str], pixels: Tensor) -> list[BatchResult]:
        size, is_first = 1 if self._alone else len(keys), not self._first_shape
        results: list[BatchResult] = []
        for at in range(0, len(keys), size):
            part = slice(at, at + size)
            results += self._run_images(keys[part], pixels[part], first_image=is_first)
        self._alone |= any(result.alone for result in results)
        return results

    def _read(self, result: BatchResult) -> BatchResult:
        images = [self.running.prepared[key] for key in result.keys]
        predictions = self._predict(result.output, images)
        unedited = self._predict(result.unedited, images)
        result = self._place_boxes(result)
        with self._model.loaded.guard():
            not_finite = list_not_finite(result.output)
        read = (
            replace(
                image.record(predicted),
                score=next(iter(result.scores), None),
                other_scores=result.scores[1:],
                unedited=plain,
                unedited_score=next(iter(result.unedited_scores), None),
                other_unedited_scores=result.unedited_scores[1:],
            )
            for image, predicted, plain in zip(images, predictions, unedited, strict=True)
        )
        return replace(result, images=tuple(read), not_finite=not_finite)

    def _place_boxes(self, result: BatchResult) -> BatchResult:
        """Give the boxes of scores in pixels of the image."""
        task, key = self._model.loaded.task, result.keys[0]  # a backward pass has one image
        image = self.running.prepared[key]

        def place(score: Score) -> Score:
            if score.box is None or image.pixels is None:
                return score
            box: Box | None = task.place_box(score.box, image.size)
            seen = image.pixels.shape[-2:]
            if not isinstance(task, BoxTask) and seen != image.size[::-1]:  # in pixels of the input
                box = place_in_part(score.box, seen, self.running.find_part(key))
            return replace(score, box=box and tuple(round(side, 1) for side in box))

        return replace(
            result,
            scores=(*map(place, result.scores),),
            unedited_scores=(*map(place, result.unedited_scores),),
            heats=(*(replace(h, score=h.score and place(h.score)) for h in result.heats),),
        )

    def _predict(
        self, output: object, images: Sequence[PreparedImage]
    ) -> Sequence[tuple[Prediction, ...]]:
        sizes = [image.size for image in images]
        found = [] if output is None else self._model.loaded.read(output, sizes)
        return found if len(found) == len(images) else [()] * len(images)

    def _add(self, result: BatchResult) -> None:
        running, chunk = self.running, self.running.chunk
        chunk.called |= result.called
        chunk.written |= result.overwritten
        chunk.unsteady += result.unsteady
        chunk.edits.merge(result.effects)
        for record in result.records:
            running.records.setdefault(record.image, []).append(record)
            for kind, count in (("NaN", record.stats.nan_count), ("Inf", record.stats.inf_count)):
                if count:
                    chunk.broken.setdefault(kind, record.image)
        for product in self._products:
            product.collect(result, running, self._writer)

    def _warn_of_halves(self, count: int) -> None:
        if not self._has_halved:
            self._warn(
                f"a batch of {count} images ran out of memory and is run in halves: "
                "last digits can differ from another run's; "
                f"fewer at once: `batch_size={count // 2}`"
            )
        self._has_halved = True
        self.running.chunk.halved += 1


def _choose_pass(prepared: PreparedRun) -> Callable[..., list[BatchResult]]:
    config, focus, style = prepared.settings.config, prepared.focus, prepared.settings.style
    save, sketch = config.tensors.save, prepared.settings.plan.sketches
    if config.backward is None or not prepared.scorers:
        runner = prepared.model.runner
        focus = None if focus is None else focus.to(runner.device)
        forward = ForwardSettings(runner, style, focus, save, sketch=sketch, heat=config.heat)
        return partial(run_forward, forward)
    scorers, wanted, cams = prepared.scorers, config.backward, prepared.cams
    eager = require_eager(prepared.model, "gradients").runner
    judges = is_judged(prepared.settings)
    backward = BackwardSettings(
        eager, style, scorers, wanted=wanted, cams=cams, save=save, sketch=sketch, judges=judges
    )
    return partial(run_backward, backward)
