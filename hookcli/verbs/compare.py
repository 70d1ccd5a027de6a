"""Define ``hookcli compare``, which runs a model in two ways, and parse ``--against``."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hookcli.config import (
    DEFAULTS,
    DTYPES,
    GRAPH_FILES,
    MODES,
    CompareConfig,
    ExportRequest,
    InspectConfig,
    Match,
    ModelRequest,
    ObservedSide,
    RunRequest,
    VariantRequest,
)
from hookcli.distance.tolerance import Tolerance
from hookcli.errors import RequestError
from hookcli.outside.flags import Flag, list_fields
from hookcli.records.command import command_words, repeatable
from hookcli.store.locations.names import PAGE
from hookcli.verbs.analysis import PageTheme
from hookcli.verbs.call import VerbCall
from hookcli.verbs.comparison_outcome import CallTable, ComparisonOutcome, pictures_flag
from hookcli.verbs.keywords import TABLES, Without, verb
from hookcli.verbs.messages import begin, describe_uncalled, warn_of_skipped
from hookcli.verbs.runs import with_downloads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.comparison.worst_calls import WorstCalls
    from hookcli.distance.comparison import Comparison

_FEW_IMAGES = 8  # this many images need no progress bar
_FORMS = (
    "model=M weights=B dtype=D mode=M device=D seed=N threads=N channels-last edit=E prune=P "
    f"image=FILE preprocess=R {' '.join(f'{way}[=FILE]' for way in GRAPH_FILES)} compile "
    "batch=N repeat autocast=D"
)
# net.py:make, timm:NAME, resnet34
_MODEL = re.compile(r".+\.py:\w+|(timm|hf|open_clip|smp):.+|[a-z]+(net|vgg|vit|swin)[a-z_]*\d\w*")
_NAMES = [re.split(r"[=\[]", form)[0] for form in _FORMS.split()]
_BARE = ("channels-last", "compile", "repeat")  # settings without a value
# The ways of running a model; all but compile also run an existing file
_EXPORTS = (*GRAPH_FILES, "compile")
_MOST_THREADS = 1024
_MOST_AMONG = 255
_CASTS = ("float16", "bfloat16")  # dtypes of ``torch.autocast``
_GUESSES = {
    "bf16": "dtype=bfloat16",
    "fp16": "dtype=float16",
    "half": "dtype=float16 or autocast=float16",
    "autocast": "autocast=bfloat16",
    "amp": "autocast=float16 or autocast=bfloat16",
    **dict.fromkeys(("twice", "again", "determinism"), "repeat"),
    "batch": "batch=7",
    "batch-size": "batch=7",
    "batch_size": "batch=7",
}
_TWICE = "one run B at a time: compare twice"


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Against: options that say how run B differs from run A, and how hookcli compares the runs."""

    against: Annotated[
        tuple[str, ...],
        Flag("--against VARIANT", "What is different in B; VARIANT is explained below.", many=True),
    ]
    blame: Annotated[
        bool,
        Flag(
            "--blame",
            "Find the layers that differ by themselves, not only because their inputs differ.",
        ),
    ] = False
    match: Annotated[
        Match,
        Flag(
            "--match BY",
            "How to pair layers with the nodes of a file: by id (module path) or by order.",
        ),
    ] = "id"
    keep_export: Annotated[
        Path | None,
        Flag(
            "--keep-export FILE",
            "Keep the model that --against onnx or torch-export exported.",
            repeats=False,
        ),
    ] = None


@verb(*TABLES)
def compare(
    call: VerbCall,
    run: Annotated[RunRequest, Without("edit prune categories")],
    tolerance: Tolerance,
    request: CompareRequest,
    style: CallTable,
    at: ObservedSide = DEFAULTS.at,
    pictures: Annotated[Path | None, pictures_flag()] = None,
    theme: PageTheme = DEFAULTS.grids.theme,
) -> ComparisonOutcome:
    """Run a model in two ways: which layer differs first, and by how much.

    Ends with code 7 if a layer differs.

    Examples:
        hookcli compare resnet34 cat.jpg --against dtype=bfloat16
        hookcli compare resnet34 cat.jpg --against weights=new.pth --blame
    """
    config = _make_config(call, with_downloads(call, run), request, at)
    worst = None
    if pictures is not None:
        from hookcli.comparison.pictures import check_folder
        from hookcli.comparison.worst_calls import WorstCalls

        check_folder(pictures)
        worst = WorstCalls()
    result = _run(call, config, tolerance, worst)
    files: dict[str, Path] = {}
    if pictures is not None and worst is not None:
        from hookcli.comparison.pictures import write_pictures

        rows, maps_of = worst.choose_rows(result.rows), worst.maps_of
        models = [config.run.model.name, config.other.run.model.name]
        files = write_pictures(pictures, result, rows, maps_of, models, theme)
        call.say(f"open first: {files[PAGE]}")
    command = repeatable(command_words("compare", InspectConfig(config.run, at=at), request))
    return ComparisonOutcome(call.notes, command, style, result, files)


def _make_config(
    call: VerbCall, run: RunRequest, request: CompareRequest, at: ObservedSide
) -> CompareConfig:
    for word in run.images.names:
        if word.partition("=")[0] in _NAMES and not Path(word).exists():
            hint = "name each after its own `against`"
            raise RequestError(f"{word} would be an image, and not a second difference of B", hint)
    other = _read_against(request.against, run)
    is_graph = other.export is not None or run.model.is_file or other.run.model.is_file
    if is_graph and "layers" not in call.given:
        run = replace(run, layers=("leaf",))
        other = replace(other, run=replace(other.run, layers=run.layers))
    if request.keep_export is not None:
        export = other.export
        if export is None or export.file is not None or export.way in _BARE:
            hint = "`against=['onnx']`, or `against=['torch-export']`"
            raise RequestError("`keep_export` needs a model to export", hint)
        other = replace(other, export=replace(export, keep=request.keep_export))
    return CompareConfig(run, other, at, blame=request.blame, match=request.match)


