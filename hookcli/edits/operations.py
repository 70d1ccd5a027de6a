"""What an edit makes of a tensor.

The given tensor is never written over: autograd may need it, and the model may share it. What comes
back keeps its dtype, its memory format and, by torch's own operations, its way back for gradients.
torch is imported when a tensor is there, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.errors import RequestError

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.edits.grammar import Edit


def apply_edit(
    edit: Edit, values: Tensor, channel_axis: int | None, *, per_image: bool = True
) -> Tensor:
    """A new tensor: ``values`` with ``edit`` done.

    With channels only those change, and only those are looked at: ``clip-norm`` limits their norm
    together. ``mean`` puts each channel's mean in its place, or without ``channel_axis`` the mean of
    all. Means and norms are computed in float64 (float32 on MPS). NaN stays NaN, except where
    ``zero`` and ``set`` write; one NaN makes its mean and its clipped row NaN, and an infinity leaves
    NaN among zeros, as in ``torch.nn.utils.clip_grad_norm_``. A number beyond the dtype's range is
    infinite.

    Args:
        edit: what to do; its side and layers are not looked at.
        values: any floating tensor.
        channel_axis: which axis holds channels, from 0; None when that is not known.
        per_image: the leading axis is the images', and each has its own mean and norm.

    Raises:
        RequestError: the values are no floating numbers, or channels are named that do not exist or
            whose axis is not known.
    """
    import torch

    if not values.is_floating_point():
        dtype = str(values.dtype).removeprefix("torch.")
        raise RequestError(f"{_named(edit)}: the values are {dtype}, not floating numbers")
    together = list(range(1 if per_image else 0, values.dim()))
    if edit.channels is None:
        return _change(edit, values, together, channel_axis)
    if channel_axis is None:
        raise RequestError(
            f"{_named(edit)}: it is not known where its channels are", "edit all of it"
        )
    check_channels(edit, values.shape[channel_axis], "the tensor")
    chosen = torch.tensor(edit.channels, device=values.device)
    changed = _change(edit, values.index_select(channel_axis, chosen), together, channel_axis)
    return values.clone().index_copy_(channel_axis, chosen, changed)


def check_channels(edit: Edit, count: int, where: str) -> None:
    """Refuse an edit of channels that ``where``, which has ``count``, does not have.

    Raises:
        RequestError: there is no such channel.
    """
    missing = [channel for channel in edit.channels or () if channel >= count]
    if missing:
        raise RequestError(
            f"{_named(edit)}: {where} has no channel {missing[0]}",
            f"it has {count}, counted from 0",
        )


def _named(edit: Edit) -> str:
    return f"--edit {edit.text!r}"


def _change(edit: Edit, values: Tensor, together: list[int], channel_axis: int | None) -> Tensor:
    """All of ``values`` changed; ``together`` are the axes that have one norm."""
    if edit.verb == "scale":
        return values * edit.value
    if edit.verb == "clamp":
        low, high = (None if end is None else _held(end, values) for end in (edit.low, edit.high))
        return values.clamp(low, high)
    if edit.verb == "clip-norm":
        return _clip_norm(values, edit.value, together)
    if edit.verb == "mean":
        return _average(values, [axis for axis in together if axis != channel_axis])
    return values.clone().fill_(_held(edit.value, values))


def _held(number: float, values: Tensor) -> float:
    """The number as the dtype of ``values`` holds it: torch refuses to write one that is too large."""
    return values.new_tensor(number, device="cpu").item()


def _average(values: Tensor, axes: list[int]) -> Tensor:
    """The mean over ``axes`` in place of what was averaged; without axes a value is its own mean."""
    if not axes:
        return values.clone()
    return values.clone().copy_(_widen(values).mean(axes, keepdim=True))


def _clip_norm(values: Tensor, limit: float, axes: list[int]) -> Tensor:
    """What has an L2 norm over ``axes`` above ``limit`` is scaled down to it."""
    from torch.linalg import vector_norm

    wide = _widen(values)
    norms = vector_norm(wide, dim=axes, keepdim=True) if axes else wide.abs()
    return (wide * (limit / norms.clamp(min=limit))).to(values.dtype)


def _widen(values: Tensor) -> Tensor:
    """In float64, where squares of float32 neither vanish nor overflow; MPS has only float32."""
    return values.float() if values.device.type == "mps" else values.double()
