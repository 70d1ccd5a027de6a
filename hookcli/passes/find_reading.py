"""Find out what kind of numbers a classifier returns: logits, probabilities, or values."""

from __future__ import annotations

import re
import warnings
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError
from hookcli.hooks.nested import name_keys
from hookcli.networks.load import count_outputs
from hookcli.networks.tasks import Classification, Reading, find_form, read_problem
from hookcli.outside.foreign import ask
from hookcli.passes.call import call_model
from hookcli.passes.unchanged import unchanged

if TYPE_CHECKING:
    from hookcli.networks.load import LoadedModel
    from hookcli.networks.task import Task

# The names of autograd's nodes, by what they show about an output that they compute.
_NODE = re.compile(r"(\w+?)Backward\d*")
_MOVES = re.compile(
    r"Alias|AsStrided|Clone|Expand|Flip|Index|IndexSelect|NanToNum|Permute|\w*Reshape\w*|Roll|"
    r"Select|Slice|Squeeze|T|ToCopy|Transpose|Unsqueeze|\w*View"
)
_CHANGES = re.compile(r"Add|Cat|Div|Maximum|Mean|Minimum|Mul|Neg|Rsub|Stack|Sub|Sum|Where")
_PROBABILITIES = re.compile(r"Hardsigmoid|Sigmoid|Softmax")
_OTHERS = re.compile(
    r"Clamp\w*|\w*[Ee]lu\w*|Exp|Hardswish|Hardtanh|LogSigmoid|Mish|Silu|Softplus|Softsign|Tanh|"
    r"\w*Norm\w*|Compiled\w*"
)
_LOGIT = (
    "the model has one output, which is read as the logit of class 1: if it is another value, give "
    "it a name in `categories`"
)
_VALUE = (
    "the model has one output, and nothing shows whether it is a probability: if it is one, or a "
    "logit, name both classes in `categories`"
)
_UNREAD = "no predictions are read from such an output: choose a tensor with `output_key`: "


def settle_reading(loaded: LoadedModel) -> LoadedModel:
    # Models of libraries return logits, unless their configuration says otherwise. For the user's
    # own model, hookcli looks for the operation that computes the output. A single output is a
    # value with one category, and for the second class with two; else, a note names the guess.
    task, names, info = loaded.task, len(loaded.categories), loaded.info
    if not isinstance(task, Classification):
        if loaded.choose is not None:
            _find(loaded, task)  # refuses a wrong output key
        return loaded
    reading, width, note = task.reading, count_outputs(loaded.module), ""
    task = task.read_as(reading, is_single=width == 1 or loaded.choose is not None)
    is_told = "regress" in f"{info.name} {type(loaded.module).__name__}".lower()
    if is_told:
        reading = "values"
    elif loaded.choose is not None or not loaded.source.is_known:
        reading, width, note = _find(loaded, task) or (reading, width, note)
    if width == 1 and names == 1:
        reading = "values"
    elif width == 1 and names != 2 and not is_told and reading in ("logits", "values"):
        note = _LOGIT if reading == "logits" else _VALUE
    if note:
        info = replace(info, notes=(*info.notes, note))
    task = task.read_as(reading, is_single=task.is_single)
    return replace(loaded, info=info, prepare=replace(loaded.prepare, task=task))


def _find(loaded: LoadedModel, task: Task) -> tuple[Reading, int, str] | None:
    module, inputs = loaded.module, loaded.inputs
    if any(map(is_lazy, module.parameters())):
        return None
    pixels = loaded.pixels_to_try().detach().requires_grad_()
    # Kept tensors of a large picture take 2.3 GB instead of 0.9 GB, but a model may need them.
    empty = torch.empty(0)
    keeping_none = saved_tensors_hooks(lambda _: empty, lambda _: empty)
    for memory in (keeping_none, nullcontext()):
        with (
            suppress(ForwardError),
            warnings.catch_warnings(action="ignore"),  # some warn that a value has a gradient
            torch.enable_grad(),
            memory,
            unchanged(module),
        ):
            arguments = inputs.arguments_of(pixels * 1)  # the model may overwrite its input
            output = call_model(module, arguments, seed=inputs.seed)
            with loaded.guard():
                picked = loaded.pick(output)
                found, form, keys = task.find(picked), find_form(picked, task), name_keys(picked)
            if not isinstance(found, Tensor) or found.is_nested:
                return "logits", 0, f"{_UNREAD}{keys}" if keys and form is None else ""
            values, width = found.detach(), found.shape[1]
            told = {read_problem(owner) for owner in (module, ask(module, "config"))} - {"logits"}
            reading = told.pop() if told else _judge(found.grad_fn, values, module, pixels)
            if reading == "values" and (width, len(loaded.categories)) == (1, 2):
                reading = "probabilities" if _is_share(values) else "logits"
            return reading, width, ""
    return None


def _judge(node: Any, values: Tensor, module: nn.Module, pixels: Tensor) -> Reading:
    is_share, is_changed = _is_share(values), False
    rounding = 1e-2 if values.dtype.itemsize < 4 else 1e-4
    is_whole = is_share and bool(((values.float().sum(1) - 1).abs() < rounding).all())
    other: Reading = "probabilities" if is_whole and values.shape[1] > 1 else "values"
    while node is not None:
        match = _NODE.fullmatch(type(node).__name__)
        name = match[1] if match else ""
        if not (_MOVES.fullmatch(name) or _CHANGES.fullmatch(name)):
            if _PROBABILITIES.fullmatch(name):
                return other if is_changed else "probabilities"
            is_positive = other != "values" and bool((values > 0).all())
            return other if _OTHERS.fullmatch(name) or is_positive else "logits"
        is_changed |= _CHANGES.fullmatch(name) is not None
        nodes = [each for each, _ in node.next_functions if each is not None]
        nodes.sort(key=lambda each: (not _reads(each, pixels), hasattr(each, "variable")))
        node = next(iter(nodes), None)
    if not is_share:
        return "logits"
    return "probabilities" if isinstance(list(module.modules())[-1], nn.Sigmoid) else other


def _reads(node: Any, pixels: Tensor) -> bool:
    seen, left = {node}, [node]
    while left:
        node = left.pop()
        if getattr(node, "variable", None) is pixels:
            return True
        new = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= new
        left += new
    return False


def _is_share(values: Tensor) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())
