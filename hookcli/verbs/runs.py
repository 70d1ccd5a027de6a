"""Run a model or open finished runs, for commands that take MODEL or RUN; put plans into words."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from hookcli import errors
from hookcli.config import (
    DEFAULTS,
    BatchSize,
    FolderRequest,
    GridStyle,
    InspectConfig,
    MachineRequest,
    RunRequest,
    StorageOptions,
    Workers,
)
from hookcli.errors import HookcliError, OutputError, RequestError
from hookcli.outside.files import scratch_folder
from hookcli.outside.flags import Flag, list_fields, list_paths
from hookcli.outside.urls import choose, to_local
from hookcli.records.text import count
from hookcli.verbs import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hookcli.config import RunConfig, TensorRequest
    from hookcli.plan.prepared import Plan, PreparedRun
    from hookcli.reading.load import Run
    from hookcli.run.result import RunResult
    from hookcli.verbs.call import VerbCall

R = TypeVar("R", bound=RunRequest)
_PICTURES = {"layers": "one grid per layer", "sheet": "one sheet per image", "none": "no grids"}
RunFolder: TypeAlias = Annotated[str, Flag("run RUN", "The folder of a run, or its URL.")]
_ROOM = "set TMPDIR to a folder with free space"
# The options that need a model: all of RunOrModel, except those that also serve a run.
_FOR_RUNS = ("model", "images", "layers", "exclude", "storage_option")


def prepare(call: VerbCall, config: RunConfig, *, keeps: bool = True) -> PreparedRun:
    # If the run folder will be kept (``keeps``), the plan names the folder and its size.
    from hookcli.plan.prepare import prepare_run

    if call.listener.starts_workers and "workers" not in call.given:
        config = replace(config, machine=replace(config.machine, workers=None))
    with call.listener.no_data():
        prepared = prepare_run(config)
    call.plan(plan_text(config, prepared.settings.plan, keeps=keeps))
    messages.begin(call, prepared.model.skipped, prepared.model.loaded.info)
    from hookcli.networks.modules import find_blocks
    from hookcli.passes.eager import EagerRunner  # loads torch, which a wrong request does not need

    runner = prepared.model.runner
    is_default = (
        not {"layers", "exclude"} & {*call.given} and config.run.layers == DEFAULTS.run.layers
    )
    is_alone = is_default and len(runner.layers) == 1
    if is_alone and isinstance(runner, EagerRunner) and (blocks := find_blocks(runner.module)):
        only = runner.layers[0].label
        call.say(f"`layers={('conv',)}` finds {only} alone; the blocks: `layers={(blocks,)}`")
    return prepared


def execute(call: VerbCall, prepared: PreparedRun, *, keeps: bool = True) -> RunResult:
    # If the run folder will be kept (``keeps``), errors mention ``resume``.
    is_long = prepared.settings.is_long
    bar = call.listener.count(len(prepared.model.sources), "images", is_long=is_long)
    try:
        with call.listener.no_data(), bar as progress:
            cluster = prepared.settings.config.machine.cluster
            if cluster is None:
                from hookcli.run.pipeline import run

                result = run(prepared, progress)
            else:
                from hookcli.cluster.run import run_on_cluster

                result = run_on_cluster(prepared, cluster, progress)
    except (errors.ForwardError, errors.NoBoxError) as error:
        if keeps and prepared.settings.has_several:
            error.hint += ", and `resume` continues the run"
        raise
    except KeyboardInterrupt as error:
        if not (keeps and is_long):
            raise
        from hookcli.summary.chunks import chunk_size  # imports numpy

        each = chunk_size(prepared.settings.config.batch_size)
        done = f"the first {bar.done} images are kept; `resume` continues after them"
        none = f"images are kept {each} at a time: `resume` begins with the first one again"
        raise errors.InterruptError("interrupted", done if bar.done else none) from error
    messages.warn_of_skipped(call, result.skipped[len(prepared.model.skipped) :])
    return result


def plan_text(config: RunConfig, plan: Plan, *, keeps: bool = True) -> str:
    what = f"{config.run.model.name}: {count(plan.layers, 'layer')}, {count(plan.images, 'image')}"
    if not keeps:
        return what
    pictures = [_PICTURES[plan.grids]]
    if config.attention is not None and plan.grids != "layers":
        pictures.append("no pictures of attention")
    if plan.sketches:
        pictures.append("sketches")
    if config.tensors.save is not None:
        pictures.append("tensors")
    if plan.tests:
        pictures.append(f"{plan.tests:,} forward passes to test Grad-CAMs")
    cluster = config.machine.cluster
    where = "" if cluster is None else f", on the Ray cluster {cluster.address}"
    return (
        f"{what}{where}, {', '.join(pictures)}, "
        f"about {count(plan.files, 'file')}, up to about {plan.megabytes:.1f} MB, "
        f"into {plan.out_dir}"
    )


@dataclass(frozen=True, slots=True)
class RunOrModel:
    """A finished run, or a model and the images to run it on.

    Attributes:
        model: the name of a model, or the folder of a run. Any URL, and any name that comes without
            images, stands for a run.
        images: the images for the model; with a run, the folder of a second run, if the command
            takes two.
    """

    model: Annotated[
        str, Flag("model MODEL|RUN", "A model, as for hookcli inspect, or the folder of a run.")
    ]
    run: RunRequest
    images: Annotated[
        tuple[str, ...],
        Flag("images IMAGE", "With MODEL: images, as for hookcli inspect.", many=True),
    ] = ()
    workers: Workers = DEFAULTS.machine.workers
    batch_size: BatchSize = DEFAULTS.batch_size
    storage: StorageOptions = ()

    @property
    def is_run(self) -> bool:
        return choose(self.model, local=_is_run(self.model) or not self.images, remote=True)

    def use_storage(self) -> None:
        from hookcli.store.locations.storage import use_options

        use_options(self.storage)

    def make_config(self, call: VerbCall, tensors: TensorRequest) -> InspectConfig:
        return InspectConfig(
            with_downloads(call, self.run),
            grids=GridStyle("none"),
            tensors=tensors,
            machine=MachineRequest(self.workers, storage=self.storage),
            batch_size=self.batch_size,
        )


def with_downloads(call: VerbCall, run: R) -> R:
    return replace(run, model=replace(run.model, progress=call.listener.shows_downloads))


def open_runs(
    call: VerbCall, source: RunOrModel, most: int = 1, *, also: Sequence[str] = ()
) -> tuple[Run, ...]:
    """Open the finished runs in ``source``, at most ``most``.

    Raise a RequestError if there are more, or if the user gave an option that needs a model.
    ``also`` names options that need a model only in this verb.
    """
    from hookcli.reading.load import load_run

    source.use_storage()
    names = (source.model, *source.images)
    for name in names:
        is_folder = os.path.isdir(to_local(name))  # noqa: PTH112  also if the name is too long
        if not (_is_run(name) or choose(name, local=is_folder, remote=True)):
            _refuse(call, name, source)
    if len(names) > most:
        taken = f"`hookcli.{call.verb}` takes {'one' if most == 1 else 'up to two'}"
        hint = "compare two runs with `hookcli.similarity`, or `hookcli.diff`"
        raise RequestError(f"{names[most]!r} is one run too many: {taken}", hint)
    options = {flag.parameter for _, flag in list_paths(list_fields(RunOrModel))}
    needs_model = options.difference(_FOR_RUNS).union(also)
    for name in call.given:
        if name in needs_model:
            what = f"`{name}` needs a model and images, but {source.model!r} is a run's folder"
            raise RequestError(what, f"leave it out, or `hookcli.{call.verb}(MODEL, IMAGE...)`")
    runs = tuple(load_run(name) for name in names)
    for run in runs:
        messages.warn_of_damage(call, run.damage)
    return runs


def _refuse(call: VerbCall, name: str, source: RunOrModel) -> None:
    of_model = f"`hookcli.{call.verb}(MODEL, IMAGE...)`"
    if name != source.model:
        what = f"{source.model!r} is the folder of a run, and {name!r} is not"
        raise RequestError(what, f"`hookcli.{call.verb}(RUN)`, or {of_model}")
    exists = os.path.lexists(to_local(name))
    what = f"{name!r} is no folder" if exists else f"there is no folder {name!r}"
    raise RequestError(f"{what}, and no image was given", f"{of_model}, or the folder of a run")


def _is_run(name: str) -> bool:
    from hookcli.store.locations.names import MANIFEST, REQUEST

    files = (Path(to_local(name), each) for each in (REQUEST, MANIFEST))
    return choose(name, local=any(map(os.path.isfile, files)), remote=False)


@contextmanager
def run_model(
    call: VerbCall,
    config: InspectConfig,
    keep: Path | None = None,
    check: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> Iterator[tuple[Run, int]]:
    """Run a model on images; yield the finished run and its exit code.

    ``keep`` is the run folder; None means a temporary folder, which is deleted when the ``with``
    block ends. ``check`` gets the name of each image by its key (the image's unique name in the
    run), and raises an error if the images are of no use.
    """
    from hookcli.reading.load import load_run

    for name in config.run.images.names:
        if _is_run(name):
            what = f"{name!r} is the folder of a run, and {config.run.model.name!r} is not"
            raise RequestError(what, "name a model and images, or only runs")
    with _open_folder(keep) as folder:
        kept = keep is not None
        try:
            config = replace(config, folder=FolderRequest(folder))
            prepared = prepare(call, config, keeps=kept)
            check({source.key: source.name for source in prepared.model.sources})
            result = execute(call, prepared, keeps=kept)
        except OutputError as error:
            if kept:
                raise
            reason = getattr(error.__cause__, "strerror", None) or "the folder was changed"
            raise OutputError(f"cannot write temporary files: {reason}", _ROOM) from error
        if not result.rows:
            idle = "".join(f": {each.layer.label}: {each.reason}" for each in result.uncalled[:1])
            what = f"no layer that `layers` chooses ran in {config.run.model.name}{idle}"
            raise RequestError(what, "choose others: `layers='all'` includes the model itself")
        try:
            yield load_run(folder), result.exit_code
        except HookcliError as error:
            if not kept:
                where = f"in {str(folder)!r}"
                error.message = error.message.replace(where, f"of {config.run.model.name}")
            raise
    messages.describe_images(call, result.images)
    messages.describe_uncalled(call, result.uncalled)


@contextmanager
def _open_folder(keep: Path | None) -> Iterator[Path]:
    """Yield ``keep`` or else a temporary folder, which is deleted even after Ctrl-C or SIGTERM."""
    if keep is not None:
        yield keep
        return
    with leave_on_termination(), ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder())
        except OSError as error:
            raise OutputError(f"cannot make a temporary folder: {error.strerror}", _ROOM) from error
        yield folder


@contextmanager
def leave_on_termination() -> Iterator[None]:
    """Let SIGTERM raise an exception in the ``with`` block, so that temporary files are deleted."""
    # Python allows only the main thread to handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: object) -> None:
        raise errors.Termination(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
