"""Find the call that computes a model's features: the embedding of the image before the head."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch

from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import named_tensors, to_dense
from hookcli.networks.load import LoadedModel
from hookcli.networks.modules import find_modules
from hookcli.outside.foreign import ForeignCode, ask
from hookcli.passes.eager import EagerRunner
from hookcli.passes.runner import Batch

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor, nn

    from hookcli.networks.description import ModelDescription
    from hookcli.passes.graph_runner import GraphRunner
    from hookcli.passes.runner import Runner
    from hookcli.records.calls import Call

_NO_HEAD = re.compile(r"^(\S+\.)?aux|norm\w*$", re.IGNORECASE)  # auxiliary heads for training


@dataclass(frozen=True, slots=True)
class _Seen:
    call: Call
    mark: object  # equal for equal values, apart from axes of length 1; None if not of one image
    shape: torch.Size

    @property
    def name(self) -> tuple[str, int]:
        return self.call.layer.module_path, self.call.call_index


def find_feature_call(
    loaded: ModelDescription, runner: Runner, sides: Sequence[str]
) -> tuple[Call, str] | None:
    # The features are an embedding that the model returns, the coarsest map of a detector's
    # backbone, or what the head takes; otherwise, the call that ended last before the head.
    runner = runner.plain or runner
    seen, end, mark, reason = _watch(loaded, runner)
    paths = {layer.module_path for layer in runner.layers}
    own = [at for at, each in enumerate(seen) if each.mark and each.name[0] in paths]
    outputs, inputs = (
        [at for at in own if seen[at].call.side == side and side in sides]
        for side in ("output", "input")
    )
    for at in reversed([*inputs, *outputs]):
        if seen[at].mark == mark and at <= end:
            return seen[at].call, reason
    before = [at for at in outputs if at < end]
    ended = f" that ran before {seen[end].call.layer.label}" if end < len(seen) else ""
    last = max(before, key=lambda at: (seen[at].name[0] != "", at), default=None)  # "": the model
    return None if last is None else (seen[last].call, f"the last of the layers{ended}")


def list_before_head(loaded: ModelDescription, runner: Runner) -> tuple[list[Call], str]:
    """Return the outputs before the model's head in the order in which they end, and the head."""
    seen, end, _, _ = _watch(loaded, runner)
    calls = [each.call for each in seen[:end] if each.call.side == "output"]
    return calls, seen[end].call.layer.label if end < len(seen) else ""


def _watch(loaded: ModelDescription, runner: Runner) -> tuple[Sequence[_Seen], int, object, str]:
    """Return the calls of a forward pass, where the head begins, and the features' mark and why."""
    seen: list[_Seen] = []
    module = runner.module if isinstance(runner, EagerRunner) else None
    if isinstance(runner, EagerRunner):
        watching: Runner = replace(runner, layers=list_watchable(runner.module), at="both")
    else:
        watching = replace(cast("GraphRunner", runner), layers=())  # all
    with runner.unchanged():
        batch = Batch([""], runner.to_device(loaded.pixels_to_try()))
        outcome = watching.run(
            batch, lambda call, tensor: seen.append(_Seen(call, _mark(tensor), tensor.shape))
        )
    returned = loaded.find_embedding(outcome.output) if isinstance(loaded, LoadedModel) else None
    maps = [at for at, each in enumerate(seen) if each.name[0] == "backbone"]
    if returned is not None:
        return seen, len(seen), _mark(returned), "the features that the model returns"
    if loaded.info.task == "detection" and maps:
        reason = "the coarsest map that the backbone returns"
        return seen, maps[-1] + 1, seen[maps[-1]].mark, reason
    end = _find_head(module, outcome.output, seen)
    taken = [each for each in seen[end : end + 1] if each.call.side == "input"]
    mark = taken[0].mark if taken else None
    reason = "".join(f"what the head, {each.call.layer.label}, takes" for each in taken)
    return seen, end, mark, reason


def _find_head(module: nn.Module | None, output: object, seen: Sequence[_Seen]) -> int:
    # Returns the index in ``seen`` of the head's first call, or ``len(seen)`` if there is no head.
    # The head is the part that models of timm and segmentation_models_pytorch name; else, the
    # layers with weights that make a part of the output; else, the last layer with weights, unless
    # its output or the layers after it show that it does not make the logits.
    own = [ask(module, "segmentation_head")]
    if callable(get := ask(module, "get_classifier")):
        with ForeignCode("get_classifier of the model"):
            found = get()
        own = [*found] if isinstance(found, (tuple, list)) else [found]
    modules = {} if module is None else find_modules(module)
    paths = {path for path, each in modules.items() if any(each is part for part in own)}
    named = [each for each in seen if each.name[0] in paths]
    leaves = [e for e in seen if e.call.layer.is_leaf and e.call.side == "output"]
    able = [e for e in leaves if e.call.layer.params]
    weighted = [e for e in able if not _NO_HEAD.search(f"{e.name[0]} {e.call.layer.module_type}")]
    parts = dict(named_tensors(output))
    logits = [parts["logits"]] if "logits" in parts else parts.values()
    returned = {mark: tensor.shape for tensor in logits if (mark := _mark(tensor)) is not None}
    makers = {each.mark: each for each in weighted if each.mark in returned}  # the last ones
    last = [each for each in weighted[-1:] if _may_make(each, returned.values())]
    if last and _feeds_features(modules.get(last[0].name[0]), seen[seen.index(last[0]) + 1 :]):
        last = []
    names = {each.name for each in named or [*makers.values()] or last}
    return next((at for at, each in enumerate(seen) if each.name in names), len(seen))


def _may_make(last: _Seen, returned: Collection[torch.Size]) -> bool:
    shape, sizes = last.shape, (1, *last.shape)
    channels = sizes[2 if re.search(r"Conv(?!1D)", last.call.layer.module_type) else -1]
    same = (each.numel() in (1, shape.numel()) or channels in (1, *each[1:]) for each in returned)
    return any(same) or not {len(each) for each in returned} & {2, len(shape)}


def _feeds_features(module: nn.Module | None, after: Sequence[_Seen]) -> bool:
    # No max pool follows a classifier, and no activation follows one with a wide kernel.
    kernel = ask(module, "kernel_size")
    is_wide = isinstance(kernel, tuple) and any(side != 1 for side in kernel)
    types = "MaxPool|LU6?$|Mish|[sS]wish" if is_wide else "MaxPool"
    return any(re.search(types, each.call.layer.module_type) for each in after)


def _mark(tensor: Tensor) -> object:
    if not (tensor.is_floating_point() or tensor.is_quantized) or tensor.shape[:1] != (1,):
        return None
    values = to_dense(tensor)
    values = (values.dequantize() if values.is_quantized else values).cpu().contiguous()
    shape = tuple(length for length in values.shape if length != 1)
    return shape, hash(values.flatten().view(torch.uint8).numpy().tobytes())
