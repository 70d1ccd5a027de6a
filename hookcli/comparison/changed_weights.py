"""The weights of a quantized file against those of the model that it was made from.

Rounding moves a weight by half a step at most. So a weight that is farther off was another one
before it was quantized, even if that changes the output of its layer less than quantizing does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn
from torch.nn.utils import fuse_conv_bn_weights

from hookcli.comparison.arrays import to_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.passes.quantized_weights import StoredWeight

    Values = NDArray[np.float64]
    Stored = Mapping[str, StoredWeight]

_HALF = 0.502  # of a step, and the rounding of the quotient
_DIGITS = 1e-5  # of a parameter in float32 into which a BatchNorm was folded
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def find_changed_weights(
    model: nn.Module, weights: Iterable[StoredWeight], norms: Mapping[str, str]
) -> Mapping[str, str]:
    """Return how the weights of a model's layers were changed before quantizing, by their paths.

    Nothing is found if most layers have changed: then the file was not quantized by rounding to
    the nearest number. ``norms`` has the path of the BatchNorm that follows a layer, by its path.
    """
    stored = {each.name: each for each in weights}
    modules = dict(model.named_modules())
    changes = {
        path: _find_change(path, module, modules.get(norms.get(path, "")), stored)
        for path, module in modules.items()
        if isinstance(module, (*_CONVOLUTIONS, nn.Linear)) and f"{path}.weight" in stored
    }
    found = {path: change for path, change in changes.items() if change}
    return found if len(found) < max(2, len(changes) / 2) else {}


def _find_change(path: str, module: Any, norm: Any, stored: Stored) -> str:
    """Return how weight or bias differ from the module's, alone or with the norm folded in."""
    forms = [(module.weight, module.bias)]
    if isinstance(module, _CONVOLUTIONS) and isinstance(norm, _NORMS):
        mean, variance = norm.running_mean, norm.running_var
        if mean is not None and variance is not None:  # otherwise, nothing can be folded
            learned = norm.weight, norm.bias
            forms.append(fuse_conv_bn_weights(*forms[0], mean, variance, norm.eps, *learned))
    found = [_describe_change(path, _read(one), _read(two), stored) for one, two in forms]
    return "" if "" in found else found[-1]


def _read(tensor: Tensor | None) -> Values:
    return np.zeros(0) if tensor is None else to_array(tensor.detach()).astype(np.float64)


def _describe_change(path: str, weight: Values, bias: Values, stored: Stored) -> str:
    """Return what is off; empty if rounding explains the numbers in the file."""
    kept = stored[f"{path}.weight"]
    is_turned = kept.values.shape != weight.shape and kept.values.shape == weight.T.shape
    change = _measure(kept, weight.T if is_turned else weight)
    names = [name for name in (f"{path}.bias", f"{path}.weight_bias") if name in stored]
    if not change and names:
        return _measure(stored[names[0]], bias if bias.size else np.zeros(len(weight)))
    return change or (f"the file has no {path}.bias" if bias.any() and not names else "")


def _measure(kept: StoredWeight, values: Values) -> str:
    if kept.values.shape != values.shape:
        return ""  # nothing is known of another arrangement
    off = np.where(kept.inside, np.abs(kept.values - values), 0)
    if not (off > _HALF * kept.step + _DIGITS * np.abs(values).max(initial=0)).any():
        return ""
    if not kept.step.any():
        return f"{kept.name} is off by up to {off.max():.2g}"
    steps = (off / np.where(kept.step > 0, kept.step, np.inf)).max()
    return f"{kept.name} is off by up to {steps:.3g} steps, and rounding explains 0.5"
