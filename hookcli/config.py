"""What was asked: one frozen value a command, and the only place where a default is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

At: TypeAlias = Literal["output", "input", "both"]
Dtype: TypeAlias = Literal["float32", "float16", "bfloat16"]
GridMode: TypeAlias = Literal["auto", "layers", "sheet", "none"]
Rank: TypeAlias = Literal["spread", "mean", "max", "index"]
Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
OnError: TypeAlias = Literal["stop", "skip"]
EditedSide: TypeAlias = Literal["output", "grad_output"]
Scale: TypeAlias = Literal["channel", "layer"]

_PART = 32
MOST_SKETCHED = 32  # images of a run whose tensors are sketched without being asked for
SCORES = ("logit", "probability", "cross-entropy", "sum")
EMBER = "ember"
CLIP_FRAMES = 16  # of the clip that a video model is given
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
class BackwardStyle:
    """What a backward starts at, and what is taken from it.

    Attributes:
        target: ``predicted``, a class index, or a category's name.
        score: ``logit``, ``probability``, ``cross-entropy``, ``sum``, or ``FILE.py:FUNCTION``.
        input_grad: the pixels need a gradient too.
        times_activation: grids show activation times gradient instead of the gradient.
        cams: forms of the filter language; a Grad-CAM is drawn of each call of these layers.
        saliency: draw how strongly the score depends on each pixel.
    """

    target: str = "predicted"
    score: str = "logit"
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
    """Which channels are zeroed, one after the other.

    Attributes:
        channels: these of each layer, counted from 0; None for all.
        batch_size: how many are zeroed in one forward, each in a row of its own, at most.
        top: how many the table shows.
    """

    channels: tuple[int, ...] | None = None
    batch_size: int = 16
    top: int = 20


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
class InspectConfig:
    """What ``hookcli inspect`` or ``hookcli gradients`` was asked for.

    Attributes:
        model: which model to run.
        images: image or tensor files, folders, globs, ``@LIST`` and ``-``, as given.
        recursive: also take the images in the folders of a folder.
        null_separated: names in lists end with NUL.
        workers: processes that prepare images; None for what the machine and the number of images suggest.
        resume: go on with a run that was interrupted.
        verify: with ``resume``, read every image again to see that it is the same.
        pair: the second picture for an optical flow model; None for the same twice.
        clip: a folder among ``images`` is a clip, its files the frames in the order of their names.
        layers: forms of the filter language; what any of them chooses is observed.
        exclude: forms that take away from what ``layers`` chose.
        at: ``output``, ``input`` or ``both``: which tensors of a call are recorded.
        out: the run folder; None for ``hookcli-runs/MODEL-IMAGE`` under the working directory.
        overwrite: a run that stands in ``out`` may be replaced.
        batch_size: how many images go through the model at once, at most.
        on_error: what an image on which the model fails does to the run: ``stop`` ends it, ``skip`` goes on
            without the image.
        focus: left, top, width and height of a box in pixels of the image as given; channels are
            then ranked by how much more they fire inside it.
        overview: also draw one picture for a slide.
        grids: how feature maps are drawn.
        top_images: how many images are kept that fire each channel most; 0 for none.
        save: which tensors are kept on disk; None for none.
        max_disk: how large they may become together, in 1e9 bytes.
        sketch: a sketch of every tensor is kept, by which runs are compared; None: if the run has at most
            ``MOST_SKETCHED`` images.
        rules: thresholds of findings that are not the default ones.
        fail_on: rules of which a finding ends the run with code 7.
        backward: gradients are recorded instead of activations; None for a forward only.
        edits: what is changed on the way, as ``--edit`` takes it.
        prunes: weights that are pruned before, as ``--prune`` takes it.
        save_weights: where the pruned weights go; None for nowhere.
        ablation: channels are zeroed and ``backward`` says which score is looked at; nothing is written.
        compared: one side of ``hookcli compare``; nothing is written.
    """

    model: ModelRequest
    images: tuple[str, ...]
    recursive: bool = True
    null_separated: bool = False
    workers: int | None = None
    resume: bool = False
    verify: bool = False
    pair: str | None = None
    clip: bool = False
    layers: tuple[str, ...] = ("conv",)
    exclude: tuple[str, ...] = ()
    at: At = "output"
    out: Path | None = None
    overwrite: bool = False
    batch_size: int = 8
    on_error: OnError = "stop"
    focus: tuple[int, int, int, int] | None = None
    overview: bool = False
    grids: GridStyle = field(default_factory=GridStyle)
    top_images: int = 9
    save: SaveStyle | None = None
    max_disk: float = 10.0
    sketch: bool | None = None
    rules: tuple[tuple[str, float], ...] = ()
    fail_on: tuple[str, ...] = ()
    backward: BackwardStyle | None = None
    edits: tuple[str, ...] = ()
    prunes: tuple[str, ...] = ()
    save_weights: Path | None = None
    ablation: AblationStyle | None = None
    compared: bool = False

    @property
    def command(self) -> str:
        """The command that asks for this."""
        if self.compared:
            return "compare"
        if self.ablation is not None:
            return "ablate"
        return "inspect" if self.backward is None else "gradients"

    @property
    def edited_side(self) -> EditedSide:
        """What an edit without a side changes."""
        return "output" if self.backward is None else "grad_output"

    @property
    def sides(self) -> tuple[str, ...]:
        """Which tensors of a call are recorded."""
        return SIDES[self.at] if self.backward is None else ("grad_output", "grad_input")


DEFAULTS = InspectConfig(ModelRequest(""), ())


def part_size(batch_size: int) -> int:
    """Images in a part of a run: whole batches, at least 32 images."""
    return -(-_PART // batch_size) * batch_size
