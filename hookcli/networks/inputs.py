"""Make a model's arguments from pixels and ``--input``; draw normalized pixels as a picture."""

from __future__ import annotations

import hashlib
import inspect
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hookcli.errors import RequestError
from hookcli.networks.build import read_literal
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.files import open_regular
from hookcli.outside.foreign import first_line
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from torch import nn

    from hookcli.config import ModelRequest

_JPEG_QUALITY = 90


def last_two_axes(pixels: Tensor) -> tuple[int, int]:
    return int(pixels.shape[-2]), int(pixels.shape[-1])


@dataclass(frozen=True, slots=True)
class ModelInputs:
    # returns the arguments of the model's ``forward`` for given pixels
    arguments_of: Callable[[Tensor], tuple[object, ...]] = lambda pixels: (pixels,)
    # returns the height and width of the layers' input for given pixels
    size_of: Callable[[Tensor], tuple[int, int]] = last_two_axes
    # whether images run one at a time: they would affect each other in a batch, or the leading axis
    # of the layers' tensors does not count images
    alone: bool = False
    seed: int = 0  # of the random numbers that a forward pass in training mode draws


PLAIN = ModelInputs()


class Keywords(dict[str, object]):
    """Holds a call's keyword arguments; it is the last item in a tuple of the call's arguments."""


def split_arguments(arguments: tuple[object, ...]) -> tuple[tuple[object, ...], dict[str, object]]:
    last = arguments[-1] if arguments else None
    return (arguments[:-1], {**last}) if isinstance(last, Keywords) else (arguments, {})


_PIXELS = "pixels"  # the value of the input that is the image
_MISSING = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class ExtraInputs:
    values: Mapping[str, object]  # by name
    as_dict: bool  # whether the model takes one dictionary of all inputs
    # the SHA-256 of each file that a value comes from, by the name of the file
    hashes: Mapping[str, str]

    @property
    def shared(self) -> list[str]:
        """The user's tensors whose first axis is not 1, with their shapes: ``["boxes (4x2)"]``.

        If there are such tensors, hookcli runs images one at a time.
        """
        tensors = [(n, each) for n, each in self.values.items() if isinstance(each, Tensor)]
        return [f"{n} ({shape_text(t.shape)})" for n, t in tensors if t.dim() and len(t) != 1]

    @property
    def uses_pixels(self) -> bool:
        return any(value is _PIXELS for value in self.values.values())

    def check(self, who: str, known: Collection[str]) -> None:
        for name in () if self.as_dict else self.values.keys() - set(known):
            hint = f"it takes {', '.join(known)}" if known else "its inputs have no names"
            raise RequestError(f"`inputs`: {who} takes no {name!r}", hint)

    def bind(
        self,
        arguments_of: Callable[[Tensor], tuple[object, ...]],
        parameters: Mapping[str, object],
        pixels: Tensor,
    ) -> tuple[object, ...]:
        """Return the model's arguments: those that ``arguments_of`` makes, and the user's inputs.

        ``arguments_of`` makes arguments of ``pixels`` (N, …). A user's input whose first axis has
        the length 1 is repeated N times. If there are keyword arguments, the last item is a
        ``Keywords``. ``parameters`` maps the model's parameters to their defaults.
        """
        own = list(arguments_of(pixels))
        values = {name: _match_pixels(value, pixels) for name, value in self.values.items()}
        named = [name for name, value in self.values.items() if value is _PIXELS]
        values |= {name: own[min(index, len(own) - 1)] for index, name in enumerate(named)}
        if self.as_dict:
            return (values if named else _Inputs(values, own),)
        if not named:
            values |= dict(zip(self.find_pixel_names(parameters), own, strict=False))
        bound = [] if parameters or named else own  # the model takes any arguments
        for name, default in parameters.items():
            if not values or (name not in values and default is _MISSING):
                break  # the model says what is missing
            bound.append(values.pop(name, default))
        return (*bound, Keywords(values)) if values else tuple(bound)

    def as_tensors(self) -> ExtraInputs:
        made = {n: torch.tensor(v) for n, v in self.values.items() if isinstance(v, (int, float))}
        return replace(self, values={**self.values, **made})

    def find_pixel_names(self, parameters: Mapping[str, object]) -> list[str]:
        wanted = [n for n, d in parameters.items() if d is _MISSING or n == next(iter(parameters))]
        return [name for name in wanted if name not in self.values]


