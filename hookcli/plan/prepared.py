"""Prepare a run's model, score and settings, and estimate its disk use; this imports torch."""

from __future__ import annotations

from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch.nn.parameter import is_lazy

from hookcli.config import SIDES, InspectConfig
from hookcli.edits.grammar import read_prune
from hookcli.edits.pruning import Pruning, prune_model
from hookcli.edits.resolve import list_edited_forms, resolve_edits
from hookcli.errors import HookcliError, NoBoxError, NoImageError, NoLayerMatchedError, RequestError
from hookcli.hooks.filter import read_forms, select_layers
from hookcli.hooks.layers import list_layers
from hookcli.hooks.nested import choose_tensor
from hookcli.images.fit import make_fitter, replace_kept
from hookcli.images.prepare import FirstImage, count_workers, release_pictures
from hookcli.networks.device import count_threads
from hookcli.networks.graph_file import check_graph_request
from hookcli.networks.load import LoadedModel, build_skeleton, load_model
from hookcli.networks.own_code import is_as_it_is
from hookcli.networks.scores import read_aim
from hookcli.networks.task import Aim
from hookcli.passes.attention_run import AttentionSettings
from hookcli.passes.call import goes_through, run_model, takes_grey
from hookcli.passes.cam_layer import choose_cam_layer
from hookcli.passes.eager import EagerRunner
from hookcli.passes.features import find_feature_call
from hookcli.passes.find_operations import find_named_operations, infer_layouts
from hookcli.passes.find_reading import settle_reading
from hookcli.passes.graph_runner import GraphRunner
from hookcli.passes.runner import Side
from hookcli.passes.runners import make_runner, open_graph
from hookcli.passes.unchanged import unchanged
from hookcli.plan.folder import name_folder
from hookcli.plan.scorers import Scoring
from hookcli.products.catalog import list_products
from hookcli.products.figures import keeps_sketches
from hookcli.products.focus import find_focus, map_box
from hookcli.products.product import Outlook, Scope
from hookcli.records.calls import ROOT_LABEL
from hookcli.records.rules import RULES
from hookcli.records.runs import ASSUMED, MOST_IMAGES, UNPREPARED, FeatureCall
from hookcli.records.text import and_more
from hookcli.summary.chunks import FORM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from torch import Tensor, nn

    from hookcli.config import (
        AblationConfig,
        At,
        BackwardStyle,
        CompareConfig,
        EditedSide,
        ModelRequest,
        RunConfig,
        RunRequest,
        VariantRequest,
    )
    from hookcli.images.fit import Fitter
    from hookcli.images.read import ImageSource
    from hookcli.networks.description import ModelDescription
    from hookcli.networks.scores import Scorer, ScoreTensor
    from hookcli.outside.urls import Location
    from hookcli.passes.runner import Runner
    from hookcli.plan.images import FoundImages
    from hookcli.records.calls import LayerInfo
    from hookcli.records.images import SkippedImage

M = TypeVar("M", bound="ModelDescription")
MOST_MAP_BYTES = 4_000_000  # all maps on the page of a run, uncompressed
_BOX_SHARE = 0.02  # side of the box around the pixel of ``--patch``, as a share of the image side
_PAGE_BYTES = 250_000  # per image in the page, its JSON and the manifest
_FILES = 5  # run.json, layers.csv, report.json, report.html, manifest.json


@dataclass(frozen=True, slots=True)
class PreparedModel:
    request: RunRequest
    loaded: ModelDescription  # only a description if PyTorch does not run the model
    runner: Runner
    sources: list[ImageSource]  # in order; of many, each is read when it is needed
    skipped: list[SkippedImage]
    fitter: Fitter
    first: FirstImage  # returns the pixels of the first usable image, for trials of the model


@dataclass(frozen=True, slots=True)
class EagerModel(PreparedModel):
    loaded: LoadedModel
    runner: EagerRunner

    def scoring(self, style: BackwardStyle) -> Scoring:
        return Scoring(style, self.request, self.loaded, self.runner, self.fitter)


