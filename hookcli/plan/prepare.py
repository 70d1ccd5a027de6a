"""Preparing a run: check the options, find the images, load the model, choose the layers, plan.

Errors that can be found before anything is written are raised here. torch is imported only after
the images have been read, so that a wrong path is reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from hookcli.config import CLIP_FRAMES, chunk_size
from hookcli.errors import RequestError
from hookcli.images.find import find_files
from hookcli.images.fit import fit_sources, make_fitter, require_image
from hookcli.images.read import list_images, read_images
from hookcli.images.workers import count_workers
from hookcli.outside.files import full_name
from hookcli.plan.check import check_request, check_run, check_score, check_values
from hookcli.plan.clock import Clock
from hookcli.plan.folder import check_run_folder, choose_style, name_folder, plan_names
from hookcli.products.outlook import Outlook
from hookcli.products.product import Scope
from hookcli.records.rules import RULES
from hookcli.records.runs import MOST_IMAGES, UNPREPARED
from hookcli.store.places.storage import use_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from hookcli.config import (
        AblationConfig,
        BackwardStyle,
        CompareConfig,
        EditedSide,
        GridStyle,
        RunConfig,
        RunRequest,
    )
    from hookcli.edits.pruning import Pruning
    from hookcli.edits.resolve import Edits, ResolvedEdit
    from hookcli.hooks.operations import FoundOperation
    from hookcli.images.fit import Fitter
    from hookcli.images.prepare import FirstImage
    from hookcli.images.read import ImageSource
    from hookcli.models.load import LoadedModel
    from hookcli.models.scores import ScoreTensor
    from hookcli.outside.urls import Place
    from hookcli.passes.attention import AttentionSettings
    from hookcli.plan.estimate import Plan
    from hookcli.records.calls import LayerInfo
    from hookcli.records.images import SkippedImage
    from hookcli.store.places import names

# At most this many images are read before the model is loaded, so that a bad one is reported early.
_MOST_READ_FIRST = 8


@dataclass(frozen=True, slots=True)
class FoundImages:
    """The images that a request names.

    Attributes:
        sources: the images in order; the content of a few is kept, and many are read later.
        skipped: what was named but cannot be used.
    """

    sources: list[ImageSource]
    skipped: list[SkippedImage]


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that is ready to run, and the images for it.

    Attributes:
        request: the request that it was made from.
        loaded: the model.
        layers: the layers that are observed.
        operations: the operations that the first image calls; empty if none is asked for.
        sources: the images in order; in a long run they are read when they are needed.
        skipped: what was named but cannot be used.
        fitter: makes images ready for the model.
        first: the first image that can be used, with which the model is tried beforehand.
        edits: changes to the tensors that pass through the layers.
        pruning: the pruned weights.
    """

    request: RunRequest
    loaded: LoadedModel
    layers: tuple[LayerInfo, ...]
    operations: tuple[FoundOperation, ...]
    sources: list[ImageSource]
    skipped: list[SkippedImage]
    fitter: Fitter
    first: FirstImage
    edits: Edits
    pruning: Pruning

    @property
    def uses_operations(self) -> bool:
        """Whether any functional operation is observed or changed."""
        return self.edits.has_operations or any(layer.is_operation for layer in self.layers)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What was asked of a run and how it will be done; can be sent to another process.

    Attributes:
        config: the request that it was made from.
        plan: what the run will do.
        style: how feature maps are drawn in this run.
        limits: the threshold of every rule.
        image_count: the number of images.
        threads: how many threads torch uses.
        channels_last: pixels and weights are laid out channels last, which is faster for
            convolutions.
    """

    config: RunConfig
    plan: Plan
    style: GridStyle
    limits: dict[str, float]
    image_count: int
    threads: int
    channels_last: bool

    @property
    def has_several(self) -> bool:
        """Whether there is more than one image."""
        return self.image_count > 1

    @property
    def is_long(self) -> bool:
        """Whether there are more images than one chunk holds."""
        return self.image_count > chunk_size(self.config.batch_size)

    @property
    def scope(self) -> Scope:
        """What is asked of the run, as far as its products depend on it."""
        return Scope(self.config, self.style, self.image_count)

    @property
    def merge_key(self) -> str:
        """Settings that must agree before two chunks may be merged.

        They follow from the number of images; settings that the user gave are in the command.
        """
        shows_all = self.image_count <= MOST_IMAGES
        key = f"{self.style.mode}, {shows_all}, {self.channels_last}, {self.has_several}"
        key += f", {self.threads} threads"
        by_default = self.config.tensors.sketch is None
        return key + ", sketches" * (by_default and self.plan.sketches)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready: everything that can be checked beforehand has been checked.

    Attributes:
        model: the model and the images.
        settings: what was asked, and how it will be done.
        scorer: computes the score of an output; None for a run without a backward.
        cams: the layers for each of which a Grad-CAM is drawn.
        attention: what is computed of the attention; None for nothing.
        focus: masks (2, H, W) of the inside and the outside of the box of ``--focus``; None without
            a box.
        workers: how many processes prepare images.
        seconds: how long each stage has taken.
    """

    model: PreparedModel
    settings: RunSettings
    scorer: Callable[..., ScoreTensor] | None = None
    cams: tuple[LayerInfo, ...] = ()
    attention: AttentionSettings | None = None
    focus: Tensor | None = None
    workers: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def planned_names(self) -> names.PlannedNames:
        """The names of the files that the run may write."""
        return plan_names(self.settings.config, self.model.sources)


