"""The conversion of pictures to the pixels that a model's weights expect."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli.config import CLIP_FRAMES
from hookcli.errors import RequestError
from hookcli.foreign import ask
from hookcli.models.fixed_size import FixedSize, find_fixed_size
from hookcli.models.frames import spread_evenly
from hookcli.models.inputs import detection_transform
from hookcli.models.transform_words import describe_transform
from hookcli.models.zoo.origin import OWN, TIMM
from hookcli.models.zoo.timm_models import timm_transform
from hookcli.models.zoo.torchvision_import import torchvision
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from PIL import Image

    from hookcli.config import ModelRequest
    from hookcli.models.zoo.catalog import Preset, Transform

_COLOURS = 3
# In units of the short side. Resizing a longer picture could fill the memory. If the transform
# crops, the picture's middle is cut out first, which shifts it by less than a pixel; a picture that
# would be shown as a whole is refused.
_LONGEST = 100
_FLOW_STEP = 8  # RAFT halves three times
_FLOW_LEAST, _FLOW_MOST = 128, 960  # its correlation volume is large
_NOMINAL = {"segmentation": (520, 520), "detection": (480, 640), "optical_flow": (368, 496)}


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How an image becomes pixels.

    Attributes:
        task: the model's task.
        transform: torchvision's or timm's own transform, with the user's changes.
        crop: the height and width that a cropping transform produces; None if the transform keeps
            the whole picture.
        size: the side that was asked for, if the network accepts pictures of any size.
        channels: the number of channels that the network accepts; None if it is not known, as for
            models of the user's own.
        fixed: the only size that the network accepts; None if it accepts several.
        grey: the network takes pictures of one channel, the brightness.
    """

    task: str
    transform: Transform
    crop: tuple[int, int] | None = None
    size: int | None = None
    channels: int | None = _COLOURS
    fixed: FixedSize | None = None
    grey: bool = False

    @property
    def words(self) -> str:
        """The transform in words, on one line."""
        return "turned grey, " * self.grey + describe_transform(self.transform)

    @property
    def nominal_shape(self) -> tuple[int, ...]:
        """The shape of the pixels of an image of usual size, with the leading axis 1."""
        height, width = self.crop or _NOMINAL.get(self.task, (224, 224))
        if self.size is not None and self.crop is None:
            height, width = self.size, self.size
        channels = 1 if self.grey else self.channels or _COLOURS
        if self.task == "video":
            return (1, channels, CLIP_FRAMES, height, width)
        if self.task == "optical_flow":
            return (1, 2, channels, height, width)
        return (1, channels, height, width)

    def refuse(self, picture: Image.Image) -> str:
        """Return why this network cannot be given ``picture``; empty if it can."""
        if self.crop is None and _is_long(picture):
            return f"is {picture.width} by {picture.height} pixels, too thin for this network"
        return ""

    def refuse_pixels(self, shape: Sequence[int]) -> str:
        """Return why the pixels of a tensor file do not fit this network; empty if they do.

        Args:
            shape: the shape (C, H, W) of the pixels, which are used unchanged.
        """
        height, width = shape[-2:]
        if self.fixed is not None and not self.fixed.takes(height, width):
            wanted = shape_text((self.channels or shape[0], self.fixed.height, self.fixed.width))
        elif self.channels is not None and shape[0] != self.channels:
            wanted = f"{self.channels} channel{'s' * (self.channels != 1)}"
        else:
            return ""
        return f"is {shape_text(shape)}: this network takes {wanted}"

    def to_pixels(self, pictures: Sequence[Image.Image]) -> Tensor:
        """Return the pixels of one image.

        They are (3, H, W), or (1, H, W) for a network that takes grey pictures; for video a clip
        (3, T, H, W); for optical flow a pair (2, 3, H, W).

        Args:
            pictures: upright RGB pictures: one, or the frames of a clip, or the two of a pair.
        """
        pictures = [_crop_long(picture) if self.crop else picture for picture in pictures]
        if self.task == "optical_flow":
            size = _flow_size(pictures[0], self.size)
            pair = [picture.resize(size) for picture in (*pictures, *pictures)[:2]]
            return torch.stack(self.transform(*pair))
        source = _stack_frames(pictures) if self.task == "video" else pictures[0]
        if self.grey:
            source = pictures[0].convert("L")
        pixels: Tensor = self.transform(source)
        return pixels

    def repeat(self, pixels: Tensor) -> Tensor:
        """Return the pixels (C, H, W) of a tensor file as the network takes them.

        Where the network takes a clip or a pair, it is made by repeating them.
        """
        if self.task == "video":
            return pixels.unsqueeze(1).expand(-1, CLIP_FRAMES, -1, -1).clone()
        return torch.stack([pixels, pixels]) if self.task == "optical_flow" else pixels

    def describe(self, pictures: Sequence[Image.Image], count: int) -> str:
        """Return what the image was turned into before the transform; empty if it was not changed.

        Args:
            pictures: the pictures that ``to_pixels`` takes; none for pixels that are used
                unchanged.
            count: how many pictures the image has; ``pictures`` may be some of them.
        """
        if self.task == "video":
            source = f"{count} frames" if count > 1 else "the still image"
            return f"a clip of {CLIP_FRAMES} frames, taken from {source}"
        if self.task == "optical_flow":
            made = "a pair of images" if count > 1 else "a pair: the same image twice"
            size = _flow_size(pictures[0], self.size) if pictures else (0, 0)
            is_other = any(picture.size != size for picture in pictures[:2])
            return f"{made}, resized to {size[0]} by {size[1]} pixels" if is_other else made
        is_cut = self.crop is not None and any(map(_is_long, pictures))
        return "the middle of a very long picture, cut out before it was resized" if is_cut else ""


