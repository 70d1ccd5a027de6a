"""Set a model to training or evaluation mode; name the layers that evaluation mode changes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from torch import nn

from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import ask
from hookcli.records.text import and_more

if TYPE_CHECKING:
    from hookcli.config import Mode

_DROPOUTS = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
    *(nn.FeatureAlphaDropout, torchvision.ops.StochasticDepth),
    *(torchvision.ops.DropBlock2d, torchvision.ops.DropBlock3d),
)
_MOST_NAMED = 3


def set_mode(module: nn.Module, mode: Mode) -> None:
    if mode == "train":
        module.train()
    elif mode == "eval":
        _evaluate(module)


def _evaluate(module: nn.Module) -> None:
    try:
        module.eval()
    except NotImplementedError:  # of a part that torch.export made
        if "eval" not in vars(module):
            module.training = False
            for child in module.children():
                _evaluate(child)


def note_switched(module: nn.Module) -> str:
    kinds = Counter(type(each).__name__ for each in module.modules() if _trains(each)).most_common()
    if not kinds:
        return ""
    layers = ", ".join(f"{number} {kind}" for kind, number in kinds[:_MOST_NAMED])
    layers += and_more(len(kinds) - _MOST_NAMED, " and {} other kind{s} of layers")
    return (
        f"the model was made in training mode and runs in evaluation mode, which changes {layers}: "
        "`model.mode='as-made'` runs it as it was made"
    )


def _trains(module: nn.Module) -> bool:
    if not ask(module, "training"):  # a module that torch.jit.freeze made has no mode
        return False
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.track_running_stats
    if isinstance(module, nn.RReLU):
        return module.lower != module.upper
    if isinstance(module, _DROPOUTS):
        return bool(module.p)
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return bool(module.dropout)
    is_path = type(module).__name__ == "DropPath"  # in timm and other libraries
    return is_path and bool(ask(module, "drop_prob"))
