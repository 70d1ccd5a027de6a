"""Round the weights and outputs of layers to a smaller number format, as quantizers do.

``int8`` and ``float8_e4m3`` divide by a scale first, so that the largest magnitude becomes 127 or
448, and clip what is beyond: symmetric, without a zero point (Wu et al. 2020,
https://arxiv.org/abs/2004.09602; Micikevicius et al. 2022, https://arxiv.org/abs/2209.05433). The
arithmetic of ``int8`` is that of ``torch.fake_quantize_per_channel_affine``. ``float16`` and
``bfloat16`` have no scale; a value that is too large for ``float16`` becomes infinite.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from hookcli.config import LARGEST_ROUNDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.config import RoundedTo

Weights: TypeAlias = "Mapping[int, tuple[int, ...]]"  # axes of output channels, by ``id``
_BINS = 4096
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_PARTS = ("_orig", "_g", "_v")  # what pruning and weight_norm compute a weight from
COMPUTED = "its weights are computed from others in each pass, as by weight_norm or pruning"


@dataclass(frozen=True, slots=True)
class Rounding:
    to: RoundedTo
    per_tensor: bool = False  # one scale for a whole weight, instead of one for each channel

    def round_weight(self, weight: Tensor, channels: tuple[int, ...]) -> Tensor:
        """Round a weight with a scale for each index of the axes ``channels``."""
        kept = () if self.per_tensor else channels
        axes = [each for each in range(weight.dim()) if each not in kept]
        return self.round(weight, weight.abs().amax(axes, keepdim=True))

    def round(self, values: Tensor, largest: Tensor) -> Tensor:
        """Round values; ``largest`` is the magnitude that a format with a scale still reaches."""
        if self.to not in LARGEST_ROUNDED:
            return values.to(getattr(torch, self.to)).to(values.dtype)
        most, wide = (
            LARGEST_ROUNDED[self.to],
            values if values.dtype == torch.float64 else values.float(),
        )
        scale = (largest.to(wide) / most).clamp(min=torch.finfo(wide.dtype).tiny)
        scaled = wide * (1 / scale)
        if self.to == "int8":
            rounded = scaled.round().clamp(-most, most)
        else:
            rounded = scaled.clamp(-most, most).to(torch.float8_e4m3fn).to(wide.dtype)
        return (rounded * scale).to(values.dtype)


@dataclass(slots=True)
class Range:
    """The largest magnitude of a layer's outputs over images, or a percentile of magnitudes.

    For a percentile, a histogram counts magnitudes; its bins double in width when a larger value
    comes, as in the calibrators of NVIDIA's pytorch-quantization.
    """

    percentile: float | None = None
    largest: float = 0.0
    _width: float = 0.0  # of a bin
    _counts: Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))

    def add(self, values: Tensor) -> None:
        sizes = values.detach().abs().flatten()
        sizes = sizes[sizes.isfinite()].float()
        if not sizes.numel():
            return
        self.largest = max(self.largest, float(sizes.max()))
        if self.percentile is None:
            return
        self._width = self._width or self.largest / _BINS
        while self.largest > self._width * _BINS * (1 + 1e-6):
            merged = self._counts.view(-1, 2).sum(1)
            self._counts, self._width = (
                torch.cat([merged, torch.zeros_like(merged)]),
                self._width * 2,
            )
        index = (sizes / (self._width or 1.0)).long().clamp(max=_BINS - 1)
        self._counts += index.bincount(minlength=_BINS).double().cpu()

    @property
    def limit(self) -> float:
        if self.percentile is None or not self._width:
            return self.largest
        within = self._counts.cumsum(0) >= self._counts.sum() * self.percentile / 100 - 1e-9
        return min(self.largest, (int(within.double().argmax()) + 1) * self._width)


def list_weights(module: nn.Module, known: Weights) -> list[tuple[nn.Module, str, Tensor]]:
    """Return the known weights of two or more axes in a module, each with its owner and name."""
    own = [(owner, n, p) for owner in module.modules() for n, p in owner._parameters.items()]
    named = [(owner, n, p) for owner, n, p in own if p is not None and id(p) in known]
    return [each for each in named if each[2].dim() > 1 and each[2].is_floating_point()]


def explain_computed(module: nn.Module) -> str:
    """Return why a module's weights cannot be rounded alone; "" if they can."""
    for owner in module.modules():
        parts = [n for n in owner._parameters.keys() if n.endswith(_PARTS)]  # noqa: SIM118  of TorchScript
        if is_parametrized(owner) or any(n[: n.rindex("_")] in vars(owner) for n in parts):
            return COMPUTED
    return ""


