"""Declare most options of inspect, gradients, ablate and compare, with defaults, as requests.

A config is made of requests, and each request is about one subject: the model, the images, the run
folder, the findings. A function that needs one subject takes that request, not the whole config.

A field with a ``Flag`` is an option of the command line. The first word of a request's docstring is
the panel of its options in ``--help``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from hookcli.outside import parse
from hookcli.outside.flags import Flag
from hookcli.outside.urls import Location

Dtype: TypeAlias = Literal["float32", "float16", "bfloat16"]
GridMode: TypeAlias = Literal["auto", "layers", "sheet", "none"]
Rank: TypeAlias = Literal["std", "mean", "max", "index"]
HeatOf: TypeAlias = Literal["mean", "max", "sum", "l2"]
CamMethod: TypeAlias = Literal["gradcam", "gradcam++", "layercam", "eigencam", "hirescam"]
RoundedTo: TypeAlias = Literal["float16", "bfloat16", "int8", "float8_e4m3"]
LARGEST_ROUNDED = {"int8": 127.0, "float8_e4m3": 448.0}  # of the formats that need a scale
Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
Mode: TypeAlias = Literal["eval", "train", "as-made"]
OnError: TypeAlias = Literal["stop", "skip"]
EditedSide: TypeAlias = Literal["output", "grad_output"]
Box: TypeAlias = tuple[int, int, int, int]
Scale: TypeAlias = Literal["channel", "layer"]
Theme: TypeAlias = Literal["dark", "light"]
PictureFormat: TypeAlias = Literal["png", "svg", "pdf"]
At: TypeAlias = Literal["output", "input", "both"]
Match: TypeAlias = Literal["id", "order"]
Only: TypeAlias = Literal["features", "act"]

MOST_SKETCHED = 32  # a run of at most this many images keeps sketches by default
SCORES = ("logit", "probability", "cross-entropy", "sum")
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
MODES: tuple[Mode, ...] = get_args(Mode)
EMBER = "ember"
# The suffix of the graph files of each way of running a model
GRAPH_FILES = {"onnx": ".onnx", "torch-export": ".pt2"}
GRAPH_NAMES = " or ".join(f"FILE{end}" for end in GRAPH_FILES.values())
LARGEST_SIDE = 8192
SIDES = {"output": ("output",), "input": ("input",), "both": ("input", "output")}

# Options of more than one command.
Layers: TypeAlias = Annotated[
    tuple[str, ...],
    Flag(
        "--layers FORM[,FORM]",
        "Layers to observe; FORM is explained below.",
        many=True,
        always=True,
        panel="Layers",
    ),
]
Exclude: TypeAlias = Annotated[
    tuple[str, ...],
    Flag("--exclude FORM[,FORM]", "Layers to leave out.", many=True, panel="Layers"),
]
ObservedSide: TypeAlias = Annotated[
    At, Flag("--at SIDE", "Observe output, input or both.", panel="Layers", late=True)
]
BatchSize: TypeAlias = Annotated[
    int,
    Flag(
        "--batch-size N",
        "Largest number of images in a forward pass.",
        at_least=1,
        panel="Images",
        late=True,
        in_diff=True,
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    Flag(
        "--workers N",
        "Processes that read images.  [default: depends on the cores; 0 in Python]",
        at_least=0,
        at_most=1024,
        panel="Images",
    ),
]
StorageOptions: TypeAlias = Annotated[
    tuple[tuple[str, str], ...],
    Flag(
        "--storage-option KEY=VALUE",
        "Option of the storage behind a URL, but no credentials.",
        many=True,
        read=parse.read_storage_option,
        needs="URL|@LIST",
    ),
]
Time: TypeAlias = Annotated[bool, Flag("--time", "Print how long each stage took.", panel="Output")]
DryRun: TypeAlias = Annotated[bool, Flag("--dry-run", "Print the plan and stop.", panel="Output")]
Open: TypeAlias = Annotated[bool, Flag("--open", "Show the page in the browser.", panel="Output")]
_SAVE = "--save WHAT"
_SAVE_HELP = "Also save tensors, or the attention of all heads."


@dataclass(frozen=True, slots=True)
class GridStyle:
    """Pictures: The part of a request that says how feature maps are drawn.

    Attributes:
        mode: ``auto`` chooses ``none`` for more than 200 images. Otherwise, it chooses ``layers``
            for a clip, for up to eight files, or if you name each file itself (not a folder or a
            glob). In all other cases, it chooses ``sheet``.
        rank: ``std`` ranks channels by their standard deviation; its old name is ``spread``.
    """

    mode: Annotated[
        GridMode,
        Flag("--grids WHICH", "layers (a picture per layer), sheet (one per image), none or auto."),
    ] = "auto"
    top: Annotated[
        int | None,
        Flag("--top N", "Channels in a picture.", at_least=1, none=("--channels", "all")),
    ] = 64
    channels: Annotated[
        tuple[int, ...] | None,
        Flag(
            "--channels all|LIST",
            "Draw these channels, counted from 0: '3,7,10-20'.",
            read=parse.read_channels,
        ),
    ] = None
    rank: Annotated[
        Rank, Flag("--rank BY", "Order of channels: std, mean, max or index.", read=parse.read_rank)
    ] = "std"
    scale: Annotated[Scale, Flag("--scale PER", "One colour range per channel or per layer.")] = (
        "channel"
    )
    colormap: Annotated[
        str | None,
        Flag(
            "--colormap NAME",
            "ember, or a colormap of matplotlib.  [default: ember; gradients: tide]",
        ),
    ] = None
    tile: Annotated[
        int,
        Flag(
            "--tile PX",
            "Longest side of a channel, in pixels; also scales attention heads.",
            at_least=8,
            at_most=1024,
        ),
    ] = 64
    theme: Annotated[
        Theme, Flag("--theme dark|light", "Background of pictures; light suits papers.")
    ] = "dark"
    format: Annotated[
        PictureFormat,
        Flag("--picture-format FORMAT", "Also write pictures as svg or pdf, for papers."),
    ] = "png"
    signed: bool = False  # zero is in the middle of the colormap, as hookcli sets for gradients


@dataclass(frozen=True, slots=True)
class SaveStyle:
    """Tensors: The part of a request that says what to save of each tensor, and in which form."""

    UNASKED: ClassVar[tuple[str, str]] = (
        "`pool`, `save.dtype` and `save.channels` are for `tensors.save`",
        "add `tensors.save`",
    )

    pool: Annotated[
        str, Flag("--pool none|mean|max|N", "Reduce saved maps to one value, or to N x N.")
    ] = "none"
    dtype: Annotated[
        Dtype | None, Flag("--tensor-dtype DTYPE", "Save as float32, float16 or bfloat16.")
    ] = None
    channels: Annotated[
        tuple[int, ...] | None,
        Flag(
            "--tensor-channels LIST",
            "Save only these channels: '3,7,10-20'.",
            read=parse.read_channels,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Score: The part of a request that defines the score whose gradient or change is computed."""

    score: Annotated[
        str, Flag("--score SCORE", f"{', '.join(SCORES)}, or FILE.py:FUNCTION.", in_diff=True)
    ] = "logit"

    @property
    def needs_pixels(self) -> bool:
        """Whether to compute the gradient of the network's input; always False in this class."""
        return False