@dataclass(frozen=True, slots=True)
class PreparedAblation:
    """An ablation that is ready.

    Attributes:
        model: the model and the images.
        config: the request that it was made from.
        scorer: computes the score of an output.
        channels_last: pixels and weights are laid out channels last, which is faster for
            convolutions.
    """

    model: PreparedModel
    config: AblationConfig
    scorer: Callable[..., ScoreTensor]
    channels_last: bool


def prepare_run(config: RunConfig) -> PreparedRun:
    """Make a run ready: find the images, load the model, choose the layers.

    Raises:
        RequestError: an option has a value that it cannot have, or no layer matched.
        NoImageError: no image could be used.
        ModelError: the model could not be loaded.
        OutputError: the run folder is protected or in use.
        CompleteError: there is nothing left to resume.
    """
    clock = Clock()
    check_run(config)
    found = find_images(config.run, config.folder.out, config.machine.storage)
    check_run_folder(config, found.sources, cleans_up=True)
    if config.save_weights is not None:
        config = replace(config, save_weights=full_name(config.save_weights))
    clock.lap("read images")
    prepared = prepare_model(config.run, found, config.edited_side, clock)
    with prepared.pruning.undone_on_error():
        return _plan_and_score(config, prepared, clock)


def _plan_and_score(config: RunConfig, prepared: PreparedModel, clock: Clock) -> PreparedRun:
    from hookcli.models.device import count_threads
    from hookcli.plan.estimate import add_attention, make_plan
    from hookcli.plan.focus import find_focus

    loaded, sources = prepared.loaded, prepared.sources
    style = choose_style(config, sources)
    folder = name_folder(config, sources)
    settings = RunSettings(
        config,
        make_plan(
            Scope(config, style, len(sources)), Outlook(loaded, prepared.layers, sources), folder
        ),
        style,
        RULES | dict(config.findings.rules),
        len(sources),
        count_threads(config.machine),
        channels_last=len(sources) > 1 and loaded.use_channels_last(),
    )
    ready = add_score(prepared, settings)
    if ready.attention is not None:
        plan = add_attention(settings.plan, ready.attention, settings.scope)
        ready = replace(ready, settings=replace(settings, plan=plan))
    workers = count_workers(config.machine.workers, sources)
    focus = find_focus(config.focus, loaded, sources)
    return replace(ready, focus=focus, workers=workers, seconds=clock.seconds)


def add_score(model: PreparedModel, settings: RunSettings) -> PreparedRun:
    """Return the run of a model, with its score, the layers of its Grad-CAMs and its attention.

    Raises:
        RequestError: there is no such score, target, layer or attention.
    """
    from hookcli.plan.attention import choose_attention

    backward, loaded = settings.config.backward, model.loaded
    scorer = None if backward is None else loaded.scorer(backward)
    attention = choose_attention(
        settings.config, loaded, model.sources, settings.style, settings.image_count
    )
    return PreparedRun(model, settings, scorer, _select_cams(loaded, backward), attention)


def prepare_ablation(config: AblationConfig) -> PreparedAblation:
    """Make an ablation ready.

    Raises:
        RequestError: an option has a value that it cannot have, or no layer matched.
        NoImageError: no image could be used.
        ModelError: the model could not be loaded.
    """
    _check_ablation(config)
    prepared = prepare_model(config.run, find_images(config.run))
    loaded = prepared.loaded
    paths = {layer.module_path for layer in prepared.layers}
    for operation in _find_operations(loaded, config.run):
        if operation.is_view_of(paths):
            raise RequestError(
                f"{operation.layer.label} returns a view or a copy of values that others may use "
                "too, so its channels cannot be zeroed",
                "choose what computes the values",
            )
    return PreparedAblation(
        prepared,
        config,
        scorer=loaded.scorer(config.score, needs_gradient=False),
        channels_last=loaded.use_channels_last(),
    )


