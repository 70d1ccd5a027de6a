"""Define what ``places``, ``map``, ``probe`` and ``similarity`` share: options, runs and pages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar

from hookcli import errors
from hookcli.config import DEFAULTS, InspectConfig, SaveStyle, TensorRequest, Theme
from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import DamagedError, convert
from hookcli.outside.escape import reversible
from hookcli.outside.files import real_path, refuse_url, safe_name
from hookcli.outside.flags import Flag
from hookcli.outside.urls import shown, to_location
from hookcli.records.analysis import Pool
from hookcli.records.command import command_words, repeatable
from hookcli.records.runs import weights_text
from hookcli.store.locations.names import PAGE
from hookcli.verbs.outcome import Outcome, Page
from hookcli.verbs.runs import RunOrModel, leave_on_termination, open_runs, run_model

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from hookcli.analysis.features import SavedCall
    from hookcli.config import Only
    from hookcli.reading.load import Run
    from hookcli.records.analysis import AnalysedRun, AnalysisDocument
    from hookcli.render.report.contact import Group
    from hookcli.store.results import ResultFolder
    from hookcli.verbs.call import Note, Progress, VerbCall

FeaturePool: TypeAlias = Annotated[
    Pool, Flag("--pool mean|max|class", "Mean or maximum over a map, or the class token.")
]

PageTheme: TypeAlias = Annotated[
    Theme,
    Flag(
        "--theme dark|light",
        "Background of the pictures; light is for papers.",
        panel="Output",
        needs="--pictures",
    ),
]
Result = TypeVar("Result")
_FOLDER = Path("hookcli-analyses")

LayersOf: TypeAlias = Annotated[
    tuple[str, ...],
    Flag(
        "--layers FORM[,FORM]",
        "Layers to observe; FORM is explained below.  [default: as said above]",
        many=True,
    ),
]
"""The option ``layers`` of ``map`` and ``probe``, which choose layers themselves without it."""

GivenLabels: TypeAlias = str | tuple[str, ...] | Mapping[str, str]
"""Labels of images: the word ``folders`` (the folder of an image is its label), the name of a CSV
file, a tuple of labels in the order of the run's images, or a mapping to labels. Its keys are the
images' paths, file names or keys (the unique names of the images in the run)."""