def require_eager(model: PreparedModel, what: str) -> EagerModel:
    if isinstance(model, EagerModel):
        return model
    raise RequestError(
        f"{what} needs the modules of a model, and {model.loaded.info.name} runs without them",
        "name the PyTorch model itself",
    )


def _refuse_unless_eager(model: PreparedModel, asked: Mapping[str, object]) -> None:
    request = model.request
    for option, value in {"`edits`": request.edits, "`prunes`": request.prunes, **asked}.items():
        if value:
            require_eager(model, option)


@dataclass(frozen=True, slots=True)
class RunSettings(Scope):
    plan: Plan
    limits: dict[str, float]  # the thresholds by rule
    threads: int  # of torch
    channels_last: bool  # of pixels and weights, which is faster for convolutions
    cams: tuple[str, ...] = ()  # the forms of ``--cam``, with a layer in place of ``auto``

    @property
    def is_long(self) -> bool:
        return self.images > self.chunk_size

    @property
    def merge_key(self) -> str:
        """The settings, as text, that two chunks (parts of a run) must share to be merged."""
        # They depend on the number of images and on how this version saves chunks. The user's own
        # options are in the recorded command.
        shows_all = self.images <= MOST_IMAGES
        key = f"form {FORM}, {self.style.mode}, {shows_all}, {self.channels_last}, "
        key += f"{self.has_several}, {self.threads} threads"
        sketches_by_default = self.config.tensors.sketch is None and self.plan.sketches
        return f"{key}, sketches" if sketches_by_default else key


@dataclass(frozen=True, slots=True)
class PreparedRun:
    model: PreparedModel
    settings: RunSettings
    # By ``Call.target``; empty without a backward pass.
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    cams: tuple[LayerInfo, ...] = ()
    cam_reason: str = ""  # why ``--cam auto`` chose its layer
    focus: Tensor | None = None  # (2, H, W): inside and outside the box of ``--focus``
    workers: int = 0  # how many processes prepare images
    features: FeatureCall | None = None  # the saved call that has the features of the model
    seconds: dict[str, float] = field(default_factory=dict)  # how long each stage has taken


@dataclass(frozen=True, slots=True)
class PreparedAblation:
    model: EagerModel
    config: AblationConfig
    scorer: Callable[..., ScoreTensor]
    channels_last: bool


def prepare_model(
    request: RunRequest,
    found: FoundImages,
    edited_side: EditedSide = "output",
    at: At = "output",
    *,
    has_weights: bool = True,
    finds_operations: bool = False,
    taken: Collection[int] = (),
) -> PreparedModel:
    # Without weights, only to plan a run. With ``finds_operations``, the runner knows all
    # operations. Modules and parameters whose Python ``id`` is in ``taken`` are copied.
    if request.model.is_file:
        check_graph_request(request.model)
        graph_runner, described = open_graph(request.model)
        described, images = _fit_images(described, request, found)
        graph_runner = graph_runner.choosing(request.layers, request.exclude)
        model = PreparedModel(request, described, graph_runner, *images)
        _refuse_unless_eager(model, {})
        return model
    load = partial(load_model, taken=taken) if has_weights else build_skeleton
    loaded = load(request.model)
    bands = 1 if takes_grey(loaded) else found.bands
    loaded, images = _fit_images(loaded.for_bands(request.model, bands), request, found)
    if has_weights:
        loaded = settle_reading(loaded)
    also = ("op:*",) if finds_operations else ()
    runner = _make_eager(loaded, request, at, edited_side, also, has_weights=has_weights)
    return EagerModel(request, loaded, runner, *images)


