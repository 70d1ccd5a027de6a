"""``hookcli gradients``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hookcli.cli import options
from hookcli.cli.commands.inspect import inspect
from hookcli.config import SCORES, BackwardStyle

Target = Annotated[
    str,
    typer.Option(
        metavar="predicted|INDEX|NAME", help="The class whose score the backward starts at."
    ),
]
Score = Annotated[
    str,
    typer.Option(
        metavar="|".join((*SCORES, "FILE.py:FUNCTION")),
        help="The scalar that the backward starts at; a function is called with the output and the target.",
    ),
]
InputGrad = Annotated[
    bool, typer.Option("--input-grad", help="The first layer's input gets a gradient too.")
]
TimesActivation = Annotated[
    bool, typer.Option("--times-activation", help="Grids show activation times gradient.")
]
Cam = Annotated[
    list[str],
    typer.Option(
        metavar="FORM", help="Draw a Grad-CAM of these layers over the image. Repeatable."
    ),
]
Saliency = Annotated[
    bool, typer.Option("--saliency", help="Draw how strongly the score depends on each pixel.")
]
_PLAIN = BackwardStyle()
_OWN = {
    "target": (Target, _PLAIN.target),
    "score": (Score, _PLAIN.score),
    "input_grad": (InputGrad, _PLAIN.input_grad),
    "times_activation": (TimesActivation, _PLAIN.times_activation),
    "cam": (Cam, []),
    "saliency": (Saliency, _PLAIN.saliency),
}
_NOT_MINE = ("at", "focus", "overview", "top_images", "batch_size")  # of inspect's options


def gradients(**words: Any) -> None:
    """Run images through a model and back; record the gradients of chosen layers and their parameters.

    Example: hookcli gradients resnet34 cat.jpg --layers conv --target 'tabby'
    """
    from hookcli.cli.request import run_command

    run_command(words)


options.share_options(gradients, inspect, _OWN, _NOT_MINE)
