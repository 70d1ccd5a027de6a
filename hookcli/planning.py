"""What a run needs, made ready: images read, options checked, model loaded, layers chosen, plan made.

What can be refused is refused here, before anything is written.

torch is imported only after the images have been read, so that a wrong path is reported at once.
"""

from __future__ import annotations

import difflib
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from hookcli import config as choices
from hookcli.config import LARGEST_SIDE, SIDES
from hookcli.errors import RequestError
from hookcli.files import safe_name
from hookcli.findings import RULES
from hookcli.fitting import fit_sources, need_one
from hookcli.images import ImageSource, read_images
from hookcli.sinks.run_folder import check_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from hookcli.config import InspectConfig
    from hookcli.models import LoadedModel
    from hookcli.records import LayerInfo
    from hookcli.results import SkippedImage

_GRID_BYTES_A_PIXEL = 0.55  # of palette PNGs of real feature maps, measured
_UNKNOWN_CHANNELS = 128
_FILES = 5  # run.json, layers.csv, report.json, report.html, manifest.json


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
    """

    layers: int
    images: int
    files: int
    megabytes: float
    out_dir: Path
    skipped: tuple[SkippedImage, ...] = ()


@dataclass(slots=True)
class PreparedRun:
    """A run that is ready to go: everything that can be refused has been checked."""

    config: InspectConfig
    loaded: LoadedModel
    layers: tuple[LayerInfo, ...]
    sources: list[ImageSource]
    skipped: list[SkippedImage]
    plan: Plan
    seconds: dict[str, float] = field(default_factory=dict)


def plan_run(config: InspectConfig) -> Plan:
    """What ``inspect_images(config)`` would do; loads no weights and writes nothing."""
    sources, skipped = _read_sources(config)
    from hookcli import layers, models

    loaded = models.build_skeleton(config.model)
    sources, unfit = fit_sources(config, loaded, sources)
    chosen = layers.select_layers(loaded.module, config.layers, config.exclude)
    plan = _make_plan(config, loaded.module, chosen, sources)
    return replace(plan, skipped=(*skipped, *unfit))


def prepare_run(config: InspectConfig) -> PreparedRun:
    """Read the images, load the model, choose the layers.

    Raises:
        RequestError: an option has a value that does not exist, or no layer matched.
        NoImageError: no image could be used.
        ModelError: the model could not be loaded.
    """
    clock = Clock()
    sources, skipped = _read_sources(config)
    clock.lap("read images")
    from hookcli import layers, models

    clock.lap("import torch")
    loaded = models.load_model(config.model)
    sources, unfit = fit_sources(config, loaded, sources)
    chosen = layers.select_layers(loaded.module, config.layers, config.exclude)
    clock.lap("load model")
    plan = _make_plan(config, loaded.module, chosen, sources)
    return PreparedRun(config, loaded, chosen, sources, [*skipped, *unfit], plan, clock.seconds)


class Clock:
    """Seconds by stage, in the order of the stages."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = {} if seconds is None else seconds
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Put the time since the last lap down to ``stage``."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


def _read_sources(config: InspectConfig) -> tuple[list[ImageSource], list[SkippedImage]]:
    _check_values(config)
    sources, skipped = read_images(config.images, clip_frames=choices.CLIP_FRAMES * config.clip)
    need_one(sources, skipped)
    check_folder(
        _out_dir(config, sources), replace_run=config.out is None, replace_any=config.overwrite
    )
    return sources, skipped


