"""What is known of a model and its images before a run begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hookcli.outside.foreign import ask
from hookcli.records.pictures import MOST_SIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.images.read import ImageSource
    from hookcli.models.load import LoadedModel
    from hookcli.passes.attention import AttentionSettings
    from hookcli.records.calls import LayerInfo

_WIDTHS = ("out_channels", "num_features", "out_features", "embed_dim")  # names in module classes


@dataclass(frozen=True)
class Outlook:
    """What a run will be given, by which its products estimate what they will cost."""

    loaded: LoadedModel
    layers: Sequence[LayerInfo]
    sources: Sequence[ImageSource]
    attention: AttentionSettings | None  # with the calls that a forward has found

    @cached_property
    def channels(self) -> list[int]:
        """About how many channels each layer returns, guessed from its module.

        A module without weights is taken to return as many as the module before it, and a block as
        many as its last submodule.
        """
        last, known = 3, {}
        modules = dict(self.loaded.module.named_modules())
        for path, module in modules.items():
            widths = (ask(module, name) for name in _WIDTHS)
            width = next((width for width in widths if width is not None), None)
            shape = ask(module, "normalized_shape")
            width = shape[-1] if isinstance(shape, tuple) and shape else width
            if isinstance(width, int) or not any(module.children()):
                last = known[path] = width if isinstance(width, int) else last
        for path in reversed(modules):
            if path not in known:
                inside = [
                    f"{path}.{name}".lstrip(".") for name, _ in modules[path].named_children()
                ]
                known[path] = next(
                    (known[each] for each in reversed(inside) if each in known), last
                )
        return [known.get(layer.module_path, last) for layer in self.layers]

    @cached_property
    def areas(self) -> list[float]:
        """About how many values a channel of each layer has, guessed from strides.

        A stride holds from its module on, in the order of registration; those of kernels of one
        value are left out, as in shortcuts beside a block. A block returns what its last submodule
        does.
        """
        area, known = float(math.prod(self.loaded.prepare.nominal_shape[-2:])), {}
        modules = dict(self.loaded.module.named_modules())
        for path, module in modules.items():
            stride, kernel = (_multiply(ask(module, name)) for name in ("stride", "kernel_size"))
            if kernel > 1:
                area *= stride if ask(module, "transposed") else 1 / stride
            known[path] = min(max(area, 1.0), MOST_SIDE**2)
        for path in reversed(modules):
            for name, _ in modules[path].named_children():
                known[path] = known.get(f"{path}.{name}".lstrip("."), known[path])
        return [known.get(layer.module_path, area) for layer in self.layers]


def _multiply(lengths: object) -> int:
    """Return the product of two lengths, or of one with itself; 1 if that is not what they are."""
    both = lengths if isinstance(lengths, tuple) else (lengths, lengths)
    known = [length for length in both if isinstance(length, int) and length > 0]
    return math.prod(known) if len(known) == len(both) else 1
