"""What a run is going to write, and how much, told before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hookcli import hooks
from hookcli.config import SIDES, part_size
from hookcli.errors import ForwardError, RequestError
from hookcli.failures import ModelFailure, describe_failure
from hookcli.layouts import resolve_layout
from hookcli.pooling import saved_shape
from hookcli.results import MOST_IMAGES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from hookcli.config import GridStyle, InspectConfig, SaveStyle
    from hookcli.models import LoadedModel
    from hookcli.records import Call, LayerInfo
    from hookcli.results import SkippedImage


_GRID_BYTES_A_PIXEL = 0.55  # of palette PNGs of real feature maps, measured
_UNKNOWN_CHANNELS = 128
_MOST_IN_A_STRIP = 12
_PAGE_BYTES = 250_000  # the page, its JSON and the manifest of one image
_SEEN_BYTES_A_PIXEL = 0.28  # of what the network saw, as JPEG
_IMAGE_BYTES = 3_000  # of an image in page and manifest
_ROW_BYTES, _TOP_BYTES = 40, 46  # a row of records.parquet and of top_images.csv
_FILES = 6  # run.json, layers.csv, records.parquet, report.json, report.html, manifest.json


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is going to do, before it does it.

    Attributes:
        layers: how many layers are observed.
        images: how many images go through.
        files: about how many files will be written: one a layer is counted, however often it is called.
        megabytes: how large they can become together, about.
        out_dir: where.
        skipped: images that cannot be used.
        grids: ``layers``, ``sheet`` or ``none``.
    """

    layers: int
    images: int
    files: int
    megabytes: float
    out_dir: Path
    skipped: tuple[SkippedImage, ...] = ()
    grids: str = "layers"


def make_plan(
    config: InspectConfig,
    loaded: LoadedModel,
    layers: Sequence[LayerInfo],
    sources: Sequence[object],
    style: GridStyle,
    out_dir: Path,
) -> Plan:
    """What a run is going to write.

    Raises:
        RequestError: the tensors would take more than may be written.
    """
    count, sides = len(sources), len(SIDES[config.at])
    grids = {"layers": len(layers) * sides, "sheet": 1, "none": 0}[style.mode]
    channels = [_count_channels(loaded, layer) for layer in layers]
    pixels = sum(_shown(style, each) * style.tile**2 for each in channels) if grids else 0
    top = min(config.top_images, count) * (count > 1)
    size = (
        _PAGE_BYTES
        + pixels * _GRID_BYTES_A_PIXEL * count * sides
        + min(count, MOST_IMAGES)
        * _SEEN_BYTES_A_PIXEL
        * math.prod(loaded.prepare.nominal_shape[-2:])
        + count * (_IMAGE_BYTES + len(layers) * sides * _ROW_BYTES)
        + sum(channels) * sides * top * _TOP_BYTES
    )
    parts = -(-count // part_size(config.batch_size))
    files = grids * count + min(count, MOST_IMAGES) + _FILES + parts - 1
    files += config.overview + bool(top) + (count < len(config.images))
    if config.save is not None:
        size += _measure_tensors(config, loaded, layers, count)
        files += 1 + parts
    return Plan(len(layers), count, files, size / 1e6, out_dir, grids=style.mode)


def _count_channels(loaded: LoadedModel, layer: LayerInfo) -> int:
    part = loaded.module.get_submodule(layer.module_path)
    return int(getattr(part, "out_channels", getattr(part, "num_features", _UNKNOWN_CHANNELS)))


def _shown(style: GridStyle, channels: int) -> int:
    """How many channels of a layer are drawn."""
    shown = min(style.top or channels, channels) if style.channels is None else len(style.channels)
    return min(shown, _MOST_IN_A_STRIP) if style.mode == "sheet" else shown


def _measure_tensors(
    config: InspectConfig, loaded: LoadedModel, layers: Sequence[LayerInfo], count: int
) -> float:
    """Bytes that the saved tensors of ``count`` images take.

    Raises:
        RequestError: it is more than may be written.
    """
    assert config.save is not None  # noqa: S101
    total = estimate_bytes(loaded, layers, config.at, config.save) * count
    if total > config.max_disk * 1e9:
        raise RequestError(
            f"the tensors would take {_more_than(config.max_disk, total / 1e9)} GB, "
            f"more than --max-disk {config.max_disk:g}",
            "fewer --layers, --pool mean, --tensor-dtype float16, or a greater --max-disk",
        )
    return total


def _more_than(limit: float, number: float) -> str:
    """``number`` in as few decimals as show that it is more than ``limit``."""
    texts = (f"{number:.{decimals}f}" for decimals in range(1, 12))
    return next((text for text in texts if float(text) > limit), f"{number:g}")


def estimate_bytes(
    loaded: LoadedModel, layers: Sequence[LayerInfo], at: str, style: SaveStyle
) -> int:
    """Bytes that the tensors of one image of usual size take: one forward, of which only shapes are read.

    Raises:
        ForwardError: the model raised.
    """
    model, feed = loaded.module, loaded.feed
    parameter = next(model.parameters(), torch.empty(0))
    pixels = torch.zeros(
        loaded.prepare.nominal_shape, device=parameter.device, dtype=parameter.dtype
    )
    size = feed.size_of(pixels)
    total = 0

    def measure(call: Call, tensor: Tensor) -> None:
        nonlocal total
        layout = resolve_layout(tuple(tensor.shape), call.layer.channels, size)
        shape = saved_shape(tuple(tensor.shape), layout, style)
        kept = tensor.dtype if style.dtype is None else getattr(torch, style.dtype)
        total += math.prod(shape) * kept.itemsize

    with (
        ModelFailure() as failure,
        torch.no_grad(),
        hooks.observe(model, layers, measure, at),
    ):
        model(*feed.arguments_of(pixels))
    if failure.error is not None:
        raise ForwardError(*describe_failure(model, failure.error, [])) from failure.error
    if style.channels is not None and not total:
        raise RequestError(
            "no selected layer has any of the channels that --tensor-channels asks for",
            "channels are counted from 0; hookcli layers MODEL shows how many there are",
        )
    return total
