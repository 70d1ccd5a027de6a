"""Prepare images by a recipe, which changes single steps of a model's own preprocessing.

Pillow and torch smooth what they shrink, except by ``nearest``; OpenCV smooths only by ``area``
(https://github.com/python-pillow/Pillow/issues/2718 and pytorch/vision/issues/2950). Sides and
crops are rounded as in torchvision, and ``letterbox`` adds the border of YOLO's ``LetterBox``
(ultralytics/data/augment.py). ``order=bgr`` reverses the channels before the steps, of which only
the last, the mean and standard deviation by position, treats them differently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from torch.nn.functional import interpolate, pad

from hookcli.errors import RequestError
from hookcli.networks.presets import SCALED, STEPS, crop_text, normalization_text, size_text
from hookcli.networks.recipe import CHOICES, Recipe, read_recipe
from hookcli.networks.task import COLOURS
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import ask, require_package
from hookcli.records.text import count, shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from hookcli.config import ModelRequest
    from hookcli.networks.recipe import How, Library
    from hookcli.networks.task import Preprocessing

_GREY = 114  # of the border, as in YOLO
_SAME = 0.02  # of a step of an 8-bit picture: how far the results of the same steps may differ
_OPENCV = {"bilinear": "linear", "bicubic": "cubic", "lanczos": "lanczos4"}
# The attributes of transforms that fields of ``Steps`` come from; of CenterCrop, ``size``
_FIELDS = {"size": "size", "resize_size": "size", "crop_size": "crop", "interpolation": "how"}
_FIELDS |= {"mean": "mean", "std": "std"}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Steps:
    """A transform that prepares a picture of Pillow, in RGB or grey."""

    size: tuple[int, ...]  # the short side, or the height and width
    crop: tuple[int, ...] = ()  # the height and width; empty if the whole picture is kept
    is_letterbox: bool = False  # whether a picture keeps its ratio within ``size``
    covers: bool = False  # whether a picture keeps its ratio and covers ``size``
    stride: int = 0  # both sides become multiples of it, unless it is 0
    is_like_transformers: bool = False  # resizes by torchvision's v2, rounds the crop down
    flips_colours: bool = False  # before the normalization
    how: How = "bilinear"
    library: Library = "pillow"
    antialias: bool = True
    divisor: int = 255
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, picture: Image.Image) -> Tensor:
        pixels = self._cut(self._resize(picture, self.find_sides(*picture.size)))
        pixels = pixels.flip(0) if self.flips_colours else pixels
        normalize: Callable[..., Tensor] = torchvision.transforms.functional.normalize
        return normalize(pixels / self.divisor, [*self.mean], [*self.std])

    def __repr__(self) -> str:
        by = {"opencv": " by OpenCV", "torch": " by torch"}.get(self.library, "")
        if (self.library == "opencv" or not self.antialias) and self.how not in ("nearest", "area"):
            by += " without antialiasing"
        sides = size_text(self.size)
        sides = f"about {sides}, both sides multiples of {self.stride}" if self.stride else sides
        text = f"resized to {'cover ' * self.covers}{sides}"
        text = f"fitted into {sides} on grey" if self.is_letterbox else text
        text = "blue first, " * self.flips_colours + text
        crop = f", {crop_text(self.crop)}" if self.crop else ""
        scaled = SCALED if self.divisor == 255 else "values from 0 to 255"
        return f"{text} ({self.how}{by}){crop}, {scaled}, {normalization_text(self.mean, self.std)}"

    def find_sides(self, width: int, height: int) -> tuple[int, ...]:
        if self.is_letterbox:
            ratio = min(self.size[0] / height, self.size[1] / width)
            return max(1, round(height * ratio)), max(1, round(width * ratio))
        if self.covers:
            high, wide = self.size
            return max(high, int(wide * height / width)), max(wide, int(high * width / height))
        if len(self.size) > 1:
            return self.size
        short, low, high = self.size[0], min(width, height), max(width, height)
        if self.stride:
            steps = (v * (short / low) / self.stride for v in (height, width))
            return tuple(max(1, math.floor(step + 0.5)) * self.stride for step in steps)
        long = int(short * high / low)
        return (long, short) if width <= height else (short, long)

    def _resize(self, picture: Image.Image, sides: tuple[int, ...]) -> Tensor:
        transforms: Any = torchvision.transforms
        if self.library == "pillow":
            how = "BOX" if self.how == "area" else self.how.upper()
            picture = picture.resize((sides[1], sides[0]), Image.Resampling[how])
        elif self.library == "opencv":
            import cv2

            flag = getattr(cv2, f"INTER_{_OPENCV.get(self.how, self.how)}".upper())
            made: Any = cv2.resize(np.asarray(picture), sides[::-1], interpolation=flag)
            picture = Image.fromarray(made)
        pixels: Tensor = transforms.functional.pil_to_tensor(picture)
        if self.library == "torch" and self.how == "area":
            pixels = interpolate(pixels[None].float(), sides, mode="area")[0].round().byte()
        elif self.library == "torch":
            resize = (transforms.v2 if self.is_like_transformers else transforms).functional.resize
            is_exact = self.is_like_transformers and self.how == "nearest"
            mode = transforms.InterpolationMode("nearest-exact" if is_exact else self.how)
            pixels = resize(pixels, [*sides], mode, antialias=self.antialias)
        return pixels

    def _cut(self, pixels: Tensor) -> Tensor:
        """Cut out the middle of ``pixels`` (C, H, W), or add a border where they are smaller."""
        sides, edges = self.size if self.is_letterbox else self.crop, list[int]()
        for length, side in zip(pixels.shape[:0:-1], sides[::-1], strict=False):
            begin = (length - side) / 2
            start = int(begin) if begin < 0 or self.is_like_transformers else round(begin)
            edges += [-start, start + side - length]
        return pad(pixels, edges, value=_GREY if self.is_letterbox else 0)


def apply_recipe(request: ModelRequest, prepare: Preprocessing) -> Preprocessing:
    """Return ``prepare``, changed as the request's recipe says; without one, the same."""
    recipe, name = read_recipe(request.preprocess), request.name
    if recipe == Recipe():
        return prepare
    _check_model(name, recipe, prepare)
    prepare = replace(prepare, is_bgr=recipe.order is not None, has_recipe=True)
    if recipe == Recipe(order="bgr"):
        return prepare
    own, obstacle = _read_own(prepare)
    is_partial = None in (recipe.resize, recipe.fit, recipe.crop, recipe.mean, recipe.std)
    way = f"{name} prepares images in a way that cannot be taken apart: {prepare.words}"
    way = f"{way}; the obstacle is {obstacle}"
    _refuse(own is None and is_partial, way, "give resize, fit, crop, mean and std")
    side = (recipe.crop or 0,)  # if no steps are known, the short side is as long as the crop
    own = own or Steps(size=side, crop=side * 2, mean=recipe.mean or (), std=recipe.std or ())
    steps = _change(own, recipe, prepare)
    crop, fixed = steps.crop or steps.size, prepare.fixed
    if len(crop) == 1:
        return replace(prepare, transform=steps, crop=None, size=crop[0])
    taken = f"{name} takes {shape_text(fixed or crop)} pixels, not {shape_text(crop)}"
    _refuse(fixed not in (None, crop), taken, "leave out crop")
    return replace(prepare, transform=steps, crop=(crop[0], crop[1]), size=None)


