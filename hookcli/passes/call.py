"""The only place that calls a model, and that tells the model's errors from hookcli's own."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError
from hookcli.hooks.nested import map_tensors, named_tensors
from hookcli.networks.inputs import split_arguments
from hookcli.networks.modules import run_eagerly, unwrap
from hookcli.outside.foreign import ENDS, Surroundings, ask, foreign_line
from hookcli.passes.failure import describe_failure, frames_of, is_module, is_out_of_memory
from hookcli.passes.restorers import memory_of, restoring, tensor_restorers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType, TracebackType

    from torch import Tensor, nn

    from hookcli.networks.load import LoadedModel
    from hookcli.records.calls import Call

_OURS = __name__.partition(".")[0] + "."
_NEUTRAL = sys.stdlib_module_names | {"torch", "numpy"}  # models and our hooks both call these
# In these modules, hookcli runs the operators that a model calls: an error there is the model's.
_NEUTRAL_OF_OURS = {
    *(f"{_OURS}hooks.{module}" for module in ("channel_trails", "operations", "placed")),
    *(f"{_OURS}networks.{module}" for module in ("inputs", "without_compiler")),
    *(f"{_OURS}passes.{module}" for module in ("exported", "flops")),
}


def call_model(
    model: nn.Module,
    arguments: tuple[object, ...],
    observed: Sequence[Call] = (),
    seed: int = 0,
) -> object:
    """Return what ``model`` returns for ``arguments``, under hooks that the caller placed.

    The arguments are positional ones, and ``Keywords`` at the end, if any; the model may overwrite
    tensors among them. Parts of the model that are compiled run in eager mode; a model that is
    compiled as a whole does not. ``seed`` is for a model in training mode, whose buffers hookcli
    restores afterwards, with the working directory and the standard streams of the process. If the
    model raises, the hint of the ForwardError names the last calls of ``observed``, which hooks
    add to. Errors of hookcli's own hooks pass through, unless memory or stack ran out.
    """
    with (
        _ModelCode(lambda error: describe_failure(model, error, observed)),
        run_eagerly() if unwrap(model) is model else nullcontext(),
        _repeatable(model, seed),
    ):
        positional, by_name = split_arguments(arguments)
        return model(*positional, **by_name)


def call_backward(value: Tensor) -> None:
    """Run the backward pass from a score; errors are as in ``call_model``."""
    with _ModelCode(_describe_backward):
        torch.autograd.backward(value)


def run_model(loaded: LoadedModel, pixels: Tensor) -> object:
    """Return the model's output for ``pixels`` (N, …), which the model may overwrite."""
    with torch.inference_mode():
        inputs = loaded.inputs
        return call_model(loaded.module, inputs.arguments_of(pixels), seed=inputs.seed)


def has_rows(output: object, rows: int) -> bool:
    """Return whether an output can be split into the outputs of ``rows`` images."""
    if _is_list_of_images(output):
        return len(output) == rows
    tensors = [tensor for _, tensor in named_tensors(output)]
    return bool(tensors) and all(tensor.shape[:1] == (rows,) for tensor in tensors)


def row_of(output: object, row: int) -> object:
    """Return the part of a batch's output for image ``row``, as if the image had run alone."""
    if _is_list_of_images(output):
        return output[row : row + 1]
    return map_tensors(output, lambda _key, tensor: tensor[row : row + 1])


def _is_list_of_images(output: object) -> TypeGuard[list[Mapping[object, object]]]:
    if not isinstance(output, list):
        return False
    return bool(output) and all(isinstance(each, Mapping) for each in output)


class _ModelCode(Surroundings):
    def __init__(self, describe: Callable[[BaseException], tuple[str, str]]) -> None:
        super().__init__()
        self._describe = describe

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None and _is_model_error(error):
            raise ForwardError(*self._describe(error)) from error


@contextmanager
def _repeatable(model: nn.Module, seed: int) -> Iterator[None]:
    """Make a model in training mode independent of earlier forward passes."""
    # hookcli seeds torch, and restores torch's generators and the model's buffers afterwards, such
    # as BatchNorm's running means.
    if not any(ask(module, "training") for module in model.modules()):
        yield
        return
    undo: list[Callable[[], object]] = []
    memories = {memory_of(parameter) for parameter in model.parameters()}
    for module in model.modules():
        for name, buffer in module._buffers.items():
            undo.append(partial(operator.setitem, module._buffers, name, buffer))
            if buffer is not None and not is_lazy(buffer):
                undo += tensor_restorers(buffer, memories)
    with restoring(model, undo):
        torch.manual_seed(seed)
        yield


def _is_model_error(error: BaseException) -> bool:
    # Running out of memory or stack is always the model's error; Ctrl-C never is. Otherwise, the
    # innermost frame of the model or of hookcli decides, since a hook may run code of the model.
    if isinstance(error, ENDS):
        return False
    if isinstance(error, RecursionError) or is_out_of_memory(error):
        return True
    owners = [owner for frame in frames_of(error) if (owner := _owner_of(frame))]
    # the first frame belongs to a function of this module, which called the model
    return owners[-1] == "model" if len(owners) > 1 else True


def _owner_of(frame: FrameType) -> str:
    """Return whose code a frame runs: ``model``, ``hookcli``, or empty for shared code."""
    # Python, torch, numpy and ``_NEUTRAL_OF_OURS`` share code, but a ``forward`` is the model's.
    name = str(frame.f_globals.get("__name__", ""))
    if name in _NEUTRAL_OF_OURS:
        return ""
    if name.startswith(_OURS):
        return "hookcli"
    is_forward = frame.f_code.co_name == "forward" and is_module(frame.f_locals.get("self"))
    return "" if name.partition(".")[0] in _NEUTRAL and not is_forward else "model"


def _describe_backward(error: BaseException) -> tuple[str, str]:
    hint = "fewer layers or a smaller `size`" if is_out_of_memory(error) else ""
    return f"the backward pass failed: {foreign_line(error)}", hint
