"""Define ``hookcli diff``, which compares two runs or golden files, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hookcli.config import DEFAULTS, Match, StorageOptions
from hookcli.distance.tolerance import Tolerance
from hookcli.errors import RequestError
from hookcli.outside.flags import Flag
from hookcli.records.command import repeatable
from hookcli.store.locations.names import PAGE
from hookcli.verbs.analysis import PageTheme
from hookcli.verbs.call import VerbCall
from hookcli.verbs.comparison_outcome import CallTable, ComparisonOutcome, pictures_flag
from hookcli.verbs.keywords import TABLES, verb
from hookcli.verbs.messages import warn_of_damage

_SIDE = "A run folder, a golden file, or - for standard input"


@verb(*TABLES)
def diff(
    call: VerbCall,
    a: Annotated[str, Flag("a A", f"{_SIDE}: the reference.")],
    b: Annotated[str, Flag("b B", f"{_SIDE}.")],
    tolerance: Tolerance,
    style: CallTable,
    match: Annotated[
        Match | None,
        Flag(
            "--match BY",
            "How to pair calls: by id (the same name) or by order.  [default: id]",
            panel="Tolerance",
        ),
    ] = None,
    pictures: Annotated[Path | None, pictures_flag("; needs saved tensors")] = None,
    theme: PageTheme = DEFAULTS.grids.theme,
    storage_option: StorageOptions = (),
) -> ComparisonOutcome:
    """Compare two runs or golden files: which layer differs first, and by how much.

    Ends with code 7 if a layer differs.

    Examples:
        hookcli diff golden.json new.json
        hookcli diff hookcli-runs/before hookcli-runs/after --rtol 1e-3
    """
    from hookcli.comparison.compared_run import load_compared_run
    from hookcli.comparison.diff import diff_runs
    from hookcli.store.locations.storage import use_options

    use_options(storage_option)
    if a == b == "-":
        what = "both runs are '-', but standard input holds only one golden file"
        raise RequestError(what, "give the other as a file")
    one, two = load_compared_run(a), load_compared_run(b)
    warn_of_damage(call, (*one.damage, *two.damage))
    if pictures is not None:
        from hookcli.comparison.pictures import check_pictures

        check_pictures(pictures, one, two)
    result = diff_runs(one, two, tolerance, match, keeps_images=call.listener.wants_rows)
    files: dict[str, Path] = {}
    if pictures is not None:
        from hookcli.comparison.pictures import choose_rows, read_maps, write_pictures

        rows, maps_of = choose_rows(result.rows), read_maps(one, two)
        models = [run.facts["model"]["name"] for run in (one, two)]
        files = write_pictures(pictures, result, rows, maps_of, models, theme)
        call.say(f"open first: {files[PAGE]}")
    command = repeatable(("hookcli", "diff", a, b))
    return ComparisonOutcome(call.notes, command, style, result, files)
