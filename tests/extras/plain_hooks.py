"""What the plainest hooks see, to compare with what hookcli sees."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from PIL import Image

import hookcli
from hookcli.config import (
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
    SaveStyle,
    TensorRequest,
)
from hookcli.run.pipeline import inspect_images

if TYPE_CHECKING:
    from pathlib import Path


def opaque(file) -> Image.Image:
    """The picture as hookcli documents it: on white, in RGB."""
    with Image.open(file) as image:
        if image.mode != "RGBA":
            return image.convert("RGB")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")


def forward(loaded, picture):
    """The output of a model, outside inference mode: some classes cache tensors for all models."""
    with torch.no_grad():
        return loaded.module(loaded.prepare.to_pixels([picture])[None])


def clone_leaves(model, pixels):
    seen: dict[str, torch.Tensor] = {}
    calls: dict[str, int] = {}

    def hook(path, _module, _inputs, output):
        index = calls[path] = calls.get(path, -1) + 1
        if isinstance(output, torch.Tensor):
            seen[f"{path}#{index}" if index else path] = output.clone()

    for path, module in model.named_modules():
        if not list(module.children()) and path:
            module.register_forward_hook(partial(hook, path))
    with torch.no_grad():
        output = model(pixels)
    return seen, output


def observe_leaves(name: str, photo: Path, out: Path) -> hookcli.Run:
    request = RunRequest(ModelRequest(name), ImageRequest((str(photo),)), layers=("leaf",))
    tensors = TensorRequest(SaveStyle())
    inspect_images(InspectConfig(request, FolderRequest(out), GridStyle("none"), tensors))
    return hookcli.load_run(out)


def count_equal(run: hookcli.Run, expected: dict[str, torch.Tensor]) -> int:
    """Require that the run saved exactly these outputs of one image, and return how many."""
    compared = 0
    for call_id, tensor in expected.items():
        if tensor.shape[:1] == (1,) and tensor.is_floating_point():
            assert torch.equal(torch.as_tensor(run[call_id]), tensor), call_id
            compared += 1
    return compared
