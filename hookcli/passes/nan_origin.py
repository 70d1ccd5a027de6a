"""Who made a NaN or Inf: the model run once more with every module watched, whatever layers were selected."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli.activations.stats import name_not_finite
from hookcli.errors import ForwardError
from hookcli.hooks.change import Change, change, change_input_gradients
from hookcli.hooks.gradients import need_gradients, observe_gradients
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.watch import watch
from hookcli.passes.call import call_backward, call_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hookcli.edits.resolve import Edits
    from hookcli.models.inputs import ModelInputs
    from hookcli.models.scores import ScoreTensor
    from hookcli.records.calls import Call


def find_nan_origin(
    model: nn.Module,
    feed: ModelInputs,
    pixels: Tensor,
    edits: Edits,
    score: Callable[[object], ScoreTensor] | None,
) -> dict[str, str]:
    """Say who made ``NaN`` and ``Inf``: the forward, an edit, the forward with edits, or the backward.

    Args:
        model: the model, in evaluation mode.
        feed: how it is called.
        pixels: the pixels of one image, (1, …).
        edits: the edits of the run, which know which of them made one.
        score: computes what a backward starts at; None without a backward.
    """
    made = {kind: f"{kind} is made by --edit {text!r}" for kind, text in edits.made.items()}
    made |= find_producers(model, feed, pixels)
    changes = edits.changes(feed.size_of(pixels), 1)
    forwards = tuple(each for each in changes if each.side in ("input", "output"))
    if forwards:
        with change(model, forwards):
            made = find_producers(model, feed, pixels) | made
    if score is not None:
        made = find_gradient_producers(model, feed, pixels, score, changes) | made
    return made


def find_producers(model: nn.Module, feed: ModelInputs, pixels: Tensor) -> dict[str, str]:
    """Who made the first ``NaN`` and the first ``Inf``, as sentences; nothing for what was not made.

    What only goes into modules, as a mask of minus infinity does, and comes out of none is not told.
    The producer is the innermost call whose inputs and parameters hold none and whose output does.
    When that module has parts, and none of them is it, an operation between them did it.

    Args:
        model: in evaluation mode.
        feed: how it is called.
        pixels: of one image, (1, …).
    """
    held = _kinds([pixels])
    watcher = _Watcher(model, {kind: f"the input holds {kind}" for kind in held})
    with (
        contextlib.suppress(ForwardError),  # it can be told as far as the model came
        torch.inference_mode(),
        watch(model, list_watchable(model), watcher.started, watcher.finished),
    ):
        call_model(model, feed.arguments_of(pixels))
    return {kind: made for kind, made in watcher.made.items() if kind in watcher.came_out}


def find_gradient_producers(
    model: nn.Module,
    feed: ModelInputs,
    pixels: Tensor,
    score: Callable[[object], ScoreTensor],
    changes: Sequence[Change] = (),
) -> dict[str, str]:
    """Who made the first ``NaN`` and the first ``Inf`` of the backward, as sentences.

    The first gradient that holds one tells: one that goes into a module's backward was made between
    modules, one that comes out of it by the module.

    Args:
        model: in evaluation mode.
        feed: how it is called.
        pixels: of one image, (1, …).
        score: what the backward starts at.
        changes: what is edited.
    """
    made: dict[str, str] = {}

    def look(call: Call, gradient: Tensor) -> None:
        name = f"{replace(call, side='output', output_key='').id} ({call.layer.module_type})"
        for kind in sorted(_kinds([gradient]) - made.keys()):
            if call.side == "grad_output":
                made[kind] = f"{kind} is made in the backward of what uses the output of {name}"
            elif call.side == "param":
                made[kind] = f"{kind} is made in the gradient of {call.id.removeprefix('param:')}"
            else:
                made[kind] = f"{kind} is made by the backward of {name}: what went in was finite"

    with (
        contextlib.suppress(ForwardError),
        need_gradients(model),
        torch.enable_grad(),
        change(model, changes),
        observe_gradients(model, list_watchable(model), look),
        change_input_gradients(model, changes),
    ):
        call_backward(score(call_model(model, feed.arguments_of(pixels.clone()))).value)
    return made


@dataclass(slots=True)
class _Running:
    """A call that has started: what its inputs held, and which part of it ended last."""

    call: Call
    kinds: frozenset[str]
    last_part: str = ""

    @property
    def name(self) -> str:
        return f"{self.call.id} ({self.call.layer.module_type})"

    @property
    def given(self) -> str:
        held = " and ".join(sorted(self.kinds))
        return f"{held} went in" if held else "what went in was finite"


@dataclass(slots=True)
class _Watcher:
    """Follows one forward and notes where each kind came out of what held none."""

    model: nn.Module
    made: dict[str, str]
    running: list[_Running] = field(default_factory=list)
    came_out: set[str] = field(default_factory=set)

    def started(self, call: Call, inputs: object) -> None:
        kinds = _kinds(tensor for _, tensor in named_tensors(inputs))
        for kind in sorted(kinds - self.made.keys()):
            if self.running:
                self.made[kind] = _between(self.running[-1], kind, f"before {call.id}")
            else:
                self.made[kind] = f"{kind} is made of the pixels before the model's forward begins"
        self.running.append(_Running(call, kinds))

    def finished(self, call: Call, output: object) -> None:
        ended = self.running.pop()
        if self.running:
            self.running[-1].last_part = call.id
        kinds = _kinds(tensor for _, tensor in named_tensors(output))
        self.came_out |= kinds
        for kind in sorted(kinds - self.made.keys()):
            self.made[kind] = self._blame(ended, kind)

    def _blame(self, ended: _Running, kind: str) -> str:
        module = self.model.get_submodule(ended.call.layer.module_path)
        inside = isinstance(
            module, nn.MultiheadAttention
        )  # uses the weights of a part it never calls
        own = [*module.named_parameters(recurse=inside), *module.named_buffers(recurse=False)]
        for name, values in own:
            if kind in _kinds([values]):
                return f"{ended.name} has {kind} in its own {name}"
        if module._modules and ended.last_part:
            return _between(ended, kind, "before its end")
        return f"{kind} is made by {ended.name}: {ended.given}"


def _between(parent: _Running, kind: str, end: str) -> str:
    place = f"after {parent.last_part}" if parent.last_part else "at its start"
    return f"{kind} is made inside {parent.name}, {place} and {end}, between modules"


def _kinds(tensors: Iterable[Tensor]) -> frozenset[str]:
    """Which of ``NaN`` and ``Inf`` the tensors hold."""
    found = " ".join(name_not_finite(tensor) for tensor in tensors)
    return frozenset(name for name in ("NaN", "Inf") if name in found)
