"""One chunk of a run: its images go through the model in batches, and results are collected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from hookcli.activations.stats import name_not_finite
from hookcli.config import chunk_size
from hookcli.errors import NoBoxError
from hookcli.hooks.nested import named_tensors
from hookcli.images.fit import refuse_unlike
from hookcli.passes.failure import is_out_of_memory
from hookcli.passes.forward import BrokenForwardError, broken_forwards
from hookcli.records.images import ImageResult, SkippedImage
from hookcli.records.pictures import Thumbnails
from hookcli.records.runs import MOST_THUMBNAILS
from hookcli.render.draw.grid_writer import name_maps
from hookcli.render.draw.thumbnails import COLUMNS, draw_thumbnails, shrink
from hookcli.run.attention_pictures import write_attention
from hookcli.run.heatmaps import write_heats
from hookcli.store.places.names import list_formats, seen_file, thumbnails_file
from hookcli.summary.attention_tally import AttentionTally
from hookcli.summary.chunks import Chunk, merge_by_call
from hookcli.summary.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from hookcli.activations.collector import BatchResult
    from hookcli.activations.feature_maps import Picture
    from hookcli.activations.image_attention import ImageAttention
    from hookcli.config import OnError
    from hookcli.images.prepare import PreparedImage
    from hookcli.models.load import LoadedModel
    from hookcli.passes.forward import Pass
    from hookcli.records.images import Prediction
    from hookcli.records.layer_records import LayerRecord
    from hookcli.render.draw.grid_writer import GridWriter


@dataclass(frozen=True, slots=True)
class ChunkRecords:
    """The records and tensors of a chunk, which are written and not added to the totals.

    Attributes:
        records: one record per image and observed tensor, image by image in their order.
        kept: the key of each image and its tensor (1, …), in the order of the images, by call id.
    """

    records: Sequence[LayerRecord]
    kept: Mapping[str, Sequence[tuple[str, Tensor]]]


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    """The settings that all chunks of a run share.

    Attributes:
        run_pass: runs images through the model.
        loaded: the model.
        limits: the threshold of every rule.
        batch_size: the largest number of images that share a forward.
        on_error: what to do with an image on which the model fails: ``stop`` or ``skip``.
        merge_key: settings that must agree before two chunks may be merged.
        channels_last: pixels are laid out channels last.
        shows_all: what the network saw is saved as a picture for every image.
        several: the run has more than one image.
    """

    run_pass: Pass
    loaded: LoadedModel
    limits: Mapping[str, float]
    batch_size: int
    on_error: OnError
    merge_key: str
    channels_last: bool
    shows_all: bool
    several: bool


@dataclass(frozen=True, slots=True)
class BeganWith:
    """What the chunks before have shown, on which the next chunk depends.

    Attributes:
        first_shape: the shape of the pixels of the first image that went through, without the
            leading axis; empty if none has.
        alone: whether images may no longer share a forward.
    """

    first_shape: tuple[int, ...] = ()
    alone: bool = False

    @classmethod
    def after(cls, totals: Chunk) -> BeganWith:
        """Return what the chunks of a run have shown."""
        shape = totals.images[0].pixels_shape[1:] if totals.images else ()
        return cls(tuple(shape), totals.alone)


@dataclass(frozen=True, slots=True)
class _Forwards:
    """The results of the forwards of a batch.

    Attributes:
        results: one result per forward.
        predictions: the predictions for each image.
        kinds: which of ``NaN`` and ``Inf`` the output of the model holds, for each result.
    """

    results: Sequence[BatchResult]
    predictions: Sequence[tuple[Prediction, ...]]
    kinds: Sequence[list[str]]


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why images did not go through.

    Attributes:
        reason: what the model raised, and where.
        is_memory: the model ran out of memory.
    """

    reason: str
    is_memory: bool


