"""Prepare images by a recipe, which changes single steps of a model's own preprocessing.

The same weights give other answers if pictures are prepared differently, for example by another
library (https://github.com/python-pillow/Pillow/issues/2718, on Pillow and OpenCV) or without
antialiasing (https://github.com/pytorch/vision/issues/2950). The steps are:

- Resize: Pillow and torch smooth a picture that they shrink, except by ``nearest``. OpenCV smooths
  only by ``area``. torchvision computes the sides: ``int(size * long / short)``.
- Fit: ``crop`` resizes the short side and cuts out the middle, with torchvision's rounding;
  ``stretch`` resizes both sides; ``letterbox`` resizes the long side and adds a grey border, as
  YOLO's ``LetterBox`` does (ultralytics/data/augment.py). Models of segmentation do not crop.
- Scale: the pixels are divided by 255, or stay from 0 to 255 (``scale=1``).
- Normalize: by torchvision, with the mean and standard deviation by position.

``order=bgr`` reverses the channels of the picture before all steps. Each step treats the channels
alike, except the last, which thus sees blue in the place of red.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from hookcli.errors import RequestError
from hookcli.networks.presets import SCALED, crop_text, normalization_text, size_text
from hookcli.networks.recipe import Recipe, read_recipe
from hookcli.networks.task import COLOURS
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import require_package
from hookcli.records.text import count, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.config import ModelRequest
    from hookcli.networks.recipe import How, Library
    from hookcli.networks.task import Preprocessing

_LARGE = 512  # pixels of the pictures with which two ways of preparing are compared
_GREY = 114  # of the border, as in YOLO
_SAME = 0.02  # of a step of an 8-bit picture: how far the results of the same steps may differ
_NAMES = {"opencv": "OpenCV", "torch": "torch"}
_PILLOW = {"area": "BOX"}
_OPENCV = {"bilinear": "LINEAR", "bicubic": "CUBIC", "lanczos": "LANCZOS4"}
_KNOWN_STEPS = {
    *("ImageClassification", "SemanticSegmentation", "Resize", "CenterCrop", "Normalize"),
    *("ToTensor", "MaybeToTensor", "MaybeConvertMode"),
}
_CROP = {"size": "crop"}  # names of attributes of a transform, and of fields of ``Steps``
_FIELDS = {"size": "size", "resize_size": "size", "crop_size": "crop", "interpolation": "how"}
_FIELDS |= {"mean": "subtracted", "std": "divided"}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Steps:
    """A transform that prepares a picture of Pillow, in RGB or grey, with known steps."""

    size: int | tuple[int, int]  # the short side, or the height and width
    crop: tuple[int, int] | None = None
    is_letterbox: bool = False  # whether the picture keeps its ratio inside ``size``
    stride: int | None = None  # both sides become multiples of it
    rounds_down: bool = False  # where the crop begins, as in transformers
    how: How = "bilinear"
    library: Library = "pillow"
    antialias: bool = True
    divisor: int = 255
    subtracted: tuple[float, ...]
    divided: tuple[float, ...]

    @property
    def mean(self) -> list[float]:
        """The mean of colours from 0 to 1, with which a picture of the pixels is drawn."""
        return [each * self.divisor / 255 for each in self.subtracted]

    @property
    def std(self) -> list[float]:
        """The standard deviation of colours from 0 to 1."""
        return [each * self.divisor / 255 for each in self.divided]

    def __call__(self, picture: Image.Image) -> Tensor:
        pixels = self._resize(picture, self._find_sides(*picture.size))
        pixels = self._cut(self._add_border(pixels)).float() / self.divisor
        normalize = torchvision.transforms.functional.normalize
        normalized: Tensor = normalize(pixels, list(self.subtracted), list(self.divided))
        return normalized

    def __repr__(self) -> str:
        by = f" by {_NAMES[self.library]}" if self.library in _NAMES else ""
        how = f"{self.how}{by}{'' if self._smooths else ' without antialiasing'}"
        sides = size_text(self.size)
        if self.stride is not None:
            sides = f"about {sides}, both sides multiples of {self.stride}"
        fitted = f"fitted into {sides}, with a grey border of {_GREY}"
        return ", ".join(
            [
                f"{fitted if self.is_letterbox else f'resized to {sides}'} ({how})",
                *([crop_text(self.crop)] if self.crop else []),
                SCALED if self.divisor == 255 else "values from 0 to 255",
                normalization_text(self.subtracted, self.divided),
            ]
        )

    @property
    def _smooths(self) -> bool:
        is_never = self.how == "nearest"  # nobody expects it to
        is_other = self.library == "pillow" or self.how == "area"
        return is_never or is_other or (self.antialias and self.library == "torch")

    def _find_sides(self, width: int, height: int) -> tuple[int, int]:
        if self.is_letterbox:
            high, wide = _pair(self.size)
            ratio = min(high / height, wide / width)
            return max(1, round(height * ratio)), max(1, round(width * ratio))
        if isinstance(self.size, tuple):
            return self.size
        short = self.size
        if self.stride is not None:
            steps = (v * (short / min(width, height)) / self.stride for v in (height, width))
            high, wide = (max(1, math.floor(step + 0.5)) * self.stride for step in steps)
            return high, wide
        long = int(short * max(width, height) / min(width, height))
        return (long, short) if width <= height else (short, long)

    def _resize(self, picture: Image.Image, sides: tuple[int, int]) -> Tensor:
        functional: Any = torchvision.transforms.functional
        if self.library == "pillow":
            how = Image.Resampling[_PILLOW.get(self.how, self.how.upper())]
            resized: Tensor = functional.pil_to_tensor(picture.resize(sides[::-1], how))
            return resized
        if self.library == "opencv":
            import cv2

            method = getattr(cv2, f"INTER_{_OPENCV.get(self.how, self.how.upper())}")
            made = cv2.resize(np.asarray(picture), sides[::-1], interpolation=method)
            return torch.from_numpy(np.atleast_3d(made)).permute(2, 0, 1)
        pixels: Tensor = functional.pil_to_tensor(picture)
        if self.how == "area":
            return interpolate(pixels[None].float(), sides, mode="area")[0].round().to(torch.uint8)
        mode = torchvision.transforms.InterpolationMode(self.how)
        made_smaller: Tensor = functional.resize(pixels, [*sides], mode, antialias=self.antialias)
        return made_smaller

    def _add_border(self, pixels: Tensor) -> Tensor:
        if not self.is_letterbox:
            return pixels
        (high, wide), (height, width) = _pair(self.size), pixels.shape[-2:]
        framed = torch.full((len(pixels), high, wide), _GREY, dtype=torch.uint8)
        top, left = round((high - height) / 2 - 0.1), round((wide - width) / 2 - 0.1)
        framed[:, top : top + height, left : left + width] = pixels
        return framed

    def _cut(self, pixels: Tensor) -> Tensor:
        if self.crop is None:
            return pixels
        (high, wide), (height, width) = self.crop, pixels.shape[-2:]
        if self.rounds_down and high <= height and wide <= width:
            top, left = (height - high) // 2, (width - wide) // 2
            return pixels[:, top : top + high, left : left + wide]
        cut: Tensor = torchvision.transforms.functional.center_crop(pixels, list(self.crop))
        return cut


def apply_recipe(request: ModelRequest, prepare: Preprocessing) -> Preprocessing:
    """Return ``prepare``, changed as the request's recipe says; without one, the same.

    Raise a RequestError if the recipe does not apply to the model, or if hookcli would have to keep
    steps of the model's own preprocessing that it does not know.
    """
    if request.preprocess is None:
        return prepare
    recipe = read_recipe(request.preprocess)
    _check(request.name, recipe, prepare)
    if recipe.order is not None:
        prepare = replace(prepare, is_bgr=True)
    if recipe == Recipe(order=recipe.order):
        return prepare
    own = _read_own(prepare)
    if own is None and not recipe.is_complete:
        raise RequestError(
            f"`preprocess`: {request.name} prepares images in its own way, which cannot be taken "
            f"apart: {prepare.words}",
            "give all of resize, fit, crop, mean and std",
        )
    steps = _change(own or _begin(recipe, prepare), recipe, prepare)
    if isinstance(steps.size, int) and steps.crop is None:
        return replace(prepare, transform=steps, crop=None, size=steps.size)
    crop, fixed = steps.crop or _pair(steps.size), prepare.fixed
    if fixed is not None and crop != fixed:
        made, taken = shape_text(crop), shape_text(fixed)
        what = f"`preprocess` makes {made} pixels, and {request.name} takes {taken}"
        raise RequestError(what, "leave out crop")
    return replace(prepare, transform=steps, crop=crop, size=None)


def _check(name: str, recipe: Recipe, prepare: Preprocessing) -> None:
    bands = 1 if prepare.grey else prepare.bands
    if bands not in (1, COLOURS):
        what = f"`preprocess` is for pictures in colour or grey, and {name} takes {bands} bands"
        raise RequestError(what, "`mean` and `std` can be changed")
    if prepare.task.keeps_steps and recipe != Recipe(order="bgr"):
        raise RequestError(f"`preprocess`: {prepare.task.keeps_steps}", "order=bgr can be changed")
    if recipe.order and (bands == 1 or getattr(prepare.transform, "flips_colours", False)):
        why = "one channel" if bands == 1 else "blue first already"
        raise RequestError(f"`preprocess` order=bgr: {name} takes {why}", "leave out order=bgr")
    for word, values in (("mean", recipe.mean), ("std", recipe.std)):
        if values is not None and len(values) not in (1, bands):
            takes = f"{name} takes {count(bands, 'channel')}"
            what = f"`preprocess` {word} has {count(len(values), 'number')}, and {takes}"
            raise RequestError(what, "one number, or one per channel")


def _change(own: Steps, recipe: Recipe, prepare: Preprocessing) -> Steps:
    library = recipe.library or ("torch" if recipe.antialias else own.library)
    how = recipe.resize or own.how
    _check_resizing(how, library, is_off=recipe.antialias is not None)
    steps = own if recipe.crop is None else _with_side(own, recipe.crop)
    steps = _with_fit(steps, recipe.fit, crops=prepare.task.word != "segmentation")
    channels = len(own.subtracted)
    return replace(
        steps,
        how=how,
        library=library,
        antialias=own.antialias and recipe.antialias is None,
        divisor=int(recipe.scale or own.divisor),
        subtracted=_per_channel(recipe.mean or own.subtracted, channels),
        divided=_per_channel(recipe.std or own.divided, channels),
    )


def _check_resizing(how: How, library: Library, *, is_off: bool) -> None:
    if is_off and how in ("nearest", "area"):
        fact = "never smooths" if how == "nearest" else "always takes means"
        raise RequestError(f"`preprocess` antialias=off: {how} {fact}", "leave out antialias=off")
    if is_off and library == "pillow":
        what = "`preprocess` antialias=off: Pillow always smooths a picture that it shrinks"
        raise RequestError(what, "library=torch or library=opencv")
    if library == "torch" and how == "lanczos":
        what = "`preprocess` resize:lanczos: torch cannot resize so"
        raise RequestError(what, "library=pillow or library=opencv")
    if library == "opencv":
        require_package("`preprocess` library=opencv needs", "cv2", "OpenCV", "opencv")


def _with_side(own: Steps, side: int) -> Steps:
    # What is resized keeps its ratio to what is cropped, as with ``--size``.
    if own.crop is None:
        return replace(own, size=(side, side) if isinstance(own.size, tuple) else side)
    high, wide = _pair(own.size)
    scaled = round(high * side / own.crop[0]), round(wide * side / own.crop[1])
    size = scaled if isinstance(own.size, tuple) else scaled[0]
    return replace(own, size=size, crop=(side, side))


def _with_fit(own: Steps, fit: str | None, *, crops: bool) -> Steps:
    if fit is None or (fit == "crop" and own.stride is not None):
        return own
    sides = own.crop or _pair(own.size)
    if fit != "crop":
        return replace(own, size=sides, crop=None, stride=None, is_letterbox=fit == "letterbox")
    if sides[0] != sides[1]:
        what = f"`preprocess` fit=crop: the input of {shape_text(sides)} pixels is no square"
        raise RequestError(what, "fit=letterbox or fit=stretch")
    return replace(own, size=min(_pair(own.size)), crop=sides if crops else None)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def _per_channel(values: Sequence[float], channels: int) -> tuple[float, ...]:
    return tuple(values) * (channels if len(values) == 1 else 1)


def _begin(recipe: Recipe, prepare: Preprocessing) -> Steps:
    side, channels = recipe.crop or 0, 1 if prepare.grey else COLOURS
    plain = (0.0,) * channels, (1.0,) * channels
    return Steps(size=side, crop=(side, side), subtracted=plain[0], divided=plain[1])


def _read_own(prepare: Preprocessing) -> Steps | None:
    """Return steps that do the same as the model's own transform; None if none are found."""
    # hookcli does not trust what it reads, and prepares some pictures in both ways.
    transform: Any = prepare.transform
    read = getattr(transform, "list_steps", None)
    for steps in read() if read else _read_steps(transform):
        pictures = _draw_samples(min(_pair(steps.size)), "L" if prepare.grey else "RGB")
        if all(_is_same(transform(each), steps(each), steps) for each in pictures):
            return steps
    return None


