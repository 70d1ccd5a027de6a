"""Estimate the error that quantizing explains, and find weights that changed before quantizing.

A is the model that B, such as a quantized ONNX file, is compared with. hookcli runs A once more,
and adds the error of rounding to 8 bits to the tensors that B may quantize. Where B computes
several calls together, each of these calls adds its error to what it gets from the call before.

Rounding moves a weight by half a quantization step at most. A weight that moved farther was changed
before quantizing, even if the change affects its layer's output less than quantizing does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import fuse_conv_bn_weights

from hookcli.comparison.side import to_array
from hookcli.passes.eager import EagerRunner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.comparison.seen_calls import SeenCalls
    from hookcli.passes.onnx_operators import StoredWeight
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import Call

    Array = NDArray[Any]
    Stored = Mapping[str, StoredWeight]

_HALF = 0.502  # of a step, and the rounding of the quotient
_DIGITS = 1e-5  # of a parameter in float32 into which a BatchNorm was folded
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *_TRANSPOSED)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class QuantizingNoise:
    """Feeds A with errors as large as those of 8-bit rounding, and observes their effect."""

    def __init__(self, runner: Runner, seen: SeenCalls, common: Collection[str]) -> None:
        self._seen = seen
        self._common = {*common}  # the calls of A that B has, too
        modules = runner.module.named_modules() if isinstance(runner, EagerRunner) else ()
        self._modules = dict(modules)
        self._errors: dict[str, float] = {}  # of inputs and weights, by call id
        self._random = np.random.default_rng(0)

    def move_pixels(self, pixels: Tensor) -> Tensor:
        values = to_array(pixels)
        return torch.from_numpy(self._move(values, quantizing_error(values)))

    def __call__(self, call: Call, tensor: Tensor) -> None:
        values = self._seen.values.get(call.id)
        if values is None or values.dtype.kind != "f" or values.shape != tensor.shape:
            return
        module = self._modules.get(self._seen.a[call.id].call.layer.module_path)
        weight, own = getattr(module, "weight", None), 0.0
        if torch.is_tensor(weight) and weight.dim() > 1:
            own = quantizing_error(to_array(weight.detach()))
        size, off = np.linalg.norm(values), np.linalg.norm(np.subtract(to_array(tensor), values))
        self._errors[call.id] = math.hypot(off / size if size and off < math.inf else 0.0, own)

    def feed(self, call_id: str) -> Array | None:
        values = self._seen.values.get(call_id)
        if values is None or values.dtype.kind != "f":
            return values
        is_common = call_id in self._common
        error = quantizing_error(values) if is_common else self._errors.get(call_id, 0.0)
        return self._move(values, error)

    def find(self, call_id: str, *, has_output: bool) -> float:
        output = quantizing_error(self._seen.values[call_id]) if has_output else 0.0
        return math.hypot(self._errors.get(call_id, 0.0), output)

    def _move(self, values: Array, share: float) -> Array:
        noise = self._random.standard_normal(values.shape, dtype=np.float32)
        moved = values + noise * (share * _size_of(values))
        return np.where(values == 0, values, moved).astype(values.dtype)


def quantizing_error(values: Array) -> float:
    """Return the RMS error of rounding a tensor to 8 bits, divided by the RMS of the tensor."""
    # An error that is uniform over a step has the size ``step / sqrt(12)``.
    size = _size_of(values)
    largest = np.max(np.abs(values), where=np.isfinite(values), initial=0)
    return float(largest) / 127 / math.sqrt(12) / size if size else 0.0


def _size_of(values: Array) -> float:
    finite = values[np.isfinite(values)].astype(np.float64)
    return math.sqrt(np.mean(finite**2)) if finite.size else 0.0


def find_changed_weights(
    model: nn.Module, weights: Iterable[StoredWeight], norms: Mapping[str, str]
) -> Mapping[str, str]:
    # Nothing is found if most layers have changed: then the file was not quantized by rounding to
    # the nearest number. ``norms`` has the BatchNorm that may be folded into a layer, by path.
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
    forms: list[Any] = [(module.weight, module.bias)]
    if isinstance(module, _CONVOLUTIONS) and isinstance(norm, _NORMS):
        mean, variance = norm.running_mean, norm.running_var
        if mean is not None and variance is not None:  # otherwise, nothing can be folded
            is_transposed = isinstance(module, _TRANSPOSED)
            fixed: Any = mean, variance, norm.eps, norm.weight, norm.bias, is_transposed
            forms.append(fuse_conv_bn_weights(*forms[0], *fixed))
    found = [_describe_change(path, _read(one), _read(two), stored) for one, two in forms]
    return "" if "" in found else found[-1]


def _read(tensor: Tensor | None) -> Array:
    return np.zeros(0) if tensor is None else to_array(tensor.detach()).astype(np.float64)


def _describe_change(path: str, weight: Array, bias: Array, stored: Stored) -> str:
    kept = stored[f"{path}.weight"]
    is_turned = kept.values.shape != weight.shape and kept.values.shape == weight.T.shape
    change = _measure(kept, weight.T if is_turned else weight)
    names = [name for name in (f"{path}.bias", f"{path}.weight_bias") if name in stored]
    if not change and names:
        return _measure(stored[names[0]], bias if bias.size else np.zeros(len(weight)))
    return change or (f"the file has no {path}.bias" if bias.any() and not names else "")


def _measure(kept: StoredWeight, values: Array) -> str:
    if kept.values.shape != values.shape:
        return ""  # nothing is known of another arrangement
    off = np.where(kept.inside, np.abs(kept.values - values), 0)
    if not (off > _HALF * kept.step + _DIGITS * np.abs(values).max(initial=0)).any():
        return ""
    if not kept.step.any():
        return f"{kept.name} is off by up to {off.max():.2g}"
    steps = (off / np.where(kept.step > 0, kept.step, np.inf)).max()
    return f"{kept.name} is off by up to {steps:.3g} steps, and rounding explains 0.5"
