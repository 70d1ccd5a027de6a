"""Read saved tensors as features: one row per image, or per place (token or pixel of a map)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hookcli.analysis.images import read_fact
from hookcli.errors import RequestError
from hookcli.outside import escape
from hookcli.reading.load import choose_calls
from hookcli.reading.run_files import cannot_read
from hookcli.reading.shards import array_dtype, read_rows
from hookcli.records.command import list_saved_options, read_command, saving_command
from hookcli.records.layouts import UNKNOWN, Layout, recall_layout
from hookcli.records.runs import FeatureCall
from hookcli.records.text import shape_text
from hookcli.store.locations.names import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.reading.load import Run
    from hookcli.reading.shards import Array
    from hookcli.records.analysis import Pool
    from hookcli.records.tensor_index import SavedTensor

Features: TypeAlias = "NDArray[np.float32]"

_BLOCK = 16 << 20  # bytes of tensors to read at a time


class EmptyLayerError(RequestError):
    """Raised if a layer has the same features for all images, or lacks a requested class token."""


@dataclass(frozen=True, slots=True)
class Block:
    """Saved values (images, …) of a call, as real numbers, for images with inputs of one size."""

    keys: tuple[str, ...]
    values: Array
    layout: Layout


@dataclass(frozen=True, slots=True)
class Places:
    key: str
    values: Features  # (places, C), row by row
    grid: tuple[int, int]
    prefix: int  # how many tokens are left out, since they cover no part of the image


@dataclass(frozen=True, slots=True)
class SavedCall:
    run: Run
    call_id: str
    layout: str
    pool: str  # how the run reduced tensors: none, mean, max, or N for maps of N x N values
    pixels: Mapping[str, tuple[int, int]]  # height and width of the network's input, by image key
    # called with the number of images in each block that is read
    on_read: Callable[[int], None] = field(default=lambda _: None, compare=False)

    @property
    def images(self) -> tuple[str, ...]:
        return self.run.images_of(self.call_id)

    def read(self, only: str | None = None) -> Iterator[Block]:
        """Yield the saved tensors in blocks; if ``only`` is an image's key, yield only its own."""
        self.run.images_of(self.call_id)  # raises an error if the index is damaged
        for tensor in self.run.saved[self.call_id]:
            if only is not None:
                if only in tensor.images:
                    row = tensor.images.index(only)
                    yield from self._split(tensor, row, row + 1)
                continue
            of_image = math.prod(tensor.shape[1:]) * max(4, array_dtype(tensor).itemsize)
            step = max(1, _BLOCK // max(1, of_image))
            for start in range(0, len(tensor.images), step):
                stop = min(start + step, len(tensor.images))
                yield from self._split(tensor, start, stop)
                self.on_read(stop - start)

    def _split(self, tensor: SavedTensor, start: int, stop: int) -> Iterator[Block]:
        values = _as_real(read_rows(self.run.files, tensor, start, stop))
        for size, group in groupby(tensor.images[start:stop], self.pixels.get):
            keys = tuple(group)
            part, values = values[: len(keys)], values[len(keys) :]
            yield Block(keys, part, self._find_layout(tensor.shape, size))

    def _find_layout(self, shape: Sequence[int], size: tuple[int, int] | None) -> Layout:
        if self.pool in ("mean", "max"):
            return Layout("NC", 1) if len(shape) == 2 else UNKNOWN
        of_image = (1, *shape[1:])
        if self.pool != "none":  # the maps of every layout were saved with channels first
            side = int(self.pool)
            if tuple(shape[-2:]) == (side, side) and len(shape) in (4, 5):
                return Layout("NCHW" if len(shape) == 4 else "NCDHW", 1, side, side)
        return recall_layout(self.layout, of_image, size)

    def pool_features(self, how: Pool = "mean", keys: Sequence[str] | None = None) -> Features:
        """Return features (images, C), one row for each image in ``keys``, by default for all.

        ``how`` says what becomes the features: the class token, or the mean or maximum over all
        places (tokens, or pixels of maps). Values without places are flattened instead.
        """
        if self.pool != "none" and how != self.pool and (how != "mean" or self.pool == "max"):
            raise RequestError(
                f"{self.call_id!r} was saved with `pool={self.pool!r}`, which has no {_NAMES[how]}",
                _saving_hint(self.run, "none"),
            )
        order = _number(self.images if keys is None else keys)
        rows: Features | None = None
        for block in self.read():
            kind = np.result_type(block.values, np.float32)  # float64 stays: its range is larger
            features = self._reduce(block, how).reshape(len(block.keys), -1).astype(kind)
            self._check_finite(features, block.keys)
            if rows is None:
                rows = np.empty((len(order), features.shape[1]), kind)
            if rows.shape[1] != features.shape[1]:
                raise RequestError(
                    f"{self.call_id!r} has {features.shape[1]} features of {block.keys[0]!r}, and "
                    f"{rows.shape[1]} of other images",
                    "save with `pool='mean'`",
                )
            _put(features, block.keys, order, rows)
        assert rows is not None  # noqa: S101  a saved call has at least one tensor
        return rows

    @property
    def places(self) -> int:
        """The number of places (tokens, map pixels) of the first image; 0 if it has none."""
        shape = self.run.saved[self.call_id][0].shape
        layout = self._find_layout(shape, next(iter(self.pixels.values()), None))
        has_places = layout.is_spatial and layout.channel_axis is not None
        return layout.height * layout.width if has_places else 0

    def _reduce(self, block: Block, how: Pool) -> Array:
        layout, values = block.layout, block.values
        if how == "class":
            if layout.name != "NLC" or not layout.prefix:
                what = f"{self.call_id!r} has no class token"
                raise EmptyLayerError(what, "leave it out, or use `pool='mean'`")
            return values[:, 0]
        if not layout.height * layout.width:
            return values
        maps = as_maps(values, layout)
        axes = tuple(range(2, maps.ndim))
        reduced: Array = maps.max(axes) if how == "max" else maps.mean(axes, dtype=np.float64)
        return reduced

    def read_places(self, only: str | None = None) -> Iterator[Places]:
        for block in self.read(only):
            layout = block.layout
            self._check_places(block)
            maps = as_maps(block.values, layout)
            if layout.frame_axis is not None:
                maps = maps[:, :, maps.shape[2] // 2]  # the frame in the middle of a clip
            count, channels = maps.shape[:2]
            flat = maps.reshape(count, channels, -1).transpose(0, 2, 1)
            for key, values in zip(block.keys, flat, strict=True):
                features = np.ascontiguousarray(values, np.result_type(values, np.float32))
                self._check_finite(features[None], (key,))
                yield Places(key, features, (layout.height, layout.width), layout.prefix)

    def _check_places(self, block: Block) -> None:
        if self.pool in ("mean", "max"):
            what = f"{self.call_id!r} was saved with `pool={self.pool!r}`, so it has no places"
            raise RequestError(what, _saving_hint(self.run, "none"))
        if not block.layout.is_spatial:
            shape = shape_text((1, *block.values.shape[1:]))
            raise RequestError(
                f"{self.call_id!r} has no places: {shape}, layout {block.layout.name}",
                "choose other layers, whose outputs are maps or tokens of the image",
            )

    def _check_finite(self, features: Array, keys: Sequence[str]) -> None:
        if not np.isfinite(features).all():
            broken = ~np.isfinite(features.reshape(len(keys), -1)).all(1)
            raise RequestError(
                f"{self.call_id!r} has NaN or Inf, first for {keys[int(broken.argmax())]!r}",
                "leave the layer out, or find the origin: "
                "`hookcli.inspect` with `fail_on=('nan', 'inf')`",
            )

    def read_columns(self, most: int, keys: Sequence[str] | None = None) -> Iterator[Features]:
        """Yield the flattened values of all images in arrays (images, columns) of a few columns.

        Each array takes about ``most`` bytes. ``keys`` selects and orders the images; None means
        all images in the order of the run.
        """
        shape = self.run.shape_of(self.call_id)
        order = _number(self.images if keys is None else keys)
        for ranges in _split_axes(shape[1:], max(1, most // (4 * max(1, shape[0])))):
            width = math.prod(part.stop - part.start for part in ranges)
            part = np.zeros((len(order), width), np.float32)  # np.empty may hold NaN, which warns
            for tensor in self.run.saved[self.call_id]:
                count = len(tensor.images)
                values = _as_real(read_rows(self.run.files, tensor, 0, count, ranges))
                flat = values.reshape(count, width)
                part = part.astype(np.result_type(part, flat), copy=False)
                self._check_finite(flat, tensor.images)
                _put(flat, tensor.images, order, part)
            yield part


def _number(keys: Sequence[str]) -> dict[str, int]:
    return {key: row for row, key in enumerate(keys)}


def _put(values: Array, keys: Sequence[str], order: Mapping[str, int], rows: Array) -> None:
    chosen = [row for row, key in enumerate(keys) if key in order]
    rows[[order[keys[row]] for row in chosen]] = values[chosen]


_NAMES = {"mean": "mean", "max": "maximum", "class": "class token"}


def open_calls(run: Run, forms: Sequence[str] = (), pool: str = "none") -> tuple[SavedCall, ...]:
    """Return a run's calls with saved tensors that match ``forms``, in the order of their starts.

    Each form is a call id or a glob pattern; without forms, all calls match. If the run saved no
    tensors, a RequestError tells the user to save them, with ``--pool`` set to ``pool``.
    """
    if not run.calls:
        what = f"the run in {str(run.folder)!r} saved no tensors"
        raise RequestError(what, _saving_hint(run, pool))
    rows = {row["call_id"]: row for row in run.layers}
    reduced = _read_pool(run)
    sizes = {
        image["key"]: (shape[-2], shape[-1])
        for image in run.manifest["images"]
        if len(shape := image.get("pixels_shape", ())) > 1
    }
    chosen = [(call_id, rows.get(call_id, {})) for call_id in choose_calls(run, forms or ("*",))]
    return tuple(
        SavedCall(run, call_id, str(row.get("layout", "unknown")), reduced, sizes)
        for call_id, row in sorted(chosen, key=lambda each: each[1].get("order") or 0)
    )


def choose_features(run: Run, calls: Sequence[SavedCall]) -> tuple[SavedCall, str]:
    """Return the call that the run recommends for features, or else the last, and the reason."""
    found = read_fact(run, "features", FeatureCall | None)  # type: ignore[arg-type]
    for call in calls:
        if found is not None and call.call_id == found.call_id:
            return call, found.reason
    return calls[-1], "the last saved layer, since the run does not say which has the features"


def _read_pool(run: Run) -> str:
    try:
        options = list_saved_options(read_command(run.manifest))
        pool = dict(words.split(" ", 1) for words in options).get("--pool", "none")
        if pool not in ("none", "mean", "max"):
            int(pool)
    except ValueError as error:
        raise cannot_read(run.folder / MANIFEST, error) from error
    return pool


def check_finite(features: Array) -> None:
    if not np.isfinite(features).all():
        raise RequestError("the features have NaN or Inf", "leave out the images that have them")


def find_directions(features: Features) -> Features:
    """Scale each row of features (rows, C) to the L2 norm 1; rows of zeros stay zero."""
    # Divide by the largest magnitude first: its square may overflow or underflow in float32
    largest = np.abs(features).max(1, keepdims=True)
    shares = features / np.where(largest > 0, largest, 1)
    directions: Features = shares.astype(np.float32, copy=False)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    directions /= np.where(lengths > 0, lengths, 1)
    return directions


def _saving_hint(run: Run, pool: str) -> str:
    command = run.manifest["command"]
    if command is None:  # things in memory
        pooled = "" if pool == "none" else f" and `pool={pool!r}`"
        return f"make the run again, with `save='tensors'`{pooled}"
    return f"save them: {escape.for_shell(saving_command(command, pool))}"


def as_maps(values: Array, layout: Layout) -> Array:
    """Return values as (N, C, h, w). Clips give (N, C, D, h, w), and sequences give (N, C, L)."""
    maps = values.transpose(layout.channels_first)[..., layout.image_tokens]
    return maps.reshape(layout.maps_shape(values.shape))


def _as_real(values: Array) -> Array:
    return np.abs(values) if np.iscomplexobj(values) else values


def _split_axes(shape: Sequence[int], most: int) -> Iterator[tuple[range, ...]]:
    if not shape or 0 in shape:
        yield tuple(range(length) for length in shape)
        return
    rest = math.prod(shape[1:])
    step = min(shape[0], max(1, most // rest))
    for start in range(0, shape[0], step):
        first = range(start, min(start + step, shape[0]))
        if step > 1 or rest <= most:
            yield (first, *(range(length) for length in shape[1:]))
        else:
            yield from ((first, *others) for others in _split_axes(shape[1:], most))
