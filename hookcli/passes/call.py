"""Call models; tell a model's errors from errors of hookcli; explain where a model failed.

hookcli makes the error message from the traceback, so a successful forward pass costs no extra
time. Making the message can run code of the model; hookcli ignores errors that this code raises.
"""

from __future__ import annotations

import inspect
import operator
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError
from hookcli.hooks.nested import map_tensors, named_tensors
from hookcli.networks.inputs import split_arguments
from hookcli.networks.modules import find_modules, run_eagerly, unwrap
from hookcli.outside.foreign import ENDS, Forgiveness, Surroundings, ask, foreign_line, text_of
from hookcli.passes.unchanged import memory_of, restoring, tensor_restorers, unchanged
from hookcli.records.calls import ROOT_LABEL
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType, TracebackType

    from hookcli.networks.load import LoadedModel
    from hookcli.records.calls import Call

_OURS = __name__.partition(".")[0] + "."
_NEUTRAL = sys.stdlib_module_names | {"torch", "numpy"}  # models and our hooks both call these
# In these modules, hookcli runs the operators that a model calls: an error there is the model's.
_NEUTRAL_OF_OURS = {
    f"{_OURS}comparison.rounded_layers",
    *(f"{_OURS}hooks.{module}" for module in ("channel_trails", "operations", "register")),
    *(f"{_OURS}networks.{module}" for module in ("inputs", "without_compiler")),
    *(f"{_OURS}passes.{module}" for module in ("exported", "flops")),
}
# What torch says if a tensor is used like a dictionary.
_DICTIONARY = (
    *("Tensor.__contains__ only supports", "valid indices (got str)"),
    *(f"'Tensor' object has no attribute '{name}'" for name in ("get", "items", "keys", "update")),
)
_TYPES = re.compile(r"dtype|(Input|scalar) type")
_BY_NAME = re.compile(r"\[f?[\"']")
_LAST_LAYERS = 3
_LONGEST_REASON = 120


def call_model(
    model: nn.Module,
    arguments: tuple[object, ...],
    observed: Sequence[Call] = (),
    seed: int | None = 0,
) -> object:
    # The last argument may be ``Keywords``, and the model may overwrite the tensors. Compiled parts
    # of a model run in eager mode; a model that is compiled as a whole does not. ``seed`` is for a
    # model in training mode, whose buffers are restored; with None, they are not. The hint of a
    # ForwardError names the last calls of ``observed``, to which hooks add. Errors of hookcli's own
    # hooks pass through, unless memory or stack ran out.
    with (
        _ModelCode(lambda error: describe_failure(model, error, observed)),
        run_eagerly() if unwrap(model) is model else nullcontext(),
        nullcontext() if seed is None else _repeatable(model, seed),
    ):
        positional, by_name = split_arguments(arguments)
        return model(*positional, **by_name)


def call_backward(value: Tensor) -> None:
    with _ModelCode(_describe_backward):
        torch.autograd.backward(value)


def run_model(loaded: LoadedModel, pixels: Tensor) -> object:
    """Return the model's output for ``pixels`` (N, …); the model may overwrite ``pixels``."""
    with torch.inference_mode():
        inputs = loaded.inputs
        return call_model(loaded.module, inputs.arguments_of(pixels), seed=inputs.seed)


def goes_through(loaded: LoadedModel, pixels: Tensor) -> bool:
    with suppress(ForwardError), unchanged(loaded.module):
        run_model(loaded, loaded.convert(pixels))
        return True
    return False


def takes_grey(loaded: LoadedModel) -> bool:
    """Run the model on a black picture, if its first convolution is for one channel.

    Return whether it fails there, since it got the three channels of a colour picture.
    """
    taken = (ask(each, "in_channels") for each in loaded.module.modules())
    if loaded.knows_input or next((each for each in taken if isinstance(each, int)), 0) != 1:
        return False
    try:
        with unchanged(loaded.module):
            run_model(loaded, loaded.convert(torch.zeros(loaded.prepare.nominal_shape)))
    except ForwardError as error:
        return "to have 1 channels, but got 3 channels" in error.message
    return False


def has_rows(output: object, rows: int) -> bool:
    if _is_list_of_images(output):
        return len(output) == rows
    tensors = [tensor for _, tensor in named_tensors(output)]
    return bool(tensors) and all(tensor.shape[:1] == (rows,) for tensor in tensors)


def row_of(output: object, row: int) -> object:
    if _is_list_of_images(output):
        return output[row : row + 1]
    return map_tensors(output, lambda _key, tensor: tensor[row : row + 1])


def _is_list_of_images(output: object) -> TypeGuard[list[Mapping[object, object]]]:
    return isinstance(output, list) and bool(output) and all(isinstance(e, Mapping) for e in output)


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


def is_out_of_memory(error: BaseException) -> bool:
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or "allocate memory" in text_of(error)


