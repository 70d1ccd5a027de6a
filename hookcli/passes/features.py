"""Find the call of a model that has its features: what the model makes of an image before it judges.

hookcli runs the model once, and looks for the call that returns the features' own values.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from hookcli.hooks.dense import to_dense
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import named_tensors
from hookcli.models.load import LoadedModel
from hookcli.outside.foreign import ask
from hookcli.passes.call import call_model
from hookcli.passes.eager import EagerRunner
from hookcli.passes.runner import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.models.description import ModelDescription
    from hookcli.passes.graph_runner import GraphRunner
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import Call

_NO_HEAD = re.compile(r"^(\S+\.)?aux|norm\w*$", re.IGNORECASE)  # nor is a head for training


@dataclass(frozen=True, slots=True)
class _Seen:
    call: Call
    shape: tuple[int, ...]
    mark: object  # equal for tensors with the same values, apart from axes of length 1

    @property
    def is_input(self) -> bool:
        return self.call.side == "input"

    @property
    def name(self) -> tuple[str, int]:
        return self.call.layer.module_path, self.call.call_index


class _Headless(nn.Module):
    """A model with the interface of timm, without its classifier: it pools as the model does."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *pixels: object) -> tuple[object, object]:
        features = self.model.forward_features(*pixels)
        return features, self.model.forward_head(features, pre_logits=True)


def find_feature_call(
    loaded: ModelDescription, runner: Runner, sides: Sequence[str], *, has_token: bool = False
) -> tuple[Call, str] | None:
    """Return the call among the runner's layers that has the model's features, and why.

    The features are, in this order: what timm's ``forward_head`` returns before the classifier; an
    embedding that the model returns; the coarsest map of a detector's backbone; what the layer
    takes that makes the logits. If no call has these very values, the result is the call that ended
    last before that layer. With ``has_token``, it is the last such call with a class token.

    Args:
        loaded: the model.
        runner: runs the model; its layers are those to choose from.
        sides: which tensors of the layers count: ``output``, ``input``.
        has_token: whether the call must return a class token.

    Raises:
        ForwardError: the model raised an exception.
    """
    runner = runner.plain or runner
    pixels = runner.place(loaded.pixels_to_try())
    size = runner.size_of(pixels)
    layers = {layer.module_path: layer for layer in runner.layers}
    seen: list[_Seen] = []

    def see(call: Call, tensor: Tensor) -> None:
        seen.append(_Seen(call, tuple(tensor.shape), _mark(tensor)))

    if isinstance(runner, EagerRunner):
        watching: Runner = replace(runner, layers=list_watchable(runner.module), at="both")
    else:
        watching = replace(cast("GraphRunner", runner), layers=())  # all
    with runner.unchanged():
        headless = _run_headless(runner, pixels.clone())
        output = watching.run(Batch([""], pixels), see).output
    mark, reason, end = _find_features(loaded, output, headless, seen)

    def is_choice(each: _Seen) -> bool:
        layer = layers.get(each.call.layer.module_path)
        if layer is None or each.mark is None or each.call.side not in sides:
            return False
        layout = layer.layout_of(each.shape, size, each.call.tensor)
        return not has_token or (layout.name == "NLC" and layout.prefix > 0)

    if not has_token:
        same = [each for each in seen if mark and each.mark == mark and is_choice(each)]
        if same:  # the last one, and rather an output
            return max(same, key=lambda each: (not each.is_input, seen.index(each))).call, reason
    before = [each for each in seen[:end] if is_choice(each) and not each.is_input]
    what = "the last layer with a class token" if has_token else "the last of the layers"
    ended = f" that ran before {seen[end].call.layer.label}" if end < len(seen) else ""
    return (before[-1].call, f"{what}{ended}") if before else None


def _run_headless(runner: Runner, pixels: Tensor) -> tuple[Tensor, ...]:
    """Return the features of a model with timm's interface, and the pooled ones; else nothing."""
    module = runner.module if isinstance(runner, EagerRunner) else None
    head = ask(module, "forward_head")
    if not (callable(head) and callable(ask(module, "forward_features"))):
        return ()
    if "pre_logits" not in inspect.signature(head).parameters:
        return ()
    with torch.inference_mode():
        found = cast("tuple[Tensor, ...]", call_model(_Headless(module), (pixels,)))
    return found if all(isinstance(each, Tensor) for each in found) else ()


def _find_features(
    loaded: ModelDescription, output: object, headless: Sequence[Tensor], seen: Sequence[_Seen]
) -> tuple[object, str, int]:
    """Return the mark of the features, why they are, and where the calls before the head end."""
    marks = [each.mark for each in seen]
    if headless:
        whole, pooled = map(_mark, headless)
        reason = "the pooled features, as the model's own forward_head returns them"
        return pooled, reason, marks.index(whole) + 1 if whole in marks else len(seen)
    returned = loaded.find_embedding(output) if isinstance(loaded, LoadedModel) else None
    if returned is not None:
        return _mark(returned), "the features that the model returns", len(seen)
    maps = [at for at, each in enumerate(seen) if each.call.layer.module_path == "backbone"]
    if loaded.info.task == "detection" and maps:
        return marks[maps[-1]], "the coarsest map that the backbone returns", maps[-1] + 1
    start = _find_head(output, seen)
    if start == len(seen) or not seen[start].is_input:
        return None, "", start
    label = seen[start].call.layer.label
    return marks[start], f"the features from which {label} makes the output", start


def _find_head(output: object, seen: Sequence[_Seen]) -> int:
    """Return where the first call begins that makes a part of the output, such as the logits."""
    weighted = [
        each
        for each in seen
        if each.call.layer.is_leaf and each.call.layer.params and not each.is_input
        and not _NO_HEAD.search(f"{each.call.layer.module_path} {each.call.layer.module_type}")
    ]
    returned = {_mark(tensor) for _, tensor in named_tensors(output)} - {None}
    heads = [each for each in weighted if each.mark in returned] or weighted[-1:]
    names = {each.name for each in heads}
    return next((at for at, each in enumerate(seen) if each.name in names), len(seen))


def _mark(tensor: Tensor) -> object:
    """Return None for a tensor that is not that of one image, and for whole numbers."""
    if not (tensor.is_floating_point() or tensor.is_quantized) or tensor.shape[:1] != (1,):
        return None
    values = to_dense(tensor)
    values = (values.dequantize() if values.is_quantized else values).cpu().contiguous()
    shape = tuple(length for length in values.shape if length != 1)
    return shape, hash(values.flatten().view(torch.uint8).numpy().tobytes())
