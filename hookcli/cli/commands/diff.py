"""The command ``hookcli diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.cli.output.comparison import has_every_image, print_comparison
from hookcli.cli.output.run import warn_of_damage
from hookcli.config import DEFAULTS, Match, StorageOptions
from hookcli.distance.tolerance import Tolerance
from hookcli.errors import RequestError
from hookcli.outside.flags import Flag

_SIDE = "A run folder, a golden file, or - for standard input"


@command
def diff(
    a: Annotated[str, Flag("a A", f"{_SIDE}: the reference.")],
    b: Annotated[str, Flag("b B", f"{_SIDE}.")],
    tolerance: Tolerance,
    match: Annotated[
        Match | None,
        Flag(
            "--match BY",
            "How to pair calls: by id (the same name) or by order.  [default: id]",
            panel="Tolerance",
        ),
    ] = None,
    top: options.TopCalls = options.MOST_ROWS,
    sort: options.CallSort = "order",
    pictures: Annotated[
        Path | None,
        Flag(
            "--pictures DIR",
            "Also write a page with pictures of the calls that differ most; needs saved tensors.",
            panel="Output",
        ),
    ] = None,
    theme: options.PageTheme = DEFAULTS.grids.theme,
    storage_option: StorageOptions = (),
    output_format: options.Format = "table",
) -> int:
    """Compare two runs or golden files: which layer differs first, and by how much.

    Ends with code 7 if a layer differs.

    Examples:
        hookcli diff golden.json new.json
        hookcli diff hookcli-runs/before hookcli-runs/after --rtol 1e-3
    """
    from hookcli.comparison.compared_run import load_compared_run
    from hookcli.comparison.diff import diff_runs
    from hookcli.store.places.storage import use_options

    use_options(storage_option)
    if a == b == "-":
        raise RequestError(
            "both runs are '-', but standard input holds only one golden file",
            "give the other as a file",
        )
    one, two = load_compared_run(a), load_compared_run(b)
    warn_of_damage((*one.damage, *two.damage))
    if pictures is not None:
        from hookcli.comparison.pictures import check_pictures

        check_pictures(pictures, one, two)
    keeps_images = has_every_image(output_format)
    comparison = diff_runs(one, two, tolerance, match, keeps_images=keeps_images)
    print_comparison(comparison, ("hookcli", "diff", a, b), output_format, top, sort)
    if pictures is not None:
        from hookcli.comparison.pictures import choose_rows, name_models, read_maps, write_pictures

        page = write_pictures(
            pictures,
            comparison,
            choose_rows(comparison.rows),
            read_maps(one, two),
            title=name_models(*(run.facts["model"]["name"] for run in (one, two))),
            theme=theme,
        )
        console.say(f"open first: {page}")
    return comparison.exit_code
