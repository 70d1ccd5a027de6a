"""``hookcli compare``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from hookcli.cli import memory, options
from hookcli.cli.commands import diff
from hookcli.cli.commands.inspect import inspect
from hookcli.cli.output import console
from hookcli.cli.output.comparison import print_comparison
from hookcli.cli.output.run import print_uncalled
from hookcli.cli.request import read_config, warn_of_models, warn_of_skipped
from hookcli.config import Dtype, InspectConfig
from hookcli.distance.tolerance import Tolerance
from hookcli.errors import RequestError
from hookcli.records.command import to_command

if TYPE_CHECKING:
    from hookcli.compare.variants import Variant
    from hookcli.distance.comparison import Comparison

_FORMS = (
    "model=M weights=B dtype=D device=D seed=N threads=N channels-last edit=E prune=P image=FILE"
)
Against = Annotated[
    list[str],
    typer.Option(
        metavar="WHAT",
        help=f"What is another in B: {_FORMS}. Repeatable.",
    ),
]
_FEW_IMAGES = 8  # that need no bar
_MOST_THREADS = 1024
_DEFAULT = Tolerance()
_OWN: dict[str, tuple[Any, Any]] = {
    "against": (Against, ...),
    "metric": (diff.MetricChoice, _DEFAULT.metric),
    "rtol": (diff.Rtol, _DEFAULT.rtol),
    "atol": (diff.Atol, _DEFAULT.atol),
    "layer_tolerance": (diff.LayerTolerance, []),
    "equal_nan": (diff.EqualNan, _DEFAULT.equal_nan),
    "top": (diff.TopCalls, diff.MOST_ROWS),
}
_SHARED = (
    "model", "images", "layers", "exclude", "at", "weights", "seed", "device", "dtype", "size", "resize",
    "mean", "std", "interpolation", "pair", "clip", "no_recursive", "null", "on_error", "model_arg", "output_format",
    "quiet",
)  # fmt: skip
_UNSHARED = {
    name: parameter.default
    for name, parameter in signature(inspect).parameters.items()
    if name not in _SHARED
}


def compare(**words: Any) -> None:
    """Run images both ways, and say which layer differs first and by how much; ends with 7 if one does.

    Example: hookcli compare resnet34 cat.jpg --against dtype=bfloat16
    """
    tolerance = diff.read_tolerance(words)
    shared = {name: words[name] for name in _SHARED}
    config = replace(read_config(shared | _UNSHARED), compared=True)
    other = read_against(words["against"], config)
    comparison = _run(config, other, tolerance, quiet=words["quiet"])
    command = (*to_command(config), *(w for text in words["against"] for w in ("--against", text)))
    print_comparison(comparison, command, words["output_format"], words["top"])
    raise typer.Exit(comparison.exit_code)


options.share_options(compare, inspect, _OWN, _UNSHARED)


@dataclass(frozen=True, slots=True)
class Other:
    """What is asked of B.

    Attributes:
        name: in the user's words.
        config: A's, with what is another.
        channels_last: weights and pixels lie channels last.
        threads: how many torch uses; None for as many as for A.
    """

    name: str
    config: InspectConfig
    channels_last: bool = False
    threads: int | None = None


def read_against(words: list[str], config: InspectConfig) -> Other:
    """What ``--against`` asks for.

    Raises:
        RequestError: one cannot be read.
    """
    other = Other(f"{config.model.name} with {', '.join(words)}", config)
    for word in words:
        name, _, value = word.partition("=")
        read = _READERS.get(name)
        if read is None or (not value) != (name == "channels-last"):
            close = difflib.get_close_matches(name, _READERS, n=1)
            meant = f"did you mean {close[0]}? " if close and read is None else ""
            raise RequestError(f"--against cannot read {word!r}", f"{meant}one of: {_FORMS}")
        other = read(other, value)
    return other


def _with_model(name: str, other: Other, value: Any) -> Other:
    model = replace(other.config.model, **{name: value})
    return replace(other, config=replace(other.config, model=model))


def _with_dtype(other: Other, value: str) -> Other:
    if value not in get_args(Dtype):
        raise RequestError(
            f"--against dtype={value}: no such dtype", f"one of: {', '.join(get_args(Dtype))}"
        )
    return _with_model("dtype", other, value)


def _with_image(other: Other, value: str) -> Other:
    return replace(other, config=replace(other.config, images=(value,)))


def _with_edit(other: Other, value: str) -> Other:
    return replace(other, config=replace(other.config, edits=(*other.config.edits, value)))


def _with_prune(other: Other, value: str) -> Other:
    return replace(other, config=replace(other.config, prunes=(*other.config.prunes, value)))


def _with_seed(other: Other, value: str) -> Other:
    if not value.isdecimal():
        raise RequestError(f"--against seed={value}: not a whole number", "seed=1")
    return _with_model("seed", other, int(value))


def _with_threads(other: Other, value: str) -> Other:
    if not value.isdecimal() or not 1 <= int(value) <= _MOST_THREADS:
        raise RequestError(
            f"--against threads={value}: not a number from 1 to {_MOST_THREADS}", "threads=1"
        )
    return replace(other, threads=int(value))


_READERS = {
    "model": lambda other, value: _with_model("name", other, value),
    "weights": lambda other, value: _with_model("weights", other, value),
    "device": lambda other, value: _with_model("device", other, value),
    "dtype": _with_dtype,
    "seed": _with_seed,
    "threads": _with_threads,
    "channels-last": lambda other, _: replace(other, channels_last=True),
    "edit": _with_edit,
    "prune": _with_prune,
    "image": _with_image,
}


def _run(config: InspectConfig, other: Other, tolerance: Tolerance, *, quiet: bool) -> Comparison:
    a, b = _prepare(config, other)
    from hookcli.cli.output.progress import Progress
    from hookcli.compare.live import compare_ways, list_skipped, pair_sources

    images = len(pair_sources(a.prepared, b.prepared))
    early = list_skipped(a.prepared, b.prepared)
    warn_of_skipped(early)
    warn_of_models(*(way.prepared.loaded.info for way in (a, b)))
    memory.collect_as_usual()
    bar = Progress(images, is_shown=images > _FEW_IMAGES and not quiet)
    with console.no_data(), bar as progress:
        comparison = compare_ways(a, b, tolerance, progress.part_done)
    warn_of_skipped(comparison.skipped[len(early) :])
    chosen = {layer.label for layer in a.prepared.layers}
    print_uncalled(comparison.uncalled, chosen, quiet=quiet)
    return comparison


def _prepare(config: InspectConfig, other: Other) -> tuple[Variant, Variant]:
    """Both sides, their images found before a model is loaded."""
    from hookcli.plan.check import check_values
    from hookcli.plan.prepare import find_sources, prepare_run

    with console.no_data():
        check_values(other.config)
        found = others = find_sources(config)
        if other.config.images != config.images:
            others = find_sources(other.config)
            _check_images(len(found[0]), len(others[0]))
        prepared = prepare_run(config, found)
        second = prepare_run(other.config, others)
    from hookcli.compare.variants import Variant

    name = config.model.name
    return Variant(prepared, name), Variant(second, other.name, other.channels_last, other.threads)


def _check_images(a: int, b: int) -> None:
    if a != 1 or b != 1:
        raise RequestError(
            f"--against image=FILE holds one image against one, not {a} against {b}",
            "give one image on each side",
        )
