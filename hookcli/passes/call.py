"""The one door to a model: whoever runs one calls it here, and here alone it is told whose an error is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from hookcli.errors import ForwardError
from hookcli.hooks.nested import map_tensors, named_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from hookcli.models.load import LoadedModel

import sys
from typing import TYPE_CHECKING

from hookcli.errors import first_line
from hookcli.foreign import Surroundings
from hookcli.passes.failure import describe_failure, frames_of, is_module, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType

    from torch import Tensor, nn


def to_batch(loaded: LoadedModel, pixels: Tensor) -> Tensor:
    """The pixels of one image as the model takes them, (1, …)."""
    device = next((p.device for p in loaded.module.parameters()), loaded.info.device)
    return pixels.unsqueeze(0).to(device=device, dtype=getattr(torch, loaded.info.dtype))


def run_model(loaded: LoadedModel, pixels: Tensor) -> object:
    """What the model returns for pixels (N, …), which it may write over.

    Raises:
        ForwardError: the model raised.
    """
    with torch.inference_mode():
        return call_model(loaded.module, loaded.feed.arguments_of(pixels))


def has_rows(output: Any, rows: int) -> bool:
    """Whether an output can be taken apart into those of ``rows`` images."""
    if _is_list_of_images(output):
        return len(output) == rows
    tensors = [tensor for _, tensor in named_tensors(output)]
    return bool(tensors) and all(tensor.shape[:1] == (rows,) for tensor in tensors)


def row_of(output: Any, row: int) -> Any:
    """One image's part of an output of several, as if it had been alone."""
    if _is_list_of_images(output):
        return output[row : row + 1]
    return map_tensors(output, lambda _key, tensor: tensor[row : row + 1])


def _is_list_of_images(output: Any) -> bool:
    """Whether an output is a list of mappings, one an image, as of a detection model."""
    is_list = isinstance(output, list) and bool(output)
    return is_list and all(isinstance(part, Mapping) for part in output)


_OURS = __name__.partition(".")[0] + "."
_NEUTRAL = sys.stdlib_module_names | {"torch", "numpy"}  # what models and our hooks both call
# Of our own modules those that run the operators that a model calls: what an operator raises is the model's.
_NEUTRAL_OF_OURS = {f"{_OURS}passes.flops", f"{_OURS}without_compiler"}


def call_model(
    model: nn.Module,
    arguments: tuple[Any, ...],
    observed: Callable[[], Sequence[str]] = tuple,
) -> Any:
    """Return what ``model`` returns for ``arguments``; the process stays where it was.

    Args:
        model: its hooks are part of the call.
        arguments: positional ones; the model may write over them.
        observed: gives the ids of the calls that had been observed when the model raised.

    Raises:
        ForwardError: the model raised, whatever it was, or memory or the depth of calls ran out.
            Any other error that is raised in our own hooks passes through unchanged.
    """
    with _Door(lambda error: describe_failure(model, error, observed())):
        return model(*arguments)


def call_backward(value: Tensor) -> None:
    """Run the backward that starts at ``value``, through what a model computed.

    Raises:
        ForwardError: as ``call_model``.
    """
    with _Door(_describe_backward):
        value.backward()  # type: ignore[no-untyped-call]


class _Door:
    """A ``with`` block in which a model runs: what it raises becomes a ForwardError."""

    def __init__(self, describe: Callable[[BaseException], tuple[str, str]]) -> None:
        """``describe`` gives the message and the hint."""
        self._describe = describe
        self._surroundings = Surroundings()

    def __enter__(self) -> None:
        self._surroundings.__enter__()

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise what is the model's as ours.

        Raises:
            ForwardError: the model raised.
        """
        self._surroundings.__exit__(kind, error, trace)
        if error is not None and _is_the_models(error):
            raise ForwardError(*self._describe(error)) from error


def _is_the_models(error: BaseException) -> bool:
    """Whether an error that came through the door is the model's own, and not that of one of our hooks.

    Memory and the depth of calls are used up by the model, wherever that is noticed. Else it is told from
    the innermost frame that is known to be of somebody: a hook of ours may call code of the model's
    again, as when it asks for an attribute of what the model returned.
    """
    if isinstance(error, KeyboardInterrupt):
        return False
    if isinstance(error, RecursionError) or is_out_of_memory(error):
        return True
    owners = [owner for frame in frames_of(error) if (owner := _owner_of(frame))]
    return owners[-1] == "model" if len(owners) > 1 else True  # the first is the door itself


def _owner_of(frame: FrameType) -> str:
    """``model`` or ``hookcli``; empty for frames of Python and torch, which do as they are told."""
    name = str(frame.f_globals.get("__name__", ""))
    if name in _NEUTRAL_OF_OURS:
        return ""
    if name.startswith(_OURS):
        return "hookcli"
    is_forward = frame.f_code.co_name == "forward" and is_module(frame.f_locals.get("self"))
    return "" if name.partition(".")[0] in _NEUTRAL and not is_forward else "model"


def _describe_backward(error: BaseException) -> tuple[str, str]:
    hint = "fewer layers or a smaller --size" * is_out_of_memory(error)
    return f"the backward failed: {first_line(error)}", hint
