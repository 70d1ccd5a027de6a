"""The JSON documents that commands print, or write to files outside run folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from hookcli.distance.comparison import ChangedFact, DiffRow
from hookcli.distance.tolerance import Tolerance
from hookcli.outside.documents import LEFT_OUT, Axes, Document, keywords
from hookcli.records.attention import AttentionRow
from hookcli.records.rows import CatalogEntry, ChannelRow, FileRow, LayerRow, ModelTotal, SurveyRow
from hookcli.records.shared_fields import (
    Command,
    Findings,
    ImageResults,
    RunModel,
    SkippedImages,
    UncalledLayers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument(Document):
    """What a run over images prints with ``--format json``.

    Attributes:
        run_folder: the run folder, as ``-o`` named it or hookcli chose it.
        layers: the rows of ``layers.csv``.
        attention: the rows of ``attention.csv``; present only with ``--attention``.
    """

    command: Command
    run_folder: str
    model: RunModel
    images: ImageResults
    skipped: SkippedImages
    uncalled: UncalledLayers
    findings: Findings
    layers: tuple[LayerRow, ...]
    attention: tuple[AttentionRow, ...] = field(default=(), metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationDocument(Document):
    """What ``hookcli ablate --format json`` prints.

    Attributes:
        command: the command line that repeats the ablation, without options that do not affect the
            result.
        channels: the channels in the order of their ranks.
    """

    command: Command
    model: RunModel
    images: ImageResults
    skipped: SkippedImages
    uncalled: UncalledLayers
    channels: tuple[ChannelRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonDocument(Document):
    """A comparison of two runs, as ``--format json`` prints it.

    Attributes:
        command: the command line that repeats the comparison.
        equal: whether every call is within its tolerance, and no image is missing.
        first: the first call id that differs, in the order in which calls complete; null if none
            differs.
        verdict: the result in words.
        a: the user's name of the first run, the reference.
        b: the user's name of the second run.
        tolerance: the tolerance that was requested.
        changed: the facts that the runs depend on and that differ.
        images: the keys of the compared images.
        only_in_a: the keys of the images that B lacks.
        only_in_b: the keys of the images that A lacks.
        uncalled: the selected layers that ran in neither run.
        notes: unrequested changes to either model that affect what it computes.
        remarks: sentences that qualify the images and the distances: for example, that only figures
            were compared.
        layers: one row per call, with the figures of its worst image; the worst first.
        calls: one row per call and image, in the order of ``layers`` and then of ``images``.
    """

    command: Command
    equal: bool
    first: str | None
    verdict: str
    a: str
    b: str
    tolerance: Tolerance
    changed: tuple[ChangedFact, ...]
    images: tuple[str, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    skipped: SkippedImages
    uncalled: UncalledLayers
    notes: tuple[str, ...]
    remarks: tuple[str, ...]
    layers: tuple[DiffRow, ...]
    calls: tuple[DiffRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersDocument(Document):
    """What ``hookcli layers --format json`` prints.

    Attributes:
        model: the name under which the user requested the model.
        input_shape: the shape of the pixels of an image of the usual size.
        total: the cost of the whole model for one image.
        layers: the layers in the order in which calls start, or as ``--sort`` says; layers that are
            never called come last.
    """

    model: str
    input_shape: Axes
    total: ModelTotal
    layers: tuple[SurveyRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsDocument(Document):
    """What ``hookcli models --format json`` prints.

    Attributes:
        models: the models, sorted by name.
    """

    models: tuple[CatalogEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDocument(Document):
    """What ``hookcli export --format json`` prints.

    Attributes:
        files: the files that were written, in this order.
    """

    files: tuple[FileRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDocument(ExportDocument):
    """What ``hookcli report --format json`` prints.

    Attributes:
        complete: whether the run is complete.
        missing: the pictures that the page should show, relative to the run folder.
    """

    complete: bool
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandError:
    """The error that ended a command.

    Attributes:
        code: the exit code of the command.
        message: what is wrong, in one line.
        hint: what to do, or to type instead; may be empty.
    """

    code: Annotated[int, keywords(minimum=1)]
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDocument(Document):
    """What a command prints with ``--format json`` or ``jsonl`` if an error ends it.

    Attributes:
        error: the error, which is on stderr too.
    """

    error: CommandError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportList(Document):
    """The list of the files that exports wrote into a folder.

    Attributes:
        hookcli: the version of hookcli that wrote the list.
        command: the command.
        files: the names of the files, sorted.
    """

    hookcli: str
    command: tuple[str, ...] = ("hookcli", "export")
    files: tuple[str, ...]