class ChunkRunner:
    """Runs one chunk after the other.

    Attributes:
        chunk: the chunk that is running.
        stopped: set from outside to stop the run before its next batch.
    """

    def __init__(
        self,
        settings: ChunkSettings,
        write: Callable[[str, bytes], str],
        grids: GridWriter,
        warn: Callable[[str], None],
        begun: BeganWith,
    ) -> None:
        """Continue the run after the chunks before.

        Args:
            settings: the settings of the run.
            write: writes a file of the run folder.
            grids: draws the pictures.
            warn: shows the user a warning.
            begun: what the chunks before have shown.
        """
        self.chunk = Chunk()
        self.stopped = False
        self._settings = settings
        self._write, self._grids, self._warn = write, grids, warn
        self._first_shape = begun.first_shape
        self._one_at_a_time = begun.alone
        self._has_halved = False
        self._images: dict[str, ImageResult] = {}
        self._records: dict[str, list[LayerRecord]] = {}
        self._kept: dict[str, dict[str, Tensor]] = {}
        self._skipped: dict[str, SkippedImage] = {}
        self._thumbnails: dict[str, bytes] = {}

    def run(self, number: int, images: Sequence[PreparedImage]) -> tuple[Chunk, ChunkRecords]:
        """Run the images of a chunk.

        Returns:
            the chunk, without a description of its grids, and its records.

        Raises:
            BrokenForwardError: the model failed on an image that is not to be skipped; ``chunk``
                holds what was observed until then.
            NoBoxError: an image that is not to be skipped has no score.
            KeyboardInterrupt: the run was stopped.
        """
        self.chunk = chunk = Chunk(
            number, files=[image.state for image in images], merge_key=self._settings.merge_key
        )
        self._images, self._records, self._kept, self._thumbnails = {}, {}, {}, {}
        self._skipped = {i.key: SkippedImage(i.file, i.reason) for i in images if i.pixels is None}
        ready = [image for image in images if image.pixels is not None]
        try:
            while ready and not self._first_shape:  # see ``run_forward``
                self._run_batch([ready.pop(0)])
                self._stop_if_asked()
            for batch in list_batches(self._find_like(ready), self._settings.batch_size):
                self._run_batch(batch)
                self._stop_if_asked()
        except BrokenForwardError as error:
            self._add(error.partial)
            raise
        finally:
            records = self._sum_up(images)
        self._write_thumbnails()
        return chunk, records

    def _write_thumbnails(self) -> None:
        """Write the thumbnails of the chunk as one picture."""
        if self._thumbnails:
            keys = tuple(image.key for image in self.chunk.images)
            data = draw_thumbnails([self._thumbnails[key] for key in keys])
            file = self._write(thumbnails_file(self.chunk.number), data)
            self.chunk.thumbnails.append(Thumbnails(file, COLUMNS, keys))
            self.chunk.written_files.append(file)

    def _stop_if_asked(self) -> None:
        if self.stopped:
            raise KeyboardInterrupt

    def _find_like(self, images: Sequence[PreparedImage]) -> list[PreparedImage]:
        """Return the images that can go through the model, and skip the others.

        If it is not known what the model takes, only pixels of the same shape as those of the first
        image that went through can.
        """
        fitting = []
        for image in images:
            shape = () if image.pixels is None else tuple(image.pixels.shape)
            reason = ""
            if self._settings.loaded.prepare.channels is None:
                reason = refuse_unlike(self._first_shape, shape)
            if reason:
                self._skipped[image.key] = SkippedImage(image.file, reason)
            else:
                fitting.append(image)
        return fitting

    def _sum_up(self, images: Sequence[PreparedImage]) -> ChunkRecords:
        """Put the results of the batches into the order of the images."""
        tally = Tally(self._settings.limits)
        for image in images:
            tally.add(self._records.get(image.key, ()))
        self.chunk.calls = tally.calls
        self.chunk.skipped = [self._skipped[i.key] for i in images if i.key in self._skipped]
        self.chunk.images = [self._images[i.key] for i in images if i.key in self._images]
        self.chunk.alone = self._one_at_a_time
        records = [record for image in images for record in self._records.get(image.key, ())]
        kept = {
            call_id: [(i.key, tensors[i.key]) for i in images if i.key in tensors]
            for call_id, tensors in self._kept.items()
        }
        return ChunkRecords(records, kept)

    def _run_batch(self, batch: Sequence[PreparedImage]) -> int:
        """Run images of one shape, in halves if they fail together.

        Returns:
            how many of the images the model failed on.

        Raises:
            BrokenForwardError: the model failed on an image that is not to be skipped.
            NoBoxError: an image that is not to be skipped has no score.
        """
        loaded = self._settings.loaded
        stacked = torch.stack([i.pixels for i in batch if i.pixels is not None])
        pixels = stacked.to(device=loaded.info.device, dtype=getattr(torch, loaded.info.dtype))
        if self._settings.channels_last:
            pixels = pixels.contiguous(memory_format=torch.channels_last)
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
        """Return the results of the forwards, or why the images did not go through.

        An error that does not end the run is not kept: its frames hold tensors, which take memory.
        """
        loaded = self._settings.loaded
        try:
            with broken_forwards():
                results = self._run_pass([image.key for image in batch], pixels)
                predictions = [each for result in results for each in loaded.read(result.output)]
                with loaded.guard():
                    kinds = [_kinds_of(result.output) for result in results]
        except (BrokenForwardError, NoBoxError) as error:
            if isinstance(error, BrokenForwardError):
                self._one_at_a_time |= error.one_at_a_time
            if len(batch) == 1 and self._settings.on_error == "stop":
                if self._settings.several:
                    error.name_image(batch[0].file)
                raise
            return _Failure(error.message, is_out_of_memory(error.__cause__ or error))
        if len(predictions) != len(batch):  # the output has no form that is known
            predictions = [()] * len(batch)
        return _Forwards(results, predictions, kinds)

    def _run_pass(self, keys: Sequence[str], pixels: Tensor) -> list[BatchResult]:
        """Run images through the model, together if they may share a forward."""
        batches = [(keys, pixels)]
        if self._one_at_a_time:
            batches = [([key], pixels[i : i + 1]) for i, key in enumerate(keys)]
        results: list[BatchResult] = []
        for batch_keys, batch_pixels in batches:
            done = self._settings.run_pass(
                batch_keys, batch_pixels, first_image=not self._first_shape
            )
            self._one_at_a_time |= done.one_at_a_time
            self.chunk.written |= done.overwritten
            results += done.results
        return results

    def _collect(self, batch: Sequence[PreparedImage], pixels: Tensor, forwards: _Forwards) -> None:
        """Add the results of a batch to the chunk, and write the pictures of its heat maps."""
        loaded = self._settings.loaded
        self._first_shape = self._first_shape or tuple(pixels.shape[1:])
        for image, predictions in zip(batch, forwards.predictions, strict=True):
            self._images[image.key] = self._record_image(image, predictions)
        for result, kinds in zip(forwards.results, forwards.kinds, strict=True):
            for key in result.keys:
                self._images[key] = _add_effects(self._images[key], result, loaded)
            self._add(result)
            for kind in kinds:
                self.chunk.broken.setdefault(kind, result.keys[0])
            index = [image.key for image in batch].index(result.keys[0])
            if result.attention is not None:
                self._collect_attention(result.attention, pixels[index])
            if result.heats:
                seen = loaded.show(pixels[index].float().cpu())
                drawn = write_heats(self._grids, result, seen)
                self.chunk.heats += drawn
                self._note_files(heat.file for heat in drawn)

    def _collect_attention(self, attention: ImageAttention, pixels: Tensor) -> None:
        """Add the attention of an image to the chunk, and write its pictures."""
        chunk = self.chunk
        for row in attention.rows:
            merge_by_call(chunk.attention, {row.call_id: AttentionTally.of(row)})
        for each in attention.calls:
            if each.kept is not None:
                self._kept.setdefault(each.call.id, {})[attention.image] = each.kept
        if attention.rollout or any(each.query or each.maps for each in attention.calls):
            seen = self._settings.loaded.show(pixels.float().cpu())
            drawn = write_attention(self._write, self._grids, seen, attention)
            chunk.heats += drawn.pictures
            chunk.attention_maps += drawn.maps
            self._note_files(picture.file for picture in drawn.pictures)
            chunk.written_files += [maps.file for maps in drawn.maps]

    def _note_files(self, pictures: Iterable[str]) -> None:
        """Note the pictures that were written, in all formats."""
        for file in pictures:
            self.chunk.written_files += list_formats(file, self._grids.style.format)

    def _warn_of_halves(self, count: int) -> None:
        if not self._has_halved:
            self._warn(
                f"a batch of {count} images ran out of memory and is run in halves: "
                "last digits can differ from another run's; "
                f"fewer at once: --batch-size {count // 2}"
            )
        self._has_halved = True
        self.chunk.halved += 1

    def _run_one_at_a_time(self, count: int, reason: str) -> None:
        """Run one image at a time from here on, since only batches of several have failed."""
        self._one_at_a_time = True
        self._warn(
            f"a batch of {count} images failed ({reason}), and its halves do not: "
            "from here on images go through one at a time, as with --batch-size 1"
        )

    def _record_image(
        self, image: PreparedImage, predictions: tuple[Prediction, ...]
    ) -> ImageResult:
        """Return the result of an image, and keep the pictures of it that the run keeps."""
        settings, pixels = self._settings, image.pixels
        assert pixels is not None  # noqa: S101  a batch holds only images with pixels
        place = self.chunk.number * chunk_size(settings.batch_size)  # of the first of the chunk
        has_thumbnail = settings.several and place < MOST_THUMBNAILS
        picture = settings.loaded.show(pixels) if settings.shows_all or has_thumbnail else b""
        seen = ""
        if settings.shows_all:
            seen = self._write(seen_file(image.key), picture)
            self.chunk.written_files.append(seen)
        if has_thumbnail:
            self._thumbnails[image.key] = shrink(picture)
        return ImageResult(
            image.key,
            image.file,
            *image.size,
            image.state.sha256,
            predictions,
            (1, *pixels.shape),
            image.note,
            seen,
        )

    def _add(self, result: BatchResult) -> None:
        """Add the records of one forward to the chunk, and queue its pictures."""
        chunk = self.chunk
        chunk.called |= result.called
        chunk.edits.merge(result.effects)
        grids = _queue_pictures(result.pictures, self._grids)
        self._note_files(dict.fromkeys(grids.values()))
        chunk.written_files += filter(None, map(name_maps, result.pictures))
        for record in result.records:
            grid = grids.get((record.image, record.call.id), "")
            self._records.setdefault(record.image, []).append(replace(record, grid=grid))
            for kind, count in (("NaN", record.stats.nan_count), ("Inf", record.stats.inf_count)):
                if count:
                    chunk.broken.setdefault(kind, record.image)
        for call_id, key, tensor in result.kept:
            self._kept.setdefault(call_id, {})[key] = tensor


