"""Finding the module that overwrites, in place, a tensor that another module returned.

Every write to a tensor increments a counter, which hookcli reads at the start and end of every
call. hookcli keeps only weak references to tensors, so the forward pass needs no additional memory.
Tensors have no counter under ``torch.inference_mode``, so the forward pass must run under
``torch.no_grad``.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hookcli.hooks.nested import named_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.records.calls import Call


@dataclass(frozen=True, slots=True)
class _Output:
    call_id: str
    tensor: weakref.ref[Tensor]
    version: int


@dataclass(slots=True)
class WriteWatcher:
    """Finds overwritten outputs; ``started`` and ``finished`` are listeners of ``hooks.watch``."""

    # by id of the call: ``by relu (ReLU)``, or ``inside layer1.0 (BasicBlock)``
    written: dict[str, str] = field(default_factory=dict)
    _intact: list[_Output] = field(default_factory=list)
    _running: list[Call] = field(default_factory=list)

    def started(self, call: Call, _inputs: object) -> None:
        """Attribute in-place writes since the last event to their module; add a running call."""
        self._blame()
        self._running.append(call)

    def finished(self, call: Call, output: object) -> None:
        """Attribute in-place writes since the last event to this call, and watch its outputs."""
        self._blame()
        self._running.pop()
        self._intact += [
            _Output(replace(call, output_key=key).id, weakref.ref(tensor), tensor._version)
            for key, tensor in named_tensors(output)
            if not tensor.is_inference()  # created in the model's own inference mode: no counter
        ]

    def _blame(self) -> None:
        """Attribute in-place writes since a call last started or ended to the innermost call."""
        intact = []
        for returned in self._intact:
            tensor = returned.tensor()
            if tensor is None:
                continue
            if tensor._version == returned.version:
                intact.append(returned)
                continue
            layer = self._running[-1].layer
            how = "by" if layer.is_leaf else "inside"
            self.written[returned.call_id] = f"{how} {layer.label} ({layer.module_type})"
        self._intact = intact