def describe_failure(
    model: nn.Module, error: BaseException, observed: Sequence[Call]
) -> tuple[str, str]:
    path, failed, frame = _find_failed(model, error)
    given = "" if frame is None else _shapes_given(failed, frame)
    weight = ask(failed, "weight")
    reason = foreign_line(error)
    facts = [f"it was given {given}"] if given else []
    if isinstance(weight, Tensor):
        facts.append(f"its weight is {shape_text(weight.shape)}")
    if last := list(dict.fromkeys(call.id for call in observed))[-_LAST_LAYERS:]:
        facts.append(f"the last observed layers were {', '.join(last)}")
    if is_out_of_memory(error):
        facts.append("try `batch_size=1`, or a smaller `size`")
    if ask(failed, "training") and "more than 1 value per channel" in reason:
        facts.append("training mode cannot normalize one value of one image: `model.mode='eval'`")
    if isinstance(weight, Tensor) and weight.shape[1:2] == (1,) and "but got 3 channels" in reason:
        facts.append("a model of grey pictures: `mean=M` and `std=S`, one number each")
    got = re.search(r"but got (\d+) channels", reason)
    if isinstance(weight, Tensor) and got and int(got[1]) > weight.shape[1:2].numel() > 1:
        bands = (2, 1, 0) if weight.shape[1] == 3 else tuple(range(weight.shape[1]))
        facts.append(f"choose bands of the pictures: `bands={bands}`")
    is_picture = any("Conv2d" in type(each).__name__ for each in model.modules())
    if is_picture and "mat1 and mat2 shapes" in reason:
        facts.append("was it made for pictures of another size? `size=28`, `size=32`, …")
    else:
        facts += _hint_inputs(model, failed, error, frame)
    if isinstance(error, RecursionError):
        facts.append("it calls itself without end, or its modules are nested too deep")
    return f"the model failed in {path} ({type(failed).__name__}): {reason}", "; ".join(facts)


def _hint_inputs(
    model: nn.Module, failed: nn.Module, error: BaseException, frame: FrameType | None
) -> Iterator[str]:
    reason, code = foreign_line(error), (traceback.extract_tb(error.__traceback__)[-1].line or "")
    args = () if frame is None else frame.f_locals.get("args", ())
    names: list[str] = []
    if failed is model and isinstance(error, TypeError) and " required " in reason:
        names = re.findall(r"'(\w+)'", reason.partition("argument")[2])
    elif isinstance(error, KeyError) and any(isinstance(each, dict) for each in args):
        names = [str(error.args[0])]
    elif any(text in reason for text in _DICTIONARY) or (
        isinstance(error, IndexError) and _BY_NAME.search(code)
    ):
        yield (
            "does the model take a dictionary? `inputs_as='dict'` passes one, with other entries "
            "by `inputs` NAME=FILE.npy"
        )
    elif _TYPES.search(reason) and any("int" in str(ask(each, "dtype")) for each in args):
        yield "it was given integers: in `inputs`, write 1.0 in place of 1"
    elif "mat1 and mat2 shapes" in reason or (
        type(failed).__name__.startswith("ConvTranspose") and "but got 3 channels" in reason
    ):
        name = next(iter(inspect.signature(model.forward).parameters), "NAME")
        yield (
            "does the model take a vector, and no picture? give it in place of the image: "
            f"`inputs` {name}=FILE.npy"
        )
    values = (*args, *({} if frame is None else frame.f_locals.get("kwargs", {})).values())
    is_row = any(isinstance(each, Tensor) and each.dim() == 1 for each in values)
    if is_row and (_TYPES.search(reason) or "dimension" in reason):
        yield "a row for each image is a list in a list: `inputs` NAME=[[1.0, 2.0]]"
    if names:
        given = " ".join(f"`inputs` {name}=FILE.npy" for name in names)
        yield f"give a value for all images: {given}, or as '{names[0]}=[[0.5, 2.0]]'"


def explain_refusal(model: nn.Module, error: BaseException) -> str:
    where = ""
    while True:
        path, failed, _ = _find_failed(model, error)
        where = f"{path} ({type(failed).__name__}): " if path != ROOT_LABEL else where
        if error.__cause__ is None:
            break
        error = error.__cause__
    reason = foreign_line(error)
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}..."
    return f"{where}{reason}"


def _find_failed(model: nn.Module, error: BaseException) -> tuple[str, nn.Module, FrameType | None]:
    paths: dict[int, str] = {}
    with Forgiveness():
        paths = {id(module): path for path, module in find_modules(model).items()}
    failed, called = model, None
    for frame in frames_of(error):
        module = frame.f_locals.get("self")
        if frame.f_code.co_name == "_call_impl" and is_module(module) and id(module) in paths:
            failed, called = module, frame
    return paths.get(id(failed)) or ROOT_LABEL, failed, called


def frames_of(error: BaseException) -> list[FrameType]:
    return [frame for frame, _line in traceback.walk_tb(error.__traceback__)]


def is_module(value: object) -> TypeGuard[nn.Module]:
    """Return whether ``value`` is a module; never read its ``__class__``, which may raise."""
    return issubclass(type(value), nn.Module)


def _shapes_given(module: nn.Module, frame: FrameType) -> str:
    with Forgiveness():
        names = list(inspect.signature(module.forward).parameters)
        args = frame.f_locals.get("args", ())
        names += [str(index) for index in range(len(names), len(args))]
        given = dict(zip(names, args, strict=False)) | frame.f_locals.get("kwargs", {})
        return ", ".join(
            f"{n} {shape_text(t.shape)}" for n, t in given.items() if isinstance(t, Tensor)
        )
    return ""
