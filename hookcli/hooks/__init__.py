"""The only place where hooks are put on a model, and always as a ``with`` block that takes them off.

A tensor is handed to the observer inside the hook and never kept here: the model may write over it
as soon as the hook returns. Nothing here reads values, resolves layouts or knows about images.
"""

from hookcli.hooks.changing import Change, change, change_input_gradients
from hookcli.hooks.gradients import (
    NOT_NEEDED,
    PRUNED,
    Absent,
    Gradients,
    need_gradients,
    observe_gradients,
)
from hookcli.hooks.observing import observe, refuse_unhookable
from hookcli.hooks.watching import map_tensors, named_tensors, watch

__all__ = [
    "NOT_NEEDED",
    "PRUNED",
    "Absent",
    "Change",
    "Gradients",
    "change",
    "change_input_gradients",
    "map_tensors",
    "named_tensors",
    "need_gradients",
    "observe",
    "observe_gradients",
    "refuse_unhookable",
    "watch",
]
