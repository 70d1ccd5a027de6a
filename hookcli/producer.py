"""Who made a NaN or Inf: the model run once more with every module watched, whatever layers were selected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hookcli import hooks
from hookcli.failures import ModelFailure
from hookcli.layers import list_layers
from hookcli.stats import name_not_finite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from hookcli.feed import Feed
    from hookcli.records import Call


def find_producer(model: nn.Module, feed: Feed, pixels: Tensor) -> str:
    """Who made the first value that is not finite, as a sentence; empty when there is none.

    The producer is the innermost call whose inputs and parameters are finite and whose output is not.
    When that module has parts, and none of them is it, an operation between them did it.

    Args:
        model: in evaluation mode.
        feed: how it is called.
        pixels: of one image, (1, …).
    """
    if kind := _not_finite([pixels]):
        return f"the input holds {kind}"
    watcher = _Watcher(model)
    with (
        ModelFailure(),
        torch.inference_mode(),
        hooks.watch(model, list_layers(model), watcher.started, watcher.finished),
    ):
        model(*feed.arguments_of(pixels))
    return watcher.sentence


@dataclass(slots=True)
class _Running:
    """A call that has started: were its inputs finite, and which part of it ended last."""

    call: Call
    inputs_finite: bool
    last_part: str = ""


@dataclass(slots=True)
class _Watcher:
    """Follows one forward until something that is not finite comes out of something that was."""

    model: nn.Module
    sentence: str = ""
    running: list[_Running] = field(default_factory=list)
    # a call that was given what is not finite, though all before it was: where it started
    tainted: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def started(self, call: Call, inputs: object) -> None:
        kind = "" if self.sentence else _not_finite(t for _, t in hooks.named_tensors(inputs))
        if kind and self.running and self.running[-1].inputs_finite:
            parent = self.running[-1]
            self.tainted.setdefault(parent.call.id, (parent.last_part, call.id, kind))
        self.running.append(_Running(call, not kind))

    def finished(self, call: Call, output: object) -> None:
        ended = self.running.pop()
        if self.running:
            self.running[-1].last_part = call.id
        if self.sentence or not ended.inputs_finite:
            return
        if kind := _not_finite(t for _, t in hooks.named_tensors(output)):
            self.sentence = self._blame(ended, kind)

    def _blame(self, ended: _Running, kind: str) -> str:
        layer = ended.call.layer
        name = f"{ended.call.id} ({layer.module_type})"
        module = self.model.get_submodule(layer.module_path)
        for parameter, values in [*module.named_parameters(), *module.named_buffers()]:
            if held := _not_finite([values]):
                return f"{name} has {held} in its own {parameter}"
        if not module._modules or not ended.last_part:
            return f"{kind} is made by {name}: what went in was finite"
        after, before, made = self.tainted.get(ended.call.id, (ended.last_part, "", kind))
        place = f"after {after}" if after else "at its start"
        end = f" and before {before}" if before else " and before its end"
        return f"{made} is made inside {name}, {place}{end}, between modules"


def _not_finite(tensors: Iterable[Tensor]) -> str:
    """``NaN``, ``Inf``, ``NaN and Inf``, or nothing."""
    found = " ".join(name_not_finite(tensor) for tensor in tensors)
    return " and ".join(name for name in ("NaN", "Inf") if name in found)
