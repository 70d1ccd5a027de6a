"""Where the channels of every output of a model are, found without hookcli.

A bias, or another parameter with one number for each channel, is moved at two indices, and the
model runs again. If an output then differs at two indices of one axis, that is the channel axis.
Two channels that changed stay the only ones until a layer mixes the channels; behind that layer,
its own parameters tell. Outputs that no such change reaches remain undecided.

    python -m tests.extras.channel_oracle convnext_tiny timm:davit_tiny

prints the outputs for which hookcli states another axis.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor, nn

from hookcli.config import (
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
)
from hookcli.networks.load import load_model
from hookcli.run.pipeline import inspect_images
from tests.conftest import PHOTOS

if TYPE_CHECKING:
    from collections.abc import Iterator


def find_axis(before: Tensor, after: Tensor) -> int | None:
    """The only axis along which a change shows at two indices and no others."""
    if before.shape != after.shape:
        return None
    changed = (after != before) & ~(after.isnan() & before.isnan())
    if changed.all():
        return None
    found = []
    for axis, length in enumerate(changed.shape):
        others = [other for other in range(changed.dim()) if other != axis]
        along = changed.any(others) if others else changed
        if int(along.sum()) == 2 < length:
            found.append(axis)
    return found[0] if len(found) == 1 else None


def walk(value: Any, key: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of an output with its key, as hookcli names them."""
    if isinstance(value, Tensor):
        yield key, value
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from walk(dict(zip(value._fields, value, strict=True)), key)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from walk(part, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, (list, tuple)):
        yield from walk(dict(enumerate(value)), key)
    elif isinstance(inner := getattr(value, "tensors", None), Tensor):
        yield from walk({"tensors": inner}, key)


def copy(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(copy, value))
    return value.clone() if isinstance(value, Tensor) else value


def run(model: nn.Module, arguments: tuple[Any, ...]) -> dict[str, Tensor]:
    """The outputs of all modules, by call id."""
    calls: Counter[str] = Counter()
    waiting: list[str] = []
    seen: dict[str, Tensor] = {}

    def before(path: str, *_call: object) -> None:
        index, name = calls[path], path or "(model)"
        calls[path] += 1
        waiting.append(f"{name}#{index}" if index else name)

    def after(_module: nn.Module, _inputs: object, output: object) -> None:
        name = waiting.pop()
        for key, tensor in walk(output):
            seen[f"{name}[{key}]" if key else name] = tensor.clone()

    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(partial(before, path)))
        handles.append(module.register_forward_hook(after))
    try:
        with torch.inference_mode():
            model(*copy(arguments))
    finally:
        for handle in handles:
            handle.remove()
    return seen


def list_lines(model: nn.Module) -> Iterator[Tensor]:
    """For each module, its first parameter with a number a channel, or else its weights."""
    for module in model.modules():
        own = [p.data for p in module.parameters(recurse=False) if p.is_floating_point()]
        lines = [each for each in own if each.dim() == 1 and len(each) > 1]
        if lines:
            yield lines[-1]
        elif own and isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
            yield own[0].transpose(0, 1) if getattr(module, "transposed", False) else own[0]


def follow(model: nn.Module, *arguments: Any) -> dict[str, tuple[tuple[int, ...], set[int]]]:
    """The shape of every output, and the axes that changes of single channels show."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    plain = run(model, arguments)
    found: dict[str, set[int]] = {call: set() for call in plain}
    for line in list_lines(model):
        old = line.clone()
        line[[0, -1]] += torch.rand_like(line[[0, -1]]) + 3
        after = run(model, arguments)
        line.copy_(old)
        for call, tensor in plain.items():
            axis = find_axis(tensor, after[call]) if call in after else None
            if axis is not None and tensor.shape[axis] >= len(line):
                found[call].add(axis)
    torch.backends.mha.set_fastpath_enabled(fast)
    return {call: (tuple(tensor.shape), found[call]) for call, tensor in plain.items()}


@dataclass
class Verdict:
    """How hookcli's layouts of one model compare with the oracle's axes."""

    wrong: list[str] = field(default_factory=list)
    right: int = 0
    unstated: int = 0  # outputs that have channels, of which hookcli states no axis
    undecided: int = 0  # outputs of which hookcli states an axis, and the oracle cannot tell
    unseen: int = 0


def compare(request: ModelRequest) -> Verdict:
    """Compare the layouts that ``inspect --layers all`` states with the oracle's axes."""
    photo = PHOTOS / "cat.png"
    loaded = load_model(request)
    with Image.open(photo) as image:
        pixels = loaded.convert(loaded.prepare.to_pixels([image.convert("RGB")])[None])
    truths = follow(loaded.module, *loaded.inputs.arguments_of(pixels))
    command = RunRequest(request, ImageRequest((str(photo),)), layers=("all",))
    verdict = Verdict()
    for row in inspect_images(InspectConfig(command, FolderRequest(None), GridStyle("none"))).rows:
        shape, axes = truths.get(row.call_id, (None, set()))
        layout = row.layout.removesuffix(" (inferred)")
        if shape != tuple(row.shape or ()):
            verdict.unseen += 1
        elif "C" not in layout:
            verdict.unstated += bool(axes)
        elif not axes:
            verdict.undecided += 1
        elif layout.index("C") in axes:
            verdict.right += 1
        else:
            verdict.wrong.append(f"{row.call_id} {shape}: {row.layout}, and not axis {axes}")
    return verdict


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for model in sys.argv[1:]:
        print(model, compare(ModelRequest(model, weights="random", device="cpu")))
