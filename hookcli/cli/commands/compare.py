"""``hookcli compare``."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from hookcli.cli import memory, options
from hookcli.cli.option_groups import Without, command
from hookcli.cli.output import console
from hookcli.cli.output.comparison import has_every_image, print_comparison
from hookcli.cli.output.run import print_uncalled
from hookcli.cli.request import warn_of_models, warn_of_skipped, with_progress
from hookcli.config import (
    DEFAULTS,
    DTYPES,
    MODES,
    CompareConfig,
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
    from collections.abc import Callable, Sequence

    from hookcli.distance.comparison import Comparison

_FORMS = (
    "model=M weights=B dtype=D mode=M device=D seed=N threads=N channels-last edit=E prune=P "
    "image=FILE"
)
_FEW_IMAGES = 8  # so few images need no progress bar
_MOST_THREADS = 1024


Against: TypeAlias = Annotated[
    tuple[str, ...],
    Flag("--against WHAT", f"What is different in B: {_FORMS}", many=True, panel="Against"),
]


@command
def compare(
    run: Annotated[RunRequest, Without(frozenset({"edit", "prune"}))],
    tolerance: Tolerance,
    against: Against,
    at: ObservedSide = DEFAULTS.at,
    top: options.TopCalls = options.MOST_ROWS,
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
) -> None:
    """Run a model in two ways: which layer differs first, and by how much.

    Ends with code 7 if a layer differs.

    Examples:
        hookcli compare resnet34 cat.jpg --against dtype=bfloat16
        hookcli compare resnet34 cat.jpg --against weights=new.pth --layers all
    """
    run = with_progress(run, quiet=quiet)
    config = CompareConfig(run, read_against(against, run), at)
    comparison = _run(config, tolerance, quiet=quiet, keeps_images=has_every_image(output_format))
    words = (word for text in against for word in ("--against", text))
    command = (*compare_command(run, at), *words)
    print_comparison(comparison, command, output_format, top)
    raise typer.Exit(comparison.exit_code)


def read_against(words: Sequence[str], request: RunRequest) -> VariantRequest:
    """Return the second way to run the model, as ``--against`` describes it.

    Args:
        words: what is different, in the user's words.
        request: the first way.

    Raises:
        RequestError: a word cannot be parsed.
    """
    _check_repeated(words)
    other = VariantRequest(f"{request.model.name} with {', '.join(words)}", request)
    for word in words:
        name, _, value = word.partition("=")
        read = _READERS.get(name)
        if read is None or (not value) != (name == "channels-last"):
            close = difflib.get_close_matches(name, _READERS, n=1)
            near = _guess_form(word) or (close[0] if close and read is None else "")
            meant = f"did you mean {near}? " if near else ""
            raise RequestError(f"--against cannot read {word!r}", f"{meant}one of: {_FORMS}")
        other = read(other, value)
    return other


def _check_repeated(words: Sequence[str]) -> None:
    """Check that nothing but edits and prunes is given twice.

    Raises:
        RequestError: something is.
    """
    names = Counter(word.partition("=")[0] for word in words)
    for name, number in names.items():
        if number > 1 and name not in ("edit", "prune"):
            raise RequestError(
                f"--against {name}=… was given {number} times", "one run B at a time: compare twice"
            )


def _guess_form(word: str) -> str:
    """Return what a value without its name was meant for; empty if that is not known."""
    if word in DTYPES:
        return f"dtype={word}"
    if word in MODES:
        return f"mode={word}"
    if word.endswith((".ckpt", ".pt", ".pth", ".safetensors")):
        return f"weights={word}"
    return ""


def _with_model(other: VariantRequest, name: str, value: object) -> VariantRequest:
    changed: dict[str, Any] = {name: value}
    return replace(other, run=replace(other.run, model=replace(other.run.model, **changed)))


def _with_word(name: str, other: VariantRequest, value: str) -> VariantRequest:
    (choices,) = (field.choices for field in list_fields(ModelRequest) if field.name == name)
    if choices and value not in choices:
        raise RequestError(
            f"--against {name}={value}: no such {name}", f"one of: {', '.join(choices)}"
        )
    return _with_model(other, name, value)


def _with_image(other: VariantRequest, value: str) -> VariantRequest:
    images = replace(other.run.images, names=(value,))
    return replace(other, run=replace(other.run, images=images))


def _with_edit(other: VariantRequest, value: str) -> VariantRequest:
    return replace(other, run=replace(other.run, edits=(*other.run.edits, value)))


def _with_prune(other: VariantRequest, value: str) -> VariantRequest:
    return replace(other, run=replace(other.run, prunes=(*other.run.prunes, value)))


def _with_seed(other: VariantRequest, value: str) -> VariantRequest:
    if not value.isdecimal():
        raise RequestError(f"--against seed={value}: not a whole number", "seed=1")
    return _with_model(other, "seed", int(value))


def _with_threads(other: VariantRequest, value: str) -> VariantRequest:
    if not value.isdecimal() or not 1 <= int(value) <= _MOST_THREADS:
        raise RequestError(
            f"--against threads={value}: not a number from 1 to {_MOST_THREADS}", "threads=1"
        )
    return replace(other, threads=int(value))


_READERS: dict[str, Callable[[VariantRequest, str], VariantRequest]] = {
    "model": partial(_with_word, "name"),
    **{name: partial(_with_word, name) for name in ("weights", "device", "dtype", "mode")},
    "seed": _with_seed,
    "threads": _with_threads,
    "channels-last": lambda other, _: replace(other, channels_last=True),
    "edit": _with_edit,
    "prune": _with_prune,
    "image": _with_image,
}


def _run(
    config: CompareConfig, tolerance: Tolerance, *, quiet: bool, keeps_images: bool
) -> Comparison:
    from hookcli.plan.prepare import prepare_comparison

    with console.no_data():
        a, b = prepare_comparison(config)
    from hookcli.cli.output.progress import Progress
    from hookcli.compare.live import compare_sides, list_skipped, pair_sources

    images = len(pair_sources(a, b))
    early = list_skipped(a, b)
    warn_of_skipped(early)
    warn_of_models(a.info, b.info)
    memory.collect_as_usual()
    bar = Progress(images, is_shown=images > _FEW_IMAGES and not quiet)
    with console.no_data(), bar as progress:
        comparison = compare_sides(a, b, tolerance, progress.chunk_done, keeps_images=keeps_images)
    warn_of_skipped(comparison.skipped[len(early) :])
    chosen = {layer.label for layer in a.runner.layers}
    print_uncalled(comparison.uncalled, chosen, quiet=quiet)
    return comparison
