"""How far off a quantized model may be in each call, given the right inputs.

The model runs once more, and every tensor that B would quantize moves by the error of 8 bits. Where
B computes several calls together, the error passes on from one to the next.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hookcli.comparison.arrays import to_array
from hookcli.passes.eager import EagerRunner

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.comparison.seen_calls import SeenCalls
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import Call

    Values = NDArray[Any]


class QuantizingNoise:
    """Observes the run of A whose calls pass on the moved outputs that ``feed`` returns."""

    def __init__(self, runner: Runner, seen: SeenCalls, common: Collection[str]) -> None:
        self._seen = seen
        self._common = {*common}  # the calls of A that B has, too
        modules = runner.module.named_modules() if isinstance(runner, EagerRunner) else ()
        self._modules = dict(modules)
        self._errors: dict[str, float] = {}  # of inputs and weights, by call id
        self._random = np.random.default_rng(0)

    def move_pixels(self, pixels: Tensor) -> Tensor:
        """Return the input with the error of 8 bits."""
        values = to_array(pixels)
        return torch.from_numpy(self._move(values, quantizing_error(values)))

    def __call__(self, call: Call, tensor: Tensor) -> None:
        """Measure how far an output is off because of inputs and weights."""
        values = self._seen.values.get(call.id)
        if values is None or values.dtype.kind != "f" or values.shape != tensor.shape:
            return
        weight = self._find_weight(call.id)
        own = 0.0 if weight is None else quantizing_error(to_array(weight.detach()))
        size, off = np.linalg.norm(values), np.linalg.norm(np.subtract(to_array(tensor), values))
        self._errors[call.id] = math.hypot(off / size if size and off < math.inf else 0.0, own)

    def feed(self, call_id: str) -> Values | None:
        """Return the moved output of a call of A."""
        values = self._seen.values.get(call_id)
        if values is None or values.dtype.kind != "f":
            return values
        is_common = call_id in self._common
        error = quantizing_error(values) if is_common else self._errors.get(call_id, 0.0)
        return self._move(values, error)

    def find(self, call_id: str, *, has_output: bool) -> float:
        """Return the error of a call, with that of its output if B quantizes that, too."""
        output = quantizing_error(self._seen.values[call_id]) if has_output else 0.0
        return math.hypot(self._errors.get(call_id, 0.0), output)

    def _find_weight(self, call_id: str) -> Tensor | None:
        """Return the matrix or the filters of a layer."""
        module = self._modules.get(self._seen.a[call_id].call.layer.module_path)
        weight = getattr(module, "weight", None)
        return weight if torch.is_tensor(weight) and weight.dim() > 1 else None

    def _move(self, values: Values, share: float) -> Values:
        noise = self._random.standard_normal(values.shape, dtype=np.float32)
        moved = values + noise * (share * _size_of(values))
        return np.where(values == 0, values, moved).astype(values.dtype)


def quantizing_error(values: Values) -> float:
    """Return the error of rounding a tensor to 8 bits, relative to its root mean square.

    An error that is uniform over a step has the size ``step / sqrt(12)``.
    """
    size = _size_of(values)
    largest = np.max(np.abs(values), where=np.isfinite(values), initial=0)
    return float(largest) / 127 / math.sqrt(12) / size if size else 0.0


def _size_of(values: Values) -> float:
    finite = values[np.isfinite(values)].astype(np.float64)
    return math.sqrt(np.mean(finite**2)) if finite.size else 0.0
