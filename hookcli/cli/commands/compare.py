"""The command ``hookcli compare``."""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hookcli.cli import options
from hookcli.cli.option_groups import Without, command
from hookcli.cli.output import console
from hookcli.cli.output.comparison import has_every_image, print_comparison
from hookcli.cli.output.run import print_uncalled
from hookcli.cli.request import warn_before, warn_of_skipped, with_progress
from hookcli.config import (
    DEFAULTS,
    DTYPES,
    MODES,
    CompareConfig,
    ExportRequest,
    Match,
    ModelRequest,
    ObservedSide,
    RunRequest,
    VariantRequest,
)
from hookcli.distance.tolerance import Tolerance
from hookcli.errors import RequestError
from hookcli.outside.flags import Flag, list_fields
from hookcli.records.command import compare_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.compare.worst_calls import WorstCalls
    from hookcli.distance.comparison import Comparison

_FORMS = (
    "model=M weights=B dtype=D mode=M device=D seed=N threads=N channels-last edit=E prune=P "
    "image=FILE onnx[=FILE] torch-export[=FILE] compile"
)
_NAMES = [re.split(r"[=\[]", form)[0] for form in _FORMS.split()]
_BARE = ("channels-last", "compile")  # settings without a value
# The ways of running a model; all but compile also run an existing file
_EXPORTS = ("onnx", "torch-export", "compile")
_FEW_IMAGES = 8  # this many images need no progress bar
_MOST_THREADS = 1024


@command
def compare(
    run: Annotated[RunRequest, Without("edit", "prune")],
    tolerance: Tolerance,
    against: Annotated[
        tuple[str, ...],
        Flag(
            "--against VARIANT",
            "What is different in B; VARIANT is explained below.",
            many=True,
            panel="Against",
        ),
    ],
    at: ObservedSide = DEFAULTS.at,
    blame: Annotated[
        bool,
        Flag(
            "--blame",
            "Find the layers that differ by themselves, not only because their inputs differ.",
            panel="Against",
        ),
    ] = False,
    match: Annotated[
        Match,
        Flag(
            "--match BY",
            "How to pair layers with the nodes of a file: by id (module path) or by order.",
            panel="Against",
        ),
    ] = "id",
    keep_export: Annotated[
        Path | None,
        Flag(
            "--keep-export FILE",
            "Keep the model that --against onnx or torch-export exported.",
            panel="Against",
        ),
    ] = None,
    top: options.TopCalls = options.MOST_ROWS,
    pictures: Annotated[
        Path | None,
        Flag(
            "--pictures DIR",
            "Also write a page with pictures of the calls that differ most.",
            panel="Output",
        ),
    ] = None,
    theme: options.PageTheme = DEFAULTS.grids.theme,
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
) -> int:
    """Run a model in two ways: which layer differs first, and by how much.

    Ends with code 7 if a layer differs.

    Examples:
        hookcli compare resnet34 cat.jpg --against dtype=bfloat16
        hookcli compare resnet34 cat.jpg --against weights=new.pth --blame
    """
    run = with_progress(run, quiet=quiet)
    other = read_against(against, run)
    is_graph = other.export is not None or run.model.is_file or other.run.model.is_file
    if is_graph and run.layers is DEFAULTS.run.layers:  # not chosen, not even as the default
        run = replace(run, layers=("leaf",))
        other = replace(other, run=replace(other.run, layers=run.layers))
    if keep_export is not None:
        other = replace(other, export=_keep(other.export, keep_export))
    worst = None
    if pictures is not None:
        from hookcli.compare.pictures import check_folder
        from hookcli.compare.worst_calls import WorstCalls

        check_folder(pictures)
        worst = WorstCalls()
    comparison = _run(
        CompareConfig(run, other, at, blame=blame, match=match),
        tolerance,
        quiet=quiet,
        keeps_images=has_every_image(output_format),
        worst=worst,
    )
    words = (word for text in against for word in ("--against", text))
    more = (("--blame",) if blame else (), ("--match", match) if match != "id" else ())
    command = (*compare_command(run, at), *words, *itertools.chain(*more))
    print_comparison(comparison, command, output_format, top)
    if pictures is not None and worst is not None:
        from hookcli.compare.pictures import name_models, write_pictures

        page = write_pictures(
            pictures,
            comparison,
            worst.choose_rows(comparison.rows),
            worst.maps_of,
            title=name_models(run.model.name, other.run.model.name),
            theme=theme,
        )
        console.say(f"open first: {page}")
    return comparison.exit_code