def list_batches(images: Sequence[PreparedImage], size: int) -> Iterator[Sequence[PreparedImage]]:
    """Yield batches of up to ``size`` images of one shape."""
    shapes: dict[tuple[int, ...], list[PreparedImage]] = {}
    for image in images:
        if image.pixels is not None:
            shapes.setdefault(tuple(image.pixels.shape), []).append(image)
    for group in shapes.values():
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _add_effects(image: ImageResult, result: BatchResult, loaded: LoadedModel) -> ImageResult:
    """Return the image with its score, and with the results of the model without edits."""
    predictions = [] if result.unedited is None else loaded.read(result.unedited)
    index = result.keys.index(image.key)
    unedited = predictions[index] if len(predictions) == len(result.keys) else ()
    return replace(
        image, score=result.score, unedited=unedited, unedited_score=result.unedited_score
    )


def _queue_pictures(pictures: Sequence[Picture], writer: GridWriter) -> dict[tuple[str, str], str]:
    """Queue pictures to be drawn; return the file of each image and call id."""
    if writer.style.mode != "sheet":
        return {(p.image, p.call.id): writer.write_grid(p) for p in pictures}
    files: dict[tuple[str, str], str] = {}
    for image in dict.fromkeys(picture.image for picture in pictures):
        tiles = sorted((p for p in pictures if p.image == image), key=lambda p: p.call.order)
        file = writer.write_sheet(image, tiles)
        files |= {(image, picture.call.id): file for picture in tiles}
    return files


def _kinds_of(output: object) -> list[str]:
    """Return which of ``NaN`` and ``Inf`` the output of the model holds."""
    names = " ".join(name_not_finite(tensor) for _, tensor in named_tensors(output))
    return [kind for kind in ("NaN", "Inf") if kind in names]
