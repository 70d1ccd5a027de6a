"""What the user asks for: a frozen config for each command, with all defaults.

A config is made of requests, and each request is about one subject: the model, the images, the run
folder, the findings. A function that needs one subject takes that request, not the whole config.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

from hookcli.urls import to_place

if TYPE_CHECKING:
    from pathlib import Path

    from hookcli.urls import Place

At: TypeAlias = Literal["output", "input", "both"]
Dtype: TypeAlias = Literal["float32", "float16", "bfloat16"]
GridMode: TypeAlias = Literal["auto", "layers", "sheet", "none"]
Rank: TypeAlias = Literal["spread", "mean", "max", "index"]
Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
Mode: TypeAlias = Literal["eval", "train", "as-made"]
OnError: TypeAlias = Literal["stop", "skip"]
EditedSide: TypeAlias = Literal["output", "grad_output"]
Box: TypeAlias = tuple[int, int, int, int]
Scale: TypeAlias = Literal["channel", "layer"]
Theme: TypeAlias = Literal["dark", "light"]
PictureFormat: TypeAlias = Literal["png", "svg", "pdf"]

_CHUNK = 32
MOST_SKETCHED = 32  # a run of at most this many images keeps sketches by default
SCORES = ("logit", "probability", "cross-entropy", "sum")
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
MODES: tuple[Mode, ...] = get_args(Mode)
EMBER = "ember"
CLIP_FRAMES = 16  # how many frames of a clip a video model is given
LARGEST_SIDE = 8192
SIDES = {"output": ("output",), "input": ("input",), "both": ("input", "output")}


@dataclass(frozen=True, slots=True)
class GridStyle:
    """How feature maps are drawn.

    Example:
        >>> GridStyle("sheet", top=16, rank="max")

    Attributes:
        mode: ``layers`` for one PNG per call of a layer, ``sheet`` for one PNG per image, or
            ``none``; ``auto`` is ``layers`` for up to eight images and for those that are named one
            by one, ``sheet`` for up to 200 other images, and ``none`` for more.
        top: how many channels a grid shows; None for all.
        channels: the channels to show, counted from 0, instead of the first ``top`` by rank; None
            for those.
        rank: the figure that orders the channels: ``spread`` (the standard deviation), ``mean``,
            ``max`` or ``index``.
        scale: ``channel`` for a range of its own for each tile, ``layer`` for one range for all
            tiles of a grid.
        colormap: ``ember``, which is built in, or the name of a map of matplotlib.
        tile: the longest side of a tile, in pixels; the picture of an attention head is 2.6 times
            as large.
        theme: the background of pictures: ``dark``, or ``light`` for papers.
        format: ``png``; ``svg`` or ``pdf`` to write every picture in that format too.
        signed: zero is in the middle of the range and the colours (``tide``, or the named map); it
            is set for gradients, and there is no option for it.
    """

    mode: GridMode = "auto"
    top: int | None = 64
    channels: tuple[int, ...] | None = None
    rank: Rank = "spread"
    scale: Scale = "channel"
    colormap: str = EMBER
    tile: int = 64
    theme: Theme = "dark"
    format: PictureFormat = "png"
    signed: bool = False


@dataclass(frozen=True, slots=True)
class SaveStyle:
    """The part of each tensor that is saved, and its form.

    Example:
        >>> SaveStyle("mean", dtype="float16")

    Attributes:
        pool: how height and width are reduced: ``none``, ``mean``, ``max``, or N in digits for
            means on an N x N grid.
        dtype: ``float32``, ``float16`` or ``bfloat16``; None for the dtype of the tensor.
        channels: the channels to save, counted from 0, in this order; None for all.
    """

    pool: str = "none"
    dtype: Dtype | None = None
    channels: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The number that a backward starts at, or that an ablation measures.

    Attributes:
        target: the class that is scored: ``predicted``, a class index, or the name of a category.
        score: how it is scored: ``logit``, ``probability``, ``cross-entropy``, ``sum``, or
            ``FILE.py:FUNCTION``.
    """

    target: str = "predicted"
    score: str = "logit"

    @property
    def needs_pixels(self) -> bool:
        """Whether the gradient of the pixels is computed."""
        return False