def _make_eager(
    loaded: LoadedModel,
    request: RunRequest,
    at: At,
    edited_side: EditedSide,
    also: Sequence[str],
    *,
    has_weights: bool,
) -> EagerRunner:
    """Make the runner of a PyTorch model: choose layers, prune weights, and resolve edits.

    This prunes the module of ``loaded`` in place, unless ``has_weights`` is False. hookcli searches
    for operations if a filter of the request or in ``also``, such as ``op:add``, chooses some.
    """
    module, edited = loaded.module, list_edited_forms(request.edits)
    operations = find_named_operations(loaded, request.layers, request.exclude, edited, also)
    choose = partial(select_layers, module, request.layers, request.exclude)
    chosen = choose(operations)
    for text in request.prunes:
        select_layers(module, [read_prune(text).layers])
    pruning = prune_model(module, request.prunes, request.model.seed) if has_weights else Pruning()
    with pruning.undone_on_error():
        edits = resolve_edits(module, request.edits, edited_side, operations)
        chosen = infer_layouts(loaded, chosen)
        inferred = (replace(e, layers=infer_layouts(loaded, e.layers)) for e in edits.resolved)
        edits = replace(edits, resolved=tuple(inferred))
    return replace(
        EagerRunner.of(loaded, chosen, at),
        edits=edits,
        pruning=pruning,
        operations=operations,
        choose=choose,
    )


def prepare_side(
    request: VariantRequest,
    found: FoundImages,
    at: At,
    *,
    judges_all: bool = False,
    beside: Side | None = None,
) -> Side:
    # With ``judges_all``, the runner also observes all leaf layers and all operations. Modules that
    # the model would share with the side ``beside`` are copied for this side.
    parts = {} if beside is None else _list_unshared(beside, request)
    taken = {each for each, can_copy in parts.items() if can_copy}
    model = prepare_model(request.run, found, at=at, finds_operations=judges_all, taken=taken)
    if parts.keys() & model.runner.parts.keys():
        raise RequestError(
            f"{request.run.model.name} returns the same modules again, and the other side has "
            "changed them",
            "name a function that makes a new model each time: FILE.py:FUNCTION",
        )
    runner, listed = model.runner, model.runner.layers
    if isinstance(model, EagerModel):
        runner = replace(
            model.runner.judging_all() if judges_all else model.runner,
            channels_last=request.channels_last,
            threads=request.threads,
            seed=request.run.model.seed,
            autocast=request.autocast,
            keeps_state=request.repeats,
        )
        _check_variant(request, model.loaded)
    elif judges_all and isinstance(runner, GraphRunner):
        runner = runner.judging_all()
    only_eager = {"channels-last": request.channels_last, "threads": request.threads}
    only_eager |= {"batch": request.among, "repeat": request.repeats}
    more = {"autocast": request.autocast, "`at`": at != "output"}
    _refuse_unless_eager(model, {**only_eager, **more})
    images = model.sources, model.skipped, model.fitter
    return Side(request, model.loaded, runner, listed, *images)


def _check_variant(request: VariantRequest, loaded: LoadedModel) -> None:
    if request.autocast and loaded.info.dtype != "float32":
        what = f"autocast needs weights in float32, and the model runs in {loaded.info.dtype}"
        raise RequestError(what, "leave out dtype")
    shared = () if loaded.extra is None else loaded.extra.shared
    if request.among and (shared or not loaded.task.shares_forward):
        why = f": the first axis of {', '.join(shared)} is not 1" if shared else ""
        raise RequestError(f"batch: {loaded.info.name} runs one image at a time{why}")


def prepare_repeat(a: Side, request: VariantRequest) -> Side:
    """Return a side with the same model as side A, which draws other random numbers."""
    assert isinstance(a.runner, EagerRunner)  # noqa: S101  others were refused for side A
    runner = replace(a.runner, seed=request.run.model.seed + 1)
    note = _note_redrawn(runner.module, a.model, request.run.model)
    return replace(a, request=request, runner=runner, note=note)


