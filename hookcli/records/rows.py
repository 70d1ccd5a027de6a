"""Rows of ``layers.csv``, and of the commands' output: layers, channels, models, and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from hookcli.outside.documents import AtLeastOne, Axes, Distance, Share, Whole, keywords
from hookcli.records.statistics import Statistics

ModuleType: TypeAlias = Annotated[
    str, keywords(description="The class name of the module, or the name of the operation.")
]
Side: TypeAlias = Annotated[
    str,
    keywords(
        enum=["output", "input", "grad_output", "grad_input", "param"],
        description="The side of the call that the tensor belongs to; param is the gradient of a "
        "parameter.",
    ),
]
TaskWord: TypeAlias = Literal[
    "classification", "detection", "segmentation", "video", "optical_flow", "quantization"
]
# Models of these tasks may find nothing in an image. For any other task, a missing prediction means
# that hookcli does not know the form of the output.
MAY_FIND_NOTHING: frozenset[TaskWord] = frozenset({"detection"})


@dataclass(frozen=True)
class _CallColumns:
    """The columns that come before the statistics: the call, and the form of its tensor."""

    __slots__ = ()

    order: Whole
    call_id: str
    module_path: str
    module_type: ModuleType
    call_index: Whole
    side: Side
    output_key: str
    shape: Axes
    dtype: str
    layout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow(Statistics, _CallColumns):
    """A row of ``layers.csv``: a layer call and output, over the images of the run.

    The statistics cover all images. They are null if no value is finite, or without a gradient.

    Attributes:
        order: the position among the observed calls, from 1, by the start of the call; 0 for a
            parameter of a module that is not called.
        call_id: the identifier that tables show and filters accept: ``layer1.0.relu#1``,
            ``self_attention[1]``, ``input:fc``, ``param:fc.bias``.
        module_path: the dotted name from ``named_modules()``; empty for the model itself. For an
            operation between modules, its own name follows: ``layer1.0/op:add``.
        call_index: 0 for the module's first call in one forward.
        output_key: the name of the tensor in an output that has several; empty if it has one; for
            a gradient of a parameter, the name of the parameter.
        shape: the shape of one image's tensor, with the leading axis 1; if images differ, the first
            image's.
        dtype: the name of the type in torch, such as ``float32``.
        layout: the meaning of the axes: ``NCHW``, ``NHWC``, ``NLC``, ``NCL``, ``NC``, ``NCDHW``,
            ``NDHWC``, or ``unknown``.
        dead_channels: the number of channels that are zero everywhere in all images; null without a
            channel axis.
        channels: the number of channels of the first image; null without a channel axis.
        images: the number of images that the row covers.
        params: the number of parameters of the module and of all modules inside it.
        norm: the L2 norm of the finite values of an image; over several images, the root of the
            mean square of their norms.
        ratio: for the gradient of a parameter, its norm divided by the norm of the parameter.
        change: the distance from the run without edits: the norm of the difference divided by the
            norm in that run; over several images, the root of the mean square. It is null in a run
            without edits.
        sparsity: the share of zeros in the weight of a layer that was pruned; null for other
            layers.
        reason: the reason why there is no gradient; empty if there is one.
        layout_note: whether the layout was inferred from inputs or parts; empty if it follows from
            the type of the module or the shape.
    """

    dead_channels: Whole | None
    channels: Whole | None
    images: Whole
    params: Whole
    norm: float | None = None
    ratio: float | None = None
    change: float | None = None
    sparsity: Share | None = None
    reason: str = ""
    layout_note: str = ""


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """The effect of one channel on a score. The figures are null when a score is not finite.

    Attributes:
        rank: the rank from 1; the channel on which the score depends most comes first.
        layer: the module path of the layer; ``(model)`` for the model itself.
        channel: the channel, counted from 0.
        effect: ``plain_score`` minus ``score``.
        score: the mean score over the images, with the channel set to zero.
        plain_score: the mean score over the images, without any channel set to zero.
        images: the number of images.
    """

    rank: AtLeastOne
    layer: str
    channel: Whole
    effect: float | None
    score: float | None
    plain_score: float | None
    images: Whole


@dataclass(frozen=True, slots=True)
class SurveyRow:
    """One tensor of one call, or a layer that returns no tensor or is never called.

    Attributes:
        order: the position among all calls of the model by their start, from 1; null without a
            tensor.
        call_id: the id of the call, as filters accept it.
        module_path: the dotted name from ``named_modules()``; empty for the model itself. For an
            operation between modules, its own name follows: ``layer1.0/op:add``.
        shape: the shape of the output for one image; null without a tensor.
        layout: the meaning of the axes of the output; empty without a tensor.
        params: the number of parameters of the module and of all modules inside it.
        output_mb: the size of the output in 1e6 bytes; null without a tensor.
        flops: the floating-point operations of this call, two per multiply-add; null without a
            tensor.
        calls: how often the module is called in one forward.
        traps: the reasons why a naive hook goes wrong here.
        share: its share of the whole model's operations, or of the figure by which rows are sorted,
            from 0 to 1; null without a number.
    """

    order: AtLeastOne | None
    call_id: str
    module_path: str
    module_type: ModuleType
    shape: Axes | None
    layout: str
    params: Whole
    output_mb: float | None
    flops: Whole | None
    calls: Whole
    traps: tuple[str, ...]
    share: Share | None = None


@dataclass(frozen=True, slots=True)
class ModelTotal:
    """The cost of the whole model for one image.

    Attributes:
        params: the number of its parameters.
        flops: the floating-point operations of a forward, two per multiply-add.
        output_mb: the size of the outputs of all calls of layers without parts, in 1e6 bytes.
    """

    params: Whole
    flops: Whole
    output_mb: Distance


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A torchvision model as the metadata of its weights describes it.

    Attributes:
        name: the name that ``hookcli inspect`` takes.
        task: the task of the model; ``quantization`` for quantized classification models.
        weights: the members of its weights, the default first.
        params: the number of parameters with the default weights.
        gflops: 1e9 floating-point operations for one input, counting two per multiply-add
            (torchvision's own figure counts one).
        file_mb: the size of the default weights' file, in 1e6 bytes.
        cached: the members whose file is in torch's cache.
    """

    name: str
    task: TaskWord
    weights: tuple[str, ...]
    params: Whole | None
    gflops: float | None
    file_mb: float | None
    cached: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file that ``hookcli report`` or ``hookcli export`` wrote.

    Attributes:
        file: its path from the working directory; bytes that are not UTF-8 become ``%XX``, and
            ``%`` before two hexadecimal digits becomes ``%25``.
        call_id: the call that the file belongs to; empty for a page, and for the list of images
            that all arrays share.
        shape: the shape of its array, (images, …); null for a file without an array.
    """

    file: str
    call_id: str = ""
    shape: Axes | None = None