@dataclass(frozen=True, slots=True)
class BackwardStyle(ScoreRequest):
    """The score that a backward starts at, and what is recorded and drawn on the way back.

    Example:
        >>> BackwardStyle(target="tabby", saliency=True)

    Attributes:
        input_grad: compute the gradient of the pixels too.
        times_activation: grids show activation times gradient instead of the gradient.
        cams: forms of the filter language; a Grad-CAM is drawn for each call of these layers.
        saliency: draw how strongly the score depends on each pixel.
    """

    input_grad: bool = False
    times_activation: bool = False
    cams: tuple[str, ...] = ()
    saliency: bool = False

    @property
    def needs_pixels(self) -> bool:
        """Whether the gradient of the pixels is computed."""
        return self.input_grad or self.saliency


@dataclass(frozen=True, slots=True)
class AblationStyle:
    """Which channels are zeroed, and how many at once.

    Attributes:
        channels: the channels of each layer, counted from 0; None for all.
        batch_size: the largest number of channels in one forward, each in its own row.
    """

    channels: tuple[int, ...] | None = None
    batch_size: int = 16


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The model to run, its weights, and its device.

    Example:
        >>> ModelRequest("resnet34", weights="IMAGENET1K_V1", device="cpu")

    Attributes:
        name: a torchvision model name, ``timm:NAME``, ``package.module:factory`` or
            ``file.py:factory``.
        weights: ``auto``, ``pretrained``, ``random``, a member of the model's weights, or a file.
        seed: the seed of random weights, of random pruning, and of random numbers that a model
            draws if it is compared or in training mode.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        dtype: the dtype of the parameters and of the pixels.
        size: the side of the square that the network sees, in pixels; None for the size that
            belongs to the weights.
        resize: the short side of the image before its middle is cut out, in pixels; None for the
            proportion that belongs to the weights.
        mean: the value subtracted from each colour; None for that of the weights. One value means
            that a model of the user's own takes grey pictures.
        std: the value that each colour is divided by, and so many as of ``mean``.
        interpolation: ``nearest``, ``bilinear`` or ``bicubic``; None for that of the weights.
        arguments: keyword arguments of the model's builder, with the values as the user wrote them.
        mode: ``eval`` or ``train`` puts the model into that mode, ``as-made`` leaves every module
            in the mode in which the builder made it.
        progress: show torch's download bar on stderr.
    """

    name: str
    weights: str = "auto"
    seed: int = 0
    device: str = "auto"
    dtype: Dtype = "float32"
    size: int | None = None
    resize: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: Interpolation | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    mode: Mode = "eval"
    progress: bool = False


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """The images of a run, and how their names are understood.

    Example:
        >>> ImageRequest(("photos/", "cat.jpg"), recursive=False)

    Attributes:
        names: image or tensor files, folders, globs, ``@LIST`` and ``-``, as given.
        recursive: also take the images in the folders of a folder.
        null_separated: names in lists end with NUL instead of a line break.
        pair: the second picture for an optical flow model; None for the first picture again.
        clip: each folder among ``names`` is a clip whose frames are its files, ordered by name.
    """

    names: tuple[str, ...]
    recursive: bool = True
    null_separated: bool = False
    pair: str | None = None
    clip: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The requests that all commands share that run images through a model.

    Example:
        >>> RunRequest(
        ...     ModelRequest("resnet34"), ImageRequest(("cat.jpg",)), layers=("conv", "linear")
        ... )

    Attributes:
        model: which model to run.
        images: which images to run it on.
        layers: forms of the filter language; a layer that any of them matches is chosen.
        exclude: forms of layers to leave out.
        edits: changes to the tensors that pass through the layers, as ``--edit`` takes them.
        prunes: weights to prune before the run, as ``--prune`` takes them.
        on_error: what happens when the model fails on an image: ``stop`` ends the run, ``skip``
            goes on without the image.
    """

    model: ModelRequest
    images: ImageRequest
    layers: tuple[str, ...] = ("conv",)
    exclude: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    prunes: tuple[str, ...] = ()
    on_error: OnError = "stop"


