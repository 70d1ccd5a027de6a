"""The options of ``hookcli diff`` and ``hookcli compare``: how far apart two calls may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import typer

from hookcli.cli import options, parse
from hookcli.distance.tolerance import Metric, Tolerance
from hookcli.errors import RequestError

_DEFAULT = Tolerance()
MOST_ROWS = 20  # of the table
TopCalls = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Rows of the table, the worst first; csv and json have every image.",
        rich_help_panel=options.OUTPUT,
    ),
]


@dataclass(frozen=True, slots=True)
class ToleranceOptions:
    """Tolerance: how far apart two calls may be."""

    metric: Annotated[
        Metric,
        typer.Option(
            "--metric",
            metavar="METRIC",
            help="rel-l2, cosine, max-abs or mean-abs; the last two need tensors.",
        ),
    ] = _DEFAULT.metric
    rtol: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0,
            help="Largest difference, relative to A.  [default: by dtype; float32: 1e-5]",
        ),
    ] = _DEFAULT.rtol
    atol: Annotated[
        float,
        typer.Option(metavar="X", min=0, help="Largest absolute difference beyond that."),
    ] = _DEFAULT.atol
    layer_tolerance: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="GLOB=RTOL",
            help="An own --rtol for some calls: 'layer4.*=1e-2'.",
        ),
    ] = ()
    equal_nan: Annotated[
        bool,
        typer.Option("--equal-nan", help="NaN in the same places is no difference."),
    ] = _DEFAULT.equal_nan

    def tolerance(self) -> Tolerance:
        """Return how far apart two calls may be.

        Raises:
            RequestError: a value is not a finite number.
        """
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not math.isfinite(value):
                raise RequestError(f"--{name} {value}: not a finite number", f"--{name} 1e-3")
        layers = parse.read_layer_tolerances(self.layer_tolerance)
        return Tolerance(self.metric, self.rtol, self.atol, layers, self.equal_nan)
