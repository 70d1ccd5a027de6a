"""``hookcli diff``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookcli.cli import options, parse
from hookcli.cli.output import console
from hookcli.cli.output.comparison import list_notes, print_comparison, verdict_text
from hookcli.cli.output.run import warn_of_damage
from hookcli.distance.tolerance import Match, Metric, Tolerance
from hookcli.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookcli.compare.compared_run import ComparedRun
    from hookcli.distance.comparison import Comparison

MetricChoice = Annotated[
    Metric,
    typer.Option(
        "--metric", help="Which distance decides; rel-l2 and cosine are told from sketches too."
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0,
        help="How far apart, relative to A.  [default: 1e-5 for float32, 5e-3 float16, 5e-2 bfloat16, 1e-12 "
        "float64, 0 for whole numbers]",
    ),
]
Atol = Annotated[
    float, typer.Option(metavar="X", min=0, help="How far apart beyond that, in the values' unit.")
]
LayerTolerance = Annotated[
    list[str],
    typer.Option(
        metavar="GLOB=RTOL", help="Another --rtol for some calls: 'layer4.*=1e-2'. Repeatable."
    ),
]
EqualNan = Annotated[
    bool, typer.Option("--equal-nan", help="NaN at the same places in both is no difference.")
]
TopCalls = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Calls in the table, the worst first; csv and json hold all."
    ),
]
MatchChoice = Annotated[
    Match | None,
    typer.Option(
        "--match",
        help="Which calls belong together: of one name, or, where names changed, in their order.  "
        "[default: id, of one model only]",
    ),
]
Pictures = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Make a page there with pictures of the calls that differ most; both runs need --save tensors.",
    ),
]
_DEFAULT = Tolerance()
MOST_ROWS = 20  # in a table
_SIDE = "The folder of a run, a golden file, or - for one on standard input"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=f"{_SIDE}: the reference.")],
    b: Annotated[str, typer.Argument(metavar="B", help=f"{_SIDE}.")],
    match: MatchChoice = None,
    metric: MetricChoice = _DEFAULT.metric,
    rtol: Rtol = _DEFAULT.rtol,
    atol: Atol = _DEFAULT.atol,
    layer_tolerance: LayerTolerance = [],  # noqa: B006
    equal_nan: EqualNan = _DEFAULT.equal_nan,
    top: TopCalls = MOST_ROWS,
    pictures: Pictures = None,
    output_format: options.Format = "table",
) -> None:
    """Say which layer differs first between two runs, and by how much; ends with 7 if one does.

    Example: hookcli diff golden.json new.json
    """
    words = {
        "metric": metric, "rtol": rtol, "atol": atol, "layer_tolerance": layer_tolerance, "equal_nan": equal_nan,
    }  # fmt: skip
    tolerance = read_tolerance(words)
    from hookcli.compare.compared_run import load_compared_run
    from hookcli.compare.diff import diff_sides

    if a == b == "-":
        raise RequestError(
            "- stands for both, and standard input holds one", "give the other as a file"
        )
    one, two = load_compared_run(a), load_compared_run(b)
    warn_of_damage((*one.damage, *two.damage))
    if pictures is not None:
        from hookcli.compare.pictures import check_pictures

        check_pictures(pictures, one, two)
    comparison = diff_sides(one, two, tolerance, match)
    print_comparison(comparison, ("hookcli", "diff", a, b), output_format, top)
    if pictures is not None:
        _write_pictures(pictures, comparison, one, two)
    raise typer.Exit(comparison.exit_code)


def _write_pictures(folder: Path, comparison: Comparison, a: ComparedRun, b: ComparedRun) -> None:
    from hookcli.compare.pictures import write_pictures

    said = (verdict_text(comparison), *list_notes(comparison))
    console.say(f"open first: {write_pictures(folder, comparison, (a, b), said)}")


def read_tolerance(words: Mapping[str, Any]) -> Tolerance:
    """What the options ask for, by their names.

    Raises:
        RequestError: one of them is not a number that anything could be held against.
    """
    for name in ("rtol", "atol"):
        if words[name] is not None and not math.isfinite(words[name]):
            raise RequestError(f"--{name} {words[name]}: not a finite number", f"--{name} 1e-3")
    layers = parse.read_layer_tolerances(words["layer_tolerance"])
    return Tolerance(words["metric"], words["rtol"], words["atol"], layers, words["equal_nan"])