def _note_redrawn(module: nn.Module, known: ModelDescription, request: ModelRequest) -> str:
    # only of the user's code, which may forget weights; hookcli reports random weights of others
    if not isinstance(known, LoadedModel) or known.source.is_known or not known.info.trained:
        return ""
    other = dict(load_model(replace(request, seed=request.seed + 1)).module.named_parameters())
    kept = ((n, p, other[n]) for n, p in module.named_parameters() if n in other and not is_lazy(p))
    drawn = [n for n, *pair in kept if not torch.equal(*(each.nan_to_num() for each in pair))]
    more = and_more(len(drawn) - 1, " (and {} more parameter{s})")
    return f"{drawn[0]}{more} is drawn anew each time the model is made" if drawn else ""


def _list_unshared(a: Side, b: VariantRequest) -> dict[int, bool]:
    """Map the ``id`` of each module and parameter of side A that side B must not use to a flag.

    The flag is True if B may use a copy, and False if A has changed the module or parameter from
    what the user's code made.
    """
    one, two = a.request.run, b.run
    if one.model == two.model and not (b.channels_last or one.prunes or two.prunes):
        return {}  # the sides run in turn, and neither changes its modules
    has_new_mode = two.model.mode == "as-made" != one.model.mode
    own = str(one.model.dtype if is_as_it_is(one.model.name) else "float32")
    has_new_values = bool(one.prunes) or any(
        getattr(one.model, name) not in (getattr(two.model, name), *usual)
        for name, usual in {"dtype": [own, "float32"], "weights": ["auto", "random"]}.items()
    )
    return {
        each: not (has_new_mode or (has_new_values and has_values))
        for each, has_values in a.runner.parts.items()
    }


def prepare_export(a: Side, config: CompareConfig, found: FoundImages) -> tuple[Side, Side]:
    request = config.other
    assert request.export is not None  # noqa: S101  the caller has checked this
    b = a
    if request.run != a.request.run:
        b = prepare_side(replace(request, export=None), found, "output", beside=a)
    if not (isinstance(a.runner, EagerRunner) and isinstance(b.runner, EagerRunner)):
        what = f"{a.info.name} is a file already, and {request.export.way} needs a PyTorch model"
        raise RequestError(what, "compare two files, with model=FILE.onnx")
    with closing(b.runner) if b is not a else nullcontext():
        pixels = FirstImage(b.fitter, b.sources)()
        if pixels is None:
            raise NoImageError("no image can be prepared for the model")
        # The exporter sees the same functions as A's run, and leaves tensors without values behind.
        with a.runner.ready(), b.runner.unchanged():
            runner = make_runner(request.export, b.runner, pixels, request.run.model.provider)
    shown = {layer.module_path for layer in a.layers}
    pairs_all = config.match == "order"
    listed = tuple(e for e in runner.layers if e.module_path in shown or (pairs_all and e.is_leaf))
    judged = [layer for layer in runner.layers if layer.is_leaf and layer not in listed]
    runner = replace(
        runner,
        layers=(*listed, *(judged if config.judges_all else ())),
        input_layout=request.run.model.input_layout,
    )
    return a, replace(b, request=request, runner=runner, layers=listed)


def list_outputs(side: Side) -> Side:
    """Return ``side`` with the whole model among the layers, so that its outputs are compared."""
    runner = side.runner
    if isinstance(runner, EagerRunner):
        root = list_layers(runner.module)[0]
    elif isinstance(runner, GraphRunner):
        root = runner.graph.root
    else:
        return side
    both = runner.layers, side.layers
    observed, listed = (each if root in each else (*each, root) for each in both)
    return replace(side, runner=replace(runner, layers=observed), layers=listed)