def _refuse(is_wrong: object, what: str, hint: str) -> None:
    if is_wrong:
        raise RequestError(f"`preprocess`: {what}", hint)


def _check_model(name: str, recipe: Recipe, prepare: Preprocessing) -> None:
    channels, why = 1 if prepare.grey else prepare.bands, prepare.task.keeps_steps
    takes, is_bgr = count(channels, "channel"), ask(prepare.transform, "flips_colours", False)
    _refuse(why and recipe != Recipe(order="bgr"), why, "order=bgr can be asked for")
    taken = f"{name} takes {'blue first already' if is_bgr else takes}"
    _refuse(channels not in (1, COLOURS), f"{taken}, not colour or grey", "use `mean` and `std`")
    _refuse(recipe.order and (is_bgr or channels == 1), taken, "leave out order=bgr")
    is_other = any(len(each or (0,)) not in (1, channels) for each in (recipe.mean, recipe.std))
    _refuse(is_other, f"{name} takes {takes}", "give one number for each in mean and std")


def _change(own: Steps, recipe: Recipe, prepare: Preprocessing) -> Steps:
    library = recipe.library or ("torch" if recipe.antialias else own.library)
    how, channels = recipe.resize or own.how, 1 if prepare.grey else COLOURS
    _check_resizing(how, library, is_off=recipe.antialias is not None)
    mean, std = recipe.mean or own.mean, recipe.std or own.std
    if (side := recipe.crop) is not None:
        # What is resized keeps its ratio to the crop, as with ``--size``.
        pairs = zip(own.size, own.crop or own.size, strict=False)
        size = tuple(max(1, round(side * length / by)) for length, by in pairs)
        own = replace(own, size=size, crop=own.crop and (side, side))
    return replace(
        _change_fit(own, recipe.fit, is_cropped=prepare.task.word != "segmentation"),
        how=how,
        library=library,
        antialias=own.antialias and recipe.antialias is None,
        divisor=int(recipe.scale or own.divisor),
        mean=mean * (channels // len(mean)),
        std=std * (channels // len(std)),
    )


def _check_resizing(how: How, library: Library, *, is_off: bool) -> None:
    _refuse(is_off and how in ("nearest", "area"), f"{how} has no antialias=off", "leave it out")
    _refuse(is_off and library == "pillow", "Pillow always smooths: antialias=off", "library=torch")
    _refuse(library == "torch" and how == "lanczos", "torch has no lanczos", "library=pillow")
    if library == "opencv":
        require_package("`preprocess` library=opencv needs", "cv2", "OpenCV", "opencv")


def _change_fit(own: Steps, fit: str | None, *, is_cropped: bool) -> Steps:
    sides = own.crop or (own.size * 2)[:2]
    if fit is None or (fit == "crop" and own.stride):
        return own
    if fit != "crop":
        return replace(own, size=sides, crop=(), stride=0, is_letterbox=fit == "letterbox")
    if is_cropped and len({*own.size}) > 1:
        return replace(own, crop=sides, covers=True)
    return replace(own, size=(min(own.size),), crop=sides if is_cropped else ())


def _read_own(prepare: Preprocessing) -> tuple[Steps | None, str]:
    """Return steps that prepare test pictures as the model's own transform does, or None.

    Without them, the text names what prevents this.
    """
    transform: Any = prepare.transform
    list_steps = ask(transform, "list_steps")
    listed, obstacle = (list_steps(), "") if list_steps else _read_steps(transform)
    for steps in listed:
        found = _compare(transform, steps, "L" if prepare.grey else "RGB")
        if not found:
            return steps, ""
        obstacle = obstacle or f"its {found}"  # of the likeliest steps
    return None, obstacle


def _compare(transform: Any, steps: Steps, mode: str) -> str:
    has_sides = len(steps.size) in (1, 2) and min(steps.size) > 0
    if not has_sides or steps.how not in CHOICES["resize"]:
        return f"resizing ({steps.how})"
    most, step = _SAME / steps.divisor / max(steps.std), "scaling or normalization"
    for picture in _draw_samples(min(*steps.size, 512), mode):
        one, two = transform(picture), steps(picture)
        if one.shape != two.shape:
            sides = (shape_text(each.shape[1:]) for each in (one, two))
            return "resizing or crop, to {} instead of {} pixels".format(*sides)
        if not (one - two).abs().max() <= most:
            return step
        step = "resizing"  # of the first picture, which has one colour, this changes nothing
    return ""


def _draw_samples(side: int, mode: str) -> Iterator[Image.Image]:
    yield Image.new(mode, (side * 2, side * 2), "gray")
    random = np.random.default_rng(0)
    tie = (side & -side) * 2  # of such pictures Pillow and torch choose other nearest pixels
    sizes = ((side * 2 + 5, side * 3 // 2), (side + 2, side * 5 // 3), (40, 31), (tie, tie))
    for width, height in sizes:
        values = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        yield Image.fromarray(values).convert(mode)


def _read_steps(transform: Any) -> tuple[list[Steps], str]:
    found: dict[str, Any] = {"crop": ()}
    for part in getattr(transform, "transforms", [transform]):
        name = type(part).__name__
        if name not in (*STEPS, "MaybeConvertMode") or getattr(part, "max_size", None):
            return [], name
        fields = {"size": "crop"} if name == "CenterCrop" else _FIELDS
        found |= {key: getattr(part, each) for each, key in fields.items() if hasattr(part, each)}
    if not found.keys() >= {*_FIELDS.values()}:
        return [], "a missing step"
    sides = [(e,) if isinstance(e, int) else (*e,) for e in (found["size"], found["crop"])]
    mean, std = (tuple(map(float, found[key])) for key in ("mean", "std"))
    how, crop = found["how"].value, (sides[1] * 2)[:2]
    return [Steps(size=sides[0], crop=crop, how=how, mean=mean, std=std)], ""
