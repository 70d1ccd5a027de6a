"""An estimate of what a run will write, and how large it will be, made before the run begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hookcli.activations.pooling import saved_shape
from hookcli.config import MOST_SKETCHED, chunk_size
from hookcli.errors import RequestError
from hookcli.foreign import ask
from hookcli.hooks.observe import observe
from hookcli.passes.call import call_model
from hookcli.passes.unchanged import unchanged
from hookcli.records.pictures import MOST_SIDE
from hookcli.records.runs import MOST_CHANNELS, MOST_FIRING, MOST_IMAGES, MOST_THUMBNAILS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from hookcli.config import GridStyle, RunConfig, SaveStyle
    from hookcli.images.read import ImageSource
    from hookcli.models.load import LoadedModel
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.images import SkippedImage
    from hookcli.urls import Place


_WIDTHS = ("out_channels", "num_features", "out_features", "embed_dim")  # names in module classes
_MOST_IN_A_STRIP = 12
# Sizes in bytes:
_GRID_BYTES_PER_PIXEL = 0.55  # palette PNGs of real feature maps, measured
_GRID_BYTES = 4_700  # a picture's heading, and its entries in the page and the manifest
_MAP_BYTES_PER_VALUE = 0.95  # of a channel at the resolution of its layer: hardly compressible
_SECOND_FORMAT = 3.5  # bytes of a grid as SVG, which has no palette, for one of its PNG
_TILE_BYTES = 320  # a tile's label, and its figures in the page and its JSON
_LAYER_BYTES = 4_000  # a layer in the page, its JSON and layers.csv
_FIRING_BYTES = 60  # an image in the page that fires a channel most
_PAGE_BYTES = 250_000  # the page, its JSON and the manifest of one image
_SEEN_BYTES_PER_PIXEL = 0.28  # the JPEG of what the network saw
_THUMBNAIL_BYTES = 3_000
_IMAGE_BYTES = 3_000  # an image in the page and the manifest
_ROW_BYTES, _SKETCH_BYTES = 40, 280  # a row of records.parquet, and what a sketch adds to it
_PARQUET_BYTES = 13_000  # records.parquet without rows, per chunk
_TOP_BYTES = 30  # a row of top_images.csv without names
_FILES = 6  # run.json, layers.csv, records.parquet, report.json, report.html, manifest.json


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do.

    Attributes:
        layers: how many layers are observed.
        images: how many images go through the model.
        files: about how many files will be written, if each layer is called once.
        megabytes: about how large the files can become together, in 1e6 bytes.
        out_dir: the run folder.
        skipped: the images that cannot be used.
        grids: ``layers``, ``sheet`` or ``none``.
        sketches: a sketch of every tensor is kept.
        operations: how many of the layers are functional operations.
    """

    layers: int
    images: int
    files: int
    megabytes: float
    out_dir: Place
    skipped: tuple[SkippedImage, ...] = ()
    grids: str = "layers"
    sketches: bool = False
    operations: int = 0