class _Inputs(dict[str, object]):
    """Holds a model's inputs by name, as the user gave them.

    If code looks up any other name, the first item left in ``pixels`` becomes that input.
    """

    def __init__(self, values: Mapping[str, object], pixels: list[object]) -> None:
        super().__init__(values)
        self._pixels = pixels

    def __missing__(self, key: str) -> object:
        if not self._pixels:
            raise KeyError(key)
        self[key] = self._pixels.pop(0)
        return self[key]


def read_inputs(request: ModelRequest) -> ExtraInputs | None:
    if not request.inputs and request.inputs_as == "arguments":
        return None
    if len(names := [name for name, _ in request.inputs]) > len({*names}):
        raise RequestError(f"`inputs`: a name occurs twice: {', '.join(names)}")
    hashes: dict[str, str] = {}
    values = {name: _read_value(name, text, hashes) for name, text in request.inputs}
    return ExtraInputs(values, request.inputs_as == "dict", hashes)


def list_parameters(module: nn.Module, extra: ExtraInputs) -> dict[str, object]:
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_name = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    known = {each.name: each.default for each in parameters if each.kind in kinds}
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        extra.check("the model", [*known, *by_name])
    return known


_ARRAYS = (".npz", ".csv", ".txt", ".json", ".pt", ".pth", ".safetensors", ".mat", ".h5")


def _read_value(name: str, text: str, hashes: dict[str, str]) -> object:
    try:
        if text.endswith(".npy"):
            with open_regular(text) as file:
                data = file.read()
            hashes[text] = hashlib.sha256(data).hexdigest()
            return torch.from_numpy(np.load(io.BytesIO(data), allow_pickle=False))
        value = read_literal(text)
        if isinstance(value, (list, tuple)):
            return torch.tensor(value)
        if not isinstance(value, str) or not (Path(value).is_file() or value.endswith(_ARRAYS)):
            return _PIXELS if value == _PIXELS else value
        reason = "it is no .npy file"
    except (OSError, EOFError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
    hint = "a .npy file of numbers, a number, a list of numbers ([[0.5, 1.0]]), or a word"
    raise RequestError(f"`inputs`: cannot read {name}={text!r}: {reason}", hint)


def _match_pixels(value: object, pixels: Tensor) -> object:
    if not isinstance(value, Tensor):
        return value
    moved = value.to(pixels.device, pixels.dtype if value.is_floating_point() else None)
    is_one = moved.dim() > 0 and len(moved) == 1 and len(pixels) > 1
    return moved.repeat(len(pixels), *[1] * (moved.dim() - 1)) if is_one else moved.clone()


def draw_pixels(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> bytes:
    shown = _to_unit_range(pixels[:3] if len(pixels) in (3, 4) else pixels[:1], mean, std)
    stream = io.BytesIO()
    picture = torchvision.transforms.functional.to_pil_image(shown.nan_to_num(0).clamp(0, 1))
    picture.save(stream, "JPEG", quality=_JPEG_QUALITY)
    return stream.getvalue()


def _to_unit_range(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Undo the normalization of pixels (C, H, W), or else scale the pixels to the range 0 to 1.

    hookcli scales the pixels if ``mean`` has a different number of channels, or if undoing the
    normalization gives values far outside this range.
    """
    if len(pixels) == len(mean) and pixels.numel():
        shown = pixels * _per_colour(std) + _per_colour(mean)
        darkest, brightest = shown.nan_to_num(0.5, 0.5, 0.5).aminmax()
        if darkest > -0.1 and brightest < 1.1:
            return shown
    finite = pixels[pixels.isfinite()]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    return (pixels - low) / max(float(high - low), 1e-12)


def _per_colour(values: Sequence[float]) -> Tensor:
    return torch.tensor(values).view(-1, 1, 1)
