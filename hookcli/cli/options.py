"""The options of the commands, each declared once; their defaults are those of ``hookcli.config``.

Options that belong together are a group: a frozen dataclass that is one panel of ``--help``.
``cli/option_groups`` expands the groups of a command's signature into options.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from hookcli import config
from hookcli.cli import parse
from hookcli.cli.completion import complete_model
from hookcli.errors import RequestError
from hookcli.urls import to_place

LAYERS, IMAGES, OUTPUT = "Layers", "Images", "Output"  # panels of options that are in no group
_DEFAULTS, _GRIDS, _SAVE = config.DEFAULTS, config.DEFAULTS.grids, config.SaveStyle()
_MODEL, _BACKWARD = config.DEFAULTS.run.model, config.BackwardStyle()


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A torchvision model, timm:NAME, or your own FILE.py:FACTORY or "
        "PACKAGE.MODULE:FACTORY, whose code is run.",
        autocompletion=complete_model,
    ),
]
Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE",
        help="Image files, folders, globs, '@LIST' of names, or - for a list on standard input; "
        ".npy and .safetensors files hold pixels.",
    ),
]
Layers = Annotated[
    tuple[str, ...],
    typer.Option(
        metavar="FORM",
        help="Which layers to observe: an alias (conv linear norm act pool attention dropout leaf "
        "all), a class name, a module path, a glob, 're:REGEX', or '@file'; 'conv[16]' is the "
        "16th, counted from 1; 'op:add' are the additions between modules. Repeatable, or "
        "separated by commas. Quote it, since shells replace [ ] * !.",
    ),
]
Exclude = Annotated[
    tuple[str, ...],
    typer.Option(metavar="FORM", help="Layers to leave out, written in the same way."),
]
_STORAGE = typer.Option(
    "--storage-option",
    metavar="KEY=VALUE",
    help="With URLs: an option of their storage, such as endpoint_url=http://localhost:9000, but "
    "no credentials. Repeatable.",
)
StorageOptions = Annotated[list[str], _STORAGE]
At = Annotated[
    config.At,
    typer.Option(
        help="Record what a layer returns, what it receives, or both.", rich_help_panel=LAYERS
    ),
]
Pair = Annotated[
    str | None,
    typer.Option(
        metavar="IMAGE",
        help="The second image for optical flow.  [default: the same image]",
        rich_help_panel=IMAGES,
    ),
]
Clip = Annotated[
    bool,
    typer.Option(
        "--clip",
        help="Take a folder as one clip, whose files are the frames in the order of their names.",
        rich_help_panel=IMAGES,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Processes that read and prepare images.  [default: depends on the cores]",
        rich_help_panel=IMAGES,
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="The largest number of images in one forward.",
        rich_help_panel=IMAGES,
    ),
]
Size = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=config.LARGEST_SIDE,
        help="Side of the square that the network sees, in pixels.  [default: as the weights "
        "were trained]",
    ),
]
ModelArg = Annotated[
    tuple[str, ...],
    typer.Option(
        metavar="KEY=VALUE", help="An argument of the model's builder: num_classes=50. Repeatable."
    ),
]
Channels = Annotated[
    str | None,
    typer.Option(metavar="all|LIST", help="These channels instead, counted from 0: '3,7,10-20'."),
]
Format = Annotated[
    Literal["table", "json", "jsonl", "csv", "md"],
    typer.Option(
        "--format",
        help="What is printed on stdout; jsonl has one row per line.",
        rich_help_panel=OUTPUT,
    ),
]
FileFormat = Annotated[
    Literal["text", "json", "jsonl"],
    typer.Option("--format", help="What is printed on stdout: names of files, or more about each."),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print no plan and no summary, only warnings and errors.",
        rich_help_panel=OUTPUT,
    ),
]
ShowTime = Annotated[
    bool,
    typer.Option("--time", help="Print how long each stage took.", rich_help_panel=OUTPUT),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and stop.", rich_help_panel=OUTPUT)
]


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """Layers: which modules are observed."""

    layers: Layers = _DEFAULTS.run.layers
    exclude: Exclude = _DEFAULTS.run.exclude


@dataclass(frozen=True, slots=True)
class EditOptions:
    """Changes: edits of what passes through layers, and pruned weights."""

    edit: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="[SIDE:]LAYERS[{CHANNELS}]:WHAT",
            help="Change what passes there: 'conv[3]:zero', 'op:add[2]:scale=0', "
            "'input:layer1.*{3,7}:scale=0.1'. SIDE "
            "is output or input, in hookcli gradients also grad_output, grad_input or param; WHAT "
            "is zero, scale=, clamp=LO:HI, clip-norm=, mean or set=. Repeatable; the order counts.",
        ),
    ] = ()
    prune: Annotated[
        tuple[str, ...],
        typer.Option(
            "--prune",
            metavar="LAYERS=AMOUNT[:l1|random|ln]",
            help="Set this share of the weights to zero first: 'conv=0.3'. Repeatable.",
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Model: which weights, where it runs, and how images are prepared for it."""

    weights: Annotated[
        str,
        typer.Option(
            metavar="auto|pretrained|random|NAME|FILE",
            help="auto takes trained weights if it can get them, else random ones; NAME is a set "
            "of weights such as IMAGENET1K_V1; FILE is a .pth, .pt or .safetensors file.",
        ),
    ] = _MODEL.weights
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of random weights and of random pruning.")
    ] = _MODEL.seed
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda|cuda:N|mps", help="Where the model runs.")
    ] = _MODEL.device
    dtype: Annotated[config.Dtype, typer.Option(help="Type of the weights and the pixels.")] = (
        _MODEL.dtype
    )
    size: Size = _MODEL.size
    resize: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=config.LARGEST_SIDE,
            help="Short side of the image before its middle is cut out, in pixels.",
        ),
    ] = _MODEL.resize
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B",
            help="Subtracted from the colours, which are 0 to 1: '0.485,0.456,0.406'.",
        ),
    ] = None
    std: Annotated[str | None, typer.Option(metavar="R,G,B", help="Divisor of the colours.")] = None
    interpolation: Annotated[
        config.Interpolation | None, typer.Option(help="How images are resized.")
    ] = _MODEL.interpolation
    model_arg: ModelArg = ()

    def request(self, name: str, *, quiet: bool) -> config.ModelRequest:
        """Return what is asked of the model ``name``.

        Raises:
            RequestError: an option cannot be read.
        """
        return config.ModelRequest(
            name,
            self.weights,
            self.seed,
            self.device,
            self.dtype,
            self.size,
            self.resize,
            parse.read_numbers("--mean", self.mean),
            parse.read_numbers("--std", self.std),
            self.interpolation,
            parse.read_model_arguments(self.model_arg),
            progress=not quiet and sys.stderr.isatty(),
        )


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """Images: how names are understood, and what happens when the model fails on one."""

    no_recursive: Annotated[
        bool, typer.Option("--no-recursive", help="Skip folders inside a folder.")
    ] = False
    null: Annotated[
        bool,
        typer.Option(
            "-0", "--null", help="Names in lists end with NUL, as find -print0 writes them."
        ),
    ] = False
    on_error: Annotated[
        config.OnError,
        typer.Option(help="When the model fails on an image: stop the run, or skip the image."),
    ] = _DEFAULTS.run.on_error

    def request(
        self, names: list[str], pair: str | None = None, *, clip: bool = False
    ) -> config.ImageRequest:
        """Return which images are asked for."""
        return config.ImageRequest(tuple(names), not self.no_recursive, self.null, pair, clip)