def settle_run(config: RunConfig, model: PreparedModel, *, has_weights: bool = True) -> PreparedRun:
    features = None
    if has_weights and config.tensors.save is not None and isinstance(config, InspectConfig):
        config, model, features = _restrict(config, model)
    backward, scorers = config.backward, None
    if isinstance(model, EagerModel) and backward is not None:
        scorers = model.scoring(backward).make(has_weights=has_weights)
    forms, why = _choose_cams(config, model, scorers if has_weights else None)
    loaded, sources = model.loaded, model.sources
    scope = Scope.of(config, sources)
    focus = find_focus(config.focus, loaded, sources)
    attention, cams = None, 0
    if isinstance(model, EagerModel):
        attention = choose_attention(scope, model.loaded, sources, has_weights=has_weights)
        cams = len(_select_cams(model.loaded, forms))
        cams = min(cams, 1) if backward and backward.cam_mean else cams
    outlook = Outlook(loaded, model.runner, attention, cams)
    plan = make_plan(scope, outlook, name_folder(config, sources))
    is_many = has_weights and scope.has_several
    settings = RunSettings(
        config,
        scope.style,
        scope.images,
        plan=plan,
        limits=RULES | dict(config.findings.rules),
        threads=count_threads(config.machine),
        channels_last=isinstance(loaded, LoadedModel) and is_many and loaded.use_channels_last(),
        cams=forms,
    )
    ready = add_score(model, settings, attention, scorers)
    if has_weights and config.folder.overwrite and config.run.on_error == "stop":
        _try_first(ready)
    workers = count_workers(config.machine.workers, sources)
    return replace(ready, focus=focus, workers=workers, features=features, cam_reason=why)


def _try_first(prepared: PreparedRun) -> None:
    """Run the model on the first image: if it fails, the run to be replaced must be kept."""
    loaded = prepared.model.loaded
    if isinstance(loaded, LoadedModel):
        with unchanged(loaded.module), suppress(NoBoxError):
            output = run_model(loaded, loaded.pixels_to_try())
            for scorer in prepared.scorers.values():
                if scorer.call is None:  # else it ran when it was made
                    scorer.judged[-1](output)


def _restrict(
    config: InspectConfig, model: PreparedModel
) -> tuple[InspectConfig, PreparedModel, FeatureCall | None]:
    only = config.tensors.only
    if only == "act":
        with suppress(RequestError):  # the model has no module that is an activation
            return *_choose_again(config, model, ("act",)), None
        return *_choose_again(config, model, ("all",), ("leaf", ROOT_LABEL)), None
    sides = SIDES["both"] if only and isinstance(model, EagerModel) else config.sides
    found = None
    with nullcontext() if only else suppress(HookcliError):  # other layers may return anything
        found = find_feature_call(model.loaded, model.runner, sides)
    if found is None and only:
        what = f"it is not known which layer of {model.loaded.info.name} has its features"
        raise RequestError(what, "choose `layers`")
    if found is not None and only:
        config = replace(config, at=cast("At", found[0].side))
        config, model = _choose_again(config, model, (f"path:{found[0].layer.label}",))
    return config, model, found and FeatureCall(found[0].id, found[1])


def _choose_again(
    config: InspectConfig, model: PreparedModel, forms: tuple[str, ...], without: Sequence[str] = ()
) -> tuple[InspectConfig, PreparedModel]:
    run = replace(config.run, layers=forms, exclude=(*config.run.exclude, *without))
    runner = model.runner
    if isinstance(runner, EagerRunner):
        choose = partial(select_layers, runner.module, run.layers, run.exclude)
        chosen = choose(())
        layers = tuple(layer for layer in runner.layers if layer in chosen)
        runner = replace(runner, layers=layers, choose=choose, at=config.at)
    elif isinstance(runner, GraphRunner):
        runner = runner.choosing(run.layers, run.exclude)
    return replace(config, run=run), replace(model, request=run, runner=runner)


