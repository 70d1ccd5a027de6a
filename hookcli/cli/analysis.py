"""Steps that the commands for analyses share: open runs, choose layers, write and print results."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from hookcli import errors
from hookcli.cli import options
from hookcli.cli.output import console
from hookcli.cli.output.table import print_listing
from hookcli.cli.run_or_model import RunOrModel, leave_on_termination, open_runs, run_model
from hookcli.config import DEFAULTS, SaveStyle, TensorRequest
from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import DamagedError, convert
from hookcli.outside.files import refuse_url, safe_name
from hookcli.outside.flags import Flag
from hookcli.outside.urls import to_place
from hookcli.records.analysis import Pool
from hookcli.records.command import analysis_command
from hookcli.records.runs import weights_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import typer
    from _typeshed import DataclassInstance

    from hookcli.analysis.features import SavedCall
    from hookcli.analysis.folder import AnalysisFolder
    from hookcli.config import Only
    from hookcli.reading.load import Run
    from hookcli.records.analysis import AnalysedRun, AnalysisDocument
    from hookcli.verbs.outcome import Look

FeaturePool: TypeAlias = Annotated[
    Pool, Flag("--pool mean|max|class", "Mean or maximum over a map, or the class token.")
]

_FOLDER = Path("hookcli-analyses")
_PROGRAM = 160_000_000  # bytes: what an analysis of few images needs


LayersOf: TypeAlias = Annotated[
    tuple[str, ...],
    Flag(
        "--layers FORM[,FORM]",
        "Layers to observe; FORM is explained below.  [default: as said above]",
        many=True,
    ),
]
"""The layers of a command that chooses them itself if the user names none."""


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Output: where the analysis goes, and what is printed."""

    out: Annotated[
        Path | None,
        Flag("-o --out DIR", "The folder of the analysis.  [default: hookcli-analyses/NAME]"),
    ] = None
    overwrite: Annotated[bool, Flag("--overwrite", "Replace the analysis in the folder.")] = False
    keep_run: Annotated[
        Path | None,
        Flag("--keep-run DIR", "With MODEL: keep the run that is made for the analysis."),
    ] = None
    theme: options.PageTheme = DEFAULTS.grids.theme
    output_format: options.Format = "table"
    quiet: options.Quiet = False

    @property
    def is_brief(self) -> bool:
        """Whether the output is for people, who see the most important rows."""
        return self.output_format in ("table", "md")


@dataclass(frozen=True, slots=True)
class Analysis:
    """The runs to analyse, and where the results go."""

    verb: str
    source: RunOrModel
    runs: tuple[Run, ...]
    facts: tuple[AnalysedRun, ...]
    command: tuple[str, ...]
    place: Path
    output: AnalysisOptions
    exit_code: int = errors.DONE

    @property
    def common(self) -> dict[str, Any]:
        """The fields that the documents of all analyses have."""
        return {"command": self.command, "folder": str(self.place), "runs": self.facts}

    def choose_calls(self, run: Run, pool: str = "none") -> tuple[SavedCall, ...]:
        """Return the saved calls of a run that the user chose, by default all.

        ``pool`` is the form in which the tensors are needed, for the hint of an error.
        """
        from hookcli.analysis.features import open_calls

        def choose(forms: Sequence[str]) -> tuple[SavedCall, ...]:
            try:
                return open_calls(run, forms, pool)
            except RequestError as error:
                if not (forms and run.calls):
                    raise
                hint = f"{error.hint}; of a run, name saved layers, with * and ?"
                raise RequestError(error.message, hint) from error

        calls = choose(self.source.forms if self.source.is_run else ())
        if not (self.source.is_run and self.source.run.exclude):
            return calls
        left_out = {each.call_id for each in choose(self.source.run.exclude)}
        rest = tuple(each for each in calls if each.call_id not in left_out)
        if not rest:
            raise RequestError("`exclude` leaves no layer", "choose `layers` that it does not name")
        return rest

    def say_plan(self, what: str, memory: float) -> None:
        """Print the plan on stderr; ``memory`` is what the analysis needs itself, in bytes."""
        needed = memory_text(_PROGRAM + memory)
        self.say(f"{self.verb}: {what}, about {needed} of memory, into {self.place}")

    def say(self, text: str) -> None:
        """Print the plan, or another message, on stderr, unless the command is quiet."""
        console.say(text, quiet=self.output.quiet)

    @contextmanager
    def folder(self) -> Iterator[AnalysisFolder]:
        """Yield the folder in which the ``with`` block writes the files, and name its page."""
        from hookcli.analysis.folder import make_folder
        from hookcli.store.places.names import PAGE

        with leave_on_termination(), make_folder(self.place, self.command) as folder:
            yield folder
        self.say(f"open first: {self.place / PAGE}")

    def print(
        self,
        look: Look[Any],
        rows: Sequence[DataclassInstance],
        document: AnalysisDocument,
        caption: Iterable[str],
    ) -> None:
        """Print the rows of an analysis, or its document, in the format that the user chose."""
        models = dict.fromkeys(weights_text(each.model) for each in self.facts)
        print_listing(
            look,
            rows,
            document,
            output_format=self.output.output_format,
            caption=[*caption, *models],
        )