@dataclass(frozen=True, slots=True)
class GridOptions:
    """Pictures: how feature maps are drawn."""

    grids: Annotated[
        config.GridMode, typer.Option(help="One picture per layer, one per image, or none.")
    ] = _GRIDS.mode
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Number of channels in a grid.")] = (
        _GRIDS.top or 0
    )
    channels: Channels = None
    rank: Annotated[config.Rank, typer.Option(help="Which channels come first.")] = _GRIDS.rank
    scale: Annotated[
        config.Scale,
        typer.Option(help="Colours span the range of each channel, or of the layer."),
    ] = _GRIDS.scale
    colormap: Annotated[
        str, typer.Option(metavar="NAME", help="ember, or any colormap of matplotlib.")
    ] = _GRIDS.colormap
    tile: Annotated[
        int, typer.Option(metavar="PX", min=8, max=1024, help="Longest side of a tile, in pixels.")
    ] = _GRIDS.tile

    def style(self) -> config.GridStyle:
        """Return how feature maps are drawn.

        Raises:
            RequestError: the channels cannot be read.
        """
        every = self.channels == "all"
        return config.GridStyle(
            self.grids,
            None if every else self.top,
            None if every else parse.read_channels(self.channels),
            self.rank,
            self.scale,
            self.colormap,
            self.tile,
        )


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """Pictures: more of them, and what puts a channel first."""

    focus: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,W,H",
            help="Rank channels by how much more they fire inside this box, in image pixels.",
        ),
    ] = None
    overview: Annotated[
        bool,
        typer.Option("--overview", help="Also draw overview.png, one picture that fits a slide."),
    ] = _DEFAULTS.overview
    top_images: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="With several images: list the N that fire each channel most."
        ),
    ] = _DEFAULTS.top_images


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Attention: which of it is computed and drawn, head by head."""

    attention: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="FORM",
            help="Compute the attention of these layers and of all inside them, written as in "
            "--layers; 'all' for the whole model.",
        ),
    ] = ()
    patch: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y",
            help="With --attention: draw what the patch at this pixel of the image attends to.  "
            "[default: the class token]",
        ),
    ] = None
    rollout: Annotated[
        bool,
        typer.Option(
            "--rollout", help="With --attention: also draw the attention rolled out over depth."
        ),
    ] = False

    def request(self, *, save: bool) -> config.AttentionRequest | None:
        """Return what is computed of the attention; None for nothing.

        Raises:
            RequestError: an option cannot be read, or is for attention that is not computed.
        """
        if not self.attention:
            if self.patch is not None or self.rollout or save:
                raise RequestError(
                    "--patch, --rollout and --save attention are for attention that is computed",
                    "add --attention all",
                )
            return None
        return config.AttentionRequest(
            self.attention, parse.read_pixel(self.patch), self.rollout, save
        )


@dataclass(frozen=True, slots=True)
class TensorOptions:
    """Tensors: which are kept, in addition to their figures."""

    save: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="tensors|attention",
            help="Also save the tensors, or all probabilities of --attention, for hookcli.load_run "
            "and hookcli export. Repeatable.",
        ),
    ] = ()
    pool: Annotated[
        str,
        typer.Option(
            metavar="none|mean|max|N",
            help="With --save: reduce height and width to one value, or to N x N.",
        ),
    ] = _SAVE.pool
    tensor_dtype: Annotated[
        config.Dtype | None, typer.Option(help="With --save: type of the numbers on disk.")
    ] = _SAVE.dtype
    tensor_channels: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="With --save: only these channels: '3,7,10-20'."),
    ] = None
    max_disk: Annotated[
        float,
        typer.Option(metavar="GB", help="With --save: refuse to write more than this many GB."),
    ] = _DEFAULTS.tensors.max_disk
    sketch: Annotated[
        bool | None,
        typer.Option(
            "--sketch/--no-sketch",
            help="Keep a sketch of each tensor, 268 bytes in records.parquet, for hookcli golden "
            f"and hookcli diff.  [default: in runs of up to {config.MOST_SKETCHED} images]",
            show_default=False,
        ),
    ] = _DEFAULTS.tensors.sketch

    def request(self, *, has_attention: bool = False) -> config.TensorRequest:
        """Return what is kept of the tensors.

        Args:
            has_attention: the command can compute attention.

        Raises:
            RequestError: an option cannot be read, or is for tensors that are not saved.
        """
        saved = parse.read_saved(self.save)
        if "attention" in saved and not has_attention:
            raise RequestError("--save attention is for hookcli inspect --attention")
        channels = parse.read_channels(self.tensor_channels, "--tensor-channels")
        style = config.SaveStyle(self.pool, self.tensor_dtype, channels)
        save = parse.read_save(style, saves="tensors" in saved)
        return config.TensorRequest(save, self.max_disk, self.sketch)


@dataclass(frozen=True, slots=True)
class FindingOptions:
    """Findings: what is reported as worth a look, and what makes the command fail."""

    rule: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="NAME=VALUE", help="Change the threshold of a finding: dead=0.5. Repeatable."
        ),
    ] = ()
    fail_on: Annotated[
        str,
        typer.Option(
            metavar="RULES", help="End with code 7 if one of these is found: nan,inf,dead."
        ),
    ] = ""

    def request(self) -> config.FindingRequest:
        """Return the rules of the findings.

        Raises:
            RequestError: a threshold cannot be read.
        """
        fail_on = tuple(name.strip() for name in self.fail_on.split(",") if name.strip())
        return config.FindingRequest(parse.read_rules(self.rule), fail_on)


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """Output: where the run is written, and what may be replaced there."""

    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            metavar="DIR",
            help="The run folder; with --cluster also a URL, such as s3://bucket/run.  "
            "[default: hookcli-runs/MODEL-IMAGE]",
        ),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run that is in the run folder.")
    ] = False
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with an interrupted run that is in the run folder."),
    ] = False
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="With --resume: compare the images' hashes, not only their times."
        ),
    ] = False
    save_weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors", help="With --prune: write the pruned weights to this file."
        ),
    ] = _DEFAULTS.save_weights

    def request(self) -> config.FolderRequest:
        """Return where the run is written.

        Raises:
            RequestError: the URL of the folder holds a password.
        """
        out = None if self.out is None else to_place(self.out)
        return config.FolderRequest(out, self.overwrite, self.resume, self.verify)


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Machine: processes and threads of this machine, or a cluster of many."""

    workers: Workers = _DEFAULTS.machine.workers
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Threads of torch; results can differ in the last digits between numbers.  "
            "[default: the cores of the machine]",
        ),
    ] = _DEFAULTS.machine.threads
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="auto|ADDRESS",
            help="Run on a Ray cluster; auto takes the cores and GPUs of this machine. Needs "
            "hookcli[ray].",
        ),
    ] = None
    cluster_workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --cluster: how many workers hold the model.  [default: as many as there is "
            "room for]",
        ),
    ] = None
    cpus_per_worker: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --cluster: cores of a worker, and threads of torch there.  [default: 1]",
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0,
            help="With --cluster: GPUs of a worker, such as 0.5.  [default: 1 with --device cuda]",
        ),
    ] = None

    storage_option: Annotated[tuple[str, ...], _STORAGE] = ()

    def request(self) -> config.MachineRequest:
        """Return how the work is spread.

        Raises:
            RequestError: an option makes no sense with or without ``--cluster``.
        """
        storage = parse.read_storage_options(self.storage_option)
        if self.cluster is None:
            _refuse_given(
                "is for runs on a cluster",
                "add --cluster auto",
                {
                    "--cluster-workers": self.cluster_workers,
                    "--cpus-per-worker": self.cpus_per_worker,
                    "--gpus-per-worker": self.gpus_per_worker,
                },
            )
            return config.MachineRequest(self.workers, self.threads, storage=storage)
        _refuse_given(
            "means nothing with --cluster",
            "use --cluster-workers and --cpus-per-worker",
            {"--workers": self.workers, "--threads": self.threads},
        )
        cluster = config.ClusterRequest(
            self.cluster, self.cluster_workers, self.cpus_per_worker or 1, self.gpus_per_worker
        )
        return config.MachineRequest(cluster=cluster, storage=storage)


