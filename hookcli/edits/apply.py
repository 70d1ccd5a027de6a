"""Edits applied to tensors; the given tensor is never overwritten, since autograd may need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.linalg import vector_norm

from hookcli.errors import RequestError

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.edits.grammar import Edit


def apply_edit(
    edit: Edit,
    values: Tensor,
    channel_axis: int | None,
    *,
    per_image: bool = True,
    where: str = "the tensor",
) -> Tensor:
    """Return a new tensor: ``values`` changed by ``edit``.

    An edit that names channels reads and changes only these; ``clip-norm`` then limits their joint
    norm. ``mean`` replaces each value by the mean of its channel; if ``channel_axis`` is None, by
    the mean of all values. With ``per_image``, the leading axis counts the images, and each image
    has its own mean and norm. ``where`` is what error messages call ``values``.

    NaN stays NaN, except where ``zero`` and ``set`` write. With ``mean`` and ``clip-norm``, a NaN
    turns all values with the same mean or norm into NaN. With ``clip-norm``, an infinite value
    becomes NaN, and the finite values with the same norm become 0, as in
    ``torch.nn.utils.clip_grad_norm_``. A result beyond the dtype's range becomes infinite.
    """
    if not values.is_floating_point():
        dtype = str(values.dtype).removeprefix("torch.")
        raise RequestError(f"{_named(edit)}: the values are {dtype}, not floating numbers")
    together = list(range(1 if per_image else 0, values.dim()))
    if edit.channels is None:
        return _change(edit, values, together, channel_axis)
    if channel_axis is None:
        raise RequestError(f"{_named(edit)}: the channel axis is unknown", "edit all channels")
    check_channels(edit, values.shape[channel_axis], where)
    chosen = torch.tensor(edit.channels, device=values.device)
    changed = _change(edit, values.index_select(channel_axis, chosen), together, channel_axis)
    return values.clone().index_copy_(channel_axis, chosen, changed)


def check_channels(edit: Edit, count: int, where: str) -> None:
    """Check that the channels of an edit are below ``count``, the number of channels."""
    for channel in edit.channels or ():
        if channel >= count:
            raise RequestError(
                f"{_named(edit)}: {where} has no channel {channel}",
                f"it has {count}, counted from 0",
            )


def _named(edit: Edit) -> str:
    return f"`edits` {edit.text!r}"


def _change(edit: Edit, values: Tensor, together: list[int], channel_axis: int | None) -> Tensor:
    """Change all channels; norms are over the axes ``together``, means leave out the channels."""
    match edit.verb:
        case "zero" | "set":
            return values.clone().fill_(_round(edit.value, values))
        case "scale":
            return values * edit.value
        case "clamp":
            ends = (edit.low, edit.high)
            low, high = (None if end is None else _round(end, values) for end in ends)
            return values.clamp(low, high)
        case "clip-norm":
            return _clip_norm(values, edit.value, together)
        case "mean":
            return _average(values, [axis for axis in together if axis != channel_axis])


def _round(number: float, values: Tensor) -> float:
    """Round to the dtype; torch refuses numbers beyond its range, which become infinite."""
    return values.new_tensor(number, device="cpu").item()


def _average(values: Tensor, axes: list[int]) -> Tensor:
    if not axes:
        return values.clone()
    return values.clone().copy_(_widen(values).mean(axes, keepdim=True))


def _clip_norm(values: Tensor, limit: float, axes: list[int]) -> Tensor:
    wide = _widen(values)
    norms = vector_norm(wide, dim=axes, keepdim=True) if axes else wide.abs()
    return (wide * (limit / norms.clamp(min=limit))).to(values.dtype)


def _widen(values: Tensor) -> Tensor:
    """Convert to float64, in which squares of float32 values neither vanish nor overflow."""
    # MPS has no float64: tensors on MPS become float32.
    return values.float() if values.device.type == "mps" else values.double()
