"""The JSON documents that commands print, or write to files outside run folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from hookcli.distance.answer import Answer
from hookcli.distance.comparison import ChangedFact, DiffRow, LeftOut
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
    """The output of ``hookcli inspect`` or ``hookcli gradients`` with ``--format json``.

    Attributes:
        run_folder: the path of the run folder, as given with ``-o`` or as hookcli chose it.
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
    """The output of ``hookcli ablate --format json``.

    Attributes:
        command: the command line that repeats the ablation, without options that do not affect the
            result.
        channels: the zeroed channels, sorted by rank.
    """

    command: Command
    model: RunModel
    images: ImageResults
    skipped: SkippedImages
    uncalled: UncalledLayers
    channels: tuple[ChannelRow, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """The nodes of an ONNX file to keep in float32, as arguments of the tools that convert files.

    Attributes:
        node_block_list: for ``convert_float_to_float16`` of onnxconverter-common and onnxruntime.
        nodes_to_exclude: for the quantizers of onnxruntime.
    """

    node_block_list: tuple[str, ...]
    nodes_to_exclude: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonDocument(Document):
    """The output of ``hookcli diff`` or ``hookcli compare`` with ``--format json``.

    Attributes:
        command: the command line that repeats the comparison.
        equal: whether every call is within its tolerance, and no image is missing.
        first: the id of the first call that differs, in the order in which calls complete; null if
            no call differs.
        verdict: the result in words.
        culprits: the ids of the calls that are to blame, in the order in which they complete; null
            unless the comparison looked for culprits (``--blame``).
        blame: which calls are to blame, in words; empty unless the comparison looked for culprits.
        keep: the names of the nodes that compute the culprits; null unless B is an ONNX file and
            the comparison looked for culprits.
        answer: how far the answers of A and B agree; null if the model's outputs are unknown.
        a: the first run (A, the reference), as the user named it.
        b: the second run (B), as the user named it.
        tolerance: the tolerance that was requested.
        changed: the facts on which the runs depend, and which differ between A and B.
        images: the keys (unique names) of the compared images.
        only_in_a: the keys of the images that only run A has.
        only_in_b: the keys of the images that only run B has.
        uncalled: the selected layers that ran in neither run.
        left_out: the calls that were not compared, and why.
        notes: changes that hookcli made to a model on its own, and that affect the computed values.
        remarks: sentences on the images and on how exact the distances are: for example, that
            hookcli compared only statistics.
        layers: one row per call, in the order in which calls complete in A, or the worst call
            first (``--sort worst``); each row has the distances of the call's worst image.
        calls: one row per call and image, in the order of ``layers`` and then of ``images``.
    """

    command: Command
    equal: bool
    first: str | None
    verdict: str
    culprits: tuple[str, ...] | None
    blame: str
    keep: Keep | None
    answer: Answer | None
    a: str
    b: str
    tolerance: Tolerance
    changed: tuple[ChangedFact, ...]
    images: tuple[str, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    skipped: SkippedImages
    uncalled: UncalledLayers
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...]
    layers: tuple[DiffRow, ...]
    calls: tuple[DiffRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersDocument(Document):
    """The output of ``hookcli layers --format json``.

    Attributes:
        model: the name under which the user requested the model.
        input_shape: the shape of the model's input for one image of the usual size, with the
            leading axis 1.
        total: the cost of the whole model for one image.
        layers: the layers in the order in which calls start, or in the order of ``--sort``; layers
            that the model never calls come last.
    """

    model: str
    input_shape: Axes
    total: ModelTotal
    layers: tuple[SurveyRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsDocument(Document):
    """The output of ``hookcli models --format json``.

    Attributes:
        models: the models, sorted by name.
    """

    models: tuple[CatalogEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDocument(Document):
    """The output of ``hookcli export --format json``.

    Attributes:
        files: the written files, in the order in which hookcli wrote them.
    """

    files: tuple[FileRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDocument(ExportDocument):
    """The output of ``hookcli report --format json``.

    Attributes:
        complete: whether the run is complete.
        missing: the pictures that the page needs but that do not exist, relative to the run folder.
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
    """The output of a command with ``--format json`` or ``jsonl`` if an error ends the command.

    Attributes:
        error: the error, which hookcli also prints on stderr.
    """

    error: CommandError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportList(Document):
    """The list of the files that exports wrote into a folder.

    Attributes:
        hookcli: the version of hookcli that wrote the list.
        command: the command that wrote the files.
        files: the names of the files, sorted.
    """

    hookcli: str
    command: tuple[str, ...] = ("hookcli", "export")
    files: tuple[str, ...]