def _refuse_given(reason: str, hint: str, options: dict[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise RequestError(f"{name} {reason}", hint)


@dataclass(frozen=True, slots=True)
class BackwardOptions:
    """Gradients: where the backward starts, and what is drawn of it."""

    target: Annotated[
        str,
        typer.Option(
            metavar="predicted|INDEX|NAME", help="The class whose score is differentiated."
        ),
    ] = _BACKWARD.target
    score: Annotated[
        str,
        typer.Option(
            metavar="|".join((*config.SCORES, "FILE.py:FUNCTION")),
            help="The number that is differentiated; a function is called with the output and the "
            "target.",
        ),
    ] = _BACKWARD.score
    input_grad: Annotated[
        bool,
        typer.Option("--input-grad", help="Compute the gradient of the first layer's input too."),
    ] = _BACKWARD.input_grad
    times_activation: Annotated[
        bool,
        typer.Option("--times-activation", help="Draw activation times gradient in the grids."),
    ] = _BACKWARD.times_activation
    cam: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="FORM", help="Draw a Grad-CAM of these layers over the image. Repeatable."
        ),
    ] = _BACKWARD.cams
    saliency: Annotated[
        bool,
        typer.Option("--saliency", help="Draw how strongly the score depends on each pixel."),
    ] = _BACKWARD.saliency

    def style(self) -> config.BackwardStyle:
        """Return what the backward starts at, and what is drawn of it."""
        return config.BackwardStyle(
            self.target, self.score, self.input_grad, self.times_activation, self.cam, self.saliency
        )


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """Score: the number whose change ranks the channels."""

    target: Annotated[
        str,
        typer.Option(metavar="predicted|INDEX|NAME", help="The class whose score is watched."),
    ] = _BACKWARD.target
    score: Annotated[
        str,
        typer.Option(
            metavar="|".join((*config.SCORES, "FILE.py:FUNCTION")),
            help="The number that is watched; a function is called with the output and the target.",
        ),
    ] = _BACKWARD.score
