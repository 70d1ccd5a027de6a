"""Prepare images and read outputs for models of the library transformers (boxes, masks, depth)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from PIL.Image import Resampling
from torch import Tensor

from hookcli.errors import ModelError, NoBoxError, RequestError
from hookcli.networks import tasks
from hookcli.networks.inputs import last_two_axes
from hookcli.networks.presets import mean_text
from hookcli.networks.recipe_steps import Steps
from hookcli.networks.task import COLOURS, Preprocessing, Task, UnfitPictureError, spread_bands
from hookcli.outside.foreign import ask, foreign_line
from hookcli.records.images import Prediction
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset
    from hookcli.networks.task import Predictions, Scored, Sizes
    from hookcli.records.images import Box
    from hookcli.records.rows import TaskWord

# The exceptions with which processors refuse a picture
_REFUSALS = (ValueError, TypeError, RuntimeError, ArithmeticError, LookupError)
_MOST_BANDS = 512


def resize_fields(
    processor: Any, height: int, width: int, before_crop: int | None = None
) -> dict[str, Any]:
    size = {key: v for key, v in dict(processor.size or {}).items() if v is not None}
    crop = dict(ask(processor, "crop_size") or {}) if ask(processor, "do_center_crop") else {}
    fields: dict[str, Any] = {}
    before = min(height, width)
    if crop:
        own = min(v for v in crop.values() if v)
        fields["crop_size"] = {"height": height, "width": width}
        ratio = min(size.values(), default=own) / own
        before = before_crop or round(before * ratio)
        height, width = round(height * ratio), round(width * ratio)
    if "shortest_edge" in size:
        fields["size"] = {"shortest_edge": before}
        if "longest_edge" in size:
            longest = size["longest_edge"] * before / size["shortest_edge"]
            fields["size"]["longest_edge"] = round(longest)
    elif "longest_edge" in size:
        fields["size"] = {"longest_edge": max(height, width)}
    else:
        fields["size"] = {"height": height, "width": width}
    if ask(processor, "pad_size"):
        fields["pad_size"] = {"height": height, "width": width}
    return fields


class ProcessorTransform:
    def __init__(self, processor: Any, changes: Mapping[str, Any]) -> None:
        self._processor, self._changes = processor, dict(changes)
        normalizes = bool(self._ask("do_normalize"))
        self.mean = list(self._ask("image_mean") or [0.0] * 3) if normalizes else [0.0] * 3
        self.std = list(self._ask("image_std") or [1.0] * 3) if normalizes else [1.0] * 3
        if len(self.mean) > _MOST_BANDS or {*map(type, (*self.mean, *self.std))} - {int, float}:
            raise ModelError("the mean or standard deviation of the image processor is damaged")
        self.takes_bands = True
        self.flips_colours = bool(self._ask("do_flip_channel_order"))

    def __call__(self, picture: Any) -> Tensor:
        changes = self._changes
        if len(self.mean) not in (1, COLOURS):
            picture = torch.tensor(spread_bands(picture, len(self.mean))).permute(2, 0, 1)
            changes = changes | {"input_data_format": "channels_first"}
        name = type(self._processor).__name__
        try:
            made = self._processor(images=picture, return_tensors="pt", **changes)
        except _REFUSALS as error:
            reason = f"cannot be prepared by the {name} of the model: {foreign_line(error)}"
            raise UnfitPictureError(reason) from error
        pixels: Tensor = made["pixel_values"][0]
        if not pixels.numel():
            raise UnfitPictureError(f"has no pixels after the {name} of the model")
        return pixels

    def __repr__(self) -> str:
        parts = []
        if self._ask("do_resize"):
            size = _size_text(self._ask("size"))
            how = Resampling(int(self._ask("resample"))).name.lower()
            parts.append(f"resized to {size} ({how})")
        if self._ask("do_center_crop"):
            parts.append(f"cropped to {_size_text(self._ask('crop_size'))} in the middle")
        if self._ask("do_rescale"):
            parts.append(f"times {float(self._ask('rescale_factor')):.6g}")
        if self._ask("do_normalize"):
            parts.append(mean_text(self.mean, self.std))
        if self.flips_colours:
            parts.append("blue first")
        return f"{type(self._processor).__name__}: {', '.join(parts)}"

    def list_steps(self) -> list[Steps]:
        sizes = (dict(self._ask(name) or {}).values() for name in ("size", "crop_size"))
        size, crop = (tuple(int(v) for v in each if v) for each in sizes)
        crop = crop if self._ask("do_center_crop") else ()
        how: Any = Resampling(int(self._ask("resample") or 0)).name.lower()
        # EfficientNet subtracts 1 before the normalization, and divides by ``std`` once more.
        scales = bool(self._ask("do_rescale"))
        factor = float(self._ask("rescale_factor")) * 255 if scales else 1.0
        offset = 1 if scales and self._ask("rescale_offset") else 0
        again = self._ask("image_std") if self._ask("include_top") else [1] * len(self.std)
        # ConvNeXt, LeViT and PoolFormer crop a larger picture; ConvNeXt stretches to 384 pixels.
        larger, square = int(min(size, default=0) / (self._ask("crop_pct") or 0.875)), size * 2
        steps = [
            Steps(
                size=each,
                crop=cut,
                is_like_transformers=True,
                flips_colours=self.flips_colours,
                how=how,
                divisor=255 if scales else 1,
                mean=tuple((v + offset) / factor for v in self.mean),
                std=tuple(v * more / factor for v, more in zip(self.std, again, strict=False)),
            )
            for each, cut in ((size, crop), ((larger,), crop or square[:2]), (square[:2], ()))
        ]
        by_torch = [replace(each, library="torch") for each in steps]
        is_torch = ask(self._processor, "backend") == "torchvision"
        return [*by_torch, *steps] if is_torch else [*steps, *by_torch]

    def _ask(self, name: str) -> Any:
        return self._changes.get(name, ask(self._processor, name))


def _size_text(size: Any) -> str:
    sides = {key: int(v) for key, v in dict(size).items() if v is not None}
    if {"height", "width"} <= sides.keys():
        return f"{shape_text((sides['height'], sides['width']))} pixels"
    words = {"shortest_edge": "on the short side", "longest_edge": "on the long side"}
    return ", ".join(f"{v} pixels {words.get(key, key)}" for key, v in sides.items())


class _ProcessorTask(Task):
    is_faster_channels_last = False

    def __init__(self, load: Callable[[], Any], config: Any) -> None:
        self._load = load

    @functools.cached_property
    def processor(self) -> Any:
        return self._load()

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        transform = ProcessorTransform(self.processor, self._changes(request))
        task = copy.copy(self)
        try:
            task.nominal = last_two_axes(transform(Image.new("RGB", (640, 480))))
        except UnfitPictureError as error:
            hint = "look at the sizes in its preprocessor_config.json, or choose another `size`"
            raise ModelError(f"a picture of 640x480 pixels {error.message}", hint) from error
        crops = bool(transform._ask("do_center_crop"))
        return Preprocessing(task, transform, crop=task.nominal if crops else None)

    def _changes(self, request: ModelRequest) -> dict[str, Any]:
        own, changes = self.processor, dict[str, Any]()
        if request.size is not None:
            changes = resize_fields(own, request.size, request.size, request.resize)
        elif request.resize is not None:
            if not ask(own, "do_center_crop"):
                what = f"{type(own).__name__} does not crop: `resize` is the short side before that"
                raise RequestError(what, "use `size`")
            changes["size"] = {"shortest_edge": request.resize}
        for name, value in (("image_mean", request.mean), ("image_std", request.std)):
            if value is not None:
                changes |= {name: list(value), "do_normalize": True}
        if request.interpolation is not None:
            changes["resample"] = Resampling[request.interpolation.upper()]
        return changes

    def picture(self, seen: Tensor) -> Tensor:
        return seen.flip(0) if ask(self.processor, "do_flip_channel_order") else seen


class _Backbone(_ProcessorTask, tasks.FeatureTask):
    pass


class _Classifier(_ProcessorTask, tasks.Classification):
    is_faster_channels_last = True

    def __init__(self, load: Callable[[], Any], config: Any) -> None:
        super().__init__(load, config)
        self.reading = tasks.read_problem(config)

    def find(self, output: object) -> Tensor | None:
        return _logits_of(output, 2)


class _Segmenter(_ProcessorTask, tasks.Segmentation):
    def find(self, output: object) -> Tensor | None:
        return _logits_of(output, 4)

    def list_labels(self, found: Tensor, sizes: Sizes) -> Sequence[Tensor]:
        process = ask(self.processor, "post_process_semantic_segmentation")
        if process is None or not sizes or found.shape[1] == 1:
            return super().list_labels(found, sizes)
        wanted = [size[::-1] for size in sizes]
        labels: Sequence[Tensor] = process(SimpleNamespace(logits=found), target_sizes=wanted)
        return labels


class _Detector(_ProcessorTask, tasks.BoxTask):
    def find(self, output: object) -> list[tasks.Boxes] | None:
        logits, boxes = _logits_of(output, 3), ask(output, "pred_boxes")
        process = ask(self.processor, "post_process_object_detection")
        if logits is None or not tasks.is_floats(boxes, 3) or process is None:
            return None
        # without sizes, the corners are from 0 to 1
        found: list[tasks.Boxes] = process(output, threshold=0.0, target_sizes=None)
        return found

    def place_box(self, box: Box, size: tuple[int, int]) -> Box:
        return tuple(side * length for side, length in zip(box, (*size, *size), strict=True))

    def read(
        self, found: list[tasks.Boxes], categories: Sequence[str], sizes: Sizes = ()
    ) -> Predictions:
        scaled: list[tasks.Boxes] = [
            {**each, "boxes": each["boxes"] * torch.tensor([*size, *size]).to(each["boxes"])}
            for each, size in zip(found, sizes or [(1, 1)] * len(found), strict=True)
        ]
        return tasks.BoxTask.read(self, scaled, categories)


class _Masks(_ProcessorTask):
    word: TaskWord = "segmentation"
    needs_values = True
    keeps_steps = "its image processor places the boxes that it finds"

    def find(self, output: object) -> list[SimpleNamespace] | None:
        names = ("class_queries_logits", "masks_queries_logits")
        classes, masks = (ask(output, name) for name in names)
        if not (tasks.is_floats(classes, 3) and tasks.is_floats(masks, 4)):
            return None
        pairs = zip(torch.split(classes, 1), torch.split(masks, 1), strict=True)
        return [SimpleNamespace(**dict(zip(names, pair, strict=True))) for pair in pairs]

    def read(
        self, found: list[SimpleNamespace], categories: Sequence[str], sizes: Sizes = ()
    ) -> Predictions:
        own = self.processor
        process = ask(own, "post_process_panoptic_segmentation") or ask(
            own, "post_process_instance_segmentation"
        )
        if process is None or not sizes:
            return [() for _ in found]
        limits = {"threshold": 0.9, "mask_threshold": 0.5, "overlap_mask_area_threshold": 0.5}
        return [
            _read_segments(process(each, target_sizes=[size[::-1]], **limits)[0], categories)
            for each, size in zip(found, sizes, strict=True)
        ]

    def score(self, found: list[SimpleNamespace], kind: str, target: int | None) -> Scored:
        tasks.require_logit(kind, "segments have only a score")
        # The last class means that a query found nothing.
        classes = found[0].class_queries_logits[0].softmax(-1)[:, :-1]
        if target is not None and target >= classes.shape[1]:
            raise NoBoxError(f"the model has no class {target}", "choose a different `target`")
        index = int(classes.amax(0).argmax()) if target is None else target
        return classes[:, index].amax(), index, "score of the best segment"


class _Depth(_ProcessorTask):
    word: TaskWord = "depth"

    def find(self, output: object) -> list[Tensor] | None:
        depth = ask(output, "predicted_depth")
        return list(torch.split(depth, 1)) if tasks.is_floats(depth, 3) else None

    def read(
        self, found: list[Tensor], categories: Sequence[str], sizes: Sizes = ()
    ) -> Predictions:
        process = ask(self.processor, "post_process_depth_estimation")
        depths = [each.detach().float().cpu() for each in found]
        if process is not None and sizes:
            depths = [
                process(SimpleNamespace(predicted_depth=depth), [size[::-1]])[0]["predicted_depth"]
                for depth, size in zip(depths, sizes, strict=True)
            ]
        names = ("mean depth", "smallest depth", "largest depth")
        figures = [(depth.mean(), depth.min(), depth.max()) for depth in depths]
        named = (dict(zip(names, each, strict=True)) for each in figures)
        return [tasks.name_figures("depth", each) for each in named]

    def score(self, found: list[Tensor], kind: str, target: int | None) -> Scored:
        tasks.refuse_classes("a depth map", kind, target)
        return found[0].mean(), None, "mean depth"


_TASKS: tuple[tuple[str, type[_ProcessorTask]], ...] = (
    ("ForImageClassification", _Classifier),
    ("ForSemanticSegmentation", _Segmenter),
    ("ForObjectDetection", _Detector),
    ("ForSegmentation", _Detector),  # of DETR: boxes with masks
    ("ForUniversalSegmentation", _Masks),
    ("ForInstanceSegmentation", _Masks),
    ("ForDepthEstimation", _Depth),
)


def choose_task(name: str) -> type[_ProcessorTask]:
    return next((task for end, task in _TASKS if end in name), _Backbone)


def _read_segments(found: Mapping[str, Any], categories: Sequence[str]) -> tuple[Prediction, ...]:
    labels: Tensor = found["segmentation"]
    return tuple(
        Prediction(
            "score",
            tasks.name_class(segment["label_id"], categories),
            segment["label_id"],
            tasks.finite(float(segment["score"])),
            box=_bounds(labels == segment["id"]),
        )
        for segment in sorted(found["segments_info"], key=lambda segment: -segment["score"])
    )


def _bounds(mask: Tensor) -> tuple[float, ...] | None:
    """Return left, top, right and bottom of a mask's True pixels; None if no pixel is True."""
    rows, columns = (mask.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    if not rows:
        return None
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def _logits_of(output: object, axes: int) -> Tensor | None:
    logits = output.get("logits") if isinstance(output, Mapping) else output
    return logits if tasks.is_floats(logits, axes) else None
