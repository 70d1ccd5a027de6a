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

# Panels of options that are in no group.
LAYERS, IMAGES, OUTPUT, CHANGES = "Layers", "Images", "Output", "Changes"
_DEFAULTS, _GRIDS, _SAVE = config.DEFAULTS, config.DEFAULTS.grids, config.SaveStyle()
_MODEL, _BACKWARD = config.DEFAULTS.run.model, config.BackwardStyle()


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="resnet34 (hookcli models lists them), timm:NAME, or a function that makes a model: "
        "FILE.py:FUNCTION or MODULE:FUNCTION.",
        autocompletion=complete_model,
    ),
]
Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE",
        help="Files, folders, globs, '@LIST' of names, or - for names on standard input.",
    ),
]
Layers = Annotated[
    tuple[str, ...],
    typer.Option(metavar="FORM[,FORM]", help="Layers to observe; FORM is explained below."),
]
Exclude = Annotated[
    tuple[str, ...],
    typer.Option(metavar="FORM[,FORM]", help="Layers to leave out."),
]
_STORAGE = typer.Option(
    "--storage-option",
    metavar="KEY=VALUE",
    help="Option of the storage behind a URL; no credentials.",
)
StorageOptions = Annotated[list[str], _STORAGE]
At = Annotated[
    config.At,
    typer.Option(metavar="SIDE", help="Observe output, input or both.", rich_help_panel=LAYERS),
]
Pair = Annotated[
    str | None,
    typer.Option(
        metavar="IMAGE",
        help="Second image, for optical flow.  [default: the same]",
        rich_help_panel=IMAGES,
    ),
]
Clip = Annotated[
    bool,
    typer.Option(
        "--clip",
        help="Take a folder of frames as one video clip.",
        rich_help_panel=IMAGES,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Processes that read images.  [default: by the cores]",
        rich_help_panel=IMAGES,
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Most images in one forward.",
        rich_help_panel=IMAGES,
    ),
]
Size = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=config.LARGEST_SIDE,
        help="Side of what the network sees, in pixels.",
    ),
]
ModelArg = Annotated[
    tuple[str, ...],
    typer.Option(metavar="KEY=VALUE", help="Argument of the model: num_classes=50."),
]
Channels = Annotated[
    str | None,
    typer.Option(metavar="all|LIST", help="Draw these channels, counted from 0: '3,7,10-20'."),
]
Theme = Annotated[
    config.Theme,
    typer.Option(metavar="dark|light", help="Background of pictures; light is for papers."),
]
Format = Annotated[
    Literal["table", "json", "jsonl", "csv", "md"],
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="On stdout: table, json, jsonl, csv or md.",
        rich_help_panel=OUTPUT,
    ),
]
FileFormat = Annotated[
    Literal["text", "json", "jsonl"],
    typer.Option("--format", metavar="FORMAT", help="On stdout: text, json or jsonl."),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print only warnings, errors and what --format asks for.",
        rich_help_panel=OUTPUT,
    ),
]
ShowTime = Annotated[
    bool,
    typer.Option("--time", help="Print how long each stage took.", rich_help_panel=OUTPUT),
]
SaveWeights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --prune: write the weights as .safetensors.",
        rich_help_panel=CHANGES,
    ),
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
        typer.Option(metavar="CHANGE", help="Change what passes a layer; explained below."),
    ] = ()
    prune: Annotated[
        tuple[str, ...],
        typer.Option(
            "--prune",
            metavar="FORM=SHARE[:HOW]",
            help="Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.",
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Model: which weights, where it runs, and how images are prepared for it."""

    weights: Annotated[
        str,
        typer.Option(
            metavar="WEIGHTS",
            help="auto (trained if available, else random), pretrained, random, a name such as "
            "IMAGENET1K_V1, or a file.",
        ),
    ] = _MODEL.weights
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of random weights and pruning.")] = (
        _MODEL.seed
    )
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
    ] = _MODEL.device
    dtype: Annotated[
        config.Dtype, typer.Option(metavar="DTYPE", help="float32, float16 or bfloat16.")
    ] = _MODEL.dtype
    size: Size = _MODEL.size
    resize: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=config.LARGEST_SIDE,
            help="Short side before cropping, in pixels.",
        ),
    ] = _MODEL.resize
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B",
            help="Subtracted from the colours, which are 0 to 1; one number: a grey model.",
        ),
    ] = None
    std: Annotated[str | None, typer.Option(metavar="R,G,B", help="Divisor of the colours.")] = None
    interpolation: Annotated[
        config.Interpolation | None,
        typer.Option(metavar="HOW", help="Resizing: nearest, bilinear or bicubic."),
    ] = _MODEL.interpolation
    model_arg: ModelArg = ()
    mode: Annotated[
        config.Mode,
        typer.Option(metavar="MODE", help="eval, train, or as-made (as the builder left it)."),
    ] = _MODEL.mode

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
            self.mode,
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
        typer.Option("-0", "--null", help="Names in lists end with NUL (find -print0)."),
    ] = False
    on_error: Annotated[
        config.OnError,
        typer.Option(metavar="stop|skip", help="When the model fails on an image."),
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
        config.GridMode,
        typer.Option(
            metavar="WHICH",
            help="layers (a picture each), sheet (one per image), none or auto.",
        ),
    ] = _GRIDS.mode
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Channels in a picture.")] = (
        _GRIDS.top or 0
    )
    channels: Channels = None
    rank: Annotated[
        config.Rank,
        typer.Option(metavar="BY", help="Order of channels: spread, mean, max or index."),
    ] = _GRIDS.rank
    scale: Annotated[
        config.Scale,
        typer.Option(metavar="PER", help="One colour range per channel or per layer."),
    ] = _GRIDS.scale
    colormap: Annotated[
        str, typer.Option(metavar="NAME", help="ember, or a colormap of matplotlib.")
    ] = _GRIDS.colormap
    tile: Annotated[
        int,
        typer.Option(
            metavar="PX",
            min=8,
            max=1024,
            help="Longest side of a channel, in pixels; scales heads too.",
        ),
    ] = _GRIDS.tile
    theme: Theme = _GRIDS.theme
    picture_format: Annotated[
        config.PictureFormat,
        typer.Option(metavar="FORMAT", help="Also write pictures as svg or pdf, for papers."),
    ] = _GRIDS.format

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
            self.theme,
            self.picture_format,
        )


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """Pictures: more of them, and what puts a channel first."""

    focus: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,W,H",
            help="Put channels first that fire inside this box.",
        ),
    ] = None
    overview: Annotated[
        bool,
        typer.Option("--overview", help="Also draw overview.png, which fits a slide."),
    ] = _DEFAULTS.overview
    top_images: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="List the N images that fire each channel most."),
    ] = _DEFAULTS.top_images


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Attention: which of it is computed and drawn, head by head."""

    attention: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="FORM[,FORM]",
            help="Compute what each head of these looks at (the last: 'attention[-1]').",
        ),
    ] = ()
    patch: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y",
            help="Draw what the patch at this pixel looks at.  [default: the class token]",
        ),
    ] = None
    rollout: Annotated[
        bool,
        typer.Option("--rollout", help="Also draw the attention multiplied over depth."),
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
            metavar="WHAT",
            help="Also save tensors, or the attention of all heads.",
        ),
    ] = ()
    pool: Annotated[
        str,
        typer.Option(
            metavar="none|mean|max|N",
            help="Reduce saved maps to one value, or to N x N.",
        ),
    ] = _SAVE.pool
    tensor_dtype: Annotated[
        config.Dtype | None,
        typer.Option(metavar="DTYPE", help="Save as float32, float16 or bfloat16."),
    ] = _SAVE.dtype
    tensor_channels: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Save only these channels: '3,7,10-20'."),
    ] = None
    max_disk: Annotated[
        float,
        typer.Option(metavar="GB", help="Refuse to save more than this."),
    ] = _DEFAULTS.tensors.max_disk
    sketch: Annotated[
        bool | None,
        typer.Option(
            "--sketch/--no-sketch",
            help="Keep 268 bytes of each tensor, for hookcli golden and diff.  [default: for up to "
            f"{config.MOST_SKETCHED} images]",
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
        typer.Option(metavar="NAME=VALUE", help="Change the threshold of a finding: dead=0.5."),
    ] = ()
    fail_on: Annotated[
        str,
        typer.Option(metavar="RULES", help="End with code 7 if one is found: nan,inf,dead."),
    ] = ""

    def request(self) -> config.FindingRequest:
        """Return the rules of the findings.

        Raises:
            RequestError: a threshold cannot be read.
        """
        fail_on = tuple(name.strip().lower() for name in self.fail_on.split(",") if name.strip())
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
            help="The run folder, or a URL.  [default: hookcli-runs/MODEL-IMAGE]",
        ),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run that is in the run folder.")
    ] = False
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with an interrupted run."),
    ] = False
    verify: Annotated[
        bool,
        typer.Option("--verify", help="With --resume: compare images by content, not by time."),
    ] = False

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
            help="Threads of torch.  [default: the cores]",
        ),
    ] = _DEFAULTS.machine.threads
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="auto|ADDRESS",
            help="Run on a Ray cluster; auto starts one here.",
        ),
    ] = None
    cluster_workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of workers.  [default: as many as fit]",
        ),
    ] = None
    cpus_per_worker: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Cores of a worker.  [default: 1]",
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0,
            help="GPUs of a worker, such as 0.5.",
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
        typer.Option(metavar="CLASS", help="The class: predicted, an index or a name."),
    ] = _BACKWARD.target
    score: Annotated[
        str,
        typer.Option(
            metavar="SCORE",
            help=f"{', '.join(config.SCORES)}, or FILE.py:FUNCTION.",
        ),
    ] = _BACKWARD.score
    input_grad: Annotated[
        bool,
        typer.Option("--input-grad", help="Also the gradient of the first layer's input."),
    ] = _BACKWARD.input_grad
    times_activation: Annotated[
        bool,
        typer.Option("--times-activation", help="Draw activation times gradient in the grids."),
    ] = _BACKWARD.times_activation
    cam: Annotated[
        tuple[str, ...],
        typer.Option(metavar="FORM[,FORM]", help="Draw a Grad-CAM of these layers over the image."),
    ] = _BACKWARD.cams
    saliency: Annotated[
        bool,
        typer.Option("--saliency", help="Draw how much the score depends on each pixel."),
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
        typer.Option(metavar="CLASS", help="The class: predicted, an index or a name."),
    ] = _BACKWARD.target
    score: Annotated[
        str,
        typer.Option(
            metavar="SCORE",
            help=f"{', '.join(config.SCORES)}, or FILE.py:FUNCTION.",
        ),
    ] = _BACKWARD.score