def prepare_comparison(config: CompareConfig) -> tuple[PreparedModel, PreparedModel]:
    """Make both variants of a comparison ready; all images are found before a model is loaded.

    Raises:
        RequestError: an option has a value that it cannot have, or no layer matched.
        NoImageError: no image could be used.
        ModelError: a model could not be loaded.
    """
    one, two = config.run, config.other.run
    check_values(config)
    for request in (two, one):
        check_request(request)
    found_one = found_two = find_images(one)
    if one.images != two.images:
        found_two = find_images(two)
        count_one, count_two = len(found_one.sources), len(found_two.sources)
        if (count_one, count_two) != (1, 1):
            raise RequestError(
                "--against image=FILE compares one image with one, "
                f"not {count_one} with {count_two}",
                "give one image on each side",
            )
    prepared = prepare_model(one, found_one)
    with prepared.pruning.undone_on_error():
        return prepared, prepare_model(two, found_two)


def prepare_model(
    request: RunRequest,
    found: FoundImages,
    edited_side: EditedSide = "output",
    clock: Clock | None = None,
) -> PreparedModel:
    """Load the model, choose the layers, prune, and fit the images to the model.

    Args:
        request: the request; its values have been checked.
        found: the images that the request names.
        edited_side: the side of an edit that names none.
        clock: measures how long it takes.

    Raises:
        RequestError: no layer matched, or an edit names something that the model does not have.
        NoImageError: no image fits the model.
        ModelError: the model could not be loaded.
    """
    clock = clock or Clock()
    from hookcli.edits.pruning import prune_model
    from hookcli.edits.resolve import resolve_edits
    from hookcli.hooks.filter import select_layers
    from hookcli.images.prepare import release_pictures
    from hookcli.models.load import load_model
    from hookcli.passes.layouts import infer_layouts

    clock.lap("import torch")
    loaded = load_model(request.model)
    fitter = make_fitter(request.images, loaded)
    sources, unfit = fit_sources(fitter, found.sources)
    sources = release_pictures(fitter, sources)
    loaded, first = _try_with(loaded, request, fitter, sources)
    operations = _find_operations(loaded, request)
    chosen = select_layers(loaded.module, request.layers, request.exclude, operations)
    pruning = prune_model(loaded.module, request.prunes, request.model.seed)
    with pruning.undone_on_error():
        edits = resolve_edits(loaded.module, request.edits, edited_side, operations)
        chosen = infer_layouts(loaded, chosen)
        edits = replace(edits, resolved=_infer_edited(loaded, edits.resolved))
    clock.lap("load model")
    skipped = [*found.skipped, *unfit]
    return PreparedModel(
        request, loaded, chosen, operations, sources, skipped, fitter, first, edits, pruning
    )


def plan_run(config: RunConfig) -> Plan:
    """Return what a run would do; no weights are loaded and nothing is written.

    Raises:
        HookcliError: as ``prepare_run``.
    """
    check_run(config)
    found = find_images(config.run, config.folder.out, config.machine.storage)
    check_run_folder(config, found.sources, cleans_up=False)
    from hookcli.plan.attention import choose_attention_layers, find_patch
    from hookcli.plan.estimate import make_plan
    from hookcli.plan.focus import find_focus

    outline = outline_model(config.run, found, config.edited_side)
    find_focus(config.focus, outline.loaded, outline.sources)
    if config.attention is not None:
        choose_attention_layers(config.attention, outline.loaded)
        find_patch(config.attention.patch, outline.loaded, outline.sources)
    if config.backward is not None:
        outline.loaded.scorer(config.backward)
        _select_cams(outline.loaded, config.backward)
    sources = outline.sources
    style, folder = choose_style(config, sources), name_folder(config, sources)
    outlook = Outlook(outline.loaded, outline.layers, sources)
    plan = make_plan(Scope(config, style, len(sources)), outlook, folder)
    return replace(plan, skipped=tuple(outline.skipped))


def outline_ablation(config: AblationConfig) -> PreparedModel:
    """Return the model and the images of an ablation; the model has no weights.

    Raises:
        HookcliError: as ``prepare_ablation``.
    """
    _check_ablation(config)
    outline = outline_model(config.run, find_images(config.run))
    outline.loaded.scorer(config.score, needs_gradient=False)
    return outline


