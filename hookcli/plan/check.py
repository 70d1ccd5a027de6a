"""Check options before a model is loaded: values, limits, and options that exclude each other."""

from __future__ import annotations

import difflib
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.config import (
    DEFAULTS,
    EMBER,
    GRAPH_FILES,
    GRAPH_NAMES,
    SCORES,
    AttentionRequest,
    BackwardStyle,
    InspectConfig,
)
from hookcli.edits.grammar import read_edit, read_prune
from hookcli.errors import OutputError, RequestError
from hookcli.networks.recipe import read_recipe
from hookcli.outside import parse
from hookcli.outside.files import split_key
from hookcli.outside.flags import list_values
from hookcli.outside.foreign import require_package
from hookcli.outside.urls import HELD, IN_MEMORY, choose
from hookcli.records.rules import RULES, SHARES
from hookcli.records.text import count
from hookcli.store.ownership import refuse_in_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import (
        ClusterRequest,
        FindingRequest,
        FolderRequest,
        GridStyle,
        ImageRequest,
        ModelRequest,
        RunConfig,
        RunRequest,
        ScoreRequest,
    )
    from hookcli.edits.grammar import Side
    from hookcli.products.product import Scope

_MOST_IMAGES, _MOST_MEGABYTES = 200, 1000  # of a run in memory
# A short list of common extensions, so that no library of pictures has to be imported.
_PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".png", ".tif", ".tiff", ".webp"}


def check_request(
    request: RunRequest, *, edited_side: Side = "output", with_gradients: bool = False
) -> None:
    model = request.model
    read_recipe(model.preprocess)
    _check_words(request)
    _check_colours(model)
    _check_reading(request.images)
    if model.std is not None and min(model.std) <= 0:
        raise RequestError("`std` must be greater than 0")
    if not 0 <= model.seed < 1 << 63:
        raise RequestError(f"`seed` must be from 0 to 2**63 - 1, not {model.seed}")
    for text in request.prunes:
        read_prune(text)
    for text in request.edits:
        side_name = read_edit(text, edited_side).side
        if not with_gradients and side_name not in ("output", "input"):
            what = f"`edits` {text!r}: {side_name} is a gradient, and this command computes none"
            raise RequestError(what, "edit gradients in: `hookcli.gradients`")


def check_file_options(*models: ModelRequest, exports_onnx: bool = False) -> None:
    _check_recipe(models[0])  # of side A; the recipe of ``against`` applies on top of A's options
    like, layout, provider = (
        next(filter(None, (getattr(each, name) for each in models)), None)
        for name in ("like", "input_layout", "provider")
    )
    is_held = like and any(each.name.endswith(IN_MEMORY) for each in models)
    is_used = is_held or any(each.is_file for each in models)
    if (like or (layout and not exports_onnx)) and not is_used:
        option = f"`like={like!r}`" if like else f"`input_layout={layout!r}`"
        what = f"{option} is for files of models, and {models[0].name} knows its images"
        raise RequestError(what, f"name a file: {GRAPH_NAMES}")
    runs_onnx = exports_onnx or any(each.name.endswith(GRAPH_FILES["onnx"]) for each in models)
    if provider is not None and not runs_onnx:
        what = f"`provider={provider!r}` is for ONNX files, and {models[0].name} is none"
        raise RequestError(what, "for PyTorch models: `device='cuda'`")


def check_memory(images: int, megabytes: float = 0) -> None:
    # The size is known only after planning, which may need a forward pass of the first image.
    if images > _MOST_IMAGES or megabytes > _MOST_MEGABYTES:
        size = f" and up to about {megabytes:,.0f} MB" if megabytes else ""
        raise RequestError(
            f"{count(images, 'image')}{size} are too much for memory, which takes "
            f"{_MOST_IMAGES} images and {_MOST_MEGABYTES} MB",
            "name a folder with `out`",
        )


def check_kept(file: Path, way: str) -> None:
    suffix = GRAPH_FILES[way]
    if file.suffix != suffix:
        hint = str(file.with_suffix(suffix))
        raise RequestError(f"{way} writes {suffix}, not {file.name!r}", hint)
    for each in (file, file.with_name(f"{file.name}.data")):
        if each.is_symlink() or each.exists():
            raise OutputError(f"{str(each)!r} already exists", "name another file")
    refuse_in_run(file)
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {str(file)!r}", "name a file in an existing folder")


_MODEL = re.compile(r"[a-z]+[\w:/-]*\d[\w:/-]*")  # resnet18, timm:resnet18, vit_b_16


def _check_words(request: RunRequest) -> None:
    name, images = request.model.name, request.images.names
    first = images[0] if images else ""
    is_model = _MODEL.fullmatch(first) and not _MODEL.fullmatch(name) and "." not in first
    is_folder = is_model and os.path.isdir(name) and not os.path.lexists(first)  # noqa: PTH112
    if images and (is_folder or Path(name).suffix.lower() in _PICTURES):
        what = "a folder" if is_folder else "an image"
        hint = f"give {images[0]!r} as the model, and {name!r} as {what.replace('a f', 'the f')}"
        raise RequestError(f"the model comes before the images, and {name!r} is {what}", hint)
    for word in images:
        is_layer = re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", word) and re.search(r"\d$|\.\d", word)
        if is_layer and request.layers != DEFAULTS.run.layers and not os.path.exists(word):  # noqa: PTH110  pathlib's may raise
            forms = ",".join((*request.layers, word))
            hint = f"several layers are one word: `layers={(forms,)!r}`"
            raise RequestError(f"there is no image {word!r}", hint)


