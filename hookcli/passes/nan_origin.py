"""Find the module that made a NaN or Inf: run the model again, and watch every module."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli.errors import ForwardError
from hookcli.hooks.change import Change, change, change_input_gradients
from hookcli.hooks.gradients import need_gradients, observe_gradients
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import list_not_finite
from hookcli.hooks.observe import reading
from hookcli.hooks.operations import split_path
from hookcli.hooks.watch import watch
from hookcli.networks.modules import find_modules
from hookcli.passes.call import call_backward, call_model
from hookcli.passes.find_operations import find_operations
from hookcli.records.edit_effects import EditEffects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.networks.inputs import ModelInputs
    from hookcli.networks.scores import Scorer
    from hookcli.passes.eager import EagerRunner
    from hookcli.records.calls import Call


def find_nan_origin(
    runner: EagerRunner, pixels: Tensor, made_by: Mapping[str, str], scorers: Mapping[str, Scorer]
) -> dict[str, str]:
    # hookcli searches the forward pass without edits, then the forward pass with edits, then the
    # backward pass. Only the first takes precedence over ``made_by``: edits that made such values.
    model, inputs = runner.module, runner.inputs
    made = {kind: f"{kind} is made by the edit {text!r}" for kind, text in made_by.items()}
    made |= find_forward_origin(model, inputs, pixels)
    changes = runner.edits.changes(EditEffects(), inputs.size_of(pixels), 1)
    forwards = tuple(each for each in changes if each.side in ("input", "output"))
    if forwards:
        with change(model, forwards):
            made = find_forward_origin(model, inputs, pixels) | made
    for scorer in scorers.values():
        made = _find_backward_origin(model, inputs, pixels, scorer, changes) | made
    return made


def find_forward_origin(model: nn.Module, inputs: ModelInputs, pixels: Tensor) -> dict[str, str]:
    # Values that modules take but never return, such as a mask of minus infinity, are not reported,
    # unless a module makes ``NaN`` of them.
    watcher = _Watcher(model, {kind: f"the input holds {kind}" for kind in list_not_finite(pixels)})
    with (
        contextlib.suppress(ForwardError),  # report what was observed before the model failed
        torch.inference_mode(),
        watch(model, list_watchable(model), watcher.started, watcher.finished),
    ):
        call_model(model, inputs.arguments_of(pixels.clone()), seed=inputs.seed)
    operations = _find_operations(model, inputs, pixels, watcher.between)
    made = {
        kind: f"{sentence}, by {operations[kind]}" if kind in operations else sentence
        for kind, sentence in watcher.made.items()
    }
    sentences = {kind: sentence for kind, sentence in made.items() if kind in watcher.came_out}
    for kind, causes in watcher.causes.items():
        others = [made[each] for each in causes - sentences.keys()]
        sentences[kind] = "; ".join([sentences[kind], *others])
    return sentences


def _find_operations(
    model: nn.Module, inputs: ModelInputs, pixels: Tensor, between: Mapping[str, str]
) -> dict[str, str]:
    # ``between`` has the module in which each kind appeared between the calls of submodules.
    made: dict[str, str] = {}
    given: list[frozenset[str]] = []

    def started(_call: Call, inputs: object) -> None:
        given.append(list_not_finite(inputs))

    def finished(call: Call, output: object) -> None:
        module_path, _ = split_path(call.layer.module_path)
        for kind in sorted(list_not_finite(output) - given.pop() - made.keys()):
            if between.get(kind) == module_path:
                made[kind] = call.id

    if between:
        with contextlib.suppress(ForwardError):
            found = find_operations(model, inputs.arguments_of(pixels.clone()))
            layers = [each.layer for each in found if each.computes]
            with torch.inference_mode(), watch(model, layers, started, finished):
                call_model(model, inputs.arguments_of(pixels), seed=inputs.seed)
    return made


def _find_backward_origin(
    model: nn.Module, inputs: ModelInputs, pixels: Tensor, scorer: Scorer, changes: Sequence[Change]
) -> dict[str, str]:
    made: dict[str, str] = {}

    def look(call: Call, gradient: Tensor) -> None:
        name = f"{replace(call, side='output', output_key='').id} ({call.layer.module_type})"
        for kind in sorted(list_not_finite(gradient) - made.keys()):
            where = f"by the backward of {name}: its inputs were finite"
            if call.side == "grad_output":
                where = f"in the backward of the operations that use the output of {name}"
            elif call.side == "param":
                where = f"in the gradient of {call.id.removeprefix('param:')}"
            made[kind] = f"{kind} is made {where}"

    with (
        contextlib.suppress(ForwardError),
        need_gradients(model),
        torch.enable_grad(),
        change(model, changes),
        observe_gradients(model, list_watchable(model), look),
        change_input_gradients(model, changes),
        reading(model, scorer.call) as read,
    ):
        output = call_model(model, inputs.arguments_of(pixels.clone()), seed=inputs.seed)
        call_backward(scorer.score(read(output)).value)
    return made


_FACTORS = ("weight", "bias", "running_mean", "running_var")


@dataclass(slots=True)
class _OpenCall:
    call: Call
    kinds: frozenset[str]  # which of ``NaN`` and ``Inf`` the inputs hold
    last_child: str = ""  # the call that last returned directly inside this call

    @property
    def name(self) -> str:
        return f"{self.call.id} ({self.call.layer.module_type})"


@dataclass(slots=True)
class _Watcher:
    model: nn.Module
    made: dict[str, str]  # a sentence that names the origin
    running: list[_OpenCall] = field(default_factory=list)  # outermost first
    came_out: set[str] = field(default_factory=set)  # which kinds any module returned
    # the path of the module between whose submodules the value appeared
    between: dict[str, str] = field(default_factory=dict)
    # which kinds went into the module that first returned the value
    causes: dict[str, frozenset[str]] = field(default_factory=dict)

    def started(self, call: Call, inputs: object) -> None:
        kinds = list_not_finite(inputs)
        for kind in sorted(kinds - self.made.keys()):
            if self.running:
                self.made[kind] = self._between(self.running[-1], kind, f"before {call.id}")
            else:
                self.made[kind] = (
                    f"{kind} is made from the pixels before the model's forward begins"
                )
        self.running.append(_OpenCall(call, kinds))

    def finished(self, call: Call, output: object) -> None:
        ended = self.running.pop()
        if self.running:
            self.running[-1].last_child = call.id
        kinds = list_not_finite(output)
        self.came_out |= kinds
        for kind in sorted(kinds - self.made.keys()):
            self.made[kind] = self._blame(ended, kind)
            self.causes[kind] = ended.kinds

    def _blame(self, ended: _OpenCall, kind: str) -> str:
        module = find_modules(self.model)[ended.call.layer.module_path]
        # attention uses the weights of a submodule that it never calls
        recurse = isinstance(module, nn.MultiheadAttention)
        own = [*module.named_parameters(recurse=recurse), *module.named_buffers(recurse=False)]
        held = {each: name for name, values in reversed(own) for each in list_not_finite(values)}
        if kind in held:
            return f"{ended.name} has {kind} in its own {held[kind]}"
        factor = held.get("Inf", "").rpartition(".")[2]  # a mask of infinities makes no NaN
        too = f"{ended.name} has Inf in its own {held['Inf']}; " if factor in _FACTORS else ""
        if module._modules and ended.last_child:
            return too + self._between(ended, kind, "before its end")
        kinds = " and ".join(sorted(ended.kinds))
        given = f"{kinds} went in" if kinds else "its inputs were finite"
        return f"{too}{kind} is made by {ended.name}: {given}"

    def _between(self, parent: _OpenCall, kind: str, end: str) -> str:
        self.between[kind] = parent.call.layer.module_path
        where = f"after {parent.last_child}" if parent.last_child else "at its start"
        return f"{kind} is made inside {parent.name}, {where} and {end}, between modules"