@dataclass(frozen=True, slots=True)
class FolderRequest:
    """Where a run is written, and what may be replaced there.

    Example:
        >>> FolderRequest(Path("my-run"), overwrite=True)

    Attributes:
        out: the run folder, or its URL for a run on a cluster; a string is taken as either. None
            stands for ``hookcli-runs/MODEL-IMAGE`` under the working directory.
        overwrite: replace a run that is in ``out``.
        resume: continue a run that was interrupted.
        verify: with ``resume``, read every image again to check that it has not changed.

    Raises:
        RequestError: the URL holds a password.
    """

    out: Place | None = None
    overwrite: bool = False
    resume: bool = False
    verify: bool = False

    def __post_init__(self) -> None:
        if self.out is not None:  # in a notebook it is easily forgotten that it is a Path
            object.__setattr__(self, "out", to_place(self.out))


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """Which tensors and sketches are kept, in addition to the figures.

    Example:
        >>> TensorRequest(SaveStyle("mean"), max_disk=2.0)

    Attributes:
        save: what is saved of each tensor; None to save no tensors.
        max_disk: how large the saved tensors may become together, in 1e9 bytes.
        sketch: keep a sketch of every tensor, by which runs are compared; None to keep sketches if
            the run has at most ``MOST_SKETCHED`` images.
    """

    save: SaveStyle | None = None
    max_disk: float = 10.0
    sketch: bool | None = None


@dataclass(frozen=True, slots=True)
class FindingRequest:
    """The thresholds of findings, and the findings that make a run fail.

    Example:
        >>> FindingRequest(rules=(("dead", 0.5),), fail_on=("nan",))

    Attributes:
        rules: names of rules with the thresholds to use instead of the default ones.
        fail_on: names of rules; a finding of one of them ends the run with exit code 7.
    """

    rules: tuple[tuple[str, float], ...] = ()
    fail_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """The machines of a run on a Ray cluster, and the share of them that each worker gets.

    Attributes:
        address: the address of a running cluster, or ``auto`` for the cores and GPUs of this
            machine.
        workers: how many workers hold the model; None for as many as the cluster has room for.
        cpus: the cores of a worker, which is also the number of threads that torch uses there.
        gpus: the GPUs of a worker, which may be a fraction; None for one if the model runs on a
            GPU.
    """

    address: str = "auto"
    workers: int | None = None
    cpus: int = 1
    gpus: float | None = None


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """How the work of a run is spread over processes, threads and machines.

    Attributes:
        workers: how many processes prepare images; None to choose by the machine and the number of
            images.
        threads: how many threads torch uses; None to leave the choice to torch.
        cluster: the cluster to run on; None for this process alone.
        storage: names and values of options of the filesystems that hold what is named by a URL.
    """

    workers: int | None = None
    threads: int | None = None
    cluster: ClusterRequest | None = None
    storage: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AttentionRequest:
    """Which attention is computed, and what is drawn and kept of it.

    Example:
        >>> AttentionRequest(("all",), patch=(120, 80))

    Attributes:
        layers: forms of the filter language; the attention of these layers and of all modules
            inside them is computed.
        patch: a pixel of the image as given, whose patch is the query that is drawn; None for the
            class token.
        rollout: also roll the attention out over all these calls.
        save: keep the probabilities of all heads, queries and keys.
    """

    layers: tuple[str, ...]
    patch: tuple[int, int] | None = None
    rollout: bool = False
    save: bool = False


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The base of ``InspectConfig`` and ``GradientsConfig``, the runs that write a run folder.

    The properties hold what such a run does unless its own config has a field of that name.

    Attributes:
        run: the model, the images, the layers and the changes to them.
        folder: where the run is written.
        grids: how feature maps are drawn.
        tensors: what is kept of the tensors.
        findings: the rules of the findings.
        machine: how the work is spread over processes, threads and machines.
        save_weights: the file that the pruned weights are written to; None for none.
    """

    command: ClassVar[str]

    run: RunRequest
    folder: FolderRequest = FolderRequest()
    grids: GridStyle = GridStyle()
    tensors: TensorRequest = TensorRequest()
    findings: FindingRequest = FindingRequest()
    machine: MachineRequest = MachineRequest()
    save_weights: Path | None = None

    @property
    def at(self) -> At:
        """Which tensors of a call are observed: ``output``, ``input`` or ``both``."""
        return "both"

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides of a call that are recorded."""
        return SIDES[self.at]

    @property
    def edited_side(self) -> EditedSide:
        """The side of a call that an edit changes if it names none."""
        return "output" if self.backward is None else "grad_output"

    @property
    def backward(self) -> BackwardStyle | None:
        """The score that a backward starts at; None for a run without a backward."""
        return None

    @property
    def batch_size(self) -> int:
        """How many images go through the model at once, at most."""
        return 1

    @property
    def focus(self) -> Box | None:
        """The box of the image inside which channels are ranked."""
        return None

    @property
    def attention(self) -> AttentionRequest | None:
        """What is computed of the attention; None for nothing."""
        return None

    @property
    def overview(self) -> bool:
        """Whether an overview, one picture for a slide, is drawn too."""
        return False

    @property
    def top_images(self) -> int:
        """How many of the images that fire each channel most are kept."""
        return 0


