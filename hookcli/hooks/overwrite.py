"""Finding the module that overwrites a tensor in place after another module returned it.

Every write to a tensor increments a counter, which hookcli reads at the start and end of every
module. It keeps only weak references, so the forward pass needs no more memory. Under
``torch.inference_mode`` tensors have no counter, so the forward pass runs under ``torch.no_grad``.
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
    """A tensor that a call returned, and the value of its write counter at that time."""

    call_id: str
    tensor: weakref.ref[Tensor]
    version: int


@dataclass(slots=True)
class WriteWatcher:
    """Follows one forward pass through the starts and ends of all modules (``hooks.watch``).

    Attributes:
        written: the module that overwrote the output of a call, by call id: ``by relu (ReLU)``, or
            ``inside layer1.0 (BasicBlock)`` when an operation between modules did it.
    """

    written: dict[str, str] = field(default_factory=dict)
    _intact: list[_Output] = field(default_factory=list)
    _running: list[Call] = field(default_factory=list)

    def started(self, call: Call, _inputs: object) -> None:
        """Attribute the writes so far, and mark a module as running."""
        self._blame()
        self._running.append(call)

    def finished(self, call: Call, output: object) -> None:
        """Attribute the writes so far, and store the write counters of a module's outputs."""
        self._blame()
        self._running.pop()
        self._intact += [
            _Output(replace(call, output_key=key).id, weakref.ref(tensor), tensor._version)
            for key, tensor in named_tensors(output)
            if not tensor.is_inference()  # created in the model's own inference mode: no counter
        ]

    def _blame(self) -> None:
        """Attribute all writes since the last start or end to the running module."""
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
