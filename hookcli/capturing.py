"""Hooks for people who write Python: in a notebook, a script or a training loop, without files."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli import hooks, layers
from hookcli.config import DEFAULTS
from hookcli.layouts import resolve_layout
from hookcli.observed import Observed, read_records
from hookcli.records import Uncalled
from hookcli.stats import reduce_rows, to_dense

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from hookcli.records import Call, LayerInfo, LayerRecord


@dataclass(slots=True)
class Captured:
    """What the layers of a model returned while the block lasted.

    Attributes:
        tensors: copies by call id, detached, where they were made; only with ``keep=True``.
        layers: the layers that were chosen.
    """

    layers: tuple[LayerInfo, ...]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    _model: nn.Module | None = None
    _called: set[str] = field(default_factory=set)
    _seen: list[Observed] = field(default_factory=list)

    @property
    def records(self) -> tuple[LayerRecord, ...]:
        """One an observed tensor, in the order in which they came; figures over the whole tensor."""
        return read_records(self._seen, [""])

    @property
    def uncalled(self) -> tuple[Uncalled, ...]:
        """The chosen layers that have not run, and why as far as that is known."""
        model = self._model
        return tuple(
            Uncalled(layer, layers.explain_uncalled(model, layer))
            for layer in self.layers
            if model is not None and layer.module_path not in self._called
        )


@contextmanager
def capture(
    model: nn.Module,
    layers: str | Sequence[str] = DEFAULTS.layers,
    *,
    exclude: str | Sequence[str] = (),
    at: str = DEFAULTS.at,
    keep: bool = False,
) -> Iterator[Captured]:
    """Observe chosen layers of any ``nn.Module`` while the block lasts.

    Example:
        >>> with hookcli.capture(model, layers="conv") as captured:
        ...     model(x)
        >>> captured.records[0].stats.mean

    Calls are counted from the beginning of the block: the second forward inside one block gives
    ``conv1#1``. In a training loop put the block inside the loop. The figures of a record are over
    the whole tensor, batch included. What activation checkpointing computes again counts as a further
    call. The model is not changed: mode, gradients and parameters stay
    as they are, and the hooks go when the block ends, however it ends.

    Args:
        model: not compiled, not scripted.
        layers: one or more forms of the filter language.
        exclude: forms that take away from what ``layers`` chose.
        at: ``output``, ``input`` or ``both``.
        keep: also copy every tensor, as it was at that moment.

    Raises:
        RequestError: the model is compiled or scripted, ``at`` is none of the three, or no layer
            matched.
    """
    hooks.refuse_unhookable(model)
    chosen = _select(model, layers, exclude)
    captured = Captured(chosen, _model=model)

    def observer(call: Call, tensor: Tensor) -> None:
        dense = to_dense(tensor)
        layout = resolve_layout(tuple(dense.shape), call.layer.channels)
        axis = None if layout.channel_axis is None else layout.channel_axis + 1
        reduced = reduce_rows(dense.unsqueeze(0), axis)
        captured._seen.append(Observed(call, layout, tuple(tensor.shape), tensor.dtype, reduced))
        if keep:
            captured.tensors[call.id] = tensor.detach().clone()

    with hooks.observe(model, chosen, observer, at, captured._called):
        yield captured


def _select(
    model: nn.Module, forms: str | Sequence[str], exclude: str | Sequence[str]
) -> tuple[LayerInfo, ...]:
    wanted = (forms,) if isinstance(forms, str) else tuple(forms)
    unwanted = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    return layers.select_layers(model, wanted, unwanted)
