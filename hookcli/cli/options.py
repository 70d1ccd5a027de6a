"""The options, each declared once; their defaults are those of ``hookcli.config``."""

from __future__ import annotations

import os
from inspect import Parameter, get_annotations, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hookcli import config
from hookcli.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

CACHE_ENV = "XDG_CACHE_HOME"


def names_file() -> Path:
    """The list of model names that completion reads: small, and left by the last run."""
    return Path(os.environ.get(CACHE_ENV) or Path.home() / ".cache") / "hookcli" / "models.txt"


def complete_model(incomplete: str) -> list[str]:
    """Model names that begin so, of those that the last run left."""
    try:
        names = read_regular(names_file()).decode().split()
    except (OSError, ValueError):
        return []
    return [name for name in names if name.startswith(incomplete)]


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A torchvision model name, timm:NAME, or your own FILE.py:FACTORY or PACKAGE.MODULE:FACTORY, "
        "whose code is run.",
        autocompletion=complete_model,
    ),
]
Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE",
        help="Image files, folders, globs, '@LIST' of names, or - for a list on standard input; .npy and "
        ".safetensors files are pixels.",
    ),
]
Layers = Annotated[
    list[str],
    typer.Option(
        metavar="FORM",
        help="Which layers: an alias (conv linear norm act pool attention dropout leaf all), a class name, "
        "a module path, a glob, 're:REGEX', '@file'; 'conv[16]' is the 16th, counted from 1. "
        "Repeatable, comma-separated; in single quotes, since shells eat [ ] * !.",
    ),
]
Exclude = Annotated[
    list[str], typer.Option(metavar="FORM", help="Layers to leave out, in the same forms.")
]
At = Annotated[
    config.At,
    typer.Option(help="Record what a layer returned, received, or both."),
]
Edit = Annotated[
    list[str],
    typer.Option(
        metavar="[SIDE:]LAYERS[{CHANNELS}]:WHAT",
        help="Change what passes there: 'conv[3]:zero', 'input:layer1.*{3,7}:scale=0.1'. SIDE: output input, in "
        "hookcli gradients also grad_output grad_input param; WHAT: zero scale= clamp=LO:HI clip-norm= mean "
        "set=. Repeatable, in this order.",
    ),
]
PruneOption = Annotated[
    list[str],
    typer.Option(
        "--prune",
        metavar="LAYERS=AMOUNT[:l1|random|ln]",
        help="Zero this share of the weights first: 'conv=0.3'. Repeatable.",
    ),
]
SaveWeights = Annotated[
    Path | None,
    typer.Option(metavar="FILE.safetensors", help="With --prune: write the pruned weights."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o", "--out", metavar="DIR", help="The run folder.  [default: hookcli-runs/MODEL-IMAGE]"
    ),
]
NoRecursive = Annotated[
    bool, typer.Option("--no-recursive", help="Leave out the folders in a folder.")
]
NullSeparated = Annotated[
    bool, typer.Option("-0", "--null", help="Names in lists end with NUL, as of find -print0.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Processes that read and prepare images.  [default: by the number of cores]",
    ),
]
OnError = Annotated[
    config.OnError,
    typer.Option(
        help="When the model fails on an image: end the run there, or list the image in skipped.csv and go on."
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with the run that was interrupted in the run folder."),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="With --resume: compare hashes of images, not only times.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run that stands in the run folder.")
]
Weights = Annotated[
    str,
    typer.Option(
        metavar="auto|pretrained|random|NAME|FILE",
        help="auto: trained if they can be had, else random; a member such as IMAGENET1K_V1; or a .pth, .pt, .safetensors file.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="For random weights.")]
Device = Annotated[
    str, typer.Option(metavar="auto|cpu|cuda|cuda:N|mps", help="Where the model runs.")
]
Dtype = Annotated[config.Dtype, typer.Option(help="Of weights and pixels.")]
Size = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=config.LARGEST_SIDE,
        help="Side of the square the network sees, in pixels.  [default: the weights' own]",
    ),
]
Resize = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=config.LARGEST_SIDE,
        help="Short side before the middle is cut out, in pixels.",
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(metavar="R,G,B", help="Taken off the colours, from 0 to 1: '0.485,0.456,0.406'."),
]
Std = Annotated[str | None, typer.Option(metavar="R,G,B", help="What the colours are divided by.")]
Interpolation = Annotated[
    config.Interpolation | None, typer.Option(help="How pictures are resized.")
]
Pair = Annotated[
    str | None,
    typer.Option(
        metavar="IMAGE", help="The second image for optical flow.  [default: the same twice]"
    ),
]
Clip = Annotated[
    bool, typer.Option("--clip", help="A folder is a clip: its files are the frames, by name.")
]
ModelArg = Annotated[
    list[str],
    typer.Option(metavar="KEY=VALUE", help="For the model's builder: num_classes=50. Repeatable."),
]
BatchSize = Annotated[int, typer.Option(metavar="N", min=1, help="Images in one forward, at most.")]
Grids = Annotated[
    config.GridMode,
    typer.Option(help="One picture a layer, one an image, or none."),
]
Top = Annotated[int, typer.Option(metavar="N", min=1, help="How many channels a grid shows.")]
Channels = Annotated[
    str | None,
    typer.Option(metavar="all|LIST", help="These channels, counted from 0: '3,7,10-20'."),
]
Rank = Annotated[config.Rank, typer.Option(help="What puts a channel first.")]
Scale = Annotated[
    config.Scale,
    typer.Option(help="Dark to light over each channel's range, or the layer's."),
]
Colormap = Annotated[str, typer.Option(metavar="NAME", help="ember, or any matplotlib map.")]
Tile = Annotated[
    int, typer.Option(metavar="PX", min=8, max=1024, help="The longest side of a tile.")
]
Overview = Annotated[
    bool, typer.Option("--overview", help="Also draw overview.png, one picture for a slide.")
]
Focus = Annotated[
    str | None,
    typer.Option(
        metavar="X,Y,W,H",
        help="Rank channels by how much more they fire inside this box of the image, in its pixels.",
    ),
]
TopImages = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Of several images, the N that fire each channel most."),
]
Save = Annotated[
    Literal["tensors"] | None,
    typer.Option(help="Also keep what the layers gave, for hookcli.load_run and hookcli export."),
]
Pool = Annotated[
    str,
    typer.Option(
        metavar="none|mean|max|N", help="With --save: over height and width, or to N x N."
    ),
]
TensorDtype = Annotated[config.Dtype | None, typer.Option(help="With --save: the dtype on disk.")]
TensorChannels = Annotated[
    str | None, typer.Option(metavar="LIST", help="With --save: these channels only: '3,7,10-20'.")
]
MaxDisk = Annotated[
    float, typer.Option(metavar="GB", help="With --save: refuse to write more than this.")
]
Sketch = Annotated[
    bool | None,
    typer.Option(
        "--sketch/--no-sketch",
        help="Keep a sketch of each tensor in records.parquet, 268 bytes, for hookcli golden and diff.  "
        f"[default: in runs of up to {config.MOST_SKETCHED} images]",
        show_default=False,
    ),
]
Rule = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=VALUE", help="Another threshold for a finding: dead=0.5. Repeatable."
    ),
]
FailOn = Annotated[
    str,
    typer.Option(metavar="RULES", help="End with code 7 when one of these is found: nan,inf,dead."),
]
Format = Annotated[
    Literal["table", "json", "jsonl", "csv", "md"],
    typer.Option("--format", help="What is written to stdout; jsonl: a row a line."),
]
FileFormat = Annotated[
    Literal["text", "json", "jsonl"],
    typer.Option(
        "--format", help="What is written to stdout: the files' names, or what each one is too."
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No plan, no summary; warnings and errors stay.")
]
ShowTime = Annotated[bool, typer.Option("--time", help="Say how long each stage took.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]


def share_options(
    command: Callable[..., None],
    others: Callable[..., None],
    own: Mapping[str, tuple[Any, Any]],
    left_out: Collection[str],
) -> None:
    """Give a command the options of another one but those ``left_out``, and its ``own``.

    Its own stand in the place of another's of the same name, or else after the layers.

    Args:
        command: takes its words as ``**words``.
        others: the command whose options it shares.
        own: type and default by name.
        left_out: names of options of ``others``.
    """
    kinds = get_annotations(others, eval_str=True)
    mine = {
        name: Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        for name, (kind, default) in own.items()
    }
    shared = [
        mine.pop(name, parameter.replace(annotation=kinds[name]))
        for name, parameter in signature(others).parameters.items()
        if name not in left_out
    ]
    after = [parameter.name for parameter in shared].index("exclude") + 1
    parameters = [*shared[:after], *mine.values(), *shared[after:]]
    command.__signature__ = signature(command).replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=None
    )
