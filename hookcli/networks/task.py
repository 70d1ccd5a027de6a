"""Define ``Task``, which says what a kind of model takes and returns, and ``Preprocessing``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hookcli.errors import NoImageError, RequestError
from hookcli.networks.presets import change_preset, describe_transform
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import ask
from hookcli.records.text import count, shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset, Transform
    from hookcli.records.images import Box, Prediction
    from hookcli.records.rows import TaskWord

    Picture: TypeAlias = Any  # of Pillow, or a ``BandPicture`` of images/intensities
    Pictures: TypeAlias = Sequence[Picture]  # one picture, a clip's frames, or a pair
    Sizes: TypeAlias = Sequence[tuple[int, int]]  # the width and height of each image, or nothing
    MeanStd: TypeAlias = tuple[Sequence[float], Sequence[float]]  # of each colour
    Predictions: TypeAlias = list[tuple[Prediction, ...]]  # of each image of a batch
    Scored: TypeAlias = tuple[Tensor, int | None, str]  # a score, its class, and its name

COLOURS = 3
_LONGEST = 100  # short sides; resizing a longer picture could fill the memory
_HALVED_TWICE = 4  # MaxVit halves its input twice before its first grid


@dataclass(frozen=True, slots=True)
class Aim:
    """The box or the pixels that a score is about: ``box:N`` or ``pixels:CLASS``."""

    kind: Literal["box", "pixels"]
    number: int | None  # of the box, the best first, or the class; None for the predicted class
    # In the first output of an image: the corners of the box and its class (5,), or the mask
    # (H, W) of the pixels; None before there is one.
    found: Tensor | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}:{'predicted' if self.number is None else self.number}"


class Part(NamedTuple):
    scored: Scored
    aim: Aim  # with which other outputs for the same image are scored
    box: Tensor | None = None  # (4,): the corners


class UnfitPictureError(NoImageError):
    """Raised for a picture from which a model's preprocessing cannot make pixels."""