@dataclass(frozen=True, slots=True)
class AblationScore(ScoreRequest):
    """Score: The part of a request that defines the score whose change is computed."""

    target: Annotated[
        str, Flag("--target CLASS", "The class: predicted, an index or a name.", in_diff=True)
    ] = "predicted"


@dataclass(frozen=True, slots=True)
class BackwardStyle(ScoreRequest):
    """Gradients: The part of a request that says what to differentiate, record and draw."""

    targets: Annotated[
        tuple[str | int, ...],
        Flag(
            "--target CLASS",
            "Class (predicted, an index or a name), box:N, pixels:CLASS or like:IMAGE; repeats."
            "  [default: predicted]",
            many=True,
            in_diff=True,
        ),
    ] = ()
    texts: Annotated[
        tuple[str, ...],
        Flag(
            "--text TEXT",
            "Score the similarity to a text, by CLIP or SigLIP; repeats.",
            many=True,
            in_diff=True,
        ),
    ] = ()
    input_grad: Annotated[
        bool, Flag("--input-grad", "Also record the gradient of the first layer's input.")
    ] = False
    times_activation: Annotated[
        bool, Flag("--times-activation", "Draw activation times gradient in the grids.")
    ] = False
    cams: Annotated[
        tuple[str, ...],
        Flag(
            "--cam auto|FORM[,FORM]",
            "Draw a Grad-CAM of these layers over the image; auto chooses the layer.",
            many=True,
        ),
    ] = ()
    cam_method: Annotated[
        CamMethod,
        Flag(
            "--cam-method METHOD",
            "gradcam, gradcam++, layercam, eigencam or hirescam.",
            needs="--cam",
        ),
    ] = "gradcam"
    cam_mean: Annotated[
        bool, Flag("--cam-mean", "One CAM: the mean of those of all layers.", needs="--cam")
    ] = False
    judge: Annotated[
        bool,
        Flag("--no-judge", "Do not test, for up to 8 images, what each CAM finds.", needs="--cam"),
    ] = True
    saliency: Annotated[
        bool, Flag("--saliency", "Draw how much the score depends on each pixel.")
    ] = False

    @property
    def aims(self) -> tuple[str, ...]:
        """What each score is about: the targets, and a text as ``text:TEXT``."""
        texts = (f"text:{text}" for text in self.texts)
        return (*dict.fromkeys((*map(str, self.targets), *texts)),) or ("predicted",)

    @property
    def needs_pixels(self) -> bool:
        """Whether to compute the gradient of the network's input."""
        return self.input_grad or self.saliency


