"""What is known of a model and its images before a run begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.images.read import ImageSource
    from hookcli.models.description import ModelDescription
    from hookcli.passes.attention import AttentionSettings
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import LayerInfo


@dataclass(frozen=True)
class Outlook:
    """What a run will be given, by which its products estimate what they will cost."""

    loaded: ModelDescription
    runner: Runner
    sources: Sequence[ImageSource]
    attention: AttentionSettings | None  # with the calls that a forward has found

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """The layers that are observed."""
        return self.runner.layers

    @property
    def channels(self) -> list[int]:
        """About how many channels each layer returns."""
        return [channels for channels, _ in self._sizes]

    @property
    def areas(self) -> list[float]:
        """About how many values a channel of each layer has."""
        return [area for _, area in self._sizes]

    @cached_property
    def _sizes(self) -> list[tuple[int, float]]:
        return self.runner.guess_sizes(float(math.prod(self.loaded.prepare.nominal_shape[-2:])))
