"""Define ``hookcli golden``, which writes a run as one small file: its options and its table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hookcli.config import DEFAULTS, ObservedSide, TensorRequest
from hookcli.errors import DONE
from hookcli.outside.flags import Flag
from hookcli.records.calls import ROOT_LABEL
from hookcli.records.statistics import SHOWN
from hookcli.records.text import shape_text
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import Without, verb
from hookcli.verbs.outcome import Look, Outcome, Table, statistic_text
from hookcli.verbs.runs import RunOrModel, open_runs, run_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hookcli.records.golden import GoldenCall, GoldenFile
    from hookcli.verbs.call import Note


@dataclass(frozen=True, kw_only=True)
class Golden(Outcome):
    """The result of ``golden``: a run as one small document, for ``hookcli.diff`` to compare.

    Attributes:
        golden: the statistics and the sketch (a small random projection) of each call's tensor.
        files: the path of the written document, by name; empty without ``out``.
    """

    notes: Sequence[Note]
    golden: GoldenFile
    files: Mapping[str, Path]
    exit_code: int = DONE

    @property
    def rows(self) -> Sequence[GoldenCall]:
        return self.golden.calls

    def document(self) -> GoldenFile:
        return self.golden

    def table(self) -> Table[GoldenCall]:
        from hookcli.records.golden import GoldenCall

        columns: dict[str, Callable[[GoldenCall], str]] = {
            "image": lambda row: row.image,
            "call": lambda row: row.call_id,
            "type": lambda row: row.module_type,
            "shape": lambda row: shape_text(row.shape),
        }
        words = (*columns,)
        columns |= {SHOWN[name].heading: partial(statistic_text, name) for name in SHOWN}
        look = Look(kind=GoldenCall, columns=columns, words=words, fold=words[:2], drop=())
        return Table(look=look, rows=self.rows)

    def text(self) -> str:
        from hookcli.comparison.golden import render_golden

        return "".join(f"{file}\n" for file in self.files.values()) or render_golden(self.golden)


@verb()
def golden(
    call: VerbCall,
    source: Annotated[RunOrModel, Without("categories")],
    at: ObservedSide = DEFAULTS.at,
    out: Annotated[
        Path | None, Flag("-o --out FILE", "The golden file.  [default: stdout]")
    ] = None,
    overwrite: Annotated[
        bool, Flag("--overwrite", "Replace a file that is no golden file, too.", needs="--out")
    ] = False,
) -> Golden:
    """Write a run as one small file; hookcli diff compares later runs with this file.

    The file has the layers of the run or, with a model, those of --layers; by default, the
    convolutions and the output of the model.

    Examples:
        hookcli golden hookcli-runs/resnet34-cat -o golden.json
        hookcli golden resnet34 cat.jpg --layers all -o golden.json
    """
    from hookcli.comparison.golden import check_replaceable, make_golden, write_golden

    if out is not None:
        check_replaceable(out, overwrite=overwrite)
    exit_code = DONE
    if source.is_run:
        (run,) = open_runs(call, source, also=("at", "layers", "exclude"))
        document = make_golden(run)
    else:
        config = replace(source.make_config(call, TensorRequest(sketch=True)), at=at)
        if "layers" not in call.given:
            layers = (*config.run.layers, ROOT_LABEL)
            config = replace(config, run=replace(config.run, layers=layers))
        with run_model(call, config) as (run, exit_code):
            document = make_golden(run)
    names = (each.call_id.partition("[")[0] for each in document.calls)
    if out is not None and ROOT_LABEL not in names:
        call.say(f"the output of the model is not in it; with `layers=({ROOT_LABEL!r},)`, it is")
    files = {} if out is None else {out.name: write_golden(document, out)}
    return Golden(notes=call.notes, golden=document, files=files, exit_code=exit_code)