@dataclass(frozen=True, slots=True)
class AblationStyle:
    """Channels: The part of a request that names the channels to zero, and the size of a batch."""

    channels: Annotated[
        tuple[int, ...] | None,
        Flag(
            "--channels all|LIST",
            "Zero these channels, counted from 0: '3,7,10-20'.  [default: all]",
            read=parse.read_channels,
        ),
    ] = None
    batch_size: Annotated[
        int, Flag("--batch-size N", "Largest number of channels in a forward pass.", at_least=1)
    ] = 16


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Model: The part of a request about the model, its device, and the preparation of images.

    Attributes:
        seed: The seed also applies to random numbers that a model draws in a comparison or in
            training mode.
        size: None keeps the size that belongs to the weights. For ``mean``, ``std`` and
            ``interpolation``, None also keeps what belongs to the weights.
        preprocess: Words such as ``fit=letterbox,order=bgr``; each changes one step.
        resize: None scales the short side in proportion to ``size``.
        bands: An empty tuple uses all bands of the pictures.
        arguments: Pairs of a name and the text that the user wrote.
        inputs: Pairs of a name and a text, which is a file, a number or a list.
        inputs_as: ``dict`` passes the pixels and ``inputs`` in one dictionary. The pair
            ``(NAME, "pixels")`` in ``inputs`` gives the pixels the key NAME. Without this pair, the
            pixels get the first key that the model reads and ``inputs`` does not have.
    """

    name: Annotated[
        str,
        Flag(
            "model MODEL",
            "resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME "
            "of other libraries, a function that makes a model (FILE.py:FUNCTION or "
            f"MODULE:FUNCTION), or a file: {GRAPH_NAMES}.",
        ),
    ]
    weights: Annotated[
        str,
        Flag(
            "--weights WEIGHTS",
            "auto (trained if available, else random), pretrained, random, a name such as "
            "IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.",
        ),
    ] = "auto"
    seed: Annotated[int, Flag("--seed N", "Seed of random weights and pruning.")] = 0
    device: Annotated[str, Flag("--device DEVICE", "auto, cpu, cuda, cuda:N or mps.")] = "auto"
    dtype: Annotated[Dtype, Flag("--dtype DTYPE", "float32, float16 or bfloat16.")] = "float32"
    size: Annotated[
        int | None,
        Flag(
            "--size N", "Side of the network's input, in pixels.", at_least=1, at_most=LARGEST_SIDE
        ),
    ] = None
    resize: Annotated[
        int | None,
        Flag(
            "--resize N", "Short side before cropping, in pixels.", at_least=1, at_most=LARGEST_SIDE
        ),
    ] = None
    bands: Annotated[
        tuple[int, ...],
        Flag(
            "--bands LIST",
            "Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.",
            read=parse.read_bands,
            in_diff=True,
        ),
    ] = ()
    mean: Annotated[
        tuple[float, ...] | None,
        Flag(
            "--mean R,G,B",
            "Mean to subtract from the colours (0 to 1); one number per band.",
            read=parse.read_colours,
        ),
    ] = None
    std: Annotated[
        tuple[float, ...] | None,
        Flag(
            "--std R,G,B", "Standard deviation to divide the colours by.", read=parse.read_colours
        ),
    ] = None
    interpolation: Annotated[
        Interpolation | None, Flag("--interpolation HOW", "Resizing: nearest, bilinear or bicubic.")
    ] = None
    preprocess: Annotated[
        str | None,
        Flag("--preprocess RECIPE", "Prepare images in another way; RECIPE is explained below."),
    ] = None
    arguments: Annotated[
        tuple[tuple[str, str], ...],
        Flag(
            "--model-arg KEY=VALUE",
            "Argument of the model: num_classes=50.",
            many=True,
            read=parse.read_pair,
            write="=".join,
            in_diff=True,
        ),
    ] = ()
    inputs: Annotated[
        tuple[tuple[str, str], ...],
        Flag(
            "--input NAME=FILE.npy|VALUE",
            "Another input of the model, the same for all images; NAME=pixels is the image.",
            many=True,
            read=parse.read_pair,
            write="=".join,
            in_diff=True,
        ),
    ] = ()
    inputs_as: Annotated[
        Literal["arguments", "dict"],
        Flag(
            "--inputs-as HOW",
            "How the model takes its inputs: as arguments, or as one dict.",
            in_diff=True,
        ),
    ] = "arguments"
    categories: Annotated[
        str | None,
        Flag(
            "--categories FILE|imagenet",
            "Names of the classes: a file with a name per line, or imagenet.",
        ),
    ] = None
    output_key: Annotated[
        str | None,
        Flag(
            "--output-key KEY",
            "Which of several outputs predictions and scores read: 1, or pred.",
            in_diff=True,
        ),
    ] = None
    mode: Annotated[
        Mode, Flag("--mode MODE", "eval, train, or as-made (as the builder left it).", in_diff=True)
    ] = "eval"
    like: Annotated[
        str | None, Flag("--like MODEL", "For a file of a model: prepare images as for this model.")
    ] = None
    input_layout: Annotated[
        Literal["NCHW", "NHWC"] | None,
        Flag(
            "--input-layout AXES",
            "Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]",
            in_diff=True,
        ),
    ] = None
    provider: Annotated[
        str | None,
        Flag("--provider NAME", "Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]"),
    ] = None
    progress: bool = False  # whether to show torch's download bar on stderr

    @property
    def is_file(self) -> bool:
        """Whether ``name`` is a graph file (ONNX, torch.export), which runs without modules."""
        return self.name.endswith((*GRAPH_FILES.values(),))


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Images: The part of a request that says which images to use, and how to read them.

    Attributes:
        names: Tensor files (``.npy``, ``.safetensors``) count as images, too.
        clip: The frames are sorted by name, with numbers in their order: 2 comes before 10.
        range: ``minmax`` scales each picture from its smallest to its largest value, and
            ``percent:P`` from its percentile P to its percentile 100 - P.
        page: None reads page 0, with a note if a file has more pages.
    """

    names: Annotated[
        tuple[str, ...],
        Flag(
            "images IMAGE",
            "Files, folders, globs, '@LIST' of names, or - for names on standard input.",
            many=True,
        ),
    ]
    recursive: Annotated[bool, Flag("--no-recursive", "Skip folders inside a folder.")] = True
    null_separated: Annotated[
        bool, Flag("-0 --null", "Names in lists end with NUL (find -print0).", needs="@LIST")
    ] = False
    pair: Annotated[
        str | None,
        Flag(
            "--pair IMAGE",
            "Second image, for optical flow.  [default: the same]",
            late=True,
            in_diff=True,
        ),
    ] = None
    clip: Annotated[
        bool, Flag("--clip", "Read a folder of frames as one video clip.", late=True, in_diff=True)
    ] = False
    range: Annotated[
        str | tuple[float, float],
        Flag(
            "--range RANGE",
            "What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, "
            "minmax or percent:P (of each picture).",
            read=parse.read_range,
            write=parse.write_range,
            late=True,
            in_diff=True,
        ),
    ] = "full"
    page: Annotated[
        int | str | None,
        Flag(
            "--page N|all",
            "Page of files with several, counted from 0.  [default: 0]",
            read=parse.read_page,
            late=True,
            in_diff=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The part of a request that is common to all commands that run images through a model."""

    model: ModelRequest
    images: ImageRequest
    layers: Layers = ("conv",)
    exclude: Exclude = ()
    edits: Annotated[
        tuple[str, ...],
        Flag(
            "--edit CHANGE",
            "Change the values that pass through a layer; explained below.",
            many=True,
            panel="Changes",
            in_diff=True,
        ),
    ] = ()
    prunes: Annotated[
        tuple[str, ...],
        Flag(
            "--prune FORM=SHARE[:HOW]",
            "Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.",
            many=True,
            panel="Changes",
            in_diff=True,
        ),
    ] = ()
    on_error: Annotated[
        OnError,
        Flag(
            "--on-error stop|skip",
            "What to do when the model fails on an image.",
            panel="Images",
            repeats=False,
        ),
    ] = "stop"


@dataclass(frozen=True, slots=True)
class FolderRequest:
    """Output: The part of a request that says where to write a run, and what it may replace."""

    out: Annotated[
        Location | None,
        Flag(
            "-o --out DIR",
            "The run folder, or a URL.  [default: hookcli-runs/MODEL-IMAGE]",
            read=parse.read_location,
        ),
    ] = None
    overwrite: Annotated[bool, Flag("--overwrite", "Replace the run in the run folder.")] = False
    resume: Annotated[bool, Flag("--resume", "Continue an interrupted run.")] = False
    verify: Annotated[
        bool,
        Flag(
            "--verify", "With --resume: compare images by content, not by time.", needs="--resume"
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """Tensors: The part of a request that says which tensors to save besides their statistics.

    Attributes:
        max_disk: The limit is in 1e9 bytes, for the tensors of all layers and images together.
        only: Replaces the layers in ``layers`` if ``save`` is given. ``features`` observes the
            single layer whose tensors describe images best, and ``act`` observes all activation
            functions. None keeps ``layers``.
    """

    save: Annotated[
        SaveStyle | None, Flag(_SAVE, _SAVE_HELP, many=True, read=parse.read_saved, word="tensors")
    ] = None
    max_disk: Annotated[
        float,
        Flag("--max-disk GB", "Refuse to save more than this.", repeats=False, needs="--save"),
    ] = 10.0
    sketch: Annotated[
        bool | None,
        Flag(
            "--sketch/--no-sketch",
            "Keep 268 bytes of each tensor, for hookcli golden and diff.  [default: for up to "
            f"{MOST_SKETCHED} images]",
        ),
    ] = None
    attention: Annotated[
        bool, Flag(_SAVE, _SAVE_HELP, many=True, read=parse.read_saved, word="attention")
    ] = False
    only: Only | None = None


@dataclass(frozen=True, slots=True)
class FindingRequest:
    """Findings: The part of a request about rules: thresholds, and rules that cause exit code 7."""

    rules: Annotated[
        tuple[tuple[str, float], ...],
        Flag(
            "--rule NAME=VALUE",
            "Change the threshold of a finding: dead=0.5.",
            many=True,
            read=parse.read_threshold,
            write=lambda rule: f"{rule[0]}={rule[1]:g}",
        ),
    ] = ()
    fail_on: Annotated[
        tuple[str, ...],
        Flag(
            "--fail-on RULES",
            "End with code 7 if a rule finds something: nan,inf,dead.",
            read=parse.read_names,
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """Machine: The part of a request that names the Ray cluster, and what each worker may use.

    Attributes:
        cpus: Each worker also runs torch with this number of threads.
        gpus: None gives each worker one GPU if the model runs on a CUDA device, and otherwise none.
    """

    UNASKED: ClassVar[tuple[str, str]] = (
        "{option} is for runs on a cluster",
        "add `cluster=ClusterRequest('auto')`",
    )

    address: Annotated[
        str,
        Flag("--cluster auto|ADDRESS", "Run on a Ray cluster; auto starts one on this machine."),
    ]
    workers: Annotated[
        int | None,
        Flag("--cluster-workers N", "Number of workers.  [default: all that fit]", at_least=1),
    ] = None
    cpus: Annotated[int, Flag("--cpus-per-worker N", "Cores per worker.", at_least=1)] = 1
    gpus: Annotated[
        float | None, Flag("--gpus-per-worker N", "GPUs per worker, such as 0.5.", at_least=0)
    ] = None


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """Machine: The part of a request that sets the processes, threads or cluster of a run."""

    workers: Workers = 0  # None for as many as save time
    threads: Annotated[
        int | None,
        Flag("--threads N", "Threads of torch.  [default: the cores]", at_least=1, at_most=1024),
    ] = None
    cluster: ClusterRequest | None = None
    storage: StorageOptions = ()


@dataclass(frozen=True, slots=True)
class AttentionRequest:
    """Attention: The part of a request that says in which layers to analyse and draw attention.

    Attributes:
        layers: The attention of all modules inside these layers is analysed, too.
    """

    UNASKED: ClassVar[tuple[str, str]] = (
        "`patch`, `rollout` and `tensors.attention` are for attention that is computed",
        "add `attention=AttentionRequest(('all',))`",
    )

    layers: Annotated[
        tuple[str, ...],
        Flag(
            "--attention FORM[,FORM]",
            "Layers whose heads to analyse; 'attention[-1]' is the last.",
            many=True,
        ),
    ]
    patch: Annotated[
        tuple[int, int] | None,
        Flag(
            "--patch X,Y",
            "Draw what the patch at this pixel looks at.  [default: the class token]",
            read=parse.read_pixels,
        ),
    ] = None
    rollout: Annotated[
        bool, Flag("--rollout", "Also draw the attention multiplied over all layers.")
    ] = False


@dataclass(frozen=True, slots=True)
class _RunOptions:
    """The part of a request that is common to all commands that write a run folder."""

    run: RunRequest
    folder: FolderRequest = FolderRequest()
    grids: GridStyle = GridStyle()
    tensors: TensorRequest = TensorRequest()
    findings: FindingRequest = FindingRequest()
    machine: MachineRequest = MachineRequest()
    save_weights: Annotated[
        Path | None,
        Flag(
            "--save-weights FILE",
            "With --prune: write the pruned weights as .safetensors.",
            panel="Changes",
            repeats=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class InspectConfig(_RunOptions):
    """The request of ``hookcli inspect``.

    Attributes:
        focus: Left, top, width and height of a box, in pixels of the original image. Channels that
            fire more inside the box than outside come first. None sets no box.
    """

    command: ClassVar[str] = "inspect"
    edited_side: ClassVar[EditedSide] = "output"  # of an edit that names no side
    backward: ClassVar[None] = None

    at: ObservedSide = "output"
    batch_size: BatchSize = 8
    focus: Annotated[
        Box | None,
        Flag(
            "--focus X,Y,W,H",
            "Put the channels first that fire more inside this box.",
            read=parse.read_pixels,
            panel="Pictures",
        ),
    ] = None
    attention: AttentionRequest | None = None
    overview: Annotated[
        bool, Flag("--overview", "Also draw overview.png, for a slide.", panel="Pictures")
    ] = False
    heat: Annotated[
        HeatOf | None,
        Flag(
            "--heat mean|max|sum|l2",
            "Draw one map per layer over the image: its channels' mean, maximum, sum or norm.",
            panel="Pictures",
        ),
    ] = None
    top_images: Annotated[
        int,
        Flag(
            "--top-images N",
            "List the N images that fire each channel most.",
            at_least=0,
            at_most=1000,
            panel="Pictures",
        ),
    ] = 9

    @property
    def sides(self) -> tuple[str, ...]:
        """The recorded tensors of a layer's call: ``input``, ``output``, or both."""
        return SIDES[self.at]


@dataclass(frozen=True, slots=True)
class GradientsConfig(_RunOptions):
    """The request of ``hookcli gradients``."""

    command: ClassVar[str] = "gradients"
    edited_side: ClassVar[EditedSide] = "grad_output"
    sides: ClassVar[tuple[str, ...]] = ("grad_output", "grad_input")
    at: ClassVar[At] = "both"
    batch_size: ClassVar[int] = 1
    focus: ClassVar[None] = None
    attention: ClassVar[None] = None
    overview: ClassVar[bool] = False
    heat: ClassVar[None] = None
    top_images: ClassVar[int] = 0

    backward: BackwardStyle = BackwardStyle()


RunConfig: TypeAlias = InspectConfig | GradientsConfig


@dataclass(frozen=True, slots=True)
class AblationConfig:
    """The request of ``hookcli ablate``, which writes no files."""

    run: RunRequest
    score: AblationScore = AblationScore()
    style: AblationStyle = AblationStyle()


@dataclass(frozen=True, slots=True)
class RoundedRun(RunRequest):
    """The part of a request for ``hookcli sensitivity`` that other commands have, too."""

    layers: Annotated[
        tuple[str, ...],
        Flag(
            "--layers FORM[,FORM]",
            "Layers to round; FORM is explained below.  [default: those that use a weight]",
            many=True,
            panel="Layers",
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class RoundingStyle:
    """Rounding: The part of a request that says how layers are rounded, and which list to find."""

    to: Annotated[RoundedTo, Flag("--to FORMAT", "float16, bfloat16, int8 or float8_e4m3.")]
    what: Annotated[
        Literal["weights", "outputs", "both"],
        Flag("--round WHAT", "What of a layer to round: weights, outputs or both."),
    ] = "both"
    per_tensor: Annotated[
        bool, Flag("--per-tensor", "One scale for a weight, and not one for each channel.")
    ] = False
    percentile: Annotated[
        float | None,
        Flag(
            "--percentile P",
            "Clip outputs to this percentile of their magnitudes: 99.9.  [default: the largest]",
            read=parse.read_percent,
        ),
    ] = None
    keep: Annotated[
        float | None,
        Flag(
            "--keep N%",
            "Leave this share of the layers alone, the most sensitive, and round the others.",
            read=parse.read_percent,
            write="{:g}%".format,
        ),
    ] = None
    reach: Annotated[
        str | None,
        Flag(
            "--reach GOAL",
            "Find a short list of layers to leave alone: 'agreement>=0.99', 'divergence<=0.01' or "
            "'rel-l2<=0.05'.",
            read=parse.read_goal,
        ),
    ] = None
    batch_size: Annotated[int, Flag("--batch-size N", "Images in a forward pass.", at_least=1)] = 16


@dataclass(frozen=True, slots=True)
class SensitivityConfig:
    """The request of ``hookcli sensitivity``, which writes no files."""

    run: RoundedRun
    style: RoundingStyle


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Says how ``hookcli compare`` exports or compiles the second variant before running it."""

    way: str  # such as ``onnx``
    file: Path | None = None  # of the exported model; None exports the model
    keep: Path | None = None  # the file for the exported model; None does not keep it


@dataclass(frozen=True, slots=True)
class VariantRequest:
    """The second variant of the model in ``hookcli compare``."""

    name: str  # in the output, made from the user's words
    run: RunRequest  # the first variant's request, with the changes applied
    channels_last: bool = False
    threads: int | None = None  # None uses as many as for the first variant
    export: ExportRequest | None = None  # None runs the model with PyTorch
    among: int = 0  # how many other images share each forward pass
    repeats: bool = False  # whether to run the model of the first variant a second time
    autocast: str = ""  # the dtype of ``torch.autocast``, such as ``bfloat16``


@dataclass(frozen=True, slots=True)
class CompareConfig:
    """The request of ``hookcli compare``; ``run`` describes the first variant, the reference."""

    run: RunRequest
    other: VariantRequest
    at: ObservedSide = "output"
    blame: bool = False
    match: Match = "id"

    @property
    def judges_all(self) -> bool:
        """Whether to compare all leaf layers and operations, instead of only ``layers``."""
        return self.blame or self.match == "order"


DEFAULTS = InspectConfig(RunRequest(ModelRequest(""), ImageRequest(())))
