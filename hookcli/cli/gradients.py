"""``hookcli gradients``."""

from __future__ import annotations

from inspect import Parameter, get_annotations, signature
from typing import Any

from hookcli.cli import options
from hookcli.cli.inspect import inspect
from hookcli.cli.running import run_words
from hookcli.config import BackwardStyle

_PLAIN = BackwardStyle()
_OWN = {
    "target": (options.Target, _PLAIN.target),
    "score": (options.Score, _PLAIN.score),
    "input_grad": (options.InputGrad, _PLAIN.input_grad),
    "times_activation": (options.TimesActivation, _PLAIN.times_activation),
    "cam": (options.Cam, []),
    "saliency": (options.Saliency, _PLAIN.saliency),
}
_NOT_MINE = ("at", "focus", "overview", "top_images", "batch_size")  # of inspect's options


def gradients(**words: Any) -> None:
    """Run images through a model and back; record the gradients of chosen layers and their parameters.

    Example: hookcli gradients resnet34 cat.jpg --layers conv --target 'tabby'
    """
    run_words(words)


def _own_signature() -> list[Parameter]:
    """The parameters of ``inspect`` that make sense here, and those of a backward after the layers."""
    kinds = get_annotations(inspect, eval_str=True)
    shared = [
        parameter.replace(annotation=kinds[name])
        for name, parameter in signature(inspect).parameters.items()
        if name not in _NOT_MINE
    ]
    own = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        for name, (kind, default) in _OWN.items()
    ]
    after = [parameter.name for parameter in shared].index("exclude") + 1
    return [*shared[:after], *own, *shared[after:]]


gradients.__signature__ = signature(gradients).replace(  # type: ignore[attr-defined]
    parameters=_own_signature(), return_annotation=None
)
