"""What a run needs, made ready: images read, options checked, model loaded, layers chosen, plan made.

What can be refused is refused here, before anything is written.

torch is imported only after the images have been read, so that a wrong path is reported at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hookcli.config import CLIP_FRAMES, part_size
from hookcli.files import full_name, hash_file, safe_name
from hookcli.images.find import find_files
from hookcli.images.fit import fit_sources, make_fitter, require_image
from hookcli.images.read import ImageFile, list_images, read_images
from hookcli.images.workers import count_workers
from hookcli.plan.check import check_values
from hookcli.plan.clock import Clock
from hookcli.records.command import to_command
from hookcli.records.runs import MOST_IMAGES
from hookcli.store import names
from hookcli.store.admission import check_folder
from hookcli.store.finished import finish_resume
from hookcli.summary.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.config import GridMode, GridStyle, InspectConfig
    from hookcli.edits.resolve import Edits
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.models.load import LoadedModel
    from hookcli.models.scores import ScoreTensor
    from hookcli.plan.estimate import Plan
    from hookcli.records.calls import LayerInfo
    from hookcli.records.images import SkippedImage

Sources: TypeAlias = "tuple[list[ImageSource | ImageFile], list[SkippedImage]]"
"""Images, and what was named and is none."""

_EAGER = 8  # images that are read before the model is loaded, so that a wrong one is known at once


@dataclass(slots=True)
class PreparedRun:
    """A run that is ready to go: everything that can be refused has been checked.

    Attributes:
        config: what was asked.
        loaded: the model.
        layers: what is observed.
        sources: the images, in order; of a long run only their files.
        skipped: what was named and is no image.
        plan: what is going to be done.
        fitter: makes images ready for the model.
        style: how feature maps are drawn in this run.
        limits: threshold of every rule.
        scorer: makes the score of an output; None in a run without a backward.
        cams: the layers of which a Grad-CAM is drawn.
        edits: what is changed on the way.
        workers: processes that prepare images.
        channels_last: pixels and weights lie in the memory format that is faster for convolutions.
        seconds: how long each stage took.
    """

    config: InspectConfig
    loaded: LoadedModel
    layers: tuple[LayerInfo, ...]
    sources: list[ImageSource | ImageFile]
    skipped: list[SkippedImage]
    plan: Plan
    fitter: Fitter
    style: GridStyle
    limits: dict[str, float]
    edits: Edits
    scorer: Callable[..., ScoreTensor] | None = None
    cams: tuple[LayerInfo, ...] = ()
    workers: int = 0
    channels_last: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_long(self) -> bool:
        """Whether there are more images than one part holds."""
        return len(self.sources) > part_size(self.config.batch_size)

    @property
    def planned_names(self) -> names.PlannedNames:
        """The names that the run may write."""
        return plan_names(self.config, self.sources)

    @property
    def way(self) -> str:
        """What of the way a part is run depends on how many images there are; parts of another do not add up."""
        way = f"{self.style.mode}, {self.shows_all}, {self.channels_last}, {len(self.sources) > 1}"
        unasked = self.config.sketch is None  # what was asked for is held by the command
        return way + ", sketches" * (unasked and self.plan.sketches)

    @property
    def shows_all(self) -> bool:
        """Whether what the network saw is kept of every image."""
        return len(self.sources) <= MOST_IMAGES


def outline_run(
    config: InspectConfig,
) -> tuple[LoadedModel, tuple[LayerInfo, ...], list[ImageSource | ImageFile], list[SkippedImage]]:
    """The model without weights, the chosen layers, the images, and what was named and is no image."""
    sources, skipped = find_sources(config)
    from hookcli.edits.resolve import check_edits
    from hookcli.hooks.filter import select_layers
    from hookcli.models.load import build_skeleton

    loaded = build_skeleton(config.model)
    sources, unfit = fit_sources(make_fitter(config, loaded), sources)
    chosen = select_layers(loaded.module, config.layers, config.exclude)
    check_edits(loaded.module, config.edits, config.edited_side, config.prunes)
    if config.backward is not None:
        loaded.scorer(config.backward)
        _select_cams(config, loaded)
    return loaded, chosen, sources, [*skipped, *unfit]


def plan_run(config: InspectConfig) -> Plan:
    """What ``inspect_images(config)`` would do; loads no weights and writes nothing."""
    loaded, chosen, sources, skipped = outline_run(config)
    from hookcli.plan.estimate import make_plan

    plan = make_plan(
        config, loaded, chosen, sources, _choose_style(config, sources), _out_dir(config, sources)
    )
    return replace(plan, skipped=tuple(skipped))


def prepare_run(config: InspectConfig, found: Sources | None = None) -> PreparedRun:
    """Find the images, unless they are ``found``, load the model, choose the layers.

    Raises:
        RequestError: an option has a value that does not exist, or no layer matched.
        NoImageError: no image could be used.
        ModelError: the model could not be loaded.
        CompleteError: there is nothing left to resume.
    """
    clock = Clock()
    sources, skipped = found or find_sources(config)
    if config.save_weights is not None:
        config = replace(config, save_weights=full_name(config.save_weights))
    clock.lap("read images")
    from hookcli.edits.resolve import plan_edits
    from hookcli.hooks.filter import select_layers
    from hookcli.models.load import load_model
    from hookcli.plan.estimate import make_plan

    clock.lap("import torch")
    loaded = load_model(config.model)
    fitter = make_fitter(config, loaded)
    sources, unfit = fit_sources(fitter, sources)
    chosen = select_layers(loaded.module, config.layers, config.exclude)
    edits = plan_edits(
        loaded.module, config.edits, config.edited_side, config.prunes, config.model.seed
    )
    backward = config.backward
    clock.lap("load model")
    style, out_dir = _choose_style(config, sources), _out_dir(config, sources)
    return PreparedRun(
        config,
        loaded,
        chosen,
        sources,
        [*skipped, *unfit],
        make_plan(config, loaded, chosen, sources, style, out_dir),
        fitter,
        style,
        RULES | dict(config.rules),
        edits,
        loaded.scorer(backward, needs_gradient=config.ablation is None) if backward else None,
        _select_cams(config, loaded),
        workers=count_workers(config, sources),
        channels_last=(len(sources) > 1 or config.ablation is not None)
        and not config.compared
        and loaded.use_channels_last(),
        seconds=clock.seconds,
    )


def _select_cams(config: InspectConfig, loaded: LoadedModel) -> tuple[LayerInfo, ...]:
    from hookcli.hooks.filter import select_layers

    cams = config.backward.cams if config.backward else ()
    return select_layers(loaded.module, cams) if cams else ()


def find_sources(config: InspectConfig) -> Sources:
    """The images, and what was named and is none: a few are read at once, of many only the files are found.

    Raises:
        RequestError: an option has a value that does not exist.
        NoImageError: there is no image.
        CompleteError: there is nothing left to resume.
        OutputError: the run folder is protected or in use.
    """
    check_values(config)
    files, skipped = find_files(
        config.images,
        recursive=config.recursive,
        null_separated=config.null_separated,
        keep_folders=config.clip,
        leave_out=config.out,
    )
    sources: list[ImageSource | ImageFile] = []
    if len(files) <= _EAGER or config.clip:
        read, unread = read_images(files, clip_frames=CLIP_FRAMES * config.clip)
        sources += read
        skipped += unread
    else:
        sources += list_images(files)
    require_image(sources, skipped)
    if config.ablation is not None or config.compared:
        return sources, skipped  # nothing is written
    folder = _out_dir(config, sources)
    if config.resume:
        weights = config.model.weights
        known = hash_file(weights) if os.path.isfile(weights) else ""  # noqa: PTH113  pathlib's may raise
        finish_resume(folder, to_command(config), known)
    check_folder(
        folder,
        plan_names(config, sources),
        replace_run=config.out is None or config.resume,
        replace_any=config.overwrite,
    )
    return sources, skipped


def _choose_style(config: InspectConfig, sources: Sequence[object]) -> GridStyle:
    """The style with a mode that is not ``auto``; gradients have signs."""
    grids = replace(config.grids, signed=config.backward is not None)
    if grids.mode != "auto":
        return grids
    words = set(config.images)
    named = all(not isinstance(source, ImageFile) or source.file in words for source in sources)
    mode: GridMode = "layers" if named else "sheet"
    return replace(grids, mode="none" if len(sources) > MOST_IMAGES else mode)


def plan_names(
    config: InspectConfig, sources: Sequence[ImageSource | ImageFile]
) -> names.PlannedNames:
    """The names that a run over these images may write."""
    mode = _choose_style(config, sources).mode
    pictures = {names.SEEN} | {"layers": {names.GRIDS}, "sheet": {names.SHEETS}}.get(mode, set())
    optional = {names.OVERVIEW} if config.overview else set()
    if len(sources) > 1 and config.top_images:
        optional.add(names.TOP_IMAGES)
    if config.backward is not None:
        optional.add(names.GRADIENT_FLOW)
        pictures |= {names.CAM} if config.backward.cams else set()
        pictures |= {names.SALIENCY} if config.backward.saliency else set()
    return names.PlannedNames(
        frozenset(source.key for source in sources),
        frozenset(pictures),
        frozenset(optional),
        tensors=config.save is not None,
    )


def _out_dir(config: InspectConfig, sources: Sequence[ImageSource | ImageFile]) -> Path:
    name = sources[0].key
    if len(sources) > 1 or len(config.images) > 1:
        first = Path(os.path.realpath(config.images[0]))  # pathlib's raises for what is no name
        name = (first if os.path.isdir(first) else first.parent).name  # noqa: PTH112
    return config.out or Path("hookcli-runs") / f"{safe_name(config.model.name)}-{safe_name(name)}"