def labels_flag(text: str) -> Flag:
    return Flag(
        "--labels folders|FILE.csv",
        text,
        read=lambda words, _: words,
        write=lambda labels: labels if isinstance(labels, str) else "FILE.csv",
    )


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Output: options that say where an analysis is written, and how its pictures look."""

    out: Annotated[
        Path | None,
        Flag("-o --out DIR", "The folder of the analysis.  [default: hookcli-analyses/NAME]"),
    ] = None
    overwrite: Annotated[bool, Flag("--overwrite", "Replace the analysis in the folder.")] = False
    keep_run: Annotated[
        Path | None,
        Flag("--keep-run DIR", "With MODEL: keep the run that is made for the analysis."),
    ] = None
    theme: PageTheme = DEFAULTS.grids.theme


@dataclass(frozen=True, slots=True)
class Analysis:
    call: VerbCall
    source: RunOrModel
    forms: tuple[str, ...]  # the layers that the user chose
    runs: tuple[Run, ...]
    facts: tuple[AnalysedRun, ...]
    command: tuple[str, ...] | None
    location: Path | None  # the folder of the results; None writes nothing
    output: AnalysisOptions
    exit_code: int = errors.DONE  # of the run that was made for the analysis

    @property
    def common(self) -> dict[str, Any]:
        folder = "" if self.location is None else str(self.location)
        return {"command": self.command, "folder": folder, "runs": self.facts}

    def choose_calls(self, run: Run, pool: str = "none") -> tuple[SavedCall, ...]:
        """Return the layer calls that have saved tensors in ``run`` and that the user chose.

        Raise a RequestError if none is left; its hint may advise a new run with ``--pool POOL``.
        """
        from hookcli.analysis.features import open_calls

        forms, left_out = (self.forms, self.source.run.exclude) if self.source.is_run else ((), ())
        try:
            calls = open_calls(run, forms, pool)
            others = {each.call_id for each in open_calls(run, left_out, pool)} if left_out else ()
        except RequestError as error:
            if not ((forms or left_out) and run.calls):
                raise
            hint = f"{error.hint}; of a run, name saved layers, with * and ?"
            raise RequestError(error.message, hint) from error
        rest = tuple(each for each in calls if each.call_id not in others)
        if not rest:
            raise RequestError("`exclude` leaves no layer", "choose `layers` that it does not name")
        return rest

    def say_plan(self, what: str) -> None:
        into = "" if self.location is None else f", into {self.location}"
        self.call.plan(f"{self.call.verb}: {what}{into}")

    def count(self, total: int, noun: str, *, is_long: bool = True) -> Progress:
        return self.call.listener.count(total, noun, is_long=is_long)

    def where(self, name: str) -> str:
        return name if self.location is None else str(self.location / name)

    @contextmanager
    def folder(self) -> Iterator[ResultFolder]:
        from hookcli.analysis.folder import make_folder

        with leave_on_termination(), make_folder(self.location, self.command) as folder:
            yield folder
        if self.location is not None:
            self.call.say(f"open first: {self.location / PAGE}")

    def write_page(
        self, folder: ResultFolder, title: str, document: AnalysisDocument, values: Any
    ) -> None:
        from hookcli.render.report.analysis_page import render_analysis

        folder.write(PAGE, render_analysis(self.call.verb, title, document, values).encode())

    def list_weights(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(weights_text(each.model) for each in self.facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOutcome(Outcome, Generic[Result]):
    """The base class of the results of ``places``, ``map``, ``probe`` and ``similarity``."""

    analysis: Analysis
    files: Mapping[str, Path | bytes]
    result: Result

    def document(self) -> Any:
        return self.result

    @property
    def notes(self) -> Sequence[Note]:
        return self.analysis.call.notes

    @property
    def exit_code(self) -> int:
        return self.analysis.exit_code

    @property
    def page(self) -> Page:
        return Page(self.files, PAGE)


@contextmanager
def open_analysis(
    call: VerbCall,
    source: RunOrModel,
    style: Any,
    output: AnalysisOptions,
    pool: str,
    *,
    most: int = 1,
    least: int = 1,
    names: Sequence[str] = (),
    only: Only | None = None,
) -> Iterator[Analysis]:
    """Open the finished runs in ``source``, or run its model on its images; yield an ``Analysis``.

    ``source`` may have up to ``most`` finished runs. A new run of a model needs at least ``least``
    images, and among them those in ``names``; it saves the tensors that ``pool`` needs. ``only``
    says which layers it saves, such as ``"act"``; None saves those that the user chose.
    """
    from hookcli.analysis.folder import check_folder
    from hookcli.analysis.images import find_image
    from hookcli.plan.check import check_memory

    is_run = source.is_run
    forms = source.run.layers if "layers" in call.given else ()
    chosen = replace(source.run, layers=forms) if is_run or only else source.run
    command = repeatable(command_words(call.verb, InspectConfig(chosen), style))
    location = output.out
    if location is None and call.listener.writes:
        if is_run:
            parts = [to_location(each).resolve().name for each in (source.model, *source.images)]
        else:
            parts = [source.model, Path(source.images[0]).resolve().stem]
        location = _FOLDER / "-".join([call.verb, *map(safe_name, parts)])
    if location is not None:
        check_folder(location, overwrite=output.overwrite or output.out is None)
    if output.keep_run is not None and not is_run:
        _check_kept(output.keep_run, location)
    elif source.run.model.categories or source.run.model.output_key:
        what = "`categories` and `output_key` are for predictions, which only a run has"
        raise RequestError(what, "keep the run: `keep_run`")

    def gather(runs: tuple[Run, ...], names: Sequence[str], exit_code: int) -> Analysis:
        facts = tuple(map(_describe_run, runs, map(shown, names)))
        return Analysis(call, source, forms, runs, facts, command, location, output, exit_code)

    if is_run:
        runs = open_runs(call, source, most, also=("keep_run",))
        yield gather(runs, (source.model, *source.images), errors.DONE)
        return
    tensors = TensorRequest(SaveStyle("none" if pool == "class" else pool), sketch=False, only=only)
    config = replace(source.make_config(call, tensors), top_images=0)
    if only:
        config = replace(config, run=replace(config.run, layers=("all",)))

    def check(files: Mapping[str, str]) -> None:
        if location is None:
            check_memory(len(files))
        if len(files) < least:
            what = f"`hookcli.{call.verb}` needs at least {least} images, not {len(files)}"
            raise RequestError(what, "name more images")
        for name in names:
            find_image(files, name)

    with run_model(call, config, output.keep_run, check) as (run, exit_code):
        try:
            yield gather((run,), ("",), exit_code)
        finally:
            if output.keep_run is not None:
                call.say(f"kept the run: {output.keep_run}")


def _check_kept(keep: Path, location: Path | None) -> None:
    refuse_url(keep)
    new = "name a new folder with `keep_run`"
    try:
        kept, other = real_path(keep), None if location is None else real_path(location)
        if other and (kept.is_relative_to(other) or other.is_relative_to(kept)):
            raise OutputError(f"the run and the analysis cannot both be in {str(keep)!r}", new)
        if keep.is_dir() and any(keep.iterdir()):
            raise OutputError(f"{str(keep)!r} already has files", new)
    except OSError as error:
        raise OutputError(f"cannot write {str(keep)!r}: {error.strerror}", new) from error


def _describe_run(run: Run, folder: str) -> AnalysedRun:
    from hookcli.reading.run_files import cannot_read
    from hookcli.records.analysis import AnalysedRun
    from hookcli.records.runs import ModelInfo
    from hookcli.store.locations.names import MANIFEST

    try:
        model = convert(run.manifest["model"], ModelInfo)
    except DamagedError as error:
        raise cannot_read(run.folder / MANIFEST, error) from error
    return AnalysedRun(folder, model, len(run.images))


def group_by_label(images: Mapping[str, Collection[str]], total: int) -> Iterator[Group]:
    from hookcli.render.report.contact import Group

    for label, keys in images.items():
        name = reversible(label)
        yield Group(f"{name} ({len(keys)})", name, frozenset(keys), total, is_mark=False)
