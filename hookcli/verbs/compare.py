"""The verb ``compare``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hookcli.config import (
    DEFAULTS,
    CompareConfig,
    InspectConfig,
    Match,
    ObservedSide,
    RunRequest,
)
from hookcli.distance.tolerance import Tolerance
from hookcli.outside.flags import Flag
from hookcli.records.command import command_words, repeatable
from hookcli.store.places.names import PAGE
from hookcli.verbs.analysis import PageTheme
from hookcli.verbs.call import Call
from hookcli.verbs.comparison import CallTable, ComparisonOutcome
from hookcli.verbs.keywords import TABLES, Without, verb
from hookcli.verbs.messages import begin, describe_uncalled, warn_of_skipped
from hookcli.verbs.runs import with_downloads

if TYPE_CHECKING:
    from hookcli.comparison.worst_calls import WorstCalls
    from hookcli.distance.comparison import Comparison

_FEW_IMAGES = 8  # this many images need no progress bar


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Against: what is different in variant B, and which differences to look for."""

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
    call: Call,
    run: Annotated[RunRequest, Without("edit", "prune", "categories")],
    tolerance: Tolerance,
    request: CompareRequest,
    style: CallTable,
    at: ObservedSide = DEFAULTS.at,
    pictures: Annotated[
        Path | None,
        Flag(
            "--pictures DIR",
            "Also write a page with pictures of the calls that differ most.",
            panel="Output",
        ),
    ] = None,
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
    inspected = InspectConfig(config.run, at=at)
    command = repeatable(command_words("compare", inspected, request))
    return ComparisonOutcome(call.notes, command, style, result, files)


def _make_config(
    call: Call, run: RunRequest, request: CompareRequest, at: ObservedSide
) -> CompareConfig:
    from hookcli.comparison.against import keep_export_in, read_against

    other = read_against(request.against, run)
    is_graph = other.export is not None or run.model.is_file or other.run.model.is_file
    if is_graph and "layers" not in call.given:
        run = replace(run, layers=("leaf",))
        other = replace(other, run=replace(other.run, layers=run.layers))
    if request.keep_export is not None:
        other = replace(other, export=keep_export_in(request.keep_export, other.export))
    return CompareConfig(run, other, at, blame=request.blame, match=request.match)


def _run(
    call: Call, config: CompareConfig, tolerance: Tolerance, worst: WorstCalls | None
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
    describe_uncalled(call, result.uncalled, {layer.label for layer in a.layers})
    for note in result.notes:
        if note not in (*a.info.notes, *b.info.notes):
            call.say(note)
    return result