def make_preprocessing(
    task: str, request: ModelRequest, module: nn.Module, make_preset: Callable[..., Preset] | None
) -> Preprocessing:
    """Return the model's own preprocessing, with the changes that ``request`` asks for.

    Args:
        task: the model's task.
        request: ``size``, ``resize``, ``mean``, ``std`` and ``interpolation`` are used.
        module: a ViT specifies its size; a detection model resizes by itself and is modified here.
        make_preset: makes torchvision's preset; None for models that have none.

    Raises:
        RequestError: a change was asked for that does not apply to this model's preprocessing.
    """
    grey = 1 in (len(request.mean or ()), len(request.std or ()))
    if grey and task != OWN:
        raise RequestError(
            f"{request.name} takes colours: --mean and --std are three numbers each",
            "one number each is for grey models of your own",
        )
    return replace(
        _make_own_preprocessing(task, request, module, make_preset or _imagenet),
        channels=_count_channels(task, request),
        fixed=find_fixed_size(module),
        grey=grey,
    )


def _count_channels(task: str, request: ModelRequest) -> int | None:
    """Return the number of channels that a model accepts; None for the user's own models."""
    if task == OWN:
        return None
    asked = dict(request.arguments).get("in_chans", "") if task == TIMM else ""
    return int(asked) if asked.isdecimal() else _COLOURS


def _make_own_preprocessing(
    task: str, request: ModelRequest, module: nn.Module, make_preset: Callable[..., Preset]
) -> Preprocessing:
    if task == TIMM:
        transform, crop = timm_transform(module, request)
        return Preprocessing(task, transform, crop=crop)
    if task == "detection":
        _set_detection(module, request)
        return Preprocessing(task, make_preset(), size=request.size)
    if task == "optical_flow":
        _refuse_changes(request, "an optical flow model")
        return Preprocessing(task, make_preset(), size=request.size)
    colours = _colour_changes(request)
    if task == "segmentation":
        side = request.size or request.resize or make_preset().resize_size[0]
        return Preprocessing(task, make_preset(resize_size=side, **colours), size=side)
    own_side = ask(module, "image_size")
    sides = _side_changes(make_preset(), request, own_side if isinstance(own_side, int) else None)
    preset = make_preset(**colours, **sides)
    return Preprocessing(task, preset, crop=(preset.crop_size[0], preset.crop_size[-1]))