class Task:
    """Defines what a kind of model takes (by default, one picture of a fixed size) and returns."""

    word: TaskWord  # in manifests and ``hookcli models``
    # the height and width of a usual image, for transforms that do not crop
    nominal: tuple[int, int] = (224, 224)
    frames: int = 1  # in one input
    takes_pair: bool = False  # whether one input consists of two pictures
    # the axis along which an input's pictures are stacked, and their number
    stacked: tuple[int, int] | None = None
    takes_any_size: bool = False  # whether the model is made for pictures of any size
    shares_forward: bool = True  # whether the leading axis counts images that share a forward pass
    # whether hookcli keeps pictures, smaller than pixels, until it needs the pixels
    keeps_pictures: bool = False
    # whether the shapes inside the model depend on the values of its weights
    needs_values: bool = False
    is_faster_channels_last: bool = False  # in the memory format channels-last
    keeps_steps: str = ""  # why a recipe cannot change how pictures are prepared, if so

    # What a model is given

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        changed = change_preset(request, module, make)
        return Preprocessing(self, changed, (changed.crop_size[0], changed.crop_size[-1]))

    def to_pixels(self, pictures: Pictures, transform: Transform, size: int | None) -> Tensor:
        """Return the pixels of one input; ``size`` is the side that the user asked for, or None."""
        pixels: Tensor = transform(pictures[0])
        return pixels

    def repeat(self, pixels: Tensor) -> Tensor:
        """Return the pixels (C, H, W) of a tensor file as one input of the model.

        If the task takes several pictures (a clip or a pair), the input repeats this one picture.
        """
        if self.stacked is None:
            return pixels
        axis, times = self.stacked
        return torch.stack([pixels] * times, axis)

    def describe(self, pictures: Pictures, count: int, size: int | None) -> str:
        """Return a note for the user on how ``count`` pictures become one input.

        ``pictures`` may hold only some of these pictures. ``size`` is the side length that the user
        asked for, or None. The note is empty if an input is one picture.
        """
        return ""

    def arguments(self, pixels: Tensor) -> tuple[object, ...]:
        return (pixels,)

    def check_mode(self, name: str, module: nn.Module) -> None:
        """Raise a RequestError if the model cannot run in its present mode, such as training."""

    # What its layers see

    def seen(self, module: nn.Module, pixels: Tensor) -> Tensor:
        """Return the first layer's input for ``pixels`` (N, …): by default, the same pixels."""
        return pixels

    def picture(self, seen: Tensor) -> Tensor:
        """Return the picture (C, H, W) that stands for one input, such as a clip's middle frame."""
        return seen

    def normalisation(self, module: nn.Module, transform: object) -> MeanStd:
        for step in [transform, *getattr(transform, "transforms", ())]:
            if hasattr(step, "mean") and hasattr(step, "std"):
                share = ask(step, "divisor", 255) / 255  # of a recipe whose pixels are not scaled
                return [float(v) * share for v in step.mean], [float(v) * share for v in step.std]
        return [0.0] * 3, [1.0] * 3

    # What it returns

    def find(self, output: object) -> Any:
        """Return the part of a model's output that this task reads, or None if it has none."""
        raise NotImplementedError

    def read(self, found: Any, categories: Sequence[str], sizes: Sizes = ()) -> Predictions:
        # ``sizes`` has the width and height of each image; it and ``categories`` may be empty.
        raise NotImplementedError

    def score(self, found: Any, kind: str, target: int | None) -> Scored:
        raise NotImplementedError

    def score_part(self, found: Any, kind: str, aim: Aim) -> Part:
        makes = "boxes" if aim.kind == "box" else "a class for each pixel"
        what = f"`target={aim.name!r}`: the model does not predict {makes}"
        raise RequestError(what, "name a class, or leave `target` out")

    def place_box(self, box: Box, size: tuple[int, int]) -> Box:
        """Return a box of the output in the pixels of an image of the (width, height) ``size``."""
        return box


def find_fixed_size(module: nn.Module) -> tuple[int, int] | None:
    # Torchvision's networks of this kind were found by running all of them on the meta device.
    if isinstance(module, torchvision.models.VisionTransformer):
        return module.image_size, module.image_size
    if isinstance(module, torchvision.models.MaxVit):
        height, width = module.blocks[0].grid_size
        return height * _HALVED_TWICE, width * _HALVED_TWICE
    if isinstance(module, torchvision.models.video.MViT):
        (height, width), step = module.pos_encoding.spatial_size, module.conv_proj.stride[-1]
        return height * step, width * step
    patches = ask(module, "patch_embed")  # an attribute of timm's transformers
    size = ask(patches, "img_size")
    return size if ask(patches, "strict_img_size") is True and isinstance(size, tuple) else None