def _is_same(one: Tensor, two: Tensor, steps: Steps) -> bool:
    most = _SAME / steps.divisor / max(steps.divided)
    return one.shape == two.shape and float((one - two).abs().max()) <= most


def _draw_samples(side: int, mode: str) -> Iterator[Image.Image]:
    random, side = np.random.default_rng(0), min(side, _LARGE)
    for width, height in ((side * 2 + 5, side * 3 // 2), (side + 2, side * 5 // 3), (40, 31)):
        values = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        yield Image.fromarray(values).convert(mode)


def _read_steps(transform: Any) -> Iterator[Steps]:
    parts: Sequence[Any] = getattr(transform, "transforms", [transform])
    names = {type(each).__name__ for each in parts}
    if not names <= _KNOWN_STEPS or any(getattr(each, "max_size", None) for each in parts):
        return
    found: dict[str, Any] = {}
    for part in parts:
        pairs = _CROP if type(part).__name__ == "CenterCrop" else _FIELDS
        found |= {key: getattr(part, name) for name, key in pairs.items() if hasattr(part, name)}
    if not {"size", "how", "subtracted", "divided"} <= found.keys():
        return
    yield Steps(
        size=_read_size(found["size"]),
        crop=_pair(_read_size(found["crop"])) if "crop" in found else None,
        how=found["how"].value,
        subtracted=tuple(map(float, found["subtracted"])),
        divided=tuple(map(float, found["divided"])),
    )


def _read_size(size: int | Sequence[int]) -> int | tuple[int, int]:
    sides = [size] if isinstance(size, int) else list(size)
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])