def _colour_changes(request: ModelRequest) -> Mapping[str, object]:
    """Return the arguments of a preset for the colours and interpolation that were asked for."""
    changes: dict[str, object] = {}
    if request.mean is not None:
        changes["mean"] = request.mean
    if request.std is not None:
        changes["std"] = request.std
    if request.interpolation is not None:
        mode = torchvision.transforms.InterpolationMode(request.interpolation)
        changes["interpolation"] = mode
    return changes


def _side_changes(
    own: Preset, request: ModelRequest, own_side: int | None
) -> Mapping[str, int | list[int]]:
    """Return the arguments of a preset that resizes and crops, for the sides that were asked for.

    The proportion between resizing and cropping is the preset's own unless ``resize`` is given.

    Args:
        own: the preset without changes.
        request: ``size`` and ``resize`` are used.
        own_side: the side of the pictures that the network is made for, if it specifies one.
    """
    side = request.size or own_side or own.crop_size[0]
    if side == own.crop_size[0] and request.resize is None:
        return {}
    resize = [round(side * length / own.crop_size[0]) for length in own.resize_size]
    resize = [request.resize] if request.resize is not None else resize
    if len(own.crop_size) > 1:
        return {"crop_size": [side] * len(own.crop_size), "resize_size": resize}
    return {"crop_size": side, "resize_size": resize[0]}


def _imagenet(**changes: object) -> Preset:
    sides = {"crop_size": 224, "resize_size": 256}
    preset: Preset = torchvision.transforms._presets.ImageClassification(**sides | changes)
    return preset


def _set_detection(module: nn.Module, request: ModelRequest) -> None:
    """Change the transform inside a detection model, which normalises and resizes by itself."""
    inside = detection_transform(module)
    if request.resize is not None or request.interpolation is not None:
        raise RequestError(
            "a detection model resizes by itself", "--size N, --mean and --std can be changed"
        )
    if request.size is not None and inside.fixed_size is not None:
        inside.fixed_size = (request.size, request.size)
    elif request.size is not None:
        inside.max_size = round(inside.max_size * request.size / inside.min_size[-1])
        inside.min_size = (request.size,)
    inside.image_mean = list(request.mean or inside.image_mean)
    inside.image_std = list(request.std or inside.image_std)


def _refuse_changes(request: ModelRequest, what: str) -> None:
    for name in ("resize", "mean", "std", "interpolation"):
        if getattr(request, name) is not None:
            raise RequestError(
                f"--{name} does nothing to {what}", "leave it out; --size N can be set"
            )


def _stack_frames(pictures: Sequence[Image.Image]) -> Tensor:
    """Return a clip (T, 3, H, W) of pictures, all resized to the size of the first."""
    same = [picture.resize(pictures[0].size) for picture in pictures]
    to_tensor = torchvision.transforms.functional.pil_to_tensor
    return torch.stack([to_tensor(same[i]) for i in spread_evenly(len(same), CLIP_FRAMES)])


def _crop_long(picture: Image.Image) -> Image.Image:
    """Return the middle of a very long picture, and any other picture unchanged.

    A transform that crops would leave no more than the middle of it.
    """
    if not _is_long(picture):
        return picture
    longest = _LONGEST * min(picture.size)
    width, height = min(picture.width, longest), min(picture.height, longest)
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def _is_long(picture: Image.Image) -> bool:
    return max(picture.size) > _LONGEST * min(picture.size)


def _flow_size(picture: Image.Image, short: int | None) -> tuple[int, int]:
    """Return width and height for an optical flow model: multiples of 8, and at least 128.

    No side is longer than 960 unless ``short``, the length of the short side, asks for it.
    """
    scale = short / min(picture.size) if short else min(1.0, _FLOW_MOST / max(picture.size))
    width, height = (
        max(_FLOW_LEAST, math.floor(side * scale / _FLOW_STEP + 0.5) * _FLOW_STEP)
        for side in picture.size
    )
    return width, height