def make_plan(
    config: RunConfig,
    loaded: LoadedModel,
    layers: Sequence[LayerInfo],
    sources: Sequence[ImageSource],
    style: GridStyle,
    out_dir: Place,
) -> Plan:
    """Return what a run will write.

    Raises:
        RequestError: the tensors would take more than ``--max-disk``.
        ForwardError: the model raised an exception.
    """
    count, sides = len(sources), len(config.sides)
    pictured = sides if config.backward is None else 1  # only the gradients of outputs are drawn
    channels = _list_channels(loaded.module, layers)
    tiles = _count_tiles(style, layers, channels)
    drawn = sum(map(bool, tiles))
    grids = {"layers": drawn * pictured, "sheet": min(drawn, 1), "none": 0}[style.mode]
    maps, values = 0, 0.0
    formats = count_formats(style)
    weight = 1 if formats == 1 else 1 + _SECOND_FORMAT
    if style.mode == "layers":
        areas = _list_areas(loaded.module, layers, loaded.prepare.nominal_shape)
        values = sum(math.prod(each) for each in zip(tiles, areas, strict=True)) * pictured
        maps = sum(
            layer.module_type != "Linear" for layer, n in zip(layers, tiles, strict=True) if n
        )
    top = min(config.top_images, count) * (count > 1 and "output" in config.sides)
    firing = len(layers) * top
    seen = count if count <= MOST_IMAGES else min(firing, MOST_FIRING)
    in_chunk = chunk_size(config.batch_size)
    chunks = -(-count // in_chunk)
    thumbnails = min(chunks, -(-MOST_THUMBNAILS // in_chunk)) * (count > 1)  # files
    asked = config.tensors.sketch
    sketches = count <= MOST_SKETCHED if asked is None else asked
    row = _ROW_BYTES + _SKETCH_BYTES * sketches
    size = (
        _PAGE_BYTES
        + len(layers) * sides * _LAYER_BYTES
        + firing * MOST_CHANNELS * _FIRING_BYTES
        + count * grids * _GRID_BYTES * weight
        + count * values * _MAP_BYTES_PER_VALUE
        + count * pictured * sum(tiles) * style.tile**2 * _GRID_BYTES_PER_PIXEL * weight
        + count * pictured * sum(tiles) * _TILE_BYTES
        + seen * _SEEN_BYTES_PER_PIXEL * math.prod(loaded.prepare.nominal_shape[-2:])
        + count * (_IMAGE_BYTES + len(layers) * sides * row)
        + chunks * _PARQUET_BYTES
        + min(count, thumbnails * in_chunk) * _THUMBNAIL_BYTES
        + _measure_top(sources, layers, channels) * top
    )
    files = (grids * formats + maps * pictured) * count + seen + thumbnails + _FILES + chunks - 1
    files += config.overview * formats + bool(top) + (count < len(config.run.images.names))
    if config.backward is not None:
        heats = count * (config.backward.saliency + len(config.backward.cams))
        files += (1 + heats) * formats
    if config.tensors.save is not None:
        # a gradient is as large as the tensor that it belongs to
        total = estimate_bytes(loaded, layers, config.at, config.tensors.save) * count
        check_disk(total, config.tensors.max_disk)
        size += total
        files += 1 + chunks
    return Plan(
        len(layers),
        count,
        files,
        size / 1e6,
        out_dir,
        grids=style.mode,
        sketches=sketches,
        operations=sum(layer.is_operation for layer in layers),
    )


def count_formats(style: GridStyle) -> int:
    """Return in how many formats pictures are written."""
    return 1 if style.format == "png" else 2


def _list_channels(model: nn.Module, layers: Sequence[LayerInfo]) -> list[int]:
    """Return about how many channels each layer returns, guessed from its module without a forward.

    A module without weights is taken to return as many as the module before it, and a block as many
    as its last submodule.
    """
    last, known = 3, {}
    modules = dict(model.named_modules())
    for path, module in modules.items():
        widths = (ask(module, name) for name in _WIDTHS)
        width = next((width for width in widths if width is not None), None)
        shape = ask(module, "normalized_shape")
        width = shape[-1] if isinstance(shape, tuple) and shape else width
        if isinstance(width, int) or not any(module.children()):
            last = known[path] = width if isinstance(width, int) else last
    for path in reversed(modules):
        if path not in known:
            inside = [f"{path}.{name}".lstrip(".") for name, _ in modules[path].named_children()]
            known[path] = next((known[each] for each in reversed(inside) if each in known), last)
    return [known.get(layer.module_path, last) for layer in layers]


def _list_areas(
    model: nn.Module, layers: Sequence[LayerInfo], pixels: Sequence[int]
) -> list[float]:
    """Return about how many values a channel of each layer has, guessed from strides.

    A stride holds from its module on, in the order of registration; those of kernels of one value
    are left out, as in shortcuts beside a block. A block returns what its last submodule does.
    """
    area, known = float(math.prod(pixels[-2:])), {}
    modules = dict(model.named_modules())
    for path, module in modules.items():
        stride, kernel = (_multiply(ask(module, name)) for name in ("stride", "kernel_size"))
        if kernel > 1:
            area *= stride if ask(module, "transposed") else 1 / stride
        known[path] = min(max(area, 1.0), MOST_SIDE**2)
    for path in reversed(modules):
        for name, _ in modules[path].named_children():
            known[path] = known.get(f"{path}.{name}".lstrip("."), known[path])
    return [known.get(layer.module_path, area) for layer in layers]


def _multiply(lengths: object) -> int:
    """Return the product of two lengths, or of one with itself; 1 if that is not what they are."""
    both = lengths if isinstance(lengths, tuple) else (lengths, lengths)
    known = [length for length in both if isinstance(length, int) and length > 0]
    return math.prod(known) if len(known) == len(both) else 1


def _count_tiles(
    style: GridStyle, layers: Sequence[LayerInfo], channels: Sequence[int]
) -> list[int]:
    """Return how many tiles are drawn of each layer; a linear layer always has one, its bars."""
    if style.mode == "none":
        return [0] * len(layers)
    most = _MOST_IN_A_STRIP if style.mode == "sheet" else math.inf
    tiles = []
    for layer, width in zip(layers, channels, strict=True):
        shown = min(style.top or width, width)
        if style.channels is not None:
            shown = sum(channel < width for channel in style.channels)
        tiles.append(int(min(max(shown, layer.module_type == "Linear"), most)))
    return tiles


def _measure_top(
    sources: Sequence[ImageSource], layers: Sequence[LayerInfo], channels: Sequence[int]
) -> float:
    """Return the bytes that ``top_images.csv`` takes for one image per channel."""
    names = sum(len(source.key) + len(source.name) for source in sources) / max(1, len(sources))
    return sum(
        width * (names + len(layer.label) + _TOP_BYTES)
        for layer, width in zip(layers, channels, strict=True)
    )


def check_disk(
    total: float,
    most: float,
    hint: str = "fewer --layers, --pool mean, --tensor-dtype float16, or a greater --max-disk",
) -> None:
    """Check that the saved tensors, ``total`` bytes, take no more than ``most`` 1e9 bytes.

    Raises:
        RequestError: they take more.
    """
    if total > most * 1e9:
        raise RequestError(
            f"the tensors would take {_more_than(most, total / 1e9)} GB, "
            f"more than --max-disk {most:g}",
            hint,
        )


def _more_than(limit: float, number: float) -> str:
    """Return ``number`` with as few decimals as show that it is more than ``limit``."""
    texts = (f"{number:.{decimals}f}" for decimals in range(1, 12))
    return next((text for text in texts if float(text) > limit), f"{number:g}")


def estimate_bytes(
    loaded: LoadedModel, layers: Sequence[LayerInfo], at: str, style: SaveStyle
) -> int:
    """Return the bytes that the saved tensors of the first image take.

    The model runs once, and only the shapes of its tensors are read.

    Raises:
        RequestError: no selected layer has any of the channels that are to be saved.
        ForwardError: the model raised an exception.
    """
    model, feed = loaded.module, loaded.feed
    pixels = loaded.pixels_to_try()
    size = feed.size_of(pixels)
    total = 0

    def measure(call: Call, tensor: Tensor) -> None:
        nonlocal total
        layout = call.layer.layout_of(tuple(tensor.shape), size)
        shape = saved_shape(tuple(tensor.shape), layout, style)
        kept = tensor.dtype if style.dtype is None else getattr(torch, style.dtype)
        total += math.prod(shape) * kept.itemsize

    with unchanged(model), torch.no_grad(), observe(model, layers, measure, at):
        call_model(model, feed.arguments_of(pixels))
    if style.channels is not None and not total:
        raise RequestError(
            "no selected layer has any of the channels that --tensor-channels asks for",
            "channels are counted from 0; hookcli layers MODEL shows how many there are",
        )
    return total
