"""Channels zeroed one after the other, and what a score loses by each.

An image fills a batch, and in each row another channel is zeroed, in every call of its layer. What it
is compared with went through in a batch of the same size, in the same row: so both are rounded alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from hookcli import errors
from hookcli.errors import NoBoxError, RequestError
from hookcli.hooks.change import Change, change
from hookcli.images.fit import require_image, skip_failing
from hookcli.images.prepare import prepare_like
from hookcli.passes.call import has_rows, row_of, run_model, to_batch
from hookcli.records.images import ImageResult, SkippedImage
from hookcli.records.layouts import resolve_layout
from hookcli.records.rows import ChannelRow
from hookcli.run.ablation_plan import Batch, plan_ablation

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepare import PreparedAblation
    from hookcli.records.calls import Call, Uncalled
    from hookcli.records.runs import ModelInfo
    from hookcli.run.ablation_plan import AblationLayer, AblationPlan


@dataclass(frozen=True, slots=True)
class AblationResult:
    """What was found.

    Attributes:
        model: which model ran.
        images: with their scores when nothing is zeroed.
        skipped: the images that did not go through.
        uncalled: the chosen layers that do not run.
        rows: one a channel, in the order of their ranks.
    """

    model: ModelInfo
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    uncalled: tuple[Uncalled, ...]
    rows: tuple[ChannelRow, ...]

    @property
    def exit_code(self) -> int:
        """0; 6 when some images were skipped."""
        return errors.SKIPPED if self.skipped else errors.DONE


def ablate_images(
    prepared: PreparedAblation,
    planned: Callable[[AblationPlan], None],
    forward_done: Callable[[], None],
) -> AblationResult:
    """Zero the channels of the layers that were prepared, on one image after the other.

    Args:
        prepared: the model and the images.
        planned: is told what is going to be done, when the first image has been looked at.
        forward_done: is called after each forward.

    Raises:
        RequestError: there are no such channels, or no such score.
        ForwardError: the model raised.
        NoImageError: no image could be used.
    """
    style, on_error = prepared.config.style, prepared.request.on_error
    skipped, ablation = list(prepared.skipped), None
    several = len(prepared.sources) > 1
    for source in prepared.sources:
        image = prepare_like(
            prepared.fitter, source, None if ablation is None else ablation.first_shape
        )
        if image.pixels is None:
            skipped.append(SkippedImage(image.file, image.reason))
            continue
        with skip_failing(on_error, image.file, skipped, is_one_of_several=several):
            if ablation is None:
                plan = plan_ablation(
                    prepared.loaded, prepared.layers, style, len(prepared.sources), image.pixels
                )
                planned(plan)
                ablation = _Ablation(prepared, plan, forward_done)
            ablation.add(image, to_batch(prepared.loaded, image.pixels))
    require_image(() if ablation is None else ablation.images, skipped)
    assert ablation is not None  # noqa: S101
    return AblationResult(
        prepared.loaded.info,
        tuple(ablation.images),
        tuple(skipped),
        ablation.plan.uncalled,
        ablation.rank(),
    )


@dataclass(slots=True)
class _Ablation:
    """Adds up what the images give.

    Attributes:
        images: those that have gone through.
        sums: by module path and channel, the sums of the scores with nothing and with it zeroed.
        first_shape: of the pixels of the first of the images; None before it has gone through.
    """

    prepared: PreparedAblation
    plan: AblationPlan
    forward_done: Callable[[], None]
    images: list[ImageResult] = field(default_factory=list)
    sums: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    first_shape: tuple[int, ...] | None = None

    def add(self, image: PreparedImage, pixels: Tensor) -> None:
        """Run one image with pixels (1, …); one on which the model fails leaves nothing behind.

        Raises:
            ForwardError: the model raised.
        """
        loaded, layers = self.prepared.loaded, tuple(part.layer for part in self.plan.layers)
        zeroing = _Zeroing(self.plan.layers, loaded.feed.size_of(pixels), Batch(1))
        plain: dict[int, list[float]] = {}
        sums: dict[tuple[str, int], tuple[float, float]] = {}
        result: ImageResult | None = None
        with change(loaded.module, [Change("output", layers, (), zeroing)]):
            for batch in self.plan.batches:
                zeroing.batch = batch
                outputs = self._run(pixels, batch.rows)
                if result is None:
                    result = self._describe(image, outputs[0])
                scores = [
                    self._score(output, result) for output in outputs[: len(batch.places) or None]
                ]
                if not batch.places:
                    plain[batch.rows] = scores
                for place, unchanged, score in zip(
                    batch.places, plain[batch.rows], scores, strict=False
                ):
                    sums[place] = unchanged, score
                self.forward_done()
        assert result is not None  # noqa: S101  there is a batch without zeroing
        self.images.append(result)
        self.first_shape = self.first_shape or tuple(pixels.shape[1:])
        for place, (unchanged, score) in sums.items():
            before, after = self.sums.get(place, (0.0, 0.0))
            self.sums[place] = before + unchanged, after + score

    def rank(self) -> tuple[ChannelRow, ...]:
        """The channels, those that the score depends on most first; of equal ones the earlier."""
        labels = {part.layer.module_path: part.layer.label for part in self.plan.layers}
        count = len(self.images)
        rows = []
        for path, channel in self.plan.places:
            plain, zeroed = (total / count for total in self.sums[path, channel])
            effect, score, unchanged = map(_finite, (plain - zeroed, zeroed, plain))
            rows.append(ChannelRow(0, labels[path], channel, effect, score, unchanged, count))
        sign = -1 if self.prepared.config.score.score == "cross-entropy" else 1  # less is better
        rows.sort(key=lambda row: math.inf if row.effect is None else -sign * row.effect)
        return tuple(replace(row, rank=rank) for rank, row in enumerate(rows, 1))

    def _run(self, pixels: Tensor, rows: int) -> list[object]:
        """The outputs of the image in each of ``rows``."""
        batch = pixels.repeat(rows, *[1] * (pixels.dim() - 1))
        if self.prepared.channels_last:
            batch = batch.contiguous(memory_format=torch.channels_last)
        output = run_model(self.prepared.loaded, batch)
        if rows == 1:
            return [output]
        with self.prepared.loaded.guard():
            if not has_rows(output, rows):
                raise _refuse_batch("the output of the model", rows)
            return [row_of(output, row) for row in range(rows)]

    def _score(self, output: object, image: ImageResult) -> float:
        """The score of the image's target: NaN where it is not finite, 0 where its boxes are gone."""
        plain = image.score
        try:
            value = self.prepared.scorer(output, target=plain.target if plain else None).score.value
        except NoBoxError:
            return 0.0
        return math.nan if value is None else value

    def _describe(self, image: PreparedImage, output: object) -> ImageResult:
        said = self.prepared.loaded.read(output)
        return ImageResult(
            image.key, image.file, *image.size, image.state.sha256,
            said[0] if len(said) == 1 else (),
            (1, *image.pixels.shape) if image.pixels is not None else (),
            image.note, score=self.prepared.scorer(output).score,
        )  # fmt: skip