def add_score(
    model: PreparedModel,
    settings: RunSettings,
    attention: AttentionSettings | None,
    scorers: Mapping[str, Scorer] | None = None,
) -> PreparedRun:
    config = settings.config
    if not isinstance(model, EagerModel):
        asked = {
            "gradients": config.backward,
            "`at`": config.at != "output",
            "`attention`": config.attention,
            "`save_weights`": config.save_weights,
        }
        _refuse_unless_eager(model, asked)
        return PreparedRun(model, settings)
    backward, loaded = config.backward, model.loaded
    if scorers is None:
        scorers = {} if backward is None else model.scoring(backward).make()
    runner = replace(model.runner, attention=attention, channels_last=settings.channels_last)
    cams = _select_cams(loaded, settings.cams)
    return PreparedRun(replace(model, runner=runner), settings, scorers, cams)


def settle_ablation(
    config: AblationConfig, model: EagerModel, *, has_weights: bool = True
) -> PreparedAblation:
    loaded, target = model.loaded, config.score.target
    if isinstance(read_aim(target, loaded.categories), Aim):
        raise RequestError(f"`target={target!r}`: an ablation scores a class", "`target=CLASS`")
    scorer = loaded.scorer(config.score, target, needs_gradient=False)
    paths = {layer.module_path for layer in model.runner.layers}
    for operation in model.runner.operations:
        if operation.is_view_of(paths):
            raise RequestError(
                f"{operation.layer.label} returns a view or a copy of values with other "
                "uses, so its channels cannot be zeroed",
                "choose what computes the values",
            )
    return PreparedAblation(model, config, scorer, has_weights and loaded.use_channels_last())


def _fit_images(
    loaded: M, request: RunRequest, found: FoundImages
) -> tuple[M, tuple[list[ImageSource], list[SkippedImage], Fitter, FirstImage]]:
    fitter = make_fitter(request.images, loaded, request.model.bands)
    sources, unfit = replace_kept(found.sources, lambda one: fitter.fit(one) if one.kept else None)
    sources, unprepared = release_pictures(fitter, sources)
    first = FirstImage(fitter, sources)
    if request.on_error != "stop" and isinstance(loaded, LoadedModel):
        first = FirstImage(fitter, sources, partial(goes_through, loaded))
    info = loaded.info
    if not any(source.is_picture for source in sources):
        info = replace(info, preprocessing=UNPREPARED)
        if not loaded.knows_input and (pixels := first()) is not None:
            info = replace(info, input_shape=tuple(pixels.shape))
    elif (
        isinstance(loaded, LoadedModel)
        and loaded.source.keeps_format
        and not (request.model.like or (request.model.mean and request.model.std))
    ):
        info = replace(info, notes=(*info.notes, ASSUMED))
    key = request.model.output_key
    choose = None if key is None else partial(choose_tensor, key)
    loaded = replace(loaded, info=info, first=first, choose=choose)
    return loaded, (sources, [*found.skipped, *unfit, *unprepared], fitter, first)


def _choose_cams(
    config: RunConfig, model: PreparedModel, scorers: Mapping[str, Scorer] | None
) -> tuple[tuple[str, ...], str]:
    """Return the forms of ``--cam`` with a layer in place of ``auto``, and the reason or ``""``."""
    forms = (*read_forms(config.backward.cams),) if config.backward else ()
    if "auto" not in forms:
        return forms, ""
    eager = require_eager(model, "`cam`")
    path, why = eager.runner.layers[-1].module_path, ""  # a plan only counts the layers
    if scorers:
        path, why = choose_cam_layer(eager.loaded, eager.runner, next(iter(scorers.values())))
    return tuple(f"path:{path}" if form == "auto" else form for form in forms), why


def _select_cams(loaded: LoadedModel, forms: tuple[str, ...]) -> tuple[LayerInfo, ...]:
    if not forms:
        return ()
    operations = find_named_operations(loaded, forms)
    choose = partial(select_layers, loaded.module, operations=operations)
    chosen = infer_layouts(loaded, choose(forms))  # the Grad-CAMs are in the order of the forms
    order = [layer.module_path for form in forms for layer in choose([form])]
    return tuple(sorted(chosen, key=lambda layer: order.index(layer.module_path)))