def read_against(words: Sequence[str], request: RunRequest) -> VariantRequest:
    """Return the request for variant B: ``request`` with the changes that ``--against`` names.

    ``words`` are the values of ``--against``, such as ``dtype=bfloat16``.

    Raises:
        RequestError: a word cannot be parsed, or a setting occurs twice. Only ``edit`` and
            ``prune`` may occur several times.
    """
    for name, number in Counter(word.partition("=")[0] for word in words).items():
        if number > 1 and name not in ("edit", "prune"):
            raise RequestError(
                f"--against {name}=… was given {number} times", "one run B at a time: compare twice"
            )
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
            raise RequestError(f"--against cannot read {word!r}", f"{meant}one of: {_FORMS}")
        other = _change(other, name, value)
    return other


def _guess_form(word: str) -> str:
    """Guess the setting from a value alone, such as ``dtype`` for ``bfloat16``.

    Return the whole form, ``dtype=bfloat16``, or an empty text if there is no guess.
    """
    if word in DTYPES:
        return f"dtype={word}"
    if word in MODES:
        return f"mode={word}"
    if word.endswith((".ckpt", ".pt", ".pth", ".safetensors")):
        return f"weights={word}"
    return ""


def _change(other: VariantRequest, name: str, value: str) -> VariantRequest:
    """Return the request for variant B with the setting ``name`` changed to ``value``.

    Raises:
        RequestError: the setting does not accept this value.
    """
    run = other.run
    if name == "channels-last":
        return replace(other, channels_last=True)
    if name in _EXPORTS:
        if other.export is not None:
            raise RequestError(
                f"--against {other.export.way} and --against {name} are two ways to run B",
                "one run B at a time: compare twice",
            )
        return replace(other, export=ExportRequest(name, Path(value) if value else None))
    if name == "threads":
        if not value.isdecimal() or not 1 <= int(value) <= _MOST_THREADS:
            raise RequestError(
                f"--against threads={value}: not a number from 1 to {_MOST_THREADS}", "threads=1"
            )
        return replace(other, threads=int(value))
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
            raise RequestError(f"--against seed={value}: not a whole number", "seed=1")
        return replace(model, seed=int(value))
    (choices,) = (field.choices for field in list_fields(ModelRequest) if field.name == name)
    if choices and value not in choices:
        raise RequestError(
            f"--against {name}={value}: no such {name}", f"one of: {', '.join(choices)}"
        )
    changed: dict[str, Any] = {name: value}
    return replace(model, **changed)


def _keep(export: ExportRequest | None, file: Path) -> ExportRequest:
    """Return the request for an export that is kept in a file.

    Raises:
        RequestError: nothing is exported.
    """
    if export is None or export.file is not None or export.way in _BARE:
        raise RequestError(
            "--keep-export needs a model to export", "--against onnx, or --against torch-export"
        )
    return replace(export, keep=file)


def _run(
    config: CompareConfig,
    tolerance: Tolerance,
    *,
    quiet: bool,
    keeps_images: bool,
    worst: WorstCalls | None,
) -> Comparison:
    from hookcli.plan.prepare import prepare_comparison

    with console.no_data():
        a, b = prepare_comparison(config)
    from hookcli.cli.output.progress import Progress
    from hookcli.compare.live import compare_sides, list_skipped, pair_sources

    images = len(pair_sources(a, b))
    early = list_skipped(a, b)
    warn_before(early, a.info, b.info)
    bar = Progress(images, is_shown=images > _FEW_IMAGES and not quiet)
    with console.no_data(), bar as progress:
        comparison = compare_sides(
            a,
            b,
            tolerance,
            progress.chunk_done,
            keeps_images=keeps_images,
            match=config.match,
            blames=config.blame,
            worst=worst,
        )
    warn_of_skipped(comparison.skipped[len(early) :])
    chosen = {layer.label for layer in a.layers}
    print_uncalled(comparison.uncalled, chosen, quiet=quiet)
    return comparison