def _check_values(config: InspectConfig) -> None:
    """See that every option has a value that exists.

    Raises:
        RequestError: one has not.
    """
    grids, model = config.grids, config.model
    for name, value, known in (
        ("--at", config.at, choices.At),
        ("--dtype", model.dtype, choices.Dtype),
        ("--grids", grids.mode, choices.GridMode),
        ("--rank", grids.rank, choices.Rank),
        ("--scale", grids.scale, choices.Scale),
    ):
        if value not in get_args(known):
            raise RequestError(
                f"{name} cannot be {value!r}", f"one of: {', '.join(get_args(known))}"
            )
    if any(channel < 0 for channel in grids.channels or ()):
        raise RequestError("--channels are counted from 0, as in the tensor")
    for name, number in (
        ("--top", 1 if grids.top is None else grids.top),
        ("--tile", grids.tile),
        ("--batch-size", config.batch_size),
        ("--size", 1 if model.size is None else model.size),
        ("--resize", 1 if model.resize is None else model.resize),
    ):
        if number < 1:
            raise RequestError(f"{name} must be at least 1, not {number}")
    for name, side in (("--size", model.size), ("--resize", model.resize)):
        if side is not None and side > LARGEST_SIDE:
            raise RequestError(f"{name} must be at most {LARGEST_SIDE}, not {side}")
    _check_rules(config)
    _check_focus(config)
    _check_colours("--mean", model.mean)
    _check_colours("--std", model.std)
    if model.std is not None and min(model.std) <= 0:
        raise RequestError("--std must be greater than 0")
    if not 0 <= model.seed < 1 << 63:
        raise RequestError(f"--seed must be from 0 to 2**63 - 1, not {model.seed}")
    if grids.mode != "none" and grids.colormap != choices.EMBER:
        from hookcli.sinks.grids import load_palette

        load_palette(grids.colormap)


def _check_rules(config: InspectConfig) -> None:
    for name in (*config.fail_on, *(rule for rule, _ in config.rules)):
        if name not in RULES:
            close = difflib.get_close_matches(name, RULES, n=3)
            raise RequestError(
                f"no rule is called {name!r}", f"one of: {', '.join(close or RULES)}"
            )


def _check_focus(config: InspectConfig) -> None:
    if config.focus is not None:
        if len(config.images) != 1:
            raise RequestError("--focus is a box in one image", "give one image")
        if config.grids.mode == "none":
            raise RequestError("--focus ranks the channels of grids, and not with --grids none")
        if min(config.focus) < 0:
            raise RequestError("--focus begins inside the image: X and Y are at least 0")
        if min(config.focus[2:]) < 1:
            raise RequestError("--focus needs a width and a height of at least 1")


def _check_colours(name: str, values: tuple[float, ...] | None) -> None:
    if values is not None and (len(values) != 3 or not all(map(math.isfinite, values))):
        raise RequestError(f"{name} takes three numbers, one a colour: 0.485,0.456,0.406")


def _make_plan(
    config: InspectConfig,
    module: nn.Module,
    layers: Sequence[LayerInfo],
    sources: Sequence[ImageSource],
) -> Plan:
    style = config.grids
    grids = {"layers": len(layers) * len(SIDES[config.at]), "sheet": 1, "none": 0}[style.mode]
    pixels = 0.0
    if style.mode != "none":
        for layer in layers:
            part = module.get_submodule(layer.module_path)
            channels = getattr(
                part, "out_channels", getattr(part, "num_features", _UNKNOWN_CHANNELS)
            )
            shown = (
                len(style.channels)
                if style.channels is not None
                else min(style.top or channels, channels)
            )
            pixels += (min(shown, 12) if style.mode == "sheet" else shown) * style.tile**2
    megabytes = pixels * _GRID_BYTES_A_PIXEL * len(sources) * len(SIDES[config.at]) / 1e6
    files = (
        (grids + 1) * len(sources) + _FILES + config.overview + (len(sources) < len(config.images))
    )
    return Plan(len(layers), len(sources), files, megabytes, _out_dir(config, sources))


def _out_dir(config: InspectConfig, sources: Sequence[ImageSource]) -> Path:
    several = len(config.images) > 1
    name = Path(config.images[0]).resolve().parent.name if several else sources[0].key
    return config.out or Path("hookcli-runs") / f"{safe_name(config.model.name)}-{safe_name(name)}"