def choose_attention(
    scope: Scope, loaded: LoadedModel, sources: Sequence[ImageSource], *, has_weights: bool = True
) -> AttentionSettings | None:
    # ``sources`` are the run's images; a worker of a cluster passes only one of them.
    request = scope.config.attention
    if request is None:
        return None
    operations = find_named_operations(loaded, request.layers)
    try:
        layers = select_layers(loaded.module, request.layers, operations=operations)
    except NoLayerMatchedError as error:
        raise RequestError(f"`attention`: {error.message}", error.hint) from error
    patch = _find_patch(request.patch, loaded, sources)
    if not has_weights:
        return None
    settings = AttentionSettings(
        loaded.module,
        loaded.inputs,
        loaded.pixels_to_try,
        layers=layers,
        point=patch,
        draws=scope.style.mode == "layers",
        rollout=request.rollout,
        keeps=scope.config.tensors.attention,
        limit=MOST_MAP_BYTES // scope.images,
    )
    found = settings.find(loaded.pixels_to_try())
    if not (found.calls or found.hidden):
        hint = "all of the model's: `attention=AttentionRequest(('all',))`"
        if "all" in request.layers:
            hint = "this model shows none: `hookcli.layers(MODEL)` lists what it is made of"
        what = f"`attention` {', '.join(request.layers)}: no attention runs inside these layers"
        raise RequestError(what, hint)
    if request.rollout and (reason := found.refuse_rollout()):
        raise RequestError(f"`rollout` cannot be computed: {reason}", "leave `rollout` out")
    return settings


def _find_patch(
    pixel: tuple[int, int] | None, loaded: LoadedModel, sources: Sequence[ImageSource]
) -> tuple[float, float] | None:
    """Return the position of the only image's ``pixel`` in the model's input: (x, y), 0 to 1."""
    if pixel is None:
        return None
    if len(sources) != 1:
        raise RequestError("`patch` is a pixel of one image", "give one image")
    image = sources[0].read()
    width, height = image.size
    across, down = pixel
    if not (0 <= across < width and 0 <= down < height):
        raise RequestError(
            f"`patch` {across},{down} is not inside the image, which is {width} by {height} pixels"
        )
    reach = max(1, round(min(width, height) * _BOX_SHARE / 2))
    left, top = max(0, across - reach), max(0, down - reach)
    box = (left, top, min(2 * reach, width - left), min(2 * reach, height - top))
    inside = map_box(loaded, image, box, f"`patch` {across},{down}")[0]
    return _find_centre(inside.sum(0).tolist()), _find_centre(inside.sum(1).tolist())


def _find_centre(weights: Sequence[float]) -> float:
    total = sum(weight * (index + 0.5) for index, weight in enumerate(weights))
    return total / sum(weights) / len(weights)


@dataclass(frozen=True, slots=True)
class Plan:
    layers: int
    images: int
    files: int  # about how many, if each layer is called once
    megabytes: float  # about how many at most
    out_dir: Location
    skipped: tuple[SkippedImage, ...] = ()
    grids: str = "layers"
    sketches: bool = False
    operations: int = 0  # how many of the layers are functional operations
    tests: int = 0  # forward passes that test Grad-CAMs


def make_plan(scope: Scope, outlook: Outlook, out_dir: Location) -> Plan:
    costs = [product.estimate(outlook) for product in list_products(scope)]
    has_skipped = scope.images < len(scope.config.run.images.names)  # skipped.csv lists them
    return Plan(
        len(outlook.layers),
        scope.images,
        _FILES + has_skipped + sum(cost.files for cost in costs),
        megabytes=(_PAGE_BYTES + sum(cost.size for cost in costs)) / 1e6,
        out_dir=out_dir,
        grids=scope.style.mode,
        sketches=keeps_sketches(scope),
        operations=sum(layer.is_operation for layer in outlook.layers),
        tests=sum(cost.passes for cost in costs),
    )
