"""Declare the JSON documents that commands such as ``inspect`` print as results or errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from hookcli.outside.documents import LEFT_OUT, Axes, Document, Rows, keywords
from hookcli.records.attention_records import AttentionRow
from hookcli.records.pictures import HeatPicture
from hookcli.records.rows import (
    AnswerLoss,
    CatalogEntry,
    ChannelRow,
    FileRow,
    LayerRow,
    Measurement,
    ModelTotal,
    SensitivityRow,
    SurveyRow,
)
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
        layers: the rows of ``layers.csv``, one per layer call and output.
        attention: the rows of ``attention.csv``; present only with ``--attention``.
        cams: the Grad-CAMs, in the order of ``--cam``; present only with ``--cam``.
    """

    command: Command
    run_folder: str
    model: RunModel
    images: ImageResults
    skipped: SkippedImages
    uncalled: UncalledLayers
    findings: Findings
    layers: Rows[LayerRow]
    attention: tuple[AttentionRow, ...] = field(default=(), metadata=LEFT_OUT)
    cams: tuple[HeatPicture, ...] = field(default=(), metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationDocument(Document):
    """The output of ``hookcli ablate --format json``.

    Attributes:
        command: the command that repeats the ablation, without options that do not affect it.
        channels: the zeroed channels; the one on which the score depends most comes first.
    """

    command: Command
    model: RunModel
    images: ImageResults
    skipped: SkippedImages
    uncalled: UncalledLayers
    channels: Rows[ChannelRow]


@dataclass(frozen=True, slots=True)
class KeptLayers:
    """A list of layers to leave alone, measured with all other layers rounded.

    Attributes:
        modules: the module paths of the layers, the most sensitive first.
        loss: what the answers lose with this list.
        reached: whether the list reaches the goal of ``--reach``; true without a goal.
        autocast: Python code that keeps these layers of ``model`` in float32 under autocast.
        nodes_to_exclude: the nodes of ``--nodes-of``, for the quantizers of onnxruntime; null
            without this option.
        node_block_list: the same, for ``convert_float_to_float16`` of onnxconverter-common and
            onnxruntime.
        layer_precisions: the same, as the value of ``--layerPrecisions`` for TensorRT's trtexec,
            which obeys it with ``--precisionConstraints=obey``; without names that it cannot read.
    """

    modules: tuple[str, ...]
    loss: AnswerLoss
    reached: bool
    autocast: str
    nodes_to_exclude: tuple[str, ...] | None
    node_block_list: tuple[str, ...] | None
    layer_precisions: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityDocument(Document):
    """The output of ``hookcli sensitivity --format json``.

    Attributes:
        images: the keys of the images.
        rounded: what the answers lose if all the layers are rounded.
        keep: the layers to leave alone; null without ``--keep`` and ``--reach``.
        layers: one row for each layer, rounded alone; the most sensitive comes first.
    """

    command: Command
    model: RunModel
    images: tuple[str, ...]
    skipped: SkippedImages
    uncalled: UncalledLayers
    rounded: AnswerLoss
    keep: KeptLayers | None
    layers: Rows[SensitivityRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersDocument(Document):
    """The output of ``hookcli layers --format json``.

    Attributes:
        model: the name under which the user requested the model.
        input_shape: the shape of the model's input (1, …) for one image of the usual size.
        total: the cost of the whole model for one image.
        layers: the layers in the order in which calls start, or in the order of ``--sort``; layers
            that the model never calls come last.
        measured: what a batch cost on this machine; present only with ``--measure``.
    """

    model: str
    input_shape: Axes
    total: ModelTotal
    layers: Rows[SurveyRow]
    measured: Measurement | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsDocument(Document):
    """The output of ``hookcli models --format json``.

    Attributes:
        models: the models, sorted by name.
    """

    models: Rows[CatalogEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDocument(Document):
    """The output of ``hookcli export --format json``.

    Attributes:
        files: the written files, in the order in which hookcli wrote them.
    """

    files: Rows[FileRow]


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