@dataclass(frozen=True, slots=True)
class InspectConfig(RunConfig):
    """The request of ``hookcli inspect``.

    Example:
        >>> request = RunRequest(ModelRequest("resnet34"), ImageRequest(("cat.jpg",)))
        >>> result = hookcli.inspect_images(InspectConfig(request, at="both"))

    Attributes:
        at: which tensors of a call are recorded: ``output``, ``input`` or ``both``.
        batch_size: how many images go through the model at once, at most.
        focus: left, top, width and height of a box in pixels of the image as given, by which
            channels are ranked: first those that fire more inside it than outside; None for no box.
        attention: what is computed of the attention; None for nothing.
        overview: also draw an overview, one picture for a slide.
        top_images: how many of the images that fire each channel most are kept; 0 for none.
    """

    command: ClassVar[str] = "inspect"

    at: At = "output"
    batch_size: int = 8
    focus: Box | None = None
    attention: AttentionRequest | None = None
    overview: bool = False
    top_images: int = 9


@dataclass(frozen=True, slots=True)
class GradientsConfig(RunConfig):
    """The request of ``hookcli gradients``.

    Example:
        >>> request = RunRequest(ModelRequest("resnet34"), ImageRequest(("cat.jpg",)))
        >>> result = hookcli.inspect_images(
        ...     GradientsConfig(request, backward=BackwardStyle(saliency=True))
        ... )

    Attributes:
        backward: the score that the backward starts at, and what is recorded and drawn of it.
    """

    command: ClassVar[str] = "gradients"

    backward: BackwardStyle = BackwardStyle()

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides of a call that are recorded."""
        return ("grad_output", "grad_input")


@dataclass(frozen=True, slots=True)
class AblationConfig:
    """The request of ``hookcli ablate``, which writes no files.

    Attributes:
        run: the model, the images and the layers.
        score: the score whose change ranks the channels.
        style: which channels are zeroed, and how many at once.
    """

    run: RunRequest
    score: ScoreRequest = ScoreRequest()
    style: AblationStyle = AblationStyle()


@dataclass(frozen=True, slots=True)
class VariantRequest:
    """The second variant of a model that ``hookcli compare`` runs.

    Attributes:
        name: the name of the variant, in the words of the user.
        run: the request of the first variant with what differs.
        channels_last: weights and pixels are laid out channels last.
        threads: how many threads torch uses; None for as many as in the first variant.
    """

    name: str
    run: RunRequest
    channels_last: bool = False
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class CompareConfig:
    """The request of ``hookcli compare``, which writes no files.

    Attributes:
        run: the first variant, which is the reference.
        other: the second variant.
        at: which tensors of a call are compared: ``output``, ``input`` or ``both``.
    """

    run: RunRequest
    other: VariantRequest
    at: At = "output"


DEFAULTS = InspectConfig(RunRequest(ModelRequest(""), ImageRequest(())))


def chunk_size(batch_size: int) -> int:
    """Return the number of images in a chunk of a run: whole batches, at least 32 images."""
    return -(-_CHUNK // batch_size) * batch_size