@dataclass(frozen=True, slots=True)
class Preprocessing:
    task: Task
    transform: Transform  # of the model's library, with the user's changes
    # the height and width after a crop; None if the whole picture is kept
    crop: tuple[int, int] | None = None
    size: int | None = None  # the requested side, if the network accepts pictures of any size
    channels: int | None = COLOURS  # that the network accepts; None if unknown
    fixed: tuple[int, int] | None = None  # the only height and width that the network accepts
    grey: bool = False  # whether the network takes grey pictures with one channel
    bands: int = COLOURS  # of the pictures that the transform takes; a grey picture has three
    has_recipe: bool = False  # whether ``preprocess`` changed it
    # if ``channels`` is unknown, those that the network's modules take
    taken: frozenset[int] = frozenset()
    is_bgr: bool = False  # whether the transform takes pictures with blue in the place of red

    @property
    def words(self) -> str:
        text = "blue first, " * self.is_bgr + describe_transform(self.transform)
        return f"turned grey, {text}" if self.grey else text

    @property
    def nominal_shape(self) -> tuple[int, ...]:
        sides = self.task.nominal if self.size is None else (self.size, self.size)
        shape = [1 if self.grey else self.channels or self.bands, *(self.crop or sides)]
        if self.task.stacked:
            shape.insert(*self.task.stacked)
        return (1, *shape)

    @property
    def versions(self) -> dict[str, str]:
        steps = getattr(self.transform, "transforms", [self.transform])
        has_opencv = any(ask(step, "library") == "opencv" for step in steps)
        return {"opencv": import_module("cv2").__version__} if has_opencv else {}

    def refuse(self, picture: Picture) -> str:
        """Return why the network cannot take ``picture``, or an empty text if it can."""
        bands = getattr(picture, "bands", COLOURS)
        if bands != self.bands:
            takes = 1 if self.grey else self.bands
            has = f"has {count(bands, 'band')} of {picture.width} by {picture.height} pixels"
            return f"{has}, and the network takes {takes}{_suggest_bands(bands, takes)}"
        if max(picture.size) > _LONGEST * min(picture.size) and not _has_sides(self.transform):
            return f"is {picture.width} by {picture.height} pixels, too thin for this network"
        return ""

    def refuse_pixels(self, shape: Sequence[int]) -> str:
        if self.has_recipe:
            return "holds the network's own input, which a recipe cannot change"
        if self.fixed is not None and self.fixed != tuple(shape[-2:]):
            wanted = shape_text((self.channels or shape[0], *self.fixed))
        elif self.channels is not None and shape[0] != self.channels:
            wanted = count(self.channels, "channel")
        else:
            return ""
        choice = "" if self.channels is None else _suggest_bands(shape[0], self.channels)
        return f"is {shape_text(shape)}: this network takes {wanted}{choice}"

    def find_channels(self, shape: Sequence[int]) -> int | None:
        is_last = shape[-1] in self.taken and shape[0] not in self.taken
        return shape[-1] if is_last else self.channels

    def to_pixels(self, pictures: Pictures) -> Tensor:
        """Return the pixels of one input: (C, H, W), a clip (3, T, H, W) or a pair (2, 3, H, W)."""
        transform = self.transform
        if self.bands != COLOURS and not hasattr(transform, "takes_bands"):
            tensors = (torch.tensor(spread_bands(each, self.bands)) for each in pictures)
            pictures = [each.permute(2, 0, 1) / 255 for each in tensors]
            if isinstance(transform, torchvision.transforms.Compose):
                steps = [each for each in transform.transforms if type(each).__name__ != "ToTensor"]
                transform = torchvision.transforms.Compose(steps)
        elif self.grey:
            pictures = [picture.convert("L") for picture in pictures]
        elif self.is_bgr:
            pictures = [Image.merge("RGB", picture.split()[::-1]) for picture in pictures]
        return self.task.to_pixels(pictures, transform, self.size)

    def describe(self, pictures: Pictures, count: int) -> str:
        return self.task.describe(pictures, count, self.size)


def _has_sides(transform: Transform) -> bool:
    first = getattr(transform, "transforms", [transform])[0]
    sides = ask(first, "size") if type(first).__name__ in ("Resize", "Steps") else None
    return isinstance(sides, (tuple, list)) and len(sides) > 1 and not ask(first, "covers")


def _suggest_bands(bands: int, takes: int) -> str:
    chosen = (2, 1, 0) if takes == COLOURS else tuple(range(takes))
    return f": choose with `bands={chosen}`" if bands > takes else ""


def spread_bands(picture: Picture, bands: int) -> NDArray[Any]:
    """Return the values (H, W, C) of a picture, which may have any number of bands.

    If it is a Pillow picture, the values are those of its first band, repeated ``bands`` times.
    """
    values = getattr(picture, "values", None)
    return np.asarray(picture)[..., :1].repeat(bands, 2) if values is None else values
