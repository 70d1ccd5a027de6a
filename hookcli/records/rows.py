"""Declare the rows of ``layers.csv``, and of lists from commands such as ``hookcli layers``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from hookcli.outside.documents import LEFT_OUT, AtLeastOne, Axes, Distance, Share, Whole, keywords
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
    "classification",
    "detection",
    "segmentation",
    "depth",
    "features",
    "video",
    "optical_flow",
    "quantization",
]
# Models of these tasks may find nothing in an image. For any other task, a missing prediction means
# that hookcli does not know the form of the output.
MAY_FIND_NOTHING: frozenset[TaskWord] = frozenset({"detection"})


@dataclass(frozen=True)
class _CallColumns:  # the columns of ``layers.csv`` that come before the statistics
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
    """A row of ``layers.csv``, which describes one tensor of one call over the images of the run.

    The statistics cover the values of all images together. Mean, std, min and max are null if no
    value is finite; the share of zeros is null if there are no values, as for a missing gradient.

    Attributes:
        order: the position of the call in the order in which the observed calls started, counted
            from 1; 0 for a parameter of a module that is not called.
        call_id: the id in tables and filters: ``layer1.0.relu#1``, ``attn[1]``, ``input:fc``.
        module_path: the module's path; empty for the model; ``layer1.0/op:add`` for an operation.
        call_index: 0 for the module's first call in a forward pass, then 1, and so on.
        output_key: the tensor's name if the call has several, or the parameter's; otherwise empty.
        shape: the shape for one image, (1, …); if images differ, the shape for the first.
        dtype: torch's name of the dtype, such as ``float32``.
        layout: ``NCHW``, ``NHWC``, ``NLC``, ``NCL``, ``NC``, ``NCDHW``, ``NDHWC``, or ``unknown``:
            N is the batch, C channels, H rows, W columns, D frames, and L tokens.
        dead_channels: how many channels are zero everywhere; null if the channel axis is unknown.
        channels: the number of channels for the first image; null if the channel axis is unknown.
        images: the number of images that the row covers.
        params: the number of parameters of the module and of all modules inside it.
        norm: the L2 norm of the finite values; for several images, the norms' root mean square.
        ratio: a parameter's gradient norm divided by the parameter's norm; null in other rows.
        change: the L2 norm of the change by edits, divided by the unedited tensor's L2 norm; for
            several images, the root mean square; null without edits.
        sparsity: the share of zeros in the weight of a pruned layer; null for other layers.
        reason: why a gradient is missing; empty for all other tensors.
        layout_note: ``inferred from inputs or parts``, or empty if the type or the shape decides.
        target: of gradients for several classes, the class's index or ``predicted``; else empty.
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
    target: str = ""


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """The effect of one channel on the model's score, measured by setting the channel to zero.

    Attributes:
        rank: the rank from 1; the channel on which the score depends most comes first.
        layer: the module path of the layer; ``(model)`` for the model itself.
        channel: the channel, counted from 0.
        effect: ``plain_score`` minus ``score``; null if not finite.
        score: the mean score over the images, with the channel set to zero; null if not finite.
        plain_score: the mean score without any channel set to zero; null if not finite.
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
class AnswerLoss:
    """What a model's answers lose when layers are rounded, as a mean over the images.

    Attributes:
        agreement: the share of top classes, labels, pixels or boxes that stay the same; null for
            other outputs.
        divergence: the Kullback-Leibler divergence of the probabilities from those of the model as
            it is, in nats; null if there are no classes, or if it is not finite.
        rel_l2: the relative L2 distance of the outputs; null if it is not finite, or if their
            shapes changed, such as the number of boxes.
        is_finite: whether all outputs are finite.
    """

    agreement: Share | None
    divergence: float | None
    rel_l2: Distance | None
    is_finite: bool


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """A row of ``hookcli sensitivity``: what the answers lose when one layer alone is rounded.

    Attributes:
        rank: the rank from 1; the most sensitive layer comes first: outputs that are not finite,
            and then by ``divergence``, or by ``rel_l2`` if there are no classes or if it is the
            goal of ``--reach``, or by ``agreement`` of boxes.
        layer: the module path of the layer.
        agreement: the share of answers that stay the same; null for other outputs.
        divergence: the Kullback-Leibler divergence of the probabilities, in nats, or null.
        rel_l2: the relative L2 distance of the outputs, or null.
        is_finite: whether all outputs are finite.
        own_rel_l2: how far the layer's own outputs move, relative L2 over all images.
        weight_rel_l2: how far its weights move; null if it has none, or if they are not rounded.
        channel_median: the median of ``channels``.
        channel_worst: the largest of ``channels``.
        worst_channel: the channel with this error, counted from 0.
        channels: the relative L2 error of each channel of the layer's outputs; null for a channel
            that is zero as it is; empty if the layer's channels are not known.
    """

    rank: AtLeastOne
    layer: str
    module_type: ModuleType
    agreement: Share | None
    divergence: float | None
    rel_l2: Distance | None
    is_finite: bool
    own_rel_l2: Distance | None
    weight_rel_l2: Distance | None
    channel_median: Distance | None
    channel_worst: Distance | None
    worst_channel: Whole | None
    channels: tuple[Distance | None, ...]


@dataclass(frozen=True, slots=True)
class SurveyRow:
    """A row of ``hookcli layers``: a tensor of a call, or a layer that has no tensor or no call.

    Attributes:
        order: the position of the call in the order of starts, from 1; null without a tensor.
        call_id: the id of the call, as layer filters accept it.
        module_path: the module's path; empty for the model; ``layer1.0/op:add`` for an operation.
        shape: the shape of the tensor for one image; null without a tensor.
        layout: the meaning of the tensor's axes, such as ``NCHW``; empty without a tensor.
        params: the number of parameters of the module and of all modules inside it.
        output_mb: the size of the tensor in 1e6 bytes; null without a tensor.
        flops: the floating-point operations of convolutions, linear and recurrent layers, and
            attention, two per multiply-add; null if hookcli cannot count all of them.
        calls: the number of calls of the module in one forward pass.
        traps: the reasons why a simple hook on this layer gives wrong or misleading results.
        share: the row's share, from 0 to 1, of the model's operations, or of its time with
            ``--measure``, or of its parameters, output bytes or operations if the listing is sorted
            by these; null if unknown.
        counted_flops: the operations that hookcli counted, even if it cannot count all of them.
        seconds: only with ``--measure``, as are the figures below, which are for the batch and
            missing if unknown, and for a call's second and further tensors: the median time of the
            forward pass of the call, with its parts.
        own_seconds: the time outside of the call's parts, such as for additions between them.
        backward_seconds: the median time of the backward pass of the call, with its parts.
        batch_output_mb: the size of all tensors that the call returned, in 1e6 bytes.
        workspace_mb: the most memory, in 1e6 bytes, that the call needed for a while, besides what
            was there before it or remains after it.
        peak_mb: the running total, weights included, in 1e6 bytes, where it was highest while the
            call ran, forward or backward.
        flops_per_second: the operations of the call divided by ``seconds``.
        bound: what limits a leaf layer on this machine at best: ``arithmetic``, or the bandwidth of
            the ``memory``.
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
    counted_flops: Whole | None = None
    seconds: Distance | None = field(default=None, metadata=LEFT_OUT)
    own_seconds: Distance | None = field(default=None, metadata=LEFT_OUT)
    backward_seconds: Distance | None = field(default=None, metadata=LEFT_OUT)
    batch_output_mb: Distance | None = field(default=None, metadata=LEFT_OUT)
    workspace_mb: Distance | None = field(default=None, metadata=LEFT_OUT)
    peak_mb: Distance | None = field(default=None, metadata=LEFT_OUT)
    flops_per_second: Distance | None = field(default=None, metadata=LEFT_OUT)
    bound: str = field(default="", metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a batch of random pixels cost a model on this machine, without the time of hooks.

    Attributes:
        device: torch's name of the device.
        dtype: torch's name of the dtype of the pixels.
        batch_size: the number of images in the batch.
        threads: the number of threads of torch on the CPU.
        seconds: the median time of a forward pass without hooks on layers.
        unscaled_seconds: the sum of the calls' own times before hookcli scaled them to add up to
            ``seconds``; it is less on a busy machine, whose interruptions a median leaves out.
        backward_seconds: the median time of a backward pass without hooks; null without one.
        hook_seconds: the time of the hooks of one call, which the figures leave out.
        peak_mb: the highest running total of the memory of weights and tensors, in 1e6 bytes.
        peak_call: the innermost call that ran when the running total was highest.
        weights_mb: the memory of parameters and buffers, in 1e6 bytes.
        best_flops_per_second: the best of several products of matrices on this machine.
        best_bytes_per_second: the bytes read and written per second by the best of several copies.
    """

    device: str
    dtype: str
    batch_size: AtLeastOne
    threads: AtLeastOne
    seconds: Distance
    unscaled_seconds: Distance
    backward_seconds: Distance | None
    hook_seconds: Distance
    peak_mb: Distance
    peak_call: str
    weights_mb: Distance
    best_flops_per_second: Distance
    best_bytes_per_second: Distance


@dataclass(frozen=True, slots=True)
class ModelTotal:
    """The size and the cost of a whole model, for one image.

    The model is a PyTorch model, or a file with a graph, such as an ONNX file.

    Attributes:
        params: the number of the model's parameters. A weight that a parametrization,
            ``weight_norm`` or LoRA computes counts once, as if it were a parameter itself; the
            packed weights of quantized modules count, too.
        flops: the operations of a forward pass, two per multiply-add; null if not all are known.
        output_mb: the total size of the outputs of all calls of leaf modules, in 1e6 bytes.
        counted_flops: the operations that hookcli counted, even if it cannot count all of them.
        uncounted: the operators whose operations hookcli cannot count. The name of the calling
            module follows in a PyTorch model (``aten::sort in head``); the name of the node follows
            in an ONNX file (``Einsum in /head/Einsum``); nothing follows in an exported program.
        stored_params: the number of values in the ``parameters()`` of a PyTorch model; null for a
            file.
        nodes: the number of nodes in the graph of a file; null for a PyTorch model.
        left_out: the nodes of a file that belong to no layer, as text with the number of nodes,
            their operation, and the reason: ``3 QuantizeLinear (only quantizes)``.
    """

    params: Whole
    flops: Whole | None
    output_mb: Distance
    counted_flops: Whole | None = None
    uncounted: tuple[str, ...] = ()
    stored_params: Whole | None = None
    nodes: Whole | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A torchvision model, as the metadata of its weights describes it.

    Attributes:
        name: the name that ``hookcli inspect`` takes.
        task: the task of the model; ``quantization`` for quantized classification models.
        weights: the members of the model's weights enum, the default first.
        params: the number of parameters with the default weights; null if unknown.
        gflops: the operations for one input, in 1e9, two per multiply-add; null if unknown.
        file_mb: the size of the default weights' file, in 1e6 bytes; null if unknown.
        cached: the members of the weights enum whose file is in torch's cache.
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
        file: the path of the file from the working directory; bytes that are not UTF-8 become
            ``%XX``, and ``%`` before two hexadecimal digits becomes ``%25``.
        call_id: the id of the call whose values the file holds; otherwise empty.
        shape: the shape of the array in the file, (images, …); null for a file without an array.
    """

    file: str
    call_id: str = ""
    shape: Axes | None = None
