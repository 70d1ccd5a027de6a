"""The command ``hookcli golden``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hookcli import errors
from hookcli.cli import options
from hookcli.cli.option_groups import Without, command
from hookcli.cli.output import console
from hookcli.cli.run_or_model import RunOrModel, open_runs, run_model
from hookcli.config import DEFAULTS, ObservedSide, TensorRequest
from hookcli.outside.flags import Flag


@command
def golden(
    source: Annotated[RunOrModel, Without("categories")],
    context: typer.Context,
    at: ObservedSide = DEFAULTS.at,
    out: Annotated[
        Path | None, Flag("-o --out FILE", "The golden file.  [default: stdout]")
    ] = None,
    overwrite: Annotated[
        bool, Flag("--overwrite", "Replace a file that is no golden file, too.", needs="--out")
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Write a run as one small file; hookcli diff compares later runs with this file.

    Examples:
        hookcli golden hookcli-runs/resnet34-cat -o golden.json
        hookcli golden resnet34 cat.jpg --layers all -o golden.json
    """
    from hookcli.comparison.golden import (
        check_replaceable,
        make_golden,
        render_golden,
        write_golden,
    )

    if out is not None:
        check_replaceable(out, overwrite=overwrite)
    exit_code = errors.DONE
    if source.is_run:
        (run,) = open_runs(source, context, also=("at", "layers", "exclude"))
        document = make_golden(run)
    else:
        config = replace(source.make_config(TensorRequest(sketch=True), quiet=quiet), at=at)
        with run_model(config, quiet=quiet) as (run, exit_code):
            document = make_golden(run)
    if out is None:
        console.print_data(render_golden(document))
    else:
        console.print_data(f"{write_golden(document, out)}\n")
    return exit_code