@dataclass(frozen=True, slots=True)
class RoundedWeights:
    """The weights of a module, and how they are rounded: merged with BatchNorms that follow."""

    module: nn.Module
    weights: Weights
    rounding: Rounding
    norms: Mapping[nn.Module, nn.Module] = field(default_factory=dict)  # by the layer before

    def list_merged(self) -> Iterator[tuple[nn.Module, str, Tensor, Tensor, tuple[int, ...]]]:
        """Yield each owner, name, weight, what the norm multiplies it by, and its channel axes.

        The weight of a transposed convolution is (groups, inputs, outputs, …) of each group.
        """
        for owner, name, weight in list_weights(self.module, self.weights):
            channels, seen = self.weights[id(weight)], weight.detach()
            if isinstance(owner, _TRANSPOSED):
                channels, seen = (0, 2), seen.reshape(owner.groups, -1, *seen.shape[1:])
            factor, norm = seen.new_ones(()), cast("Any", self.norms.get(owner))
            width = 0 if norm is None else len(norm.running_var)
            if width == math.prod(seen.shape[each] for each in channels):
                gains = 1.0 if norm.weight is None else norm.weight.detach()
                factor = gains * (norm.running_var + norm.eps).rsqrt()
                factor = factor.view([n if i in channels else 1 for i, n in enumerate(seen.shape)])
            yield owner, name, seen, factor.to(weight), channels

    def error(self) -> float | None:
        """Return the relative L2 error of rounding the weights; None if there are none."""
        apart = size = 0.0
        for _, _, weight, factor, channels in self.list_merged():
            merged = weight * factor
            rounded = self.rounding.round_weight(merged, channels)
            apart += float((rounded.double() - merged.double()).square().sum())
            size += float(merged.double().square().sum())
        return math.sqrt(apart / size) if size else None

    def list_own(self) -> list[tuple[nn.Module, str, nn.Parameter]]:
        return [(o, n, getattr(o, n)) for o, n, _ in list_weights(self.module, self.weights)]

    def list_rounded(self) -> list[tuple[nn.Module, str, nn.Parameter]]:
        made = list[tuple[nn.Module, str, nn.Parameter]]()
        for owner, name, weight, factor, channels in self.list_merged():
            rounded = self.rounding.round_weight(weight * factor, channels)
            rounded = (rounded / torch.where(factor == 0, 1, factor)).view_as(getattr(owner, name))
            made.append((owner, name, nn.Parameter(rounded, requires_grad=False)))
        return made


@contextmanager
def using(parameters: Sequence[tuple[nn.Module, str, nn.Parameter]]) -> Iterator[None]:
    """Let modules use other parameters, given with the module and the name."""
    with ExitStack() as stack, torch.no_grad():
        for owner, name, parameter in parameters:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, parameter)
        yield


def run_again(module: nn.Module, given: Any) -> object:
    """Run a module's ``forward`` on the inputs of a call, as ``hooks.watch`` gives them."""
    forward = vars(module).get("forward") or _plain_forward(module)
    accepted = signature(forward)
    if type(given) is not dict:
        return forward(given)
    args = [value for name, value in given.items() if name.isdecimal()]
    kwargs = {name: value for name, value in given.items() if not name.isdecimal()}
    try:
        accepted.bind(*args, **kwargs)
    except TypeError:  # a dictionary is the only argument
        return forward(given)
    return forward(*args, **kwargs)


def _plain_forward(module: nn.Module) -> Any:
    # ``hooks.register`` has replaced the method of the class by one that also calls the hooks.
    method = type(module).forward
    return getattr(method, "__wrapped__", method).__get__(module)
