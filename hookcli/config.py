"""What was asked: a frozen config for each command, and the only place where a default is written.

A config is made of requests, and each request is about one subject: the model, the images, the
run folder, the findings. Whoever needs one subject takes that request and not the whole config.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from pathlib import Path

At: TypeAlias = Literal["output", "input", "both"]
Dtype: TypeAlias = Literal["float32", "float16", "bfloat16"]
GridMode: TypeAlias = Literal["auto", "layers", "sheet", "none"]
Rank: TypeAlias = Literal["spread", "mean", "max", "index"]
Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
OnError: TypeAlias = Literal["stop", "skip"]
EditedSide: TypeAlias = Literal["output", "grad_output"]
Box: TypeAlias = tuple[int, int, int, int]
Scale: TypeAlias = Literal["channel", "layer"]

_CHUNK = 32
MOST_SKETCHED = 32  # a run of up to so many images keeps sketches without being asked to
SCORES = ("logit", "probability", "cross-entropy", "sum")
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
EMBER = "ember"
CLIP_FRAMES = 16  # a video model is given a clip of so many frames
LARGEST_SIDE = 8192
SIDES = {"output": ("output",), "input": ("input",), "both": ("input", "output")}


@dataclass(frozen=True, slots=True)
class GridStyle:
    """How feature maps are drawn.

    Attributes:
        mode: ``layers`` one PNG a layer call, ``sheet`` one PNG an image, ``none``; ``auto`` is ``layers`` for
            images that are named one by one, ``sheet`` for up to 200 others, and ``none`` beyond.
        top: how many channels a grid shows; None for all.
        channels: these channels, counted from 0, instead of the first ``top`` by rank.
        rank: what puts a channel first: ``spread`` (its standard deviation), ``mean``, ``max``, ``index``.
        scale: ``channel`` gives each tile its own range, ``layer`` gives all tiles of a grid one.
        colormap: ``ember`` is built in; any other name is looked up in matplotlib.
        tile: the longest side of a tile, in pixels.
        signed: for gradients, no option: zero is the middle of range and colours (``tide``, or a named map).
    """

    mode: GridMode = "auto"
    top: int | None = 64
    channels: tuple[int, ...] | None = None
    rank: Rank = "spread"
    scale: Scale = "channel"
    colormap: str = EMBER
    tile: int = 64
    signed: bool = False


@dataclass(frozen=True, slots=True)
class SaveStyle:
    """What is kept of each tensor.

    Attributes:
        pool: over height and width: ``none``, ``mean``, ``max``, or N in digits for means on N x N.
        dtype: ``float32``, ``float16`` or ``bfloat16``; None for what the model computed in.
        channels: these channels, counted from 0, in this order; None for all.
    """

    pool: str = "none"
    dtype: Dtype | None = None
    channels: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The number that a backward starts at, or that an ablation looks at.

    Attributes:
        target: ``predicted``, a class index, or the name of a category.
        score: ``logit``, ``probability``, ``cross-entropy``, ``sum``, or ``FILE.py:FUNCTION``.
    """

    target: str = "predicted"
    score: str = "logit"

    @property
    def needs_pixels(self) -> bool:
        """Whether the backward goes on to the pixels."""
        return False


@dataclass(frozen=True, slots=True)
class BackwardStyle(ScoreRequest):
    """The score that a backward starts at, and what is recorded and drawn on the way back.

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
        """Whether the backward goes on to the pixels."""
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
    """Which model, with which weights, where.

    Attributes:
        name: a torchvision model name, ``timm:NAME``, ``package.module:factory`` or ``file.py:factory``.
        weights: ``auto``, ``pretrained``, ``random``, a member of the model's weights, or a file.
        seed: seeds random weights; see ``hookcli.models``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        dtype: of parameters and pixels.
        size: side of the square that the network sees, in pixels; None for what the weights were made for.
        resize: short side before the middle is cut out, in pixels; None for the weights' own proportion.
        mean: of each colour, taken off; None for the weights' own.
        std: of each colour, divided by; None for the weights' own.
        interpolation: ``nearest``, ``bilinear`` or ``bicubic``; None for the weights' own.
        arguments: pairs for the builder, the value as the user wrote it.
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
    progress: bool = False


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Which images, and how the names that were given are understood.

    Attributes:
        names: image or tensor files, folders, globs, ``@LIST`` and ``-``, as given.
        recursive: also take the images in the folders of a folder.
        null_separated: names in lists end with NUL.
        pair: the second picture for an optical flow model; None for the same one twice.
        clip: a folder among ``names`` is a clip, and its files are the frames, in the order of their names.
    """

    names: tuple[str, ...]
    recursive: bool = True
    null_separated: bool = False
    pair: str | None = None
    clip: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What every command that runs images through a model is told.

    Attributes:
        model: which model to run.
        images: which images to run it on.
        layers: forms of the filter language; a layer that any of them matches is chosen.
        exclude: forms of layers to leave out.
        edits: changes to what passes through the layers, as ``--edit`` takes them.
        prunes: weights to prune before the run, as ``--prune`` takes them.
        on_error: what happens when the model fails on an image: ``stop`` ends the run, ``skip`` goes on
            without the image.
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

    Attributes:
        out: the run folder; None for ``hookcli-runs/MODEL-IMAGE`` under the working directory.
        overwrite: replace a run that is in ``out``.
        resume: go on with a run that was interrupted.
        verify: with ``resume``, read every image again to check that it has not changed.
    """

    out: Path | None = None
    overwrite: bool = False
    resume: bool = False
    verify: bool = False


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """What is kept of the tensors beside their figures.

    Attributes:
        save: which tensors are kept on disk; None for none.
        max_disk: how large they may become together, in 1e9 bytes.
        sketch: keep a sketch of every tensor, by which runs are compared; None to keep them if the run
            has at most ``MOST_SKETCHED`` images.
    """

    save: SaveStyle | None = None
    max_disk: float = 10.0
    sketch: bool | None = None


