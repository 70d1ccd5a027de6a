"""The error message for a model that raises: the failed module, its inputs, and the last calls.

All facts come from the traceback, so a forward pass that succeeds pays nothing for them. While
hookcli builds the message, code of the model may raise again; hookcli ignores such exceptions.
"""

from __future__ import annotations

import inspect
import re
import traceback
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

from hookcli.networks.modules import find_modules
from hookcli.outside.foreign import Forgiveness, ask, foreign_line, text_of
from hookcli.records.calls import ROOT_LABEL
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from hookcli.records.calls import Call

# What torch says if a tensor is used like a dictionary.
_DICTIONARY = (
    *("Tensor.__contains__ only supports", "valid indices (got str)"),
    *(f"'Tensor' object has no attribute '{name}'" for name in ("get", "items", "keys", "update")),
)
_TYPES = re.compile(r"dtype|(Input|scalar) type")
_BY_NAME = re.compile(r"\[f?[\"']")
_LAST_LAYERS = 3
_LONGEST_REASON = 120


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports that memory ran out, on the host or on a device."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or "allocate memory" in text_of(error)


def describe_failure(
    model: nn.Module, error: BaseException, observed: Sequence[Call]
) -> tuple[str, str]:
    """Return the message and the hint that tell the user about an error of the model.

    They name the innermost module in which ``error`` was raised, its inputs, and the last three
    ``observed`` calls. For common errors, the hint also suggests a remedy.
    """
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
    if names:
        given = " ".join(f"`inputs` {name}=FILE.npy" for name in names)
        yield f"give a value for all images: {given}"


def explain_refusal(model: nn.Module, error: BaseException) -> str:
    """Return why an exporter refuses a model, in its own words, and the innermost module if known.

    The reason is the first line of the innermost exception, at most 120 characters of it.
    """
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
        name = frame.f_code.co_name
        if name == "_call_impl" and is_module(module) and id(module) in paths:
            failed, called = module, frame
    return paths.get(id(failed)) or ROOT_LABEL, failed, called


def frames_of(error: BaseException) -> list[FrameType]:
    """Return the frames of an error's traceback, outermost first."""
    return [frame for frame, _line in traceback.walk_tb(error.__traceback__)]


def is_module(value: object) -> TypeGuard[nn.Module]:
    """Return whether ``value`` is a module, without reading ``__class__``, which may raise."""
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
