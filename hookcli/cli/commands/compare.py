"""The command ``hookcli compare``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hookcli.cli import options
from hookcli.cli.against import keep_export_in, read_against
from hookcli.cli.option_groups import Without, command
from hookcli.cli.output import console
from hookcli.cli.output.comparison import has_every_image, print_comparison
from hookcli.cli.output.run import print_uncalled
from hookcli.cli.output.wording import to_words
from hookcli.cli.request import warn_before, warn_of_skipped, with_progress
from hookcli.config import (
    DEFAULTS,
    CompareConfig,
    Match,
    ObservedSide,
    RunRequest,
)
from hookcli.distance.tolerance import Tolerance
from hookcli.outside.flags import Flag
from hookcli.records.command import compare_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.compare.worst_calls import WorstCalls
    from hookcli.distance.comparison import Comparison

_FEW_IMAGES = 8  # this many images need no progress bar


@command
def compare(
    run: Annotated[RunRequest, Without("edit", "prune", "categories")],
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
    sort: options.CallSort = "order",
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
    config = make_config(
        with_progress(run, quiet=quiet), against, at, blame=blame, match=match, keep=keep_export
    )
    worst = None
    if pictures is not None:
        from hookcli.compare.pictures import check_folder
        from hookcli.compare.worst_calls import WorstCalls

        check_folder(pictures)
        worst = WorstCalls()
    comparison = _run(
        config, tolerance, quiet=quiet, keeps_images=has_every_image(output_format), worst=worst
    )
    print_comparison(comparison, _list_words(config, against), output_format, top, sort)
    if pictures is not None and worst is not None:
        from hookcli.compare.pictures import name_models, write_pictures

        page = write_pictures(
            pictures,
            comparison,
            worst.choose_rows(comparison.rows),
            worst.maps_of,
            title=name_models(config.run.model.name, config.other.run.model.name),
            theme=theme,
        )
        console.say(f"open first: {page}")
    return comparison.exit_code


def make_config(
    run: RunRequest,
    against: Sequence[str],
    at: ObservedSide,
    *,
    blame: bool,
    match: Match,
    keep: Path | None,
) -> CompareConfig:
    """Return the comparison of ``run`` with the variant that the words of ``--against`` describe.

    The default of ``--layers`` is ``leaf`` if one of the sides is an export. ``keep`` is the file
    of ``--keep-export``.
    """
    other = read_against(against, run)
    is_graph = other.export is not None or run.model.is_file or other.run.model.is_file
    if is_graph and run.layers is DEFAULTS.run.layers:  # not chosen, not even as the default
        run = replace(run, layers=("leaf",))
        other = replace(other, run=replace(other.run, layers=run.layers))
    if keep is not None:
        other = replace(other, export=keep_export_in(keep, other.export))
    return CompareConfig(run, other, at, blame=blame, match=match)


def _list_words(config: CompareConfig, against: Sequence[str]) -> tuple[str, ...]:
    words = [*compare_command(config.run, config.at)]
    for text in against:
        words += ["--against", text]
    if config.blame:
        words.append("--blame")
    if config.match != "id":
        words += ["--match", config.match]
    return tuple(words)


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
    for note in comparison.notes:
        if note not in (*a.info.notes, *b.info.notes):
            console.say(to_words(note), quiet=quiet)
    return comparison