@contextmanager
def open_analysis(
    source: RunOrModel,
    style: Any,
    output: AnalysisOptions,
    context: typer.Context,
    save: SaveStyle,
    *,
    most: int = 1,
    least: int = 1,
    names: Sequence[str] = (),
    only: Only | None = None,
) -> Iterator[Analysis]:
    """Yield the runs that a command analyses; hookcli runs the model first if the user named one.

    ``most`` bounds the finished runs, and ``least`` the images of a model's run, which must have
    the images ``names``. ``only`` is as in ``TensorRequest``; None if the user chose layers.
    """
    from hookcli.analysis.folder import check_folder
    from hookcli.analysis.images import find_image

    verb, is_run = str(context.info_name), source.is_run
    chosen = replace(source.run, layers=source.forms) if is_run or only else source.run
    command = analysis_command(verb, chosen, style)
    place = output.out or _FOLDER / f"{verb}-{_name(source)}"
    check_folder(place, overwrite=output.overwrite or output.out is None)
    if output.keep_run is not None and not is_run:
        _check_kept(output.keep_run, place)
    elif source.run.model.categories or source.run.model.output_key:
        what = "`categories` and `output_key` are for predictions, which only a run has"
        raise RequestError(what, "keep the run: `keep_run`")

    def gather(runs: tuple[Run, ...], names: Sequence[str], exit_code: int) -> Analysis:
        facts = tuple(_describe_run(*each) for each in zip(runs, names, strict=True))
        return Analysis(verb, source, runs, facts, command, place, output, exit_code)

    if is_run:
        runs = open_runs(source, context, most, also=("keep_run",))
        yield gather(runs, (source.model, *source.images), errors.DONE)
        return
    tensors = TensorRequest(save, sketch=False, only=only)
    config = replace(source.make_config(tensors, quiet=output.quiet), top_images=0)
    if only:
        config = replace(config, run=replace(config.run, layers=("all",)))

    def check(files: Mapping[str, str]) -> None:
        if len(files) < least:
            raise RequestError(
                f"hookcli {verb} needs at least {least} images, not {len(files)}",
                "name more images",
            )
        for name in names:
            find_image(files, name)

    with run_model(config, output.keep_run, check, quiet=output.quiet) as (run, exit_code):
        try:
            yield gather((run,), ("",), exit_code)
        finally:
            if output.keep_run is not None:
                console.say(f"kept the run: {output.keep_run}", quiet=output.quiet)


def _check_kept(keep: Path, place: Path) -> None:
    """Refuse a URL, a folder with files, and a folder inside or around that of the analysis."""
    refuse_url(keep)
    new = "name a new folder with `keep_run`"
    try:
        kept, other = keep.resolve(), place.resolve()
        if kept.is_relative_to(other) or other.is_relative_to(kept):
            raise OutputError(f"the run and the analysis cannot both be in {str(keep)!r}", new)
        if keep.is_dir() and any(keep.iterdir()):
            raise OutputError(f"{str(keep)!r} already has files", new)
    except OSError as error:
        raise OutputError(f"cannot write {str(keep)!r}: {error.strerror}", new) from error


def _describe_run(run: Run, folder: str) -> AnalysedRun:
    """Describe a run for documents; ``folder`` is its name, or empty if it is not kept."""
    from hookcli.reading.run_files import cannot_read
    from hookcli.records.analysis import AnalysedRun
    from hookcli.records.runs import ModelInfo
    from hookcli.store.places.names import MANIFEST

    try:
        model = convert(run.manifest["model"], ModelInfo)
    except DamagedError as error:
        raise cannot_read(run.folder / MANIFEST, error) from error
    return AnalysedRun(folder, model, len(run.images))


def _name(source: RunOrModel) -> str:
    """Return the end of the name of the default folder: that of the runs, or MODEL-IMAGE."""
    if source.is_run:
        names = [to_place(each).resolve().name for each in (source.model, *source.images)]
    else:
        names = [source.model, Path(source.images[0]).stem]
    return "-".join(map(safe_name, names))


def memory_text(number: float) -> str:
    """Return a number of bytes as text: ``12 MB``."""
    return f"{max(1, round(number / 1e6)):,} MB"