def outline_model(
    request: RunRequest, found: FoundImages, edited_side: EditedSide = "output"
) -> PreparedModel:
    """Return what ``prepare_model`` returns, but with a model without weights and pruning.

    Raises:
        HookcliError: as ``prepare_model``.
    """
    from hookcli.edits.pruning import Pruning, check_prunes
    from hookcli.edits.resolve import resolve_edits
    from hookcli.hooks.filter import select_layers
    from hookcli.models.load import build_skeleton
    from hookcli.passes.layouts import infer_layouts

    loaded = build_skeleton(request.model)
    fitter = make_fitter(request.images, loaded)
    sources, unfit = fit_sources(fitter, found.sources)
    loaded, first = _try_with(loaded, request, fitter, sources)
    operations = _find_operations(loaded, request)
    chosen = select_layers(loaded.module, request.layers, request.exclude, operations)
    check_prunes(loaded.module, request.prunes)
    edits = resolve_edits(loaded.module, request.edits, edited_side, operations)
    chosen = infer_layouts(loaded, chosen)
    edits = replace(edits, resolved=_infer_edited(loaded, edits.resolved))
    skipped = [*found.skipped, *unfit]
    return PreparedModel(
        request, loaded, chosen, operations, sources, skipped, fitter, first, edits, Pruning()
    )


def _try_with(
    loaded: LoadedModel,
    request: RunRequest,
    fitter: Fitter,
    sources: Sequence[ImageSource],
) -> tuple[LoadedModel, FirstImage]:
    """Return a model that is tried with the first image that can be used, and this image.

    The facts about the model say so if nothing prepares the images.
    With ``--on-error skip``, it is the first at which the model does not fail.
    """
    from hookcli.images.prepare import FirstImage
    from hookcli.passes.unchanged import goes_through

    accepts = (lambda _: True) if request.on_error == "stop" else partial(goes_through, loaded)
    first = FirstImage(fitter, sources, accepts)
    info = loaded.info
    if all(source.holds_pixels for source in sources):
        info = replace(info, preprocessing=UNPREPARED)
        if not loaded.source.is_known and (pixels := first()) is not None:
            info = replace(info, input_shape=tuple(pixels.shape))
    return replace(loaded, info=info, first=first), first


def find_images(
    request: RunRequest,
    leave_out: Place | None = None,
    storage: tuple[tuple[str, str], ...] = (),
) -> FoundImages:
    """Find the images; a few are read at once, but for many only the files are listed.

    Args:
        request: the request that names the images.
        leave_out: a folder whose files are not used as images.
        storage: options of the storages that hold what is named by a URL; this process uses them
            from here on.

    Raises:
        RequestError: a list of names cannot be read.
        NoImageError: there is no image.
    """
    use_options(storage)
    images = request.images
    files, skipped = find_files(
        images.names,
        recursive=images.recursive,
        null_separated=images.null_separated,
        keep_folders=images.clip,
        leave_out=leave_out,
    )
    if len(files) <= _MOST_READ_FIRST or images.clip:
        sources, unread = read_images(files, clip_frames=CLIP_FRAMES * images.clip)
        skipped += unread
    else:
        sources = list_images(files)
    require_image(sources, skipped)
    return FoundImages(sources, skipped)


def _check_ablation(config: AblationConfig) -> None:
    check_values(config)
    check_request(config.run)
    check_score(config.score)


def _select_cams(loaded: LoadedModel, backward: BackwardStyle | None) -> tuple[LayerInfo, ...]:
    from hookcli.hooks.filter import select_layers
    from hookcli.passes.find_operations import find_named_operations
    from hookcli.passes.layouts import infer_layouts

    cams = () if backward is None else backward.cams
    if not cams:
        return ()
    operations = find_named_operations(loaded, cams)
    return infer_layouts(loaded, select_layers(loaded.module, cams, operations=operations))


def _infer_edited(loaded: LoadedModel, edits: tuple[ResolvedEdit, ...]) -> tuple[ResolvedEdit, ...]:
    """Return edits with the layouts that could be inferred for their layers."""
    from hookcli.passes.layouts import infer_layouts

    return tuple(replace(edit, layers=infer_layouts(loaded, edit.layers)) for edit in edits)


def _find_operations(loaded: LoadedModel, request: RunRequest) -> tuple[FoundOperation, ...]:
    """Return the operations of the model, if the request chooses or edits any."""
    from hookcli.edits.resolve import list_edited_forms
    from hookcli.passes.find_operations import find_named_operations

    edited = list_edited_forms(request.edits)
    return find_named_operations(loaded, request.layers, request.exclude, edited)
