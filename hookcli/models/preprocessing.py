"""From pictures to pixels, as the weights of a model want them, and from pixels to the model's arguments."""

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
# Times the short side. Resized as it is, a longer picture could fill the memory: of one that is cropped
# the middle is taken before, which moves it by less than a pixel, and one that is shown whole is refused.
_LONGEST = 100
_FLOW_STEP = 8  # RAFT halves three times
_FLOW_LEAST, _FLOW_MOST = 128, 960  # its correlation volume is large
_NOMINAL = {"segmentation": (520, 520), "detection": (480, 640), "optical_flow": (368, 496)}


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How one image becomes pixels.

    Attributes:
        task: of the model.
        transform: torchvision's or timm's own, with what the user changed.
        crop: height and width of what a transform leaves that crops; None if it shows the whole picture.
        size: the side asked for, where the network takes pictures of any size.
        channels: how many the network takes; None where that is not known, of the user's own models.
        fixed: the only size that it takes; None where it takes others.
    """

    task: str
    transform: Transform
    crop: tuple[int, int] | None = None
    size: int | None = None
    channels: int | None = _COLOURS
    fixed: FixedSize | None = None

    @property
    def words(self) -> str:
        """The transform in words, on one line."""
        return " ".join(repr(self.transform).split())

    @property
    def nominal_shape(self) -> tuple[int, ...]:
        """The pixels of one image of usual size, with the leading axis 1."""
        height, width = self.crop or _NOMINAL.get(self.task, (224, 224))
        if self.size is not None and self.crop is None:
            height, width = self.size, self.size
        channels = self.channels or _COLOURS
        if self.task == "video":
            return (1, channels, CLIP_FRAMES, height, width)
        if self.task == "optical_flow":
            return (1, 2, channels, height, width)
        return (1, channels, height, width)

    def refuse(self, picture: Image.Image) -> str:
        """Why ``picture`` cannot be shown to this network; empty if it can."""
        if self.crop is None and _is_long(picture):
            return f"is {picture.width} by {picture.height} pixels, too thin for this network"
        return ""

    def refuse_pixels(self, shape: Sequence[int]) -> str:
        """Why pixels (C, H, W) that are used as they are do not fit this network; empty if they do."""
        height, width = shape[-2:]
        if self.fixed is not None and not self.fixed.takes(height, width):
            wanted = shape_text((self.channels or shape[0], self.fixed.height, self.fixed.width))
        elif self.channels is not None and shape[0] != self.channels:
            wanted = f"{self.channels} channel{'s' * (self.channels != 1)}"
        else:
            return ""
        return f"is {shape_text(shape)}: this network takes {wanted}"

    def to_pixels(self, pictures: Sequence[Image.Image]) -> Tensor:
        """The pixels of one image: (3, H, W), a clip (3, T, H, W), or for flow a pair (2, 3, H, W).

        Args:
            pictures: upright and RGB; one, or the frames of a clip, or the two of a pair.
        """
        pictures = [_crop_long(picture) if self.crop else picture for picture in pictures]
        if self.task == "optical_flow":
            size = _flow_size(pictures[0], self.size)
            pair = [picture.resize(size) for picture in (*pictures, *pictures)[:2]]
            return torch.stack(self.transform(*pair))
        source = _stack_frames(pictures) if self.task == "video" else pictures[0]
        pixels: Tensor = self.transform(source)
        return pixels

    def repeat(self, pixels: Tensor) -> Tensor:
        """Pixels (C, H, W) that are used as they are; a clip or a pair is made of them where one is needed."""
        if self.task == "video":
            return pixels.unsqueeze(1).expand(-1, CLIP_FRAMES, -1, -1).clone()
        return torch.stack([pixels, pixels]) if self.task == "optical_flow" else pixels

    def describe(self, pictures: Sequence[Image.Image], count: int) -> str:
        """What was made of an image that is another one; empty where the transform is all.

        Args:
            pictures: as ``to_pixels`` takes them; none of pixels that are used as they are.
            count: how many pictures the image has, of which ``pictures`` may be some.
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
    """The model's own preprocessing, with what ``request`` changes.

    Args:
        task: of the model.
        request: ``size``, ``resize``, ``mean``, ``std`` and ``interpolation``.
        module: a ViT tells its size; a detection model resizes by itself and is set here.
        make_preset: makes torchvision's preset; None for models that have none.

    Raises:
        RequestError: something was to be changed that this model's preprocessing does not have.
    """
    return replace(
        _make_own_preprocessing(task, request, module, make_preset or _imagenet),
        channels=_count_channels(task, request),
        fixed=find_fixed_size(module),
    )


def _count_channels(task: str, request: ModelRequest) -> int | None:
    """How many channels a model takes; None for the user's own, of which nothing is known."""
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
    """What a preset is to be made with, instead of its own."""
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
    """What a preset that resizes and takes the middle is to be made with, scaled in its own proportions.

    Args:
        own: as it is.
        request: ``size`` and ``resize``.
        own_side: of the network, where it tells it.
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
    """Detection models normalise and resize by themselves."""
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
    """A clip (T, 3, H, W) of pictures that are made as large as the first."""
    same = [picture.resize(pictures[0].size) for picture in pictures]
    to_tensor = torchvision.transforms.functional.pil_to_tensor
    return torch.stack([to_tensor(same[i]) for i in spread_evenly(len(same), CLIP_FRAMES)])


def _crop_long(picture: Image.Image) -> Image.Image:
    """The middle of a very long picture, which is all that a transform that crops would leave of it."""
    if not _is_long(picture):
        return picture
    longest = _LONGEST * min(picture.size)
    width, height = min(picture.width, longest), min(picture.height, longest)
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def _is_long(picture: Image.Image) -> bool:
    return max(picture.size) > _LONGEST * min(picture.size)


def _flow_size(picture: Image.Image, short: int | None) -> tuple[int, int]:
    """Width and height in multiples of 8, at least 128; no side over 960 unless ``short`` asks for it."""
    scale = short / min(picture.size) if short else min(1.0, _FLOW_MOST / max(picture.size))
    width, height = (
        max(_FLOW_LEAST, math.floor(side * scale / _FLOW_STEP + 0.5) * _FLOW_STEP)
        for side in picture.size
    )
    return width, height
