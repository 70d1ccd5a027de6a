"""The only place that calls a model, and that separates its errors from hookcli's own."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError
from hookcli.hooks.nested import map_tensors, named_tensors
from hookcli.outside.foreign import ENDS, Surroundings, foreign_line
from hookcli.passes.failure import describe_failure, frames_of, is_module, is_out_of_memory
from hookcli.passes.restorers import memory_of, restoring, tensor_restorers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType, TracebackType

    from torch import Tensor, nn

    from hookcli.models.load import LoadedModel

_OURS = __name__.partition(".")[0] + "."
_NEUTRAL = sys.stdlib_module_names | {"torch", "numpy"}  # models and our hooks both call these
# These modules of ours run the operators that a model calls, so an error there is the model's.
_NEUTRAL_OF_OURS = {
    f"{_OURS}{module}" for module in ("hooks.operations", "passes.flops", "models.without_compiler")
}


def call_model(
    model: nn.Module,
    arguments: tuple[object, ...],
    observed: Callable[[], Sequence[str]] = tuple,
    seed: int = 0,
) -> object:
    """Return what ``model`` returns for ``arguments``.

    Afterwards the process has its earlier working directory and standard streams again, and a
    model in training mode has its earlier buffers.

    Args:
        model: the model; its hooks run as part of the call.
        arguments: the positional arguments; the model may write over them.
        observed: returns the ids of the calls that had been observed when the model raised.
        seed: the seed of torch's random numbers in training mode.

    Raises:
        ForwardError: the model raised an exception of any kind, ran out of memory, or nested its
            calls too deep. Any other error that our own hooks raise passes through unchanged.
    """
    with (
        _ModelCode(lambda error: describe_failure(model, error, observed())),
        _repeatable(model, seed),
    ):
        return model(*arguments)


def call_backward(value: Tensor) -> None:
    """Run the backward pass that starts at ``value``, which the model computed.

    Raises:
        ForwardError: as ``call_model``.
    """
    with _ModelCode(_describe_backward):
        torch.autograd.backward(value)


def run_model(loaded: LoadedModel, pixels: Tensor) -> object:
    """Return what the model returns for pixels (N, …); the model may overwrite them.

    Raises:
        ForwardError: the model raised an exception.
    """
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
    """Return one image's output in a batch, in the form that it has when the image runs alone."""
    if _is_list_of_images(output):
        return output[row : row + 1]
    return map_tensors(output, lambda _key, tensor: tensor[row : row + 1])


def _is_list_of_images(output: object) -> TypeGuard[list[Mapping[object, object]]]:
    """Return whether an output is a list of one mapping per image, as detection models return."""
    if not isinstance(output, list):
        return False
    return bool(output) and all(isinstance(each, Mapping) for each in output)


class _ModelCode(Surroundings):
    """A ``with`` block for code of a model: an exception of that code becomes a ForwardError."""

    def __init__(self, describe: Callable[[BaseException], tuple[str, str]]) -> None:
        """``describe`` returns the message and the hint for an error."""
        super().__init__()
        self._describe = describe

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn an error of the model into a ForwardError.

        Raises:
            ForwardError: the model raised an exception.
        """
        super().__exit__(kind, error, trace)
        if error is not None and _is_model_error(error):
            raise ForwardError(*self._describe(error)) from error


@contextmanager
def _repeatable(model: nn.Module, seed: int) -> Iterator[None]:
    """Make a model in training mode return the same for an image, whatever ran before.

    Each forward pass draws the same random numbers. When the block ends, the model's buffers, such
    as BatchNorm's, have their earlier values again.
    """
    if not any(module.training for module in model.modules()):
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
    """Return whether the model raised an error, and not one of our hooks.

    Exhausted memory and a full stack are always the model's errors. For any other error, the
    innermost frame of the model or of hookcli decides: a hook of ours may call the model's code
    again, for example when it reads an attribute of the model's output.
    """
    if isinstance(error, ENDS):
        return False
    if isinstance(error, RecursionError) or is_out_of_memory(error):
        return True
    owners = [owner for frame in frames_of(error) if (owner := _owner_of(frame))]
    # the first frame is that of the function above that calls the model
    return owners[-1] == "model" if len(owners) > 1 else True


def _owner_of(frame: FrameType) -> str:
    """Return ``model`` or ``hookcli``; empty for frames of Python and torch, which both use."""
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