def check_run(config: RunConfig) -> None:
    backward = config.backward
    check_values(config)
    check_file_options(config.run.model)
    check_request(config.run, edited_side=config.edited_side, with_gradients=backward is not None)
    if backward is not None:
        check_score(backward, backward.aims)
    _check_grids(config.grids)
    _check_tensors(config)
    _check_machine(config)
    _check_locations(config)
    _check_rules(config.findings)
    _check_focus(config)
    if config.save_weights is not None:
        _check_weights_file(config.save_weights, config.run, config.folder)


def _check_machine(config: RunConfig) -> None:
    machine = config.machine
    if machine.cluster is None:
        return
    for name, value in (("workers", machine.workers), ("threads", machine.threads)):
        if value:
            hint = "use `cluster.workers` and `cluster.cpus`"
            raise RequestError(f"`{name}` has no effect with `cluster`", hint)
    patch = None if config.attention is None else config.attention.patch
    for name, given in (("focus", config.focus), ("patch", patch)):
        if given is not None:
            raise RequestError(f"`{name}` is for one image, and `cluster` for many")
    _check_cluster(machine.cluster, config.run.model.device)
    require_package("`cluster` needs", "ray", "Ray", "ray")


def _check_locations(config: RunConfig) -> None:
    out, is_spread = str(config.folder.out or ""), config.machine.cluster is not None
    if choose(out, local=False, remote=not (is_spread or out.startswith(HELD))):
        hint = "add `cluster=ClusterRequest('auto')`, or name a folder of this machine and copy it"
        raise RequestError(f"without `cluster`, the run folder must be local, not {out!r}", hint)
    for location in (out, *config.run.images.names):
        if is_spread and location.startswith("memory://"):
            what = f"{location!r} is in the memory of one process, and a cluster has many"
            raise RequestError(what, "name a storage or a folder that all nodes share")


def _check_cluster(cluster: ClusterRequest, device: str) -> None:
    if (gpus := cluster.gpus) is None:
        return
    if not 0 <= gpus < math.inf or (gpus > 1 and gpus % 1):
        hint = "a share up to 1, or a whole number"
        raise RequestError(f"`cluster.gpus` cannot be {gpus:g}", hint)
    if not gpus and device.startswith("cuda"):
        raise RequestError(f"`cluster.gpus=0` leaves no GPU for `device={device!r}`")


def check_values(request: object) -> None:
    for field, flag, value in list_values(request):
        if value is None:
            continue
        if field.choices and value not in field.choices:
            known = ", ".join(field.choices)
            raise RequestError(f"`{field.name}` cannot be {value!r}", f"one of: {known}")
        if flag.at_least is not None and value < flag.at_least:
            raise RequestError(f"`{field.name}` must be at least {flag.at_least}, not {value}")
        if flag.at_most is not None and value > flag.at_most:
            raise RequestError(f"`{field.name}` must be at most {flag.at_most}, not {value}")


def check_score(score: ScoreRequest, targets: Sequence[str]) -> None:
    if ":" not in score.score and score.score not in SCORES:
        hint = f"one of: {', '.join(SCORES)}, FILE.py:FUNCTION"
        raise RequestError(f"`score` cannot be {score.score!r}", hint)
    if score.score == "sum" and (*targets,) != ("predicted",):
        raise RequestError("`score='sum'` adds up the whole output and takes no `target`")


def check_pictures(scope: Scope) -> None:
    config, grids = scope.config, scope.style
    backward = config.backward or BackwardStyle()
    rollout = config.attention is not None and config.attention.rollout
    over_photos = bool(config.heat or backward.cams or backward.saliency or rollout)
    charts = config.overview or config.backward is not None
    used = {"channels": scope.has_several, "theme": over_photos, "format": over_photos or charts}
    used["tile"] = rollout
    unused = {"rank": "`focus`"} if config.focus else {}
    if grids.mode == "none":
        names = ("top", "channels", "rank", "scale", "colormap", "tile", "theme", "format")
        unused = {name: "`grids.mode='none'`" for name in names if not used.get(name)}
    elif grids.channels is not None:
        unused = dict.fromkeys(("top", "rank"), "`grids.channels`")
    for name, reason in unused.items():
        if (value := getattr(grids, name)) != getattr(DEFAULTS.grids, name):
            option = f"grids.{name}={value!r}"
            raise RequestError(f"`{option}` has no effect with {reason}", "leave out one of them")
    if grids.mode != "layers" and config.attention and config.attention.patch and not rollout:
        raise RequestError("`patch` needs `grids.mode='layers'` or `rollout`", "add one of them")
    if grids.mode == "none" and backward.times_activation:
        hint = "choose one"
        raise RequestError("`times_activation` has no effect with `grids.mode='none'`", hint)