@dataclass(slots=True)
class _Zeroing:
    """Zeroes, in a layer's output, what the batch says that is running.

    Attributes:
        parts: the layers.
        size: height and width of what the layers see.
        batch: the one that is running.
    """

    parts: tuple[AblationLayer, ...]
    size: tuple[int, int]
    batch: Batch

    def __call__(self, call: Call | None, values: Tensor) -> Tensor:
        assert call is not None  # noqa: S101  a change of outputs
        layer, rows = call.layer, self.batch.rows
        path = layer.module_path
        mine = [(row, c) for row, (name, c) in enumerate(self.batch.places) if name == path]
        keys = next(part.keys for part in self.parts if part.layer is layer)
        if not mine or not values.numel() or call.output_key not in keys:
            return values
        axis = resolve_layout(tuple(values.shape), layer.channels, self.size).channel_axis
        if axis is None:
            raise RequestError(f"it is not known where the channels of {layer.label} are")
        if rows > 1 and len(values) != rows:
            raise _refuse_batch(layer.label, rows)
        zeroed = values.clone()
        for row, channel in mine:
            if channel < values.shape[axis]:  # another call of the layer may have more of them
                part = zeroed if rows == 1 else zeroed[row : row + 1]
                part.select(axis, channel).zero_()
        return zeroed


def _refuse_batch(what: str, rows: int) -> RequestError:
    return RequestError(
        f"{what} has another leading axis than the {rows} rows that were given",
        "zero one channel at a time: --batch-size 1",
    )


def _finite(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None
