"""What is said when a model raises: the module, what it was given, what had run before.

Read off the traceback, so that it costs nothing until then.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli.errors import first_line
from hookcli.records import shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType

_LAST_LAYERS = 3
_DOORS = ("_forward", "_watch_forward", "_backward_from")  # where we call what is the model's


class ModelFailure:
    """A ``with`` block around a model's forward: whatever the model raises is kept in ``error``.

    A model is code of others and may raise anything. What hookcli's own code raises goes on its way.
    """

    error: Exception | SystemExit | None = None

    def __enter__(self) -> ModelFailure:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, (Exception, SystemExit)):
            return False
        if _is_ours(trace) and not is_out_of_memory(error):
            return False
        self.error = error
        return True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out, on the host or on a device."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or "allocate memory" in str(error)


def _is_ours(trace: TracebackType | None) -> bool:
    """Whether an error was raised by hookcli's own code (or by torch on its behalf), not by the model."""
    ours = Path(__file__).parent
    inside = False
    for frame in _frames(trace):
        module = frame.f_locals.get("self")
        if Path(frame.f_code.co_filename).is_relative_to(ours):
            inside = frame.f_code.co_name not in _DOORS
        elif isinstance(module, nn.Module) and frame.f_code.co_name == "forward":
            inside = False
    return inside


def describe_failure(
    model: nn.Module, error: BaseException, observed: Sequence[str]
) -> tuple[str, str]:
    """Which module raised, and as a hint what it was given and the last of the ``observed`` call ids."""
    paths = {module: path for path, module in model.named_modules()}
    failed, given = model, ""
    for frame in _frames(error.__traceback__):
        module = frame.f_locals.get("self")
        name = frame.f_code.co_name
        if isinstance(module, nn.Module) and module in paths and name == "_call_impl":
            failed, given = module, _shapes_given(module, frame)
    weight = getattr(failed, "weight", None)
    reason = first_line(error)
    message = (
        f"the model failed in {paths[failed] or '(model)'} ({type(failed).__name__}): {reason}"
    )
    facts = [f"it was given {given}" if given else ""]
    facts.append(f"its weight is {shape_text(weight.shape)}" if isinstance(weight, Tensor) else "")
    last = list(dict.fromkeys(observed))[-_LAST_LAYERS:]
    facts.append(f"the last observed layers were {', '.join(last)}" if last else "")
    if is_out_of_memory(error):
        facts.append("try --batch-size 1, or a smaller --size")
    return message, "; ".join(fact for fact in facts if fact)


def _frames(trace: TracebackType | None) -> list[FrameType]:
    frames = []
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def _shapes_given(module: nn.Module, frame: FrameType) -> str:
    """The tensors in the arguments of ``Module._call_impl``, by the names that ``forward`` gives them."""
    names = list(inspect.signature(module.forward).parameters)
    args = frame.f_locals.get("args", ())
    names += [str(index) for index in range(len(names), len(args))]
    given = dict(zip(names, args, strict=False)) | frame.f_locals.get("kwargs", {})
    return ", ".join(
        f"{n} {shape_text(t.shape)}" for n, t in given.items() if isinstance(t, Tensor)
    )