def _check_grids(grids: GridStyle) -> None:
    if any(channel < 0 for channel in grids.channels or ()):
        raise RequestError("`grids.channels` are counted from 0, as in the tensor")
    if grids.mode != "none" and grids.colormap not in (None, EMBER):
        from hookcli.render.draw.canvas import load_palette

        load_palette(grids.colormap)


def _check_tensors(config: RunConfig) -> None:
    tensors = config.tensors
    if tensors.attention and config.attention is None:
        if not isinstance(config, InspectConfig):
            raise RequestError("`tensors.attention` is for `hookcli.inspect` with `attention`")
        raise RequestError(*AttentionRequest.UNASKED)
    pool = "none" if tensors.save is None else tensors.save.pool
    if pool not in ("none", "mean", "max") and not re.fullmatch(r"0*[1-9]\d{0,8}", pool):
        raise RequestError(f"`pool` cannot be {pool!r}", "one of: none, mean, max, or N")
    if not tensors.max_disk > 0:  # also rejects NaN
        raise RequestError(f"`max_disk` must be greater than 0, not {tensors.max_disk:g}")


def _check_weights_file(file: Path, request: RunRequest, folder: FolderRequest) -> None:
    name = repr(str(file))
    if not request.prunes:
        raise RequestError("`save_weights` writes the pruned weights, and needs `prunes`")
    if file.suffix != ".safetensors":
        hint = f"`save_weights={str(file.with_suffix('.safetensors'))!r}`"
        raise RequestError(f"`save_weights` writes .safetensors, not {file.name!r}", hint)
    if file.is_symlink():
        raise OutputError(f"{name} is a link, which is never followed", "name the file itself")
    refuse_in_run(file, folder.out)
    weights = Path(split_key(request.model.weights)[0])
    if file.exists() and weights.exists() and file.samefile(weights):
        raise OutputError(f"{name} holds the weights to be pruned", "name another file")
    if not os.access(file.parent, os.W_OK | os.X_OK) or file.is_dir():
        raise OutputError(f"cannot write {name}", "name a file in an existing folder")
    if file.exists() and not folder.overwrite:
        hint = "replace it with `overwrite=True`, or name another file"
        raise OutputError(f"{name} already exists", hint)


def _check_rules(findings: FindingRequest) -> None:
    for name in (*findings.fail_on, *(rule for rule, _ in findings.rules)):
        if name not in RULES:
            close = difflib.get_close_matches(name, RULES, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else f"one of: {', '.join(RULES)}"
            raise RequestError(f"no rule is called {name!r}", hint)
    for name, value in findings.rules:
        most = 1 if name in SHARES else math.inf
        if not 0 <= value <= most:
            raise RequestError(f"`rules` {name}={value:g}: not from 0 to {most:g}")
    if "untrained" in dict(findings.rules):
        hint = "`fail_on=('untrained',)` ends with code 7"
        raise RequestError("untrained has no threshold", hint)


def _check_focus(config: RunConfig) -> None:
    if config.focus is None:
        return
    if len(config.run.images.names) != 1:
        raise RequestError("`focus` is a box in one image", "give one image")
    if config.grids.mode == "none":
        what = "`focus` ranks the channels of grids, and cannot be used with `grids.mode='none'`"
        raise RequestError(what)
    if min(config.focus) < 0:
        raise RequestError("`focus` must begin inside the image: X and Y are at least 0")
    if min(config.focus[2:]) < 1:
        raise RequestError("`focus` needs a width and a height of at least 1")


def _check_colours(model: ModelRequest) -> None:
    counts = {len(each) for each in (model.mean, model.std, model.bands) if each}
    for name in ("mean", "std"):
        values = getattr(model, name)
        if values is not None and not (values and all(map(math.isfinite, values))):
            what = f"`{name}` takes three numbers, one per colour: 0.485,0.456,0.406"
            raise RequestError(what, "or one per band, for pictures of other bands")
    if len(counts) > 1:
        raise RequestError("`mean`, `std` and `bands` need as many numbers as the model has bands")
    if counts - {3} and (model.mean is None) != (model.std is None):
        raise RequestError("`mean` and `std` need a number for each band: give both")
    if min(model.bands, default=0) < 0:
        raise RequestError("`bands` are counted from 0")


def _check_recipe(model: ModelRequest) -> None:
    for name in ("resize", "size", "mean", "std", "interpolation"):
        if model.preprocess is not None and getattr(model, name) is not None:
            what = f"`preprocess` and `{name}` both say how images are prepared"
            raise RequestError(what, "say all in `preprocess`, or leave it out")


def _check_reading(images: ImageRequest) -> None:
    parse.read_range(parse.write_range(images.range), "`range`")
    if images.page is not None:
        parse.read_page(str(images.page), "`page`")
    if images.page == "all" and images.clip:
        raise RequestError("`page='all'` makes an image of each page, and `clip` one of all frames")
