"""Apply the edits of ``--edit``: find their layers and channels, and compute the changed values.

An edit never overwrites the tensor that it gets, since autograd may need the tensor.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.linalg import vector_norm

from hookcli.edits.grammar import read_edit
from hookcli.errors import NoLayerMatchedError, RequestError
from hookcli.hooks.change import Change
from hookcli.hooks.filter import select_layers
from hookcli.hooks.gradients import PRUNED
from hookcli.hooks.nested import list_not_finite
from hookcli.networks.modules import find_modules
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor, nn

    from hookcli.edits.grammar import Edit, Side
    from hookcli.hooks.operations import FoundOperation
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.edit_effects import EditEffects


@dataclass(frozen=True, slots=True)
class ResolvedEdit:
    edit: Edit
    layers: tuple[LayerInfo, ...] = ()
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edits:
    resolved: tuple[ResolvedEdit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.resolved)

    @property
    def has_operations(self) -> bool:
        return any(layer.is_operation for each in self.resolved for layer in each.layers)

    def changes(
        self, effects: EditEffects, size: tuple[int, int] | None = None, images: int | None = None
    ) -> tuple[Change, ...]:
        # ``size`` is that of the layers' input, which helps to find the channel axis. A leading
        # axis counts images if it has the length ``images``; with None, every one does.
        return tuple(
            Change(
                resolved.edit.side,
                resolved.layers,
                resolved.parameters,
                partial(_apply, resolved.edit, effects, size=size, images=images),
            )
            for resolved in self.resolved
        )

    def check_used(self, used: Collection[str]) -> None:
        for text in sorted({each.edit.text for each in self.resolved}.difference(used)):
            raise RequestError(
                f"`edits` {text!r} changed nothing: none of its layers ran or got a gradient",
                "`hookcli.layers(MODEL)` shows what runs; only floating-point numbers are changed",
            )


def list_edited_forms(texts: Sequence[str]) -> list[str]:
    edits = (read_edit(text, "output") for text in texts)
    return [edit.layers for edit in edits if edit.side != "param"]


def resolve_edits(
    model: nn.Module,
    texts: Sequence[str],
    default_side: Side,
    operations: Sequence[FoundOperation] = (),
) -> Edits:
    edits = [read_edit(text, default_side) for text in texts]
    return Edits(tuple(_resolve(model, edit, operations) for edit in edits))


def _resolve(model: nn.Module, edit: Edit, operations: Sequence[FoundOperation]) -> ResolvedEdit:
    if edit.side == "param":
        names = {name.removesuffix(PRUNED): name for name, _ in model.named_parameters()}
        matched = tuple(names[name] for name in fnmatch.filter(names, edit.layers))
        if not matched:
            raise NoLayerMatchedError(edit.layers, names, "parameter")
        return ResolvedEdit(edit, parameters=matched)
    chosen = select_layers(model, [edit.layers], operations=operations)
    modules = [layer for layer in chosen if not layer.is_operation]
    paths = {layer.module_path for layer in chosen}
    if views := [each.layer.label for each in operations if each.is_view_of(paths)]:
        raise RequestError(
            f"`edits` {edit.text!r}: {views[0]} returns a view or a copy of values with other uses",
            "edit what computes the values",
        )
    if len(modules) < len(chosen) and not edit.side.endswith("output"):
        what = f"`edits` {edit.text!r}: only the outputs of an operation can be changed"
        raise RequestError(what, "edit the output of the layer that the value comes from")
    for layer in modules if edit.side.endswith("output") else ():
        module = find_modules(model)[layer.module_path]
        count = ask(module, "out_channels", ask(module, "num_features"))
        if isinstance(count, int):
            check_channels(edit, count, layer.label)
    return ResolvedEdit(edit, chosen)


def _apply(
    edit: Edit,
    effects: EditEffects,
    call: Call | None,
    values: Tensor,
    *,
    size: tuple[int, int] | None,
    images: int | None,
) -> Tensor:
    effects.used.add(edit.text)
    if call is None:
        changed = apply_edit(edit, values, None, per_image=False)
    else:
        axis = call.layout_of(tuple(values.shape), size).channel_axis
        per_image = images is None or values.shape[:1] == (images,)
        changed = apply_edit(edit, values, axis, per_image=per_image, where=call.id)
    if edit.verb in ("set", "scale") and not list_not_finite(values):
        for kind in sorted(list_not_finite(changed), reverse=True):  # NaN first
            effects.made.setdefault(kind, edit.text)
    return changed


def apply_edit(
    edit: Edit,
    values: Tensor,
    channel_axis: int | None,
    *,
    per_image: bool = True,
    where: str = "the tensor",
) -> Tensor:
    # An edit that names channels reads and changes only these; ``clip-norm`` then limits their
    # joint norm. With ``per_image``, the leading axis counts the images, and each image has its own
    # mean and norm. ``where`` is what error messages call ``values``. NaN and infinite values act
    # as in ``torch.nn.utils.clip_grad_norm_``. A result beyond the dtype's range becomes infinite.
    if not values.is_floating_point():
        dtype = str(values.dtype).removeprefix("torch.")
        raise RequestError(f"`edits` {edit.text!r}: the values are {dtype}, not floating numbers")
    together = list(range(1 if per_image else 0, values.dim()))
    if edit.channels is None:
        return _change(edit, values, together, channel_axis)
    if channel_axis is None:
        fault = f"`edits` {edit.text!r}: the channel axis is unknown"
        raise RequestError(fault, "edit all channels")
    check_channels(edit, values.shape[channel_axis], where)
    chosen = torch.tensor(edit.channels, device=values.device)
    changed = _change(edit, values.index_select(channel_axis, chosen), together, channel_axis)
    return values.clone().index_copy_(channel_axis, chosen, changed)


def check_channels(edit: Edit, count: int, where: str) -> None:
    for channel in edit.channels or ():
        if channel >= count:
            hint = f"it has {count}, counted from 0"
            raise RequestError(f"`edits` {edit.text!r}: {where} has no channel {channel}", hint)


def _change(edit: Edit, values: Tensor, together: list[int], channel_axis: int | None) -> Tensor:
    # Norms are taken over the axes ``together``, and means over these axes except ``channel_axis``.
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
            wide = _widen(values)
            norms = vector_norm(wide, dim=together, keepdim=True) if together else wide.abs()
            return (wide * (edit.value / norms.clamp(min=edit.value))).to(values.dtype)
        case "mean":
            axes = [axis for axis in together if axis != channel_axis]
            means = _widen(values).mean(axes, keepdim=True) if axes else values
            return values.clone().copy_(means)


def _round(number: float, values: Tensor) -> float:
    """Round ``number`` to the dtype of ``values``; return Inf if it is too large for the dtype."""
    return values.new_tensor(number, device="cpu").item()  # torch refuses numbers beyond the range


def _widen(values: Tensor) -> Tensor:
    # Squares of float32 could vanish or overflow, but MPS has no float64.
    return values.float() if values.device.type == "mps" else values.double()