@dataclass(frozen=True, slots=True)
class FindingRequest:
    """Which findings there are, and which of them make the run fail.

    Attributes:
        rules: names of rules with the thresholds to use instead of the default ones.
        fail_on: names of rules; a finding of one of them ends the run with exit code 7.
    """

    rules: tuple[tuple[str, float], ...] = ()
    fail_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What the commands that write a run folder share; see ``InspectConfig`` and ``GradientsConfig``.

    The properties are what a run without the option does.

    Attributes:
        run: the model, the images, the layers and the changes to them.
        folder: where the run is written.
        grids: how feature maps are drawn.
        tensors: what is kept of the tensors.
        findings: the rules of the findings.
        workers: processes that prepare images; None to choose by the machine and the number of images.
        save_weights: the file for the pruned weights; None for none.
    """

    command: ClassVar[str]

    run: RunRequest
    folder: FolderRequest = FolderRequest()
    grids: GridStyle = GridStyle()
    tensors: TensorRequest = TensorRequest()
    findings: FindingRequest = FindingRequest()
    workers: int | None = None
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
        """What a backward starts at; None for a run without one."""
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
    def overview(self) -> bool:
        """Whether one picture for a slide is drawn too."""
        return False

    @property
    def top_images(self) -> int:
        """How many images are kept that fire each channel most."""
        return 0


@dataclass(frozen=True, slots=True)
class InspectConfig(RunConfig):
    """What ``hookcli inspect`` was asked for.

    Example:
        >>> request = RunRequest(ModelRequest("resnet34"), ImageRequest(("cat.jpg",)))
        >>> result = hookcli.inspect_images(InspectConfig(request, at="both"))

    Attributes:
        at: which tensors of a call are recorded: ``output``, ``input`` or ``both``.
        batch_size: how many images go through the model at once, at most.
        focus: left, top, width and height of a box in pixels of the image as given; channels are then
            ranked by how much more they fire inside it.
        overview: also draw one picture for a slide.
        top_images: how many images are kept that fire each channel most; 0 for none.
    """

    command: ClassVar[str] = "inspect"

    at: At = "output"
    batch_size: int = 8
    focus: Box | None = None
    overview: bool = False
    top_images: int = 9


@dataclass(frozen=True, slots=True)
class GradientsConfig(RunConfig):
    """What ``hookcli gradients`` was asked for.

    Attributes:
        backward: what the backward starts at, and what is recorded and drawn on the way back.
    """

    command: ClassVar[str] = "gradients"

    backward: BackwardStyle = BackwardStyle()

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides of a call that are recorded."""
        return ("grad_output", "grad_input")


@dataclass(frozen=True, slots=True)
class AblationConfig:
    """What ``hookcli ablate`` was asked for; it writes no files.

    Attributes:
        run: the model, the images and the layers.
        score: the number whose change ranks the channels.
        style: which channels are zeroed, and how many at once.
    """

    run: RunRequest
    score: ScoreRequest = ScoreRequest()
    style: AblationStyle = AblationStyle()


@dataclass(frozen=True, slots=True)
class VariantRequest:
    """The second way in which ``hookcli compare`` runs a model.

    Attributes:
        name: what the user asked for, in their words.
        run: the first way's request with what differs.
        channels_last: weights and pixels are laid out channels last.
        threads: how many threads torch uses; None for as many as in the first way.
    """

    name: str
    run: RunRequest
    channels_last: bool = False
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class CompareConfig:
    """What ``hookcli compare`` was asked for; it writes no files.

    Attributes:
        run: the first way to run the model, the reference.
        other: the second way.
        at: which tensors of a call are compared: ``output``, ``input`` or ``both``.
    """

    run: RunRequest
    other: VariantRequest
    at: At = "output"


DEFAULTS = InspectConfig(RunRequest(ModelRequest(""), ImageRequest(())))


def chunk_size(batch_size: int) -> int:
    """Return the number of images in a chunk of a run: whole batches, at least 32 images."""
    return -(-_CHUNK // batch_size) * batch_size
