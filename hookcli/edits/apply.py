"""Edits applied to tensors.

The given tensor is never overwritten: autograd may need it, and the model may share it. The new
tensor has the same dtype and memory format. Gradients pass through it, since torch's own operations
create it.
"""

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

    An edit that names channels reads and changes only these: ``clip-norm`` limits their joint norm.
    ``mean`` replaces each channel by its mean, or all values by their mean if ``channel_axis`` is
    None. Means and norms are computed in float64 (float32 on MPS). NaN stays NaN, except where
    ``zero`` and ``set`` write; one NaN makes its mean and its clipped row NaN, and an infinity
    leaves NaN among zeros, as in ``torch.nn.utils.clip_grad_norm_``. A number beyond the dtype's
    range becomes infinite.

    Args:
        edit: the change to make; its side and layers are ignored.
        values: any tensor of floating-point numbers.
        channel_axis: the axis of the channels, from 0; None if unknown.
        per_image: the leading axis counts the images, and each image has its own mean and norm.
        where: the name of the place of the values, for errors.

    Raises:
        RequestError: the values are not floating-point numbers, or the edit names channels that do
            not exist or whose axis is unknown.
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
    """Check that the channels of an edit exist in ``where``, which has ``count`` channels.

    Raises:
        RequestError: one of the channels does not exist.
    """
    missing = [channel for channel in edit.channels or () if channel >= count]
    if missing:
        raise RequestError(
            f"{_named(edit)}: {where} has no channel {missing[0]}",
            f"it has {count}, counted from 0",
        )


def _named(edit: Edit) -> str:
    return f"`edits` {edit.text!r}"


def _change(edit: Edit, values: Tensor, together: list[int], channel_axis: int | None) -> Tensor:
    """Return all of ``values`` changed; a norm is taken over the axes ``together``."""
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
    """Return the number rounded to the dtype of ``values``; torch refuses to write larger ones."""
    return values.new_tensor(number, device="cpu").item()


def _average(values: Tensor, axes: list[int]) -> Tensor:
    """Return ``values`` replaced by their means over ``axes``; unchanged if there are no axes."""
    if not axes:
        return values.clone()
    return values.clone().copy_(_widen(values).mean(axes, keepdim=True))


def _clip_norm(values: Tensor, limit: float, axes: list[int]) -> Tensor:
    """Return ``values`` scaled down to ``limit`` where their L2 norm over ``axes`` is larger."""
    wide = _widen(values)
    norms = vector_norm(wide, dim=axes, keepdim=True) if axes else wide.abs()
    return (wide * (limit / norms.clamp(min=limit))).to(values.dtype)


def _widen(values: Tensor) -> Tensor:
    """Return float64, in which squares of float32 neither vanish nor overflow; float32 on MPS."""
    return values.float() if values.device.type == "mps" else values.double()
