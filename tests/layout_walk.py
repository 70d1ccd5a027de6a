"""The layout of every tensor that a model's modules return in one forward, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from hookcli.hooks.channel_trails import follow_channels
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.layouts import LayoutWatcher
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.watch import watch

if TYPE_CHECKING:
    from torch import nn

    from hookcli.records.calls import Call
    from hookcli.records.layouts import Layout


def walk_layouts(model: nn.Module, side: int) -> dict[str, tuple[tuple[int, ...], Layout]]:
    """Return the shape and the layout of every tensor, by call id, for a black square image."""
    pixels = torch.zeros(1, 3, side, side)
    watcher = LayoutWatcher((side, side), follow_channels(model, pixels))
    seen: list[tuple[Call, tuple[int, ...]]] = []

    def finished(call: Call, output: object) -> None:
        watcher.finished(call, output)
        seen.extend(
            (replace(call, output_key=key), tuple(tensor.shape))
            for key, tensor in named_tensors(output)
        )

    watching = watch(model, list_watchable(model), None, finished)
    with torch.no_grad(), watching, watcher.trails:
        model(pixels)
    return {
        call.id: (shape, watcher.infer(call.layer).layout_of(shape, (side, side)))
        for call, shape in seen
    }


def check_tokens(model: nn.Module, side: int, grid: int, before: int, after: int = 0) -> None:
    """Check that every sequence with all tokens, or with the image's alone, is laid out as such.

    Args:
        model: the model.
        side: the height and width of the image.
        grid: the height and width of the picture that the tokens of the image make.
        before: the number of tokens before them.
        after: the number of tokens after them.
    """
    full, bare = before + grid * grid + after, grid * grid
    prefixes = {bare: 0} | {full: before}
    found = 0
    for call_id, (shape, layout) in walk_layouts(model, side).items():
        is_weights = call_id.endswith(("attn_drop", ".attention[1]"))
        assert is_weights or layout.name not in ("unknown", "NCL"), (call_id, shape)
        if len(shape) == 3 and shape[1] in prefixes:
            place = (layout.name, layout.height, layout.width, layout.prefix)
            assert place == ("NLC", grid, grid, prefixes[shape[1]]), (call_id, shape)
            found += shape[1] == full
    assert found