def _run(
    call: VerbCall, config: CompareConfig, tolerance: Tolerance, worst: WorstCalls | None
) -> Comparison:
    from hookcli.plan.prepare import prepare_comparison

    with call.listener.no_data():
        a, b = prepare_comparison(config)
    from hookcli.comparison.live import compare_sides, list_skipped, pair_sources

    images = len(pair_sources(a, b))
    early = list_skipped(a, b)
    begin(call, early, a.info, b.info)
    bar = call.listener.count(images, "images", is_long=images > _FEW_IMAGES)
    with call.listener.no_data(), bar as progress:
        result = compare_sides(
            a,
            b,
            tolerance,
            progress.chunk_done,
            keeps_images=call.listener.wants_rows,
            match=config.match,
            blames=config.blame,
            worst=worst,
        )
    warn_of_skipped(call, result.skipped[len(early) :])
    describe_uncalled(call, result.uncalled)
    for note in result.notes:
        if note not in (*a.info.notes, *b.info.notes):
            call.say(note)
    is_default = "layers" not in call.given and config.run.layers == DEFAULTS.run.layers
    if result.first is not None and is_default and not config.blame:
        call.say("only `layers=('conv',)` and the output are compared; all: `layers=('all',)`")
    return result


def _read_against(words: Sequence[str], request: RunRequest) -> VariantRequest:
    # Only ``edit`` and ``prune`` may occur several times.
    for name, number in Counter(word.partition("=")[0] for word in words).items():
        if number > 1 and name not in ("edit", "prune"):
            raise RequestError(f"`against` {name}=… was given {number} times", _TWICE)
    other = VariantRequest(f"{request.model.name} with {', '.join(words)}", request)
    for word in words:
        name, _, value = word.partition("=")
        if (
            name not in _NAMES
            or (not value and name not in (*_BARE, *_EXPORTS))
            or ("=" in word and (not value or name in _BARE))
        ):
            close = difflib.get_close_matches(name, _NAMES, n=1)
            near = _guess_form(word) or (close[0] if close and name not in _NAMES else "")
            meant = f"did you mean {near}? " if near else ""
            raise RequestError(f"`against` cannot read {word!r}", f"{meant}one of: {_FORMS}")
        other = _change(other, name, value)
    if other.repeats and len(words) > 1:
        raise RequestError("`against` repeat runs A again, so nothing else can differ", _TWICE)
    return other


def _guess_form(word: str) -> str:
    name, _, value = word.partition("=")
    if name in ("batch-size", "batch_size") and value.isdecimal() and int(value) > 1:
        return f"batch={int(value) - 1}"
    if name in _GUESSES:
        return _GUESSES[name]
    if word in DTYPES:
        return f"dtype={word}"
    if word in MODES:
        return f"mode={word}"
    if re.match("(resize|fit|antialias|order|scale|library|crop|mean|std)[:=]", word):
        return f"preprocess={word}"
    if word.endswith((".ckpt", ".pt", ".pth", ".safetensors")):
        return f"weights={word}"
    return f"model={word}" if _MODEL.fullmatch(word) else ""


def _change(other: VariantRequest, name: str, value: str) -> VariantRequest:
    run = other.run
    if name == "channels-last":
        return replace(other, channels_last=True)
    if name == "repeat":
        return replace(other, repeats=True)
    if name == "batch":
        return replace(other, among=_read_number(name, value, _MOST_AMONG, "batch=7"))
    if name == "autocast":
        _check_word(name, value, _CASTS)
        return replace(other, autocast=value)
    if name in _EXPORTS:
        if other.export is not None:
            what = f"`against` {other.export.way} and `against` {name} are two ways to run B"
            raise RequestError(what, _TWICE)
        return replace(other, export=ExportRequest(name, Path(value) if value else None))
    if name == "threads":
        return replace(other, threads=_read_number(name, value, _MOST_THREADS, "threads=1"))
    if name == "edit":
        run = replace(run, edits=(*run.edits, value))
    elif name == "prune":
        run = replace(run, prunes=(*run.prunes, value))
    elif name == "image":
        run = replace(run, images=replace(run.images, names=(value,)))
    else:
        run = replace(run, model=_change_model(run.model, name, value))
    return replace(other, run=run)


def _change_model(model: ModelRequest, name: str, value: str) -> ModelRequest:
    if name == "model":
        return replace(model, name=value)
    if name == "seed":
        if not value.isdecimal():
            raise RequestError(f"`against` seed={value}: not a whole number", "seed=1")
        return replace(model, seed=int(value))
    (choices,) = (field.choices for field in list_fields(ModelRequest) if field.name == name)
    if choices:
        _check_word(name, value, choices)
    changed: dict[str, Any] = {name: value}
    return replace(model, **changed)


def _check_word(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        what = f"`against` {name}={value}: no such {name}"
        raise RequestError(what, f"one of: {', '.join(choices)}")


def _read_number(name: str, value: str, most: int, example: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= most:
        what = f"`against` {name}={value}: not a number from 1 to {most}"
        raise RequestError(what, example)
    return int(value)
