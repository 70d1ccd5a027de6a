"""Define each task (classification, detection, …): its inputs, predictions and scores."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeGuard, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from hookcli.errors import NoBoxError, RequestError
from hookcli.networks.presets import colour_changes
from hookcli.networks.task import Part, Preprocessing, Task
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import ask
from hookcli.records.images import CLIP_FRAMES, Prediction, spread_evenly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from PIL import Image
    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset, Transform
    from hookcli.networks.task import Aim, MeanStd, Pictures, Predictions, Scored, Sizes
    from hookcli.records.rows import TaskWord

Reading: TypeAlias = Literal["logits", "labels", "probabilities", "values"]

# The outputs of transformers' models that are features, and the numbers of axes they may have
_FEATURES = {"image_embeds": (2,), "pooler_output": (2,), "last_hidden_state": (2, 3, 4)}
_TOP = 5
_STEP = 8  # RAFT halves its input three times
_LEAST, _MOST = 128, 960  # RAFT's correlation volume is large


class Classification(Task):
    """Handles models that return a row of numbers for each image.

    ``reading`` says what the numbers are: ``logits`` (one class is true), ``labels`` (logits, and
    several classes may be true), ``probabilities``, or ``values`` (there are no classes). Unless
    ``reading`` is ``values``, a row of a single number stands for two classes, 0 and 1, and the
    number belongs to class 1.
    """

    word: TaskWord = "classification"
    is_faster_channels_last = True
    reading: Reading = "logits"
    is_single: bool = False  # whether the output may be (N,), without the axis of classes

    def read_as(self, reading: Reading, *, is_single: bool = False) -> Self:
        task = copy.copy(self)
        task.reading, task.is_single = reading, is_single
        return task

    def find(self, output: object) -> Tensor | None:
        if isinstance(output, tuple) and "logits" in getattr(output, "_fields", ()):
            output = getattr(output, "logits", None)
        if self.is_single and is_floats(output, 1):
            return output[:, None]
        return output if is_floats(output, 2) else None

    def read(self, found: Tensor, categories: Sequence[str], sizes: Sizes = ()) -> Predictions:
        rows = found.detach().float().cpu()
        if self.reading == "values":
            return _name_top("value", rows, rows, categories)
        return _name_top("probability", rows, find_probabilities(rows, self.reading), categories)

    def score(self, found: Tensor, kind: str, target: int | None) -> Scored:
        is_value = self.reading == "values"
        if is_value:
            require_logit(kind, "the model returns values, and no classes that are known")
        best = int(found[0].argmax()) if is_value or found.shape[1] > 1 else 1
        index = best if target is None else target
        score = _score_rows(found, kind, index, self.reading)
        names = {"values": "value", "probabilities": "probability"}
        return score, index, names.get(self.reading, kind) if kind == "logit" else kind


class Quantized(Classification):
    word = "quantization"
    is_faster_channels_last = False


class Video(Classification):
    word = "video"
    frames = CLIP_FRAMES
    stacked = (1, CLIP_FRAMES)
    keeps_steps = "a video model prepares the frames of a clip together"
    shares_forward = False
    is_faster_channels_last = False

    def to_pixels(self, pictures: Pictures, transform: Transform, size: int | None) -> Tensor:
        same = [picture.resize(pictures[0].size) for picture in pictures]
        to_tensor = torchvision.transforms.functional.pil_to_tensor
        frames = [to_tensor(same[i]) for i in spread_evenly(len(same), CLIP_FRAMES)]
        clip: Tensor = transform(torch.stack(frames))
        return clip

    def describe(self, pictures: Pictures, count: int, size: int | None) -> str:
        source = f"{count} frames" if count > 1 else "the still image"
        return f"a clip of {CLIP_FRAMES} frames, taken from {source}"

    def picture(self, seen: Tensor) -> Tensor:
        return seen[:, seen.shape[1] // 2]


class Segmentation(Task):
    word = "segmentation"
    nominal = (520, 520)
    takes_any_size = True
    is_faster_channels_last = True

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        side = request.size or request.resize or make().resize_size[0]
        return Preprocessing(self, make(resize_size=side, **colour_changes(request)), size=side)

    def find(self, output: object) -> Tensor | None:
        logits = output.get("out") if isinstance(output, dict) else None
        return logits if is_floats(logits, 4) else None

    def read(self, found: Tensor, categories: Sequence[str], sizes: Sizes = ()) -> Predictions:
        predictions = []
        labels = self.list_labels(found.detach(), sizes)
        for logits, of_image in zip(found.detach(), labels, strict=True):
            shares = _find_shares(of_image, len(logits))
            best = [index for index in _find_top(shares) if shares[index] > 0]
            values = shares[best].tolist()
            named = categories if len(categories) == len(shares) else ()
            predictions.append(_name_classes("share of the image", logits, values, best, named))
        return predictions

    def list_labels(self, found: Tensor, sizes: Sizes) -> Sequence[Tensor]:
        """Return each image's map (H, W) of classes; a subclass may resize the map to ``sizes``."""
        return list(found.argmax(1) if found.shape[1] > 1 else (found[:, 0] > 0).long())

    def score(self, found: Tensor, kind: str, target: int | None) -> Scored:
        index = target
        if index is None:
            labels = self.list_labels(found.detach(), ())[0]
            index = int(_find_shares(labels, found.shape[1]).argmax()) if found.shape[1] > 1 else 1
        return _score_rows(found[0].flatten(1).T, kind, index), index, f"mean {kind}"

    def score_part(self, found: Tensor, kind: str, aim: Aim) -> Part:
        if aim.kind != "pixels":
            return super().score_part(found, kind, aim)
        index, mask = aim.number, aim.found
        if index is None:
            index = self.score(found, kind, None)[1] or 0
        if mask is None:
            mask = self.list_labels(found.detach(), ())[0] == index
        value = _score_rows(found[0][:, mask].T, kind, index)
        if not mask.any():
            labels = {*self.list_labels(found.detach(), ())[0].flatten().tolist()}
            hint = f"its classes: {sorted(labels)}; `target={index}` averages over all pixels"
            raise NoBoxError(f"no pixel of an image is of class {index}", hint)
        aim = replace(aim, number=index, found=mask)
        return Part((value, index, f"mean {kind} of the pixels"), aim)


def _find_shares(labels: Tensor, classes: int) -> Tensor:
    flat = labels.flatten().cpu()
    return flat.bincount(minlength=max(2, classes)).double() / flat.numel()


class FeatureTask(Task):
    word = "features"

    def find(self, output: object) -> None:
        return None


class Boxes(TypedDict):
    boxes: Tensor  # (n, 4), the corners
    scores: Tensor  # (n,)
    labels: Tensor  # (n,), the class indices


class BoxTask(Task):
    word = "detection"
    keeps_steps = "a detection model resizes by itself"
    needs_values = True

    def read(self, found: list[Boxes], categories: Sequence[str], sizes: Sizes = ()) -> Predictions:
        return [_read_boxes(boxes, categories) for boxes in found]

    def score(self, found: list[Boxes], kind: str, target: int | None) -> Scored:
        require_logit(kind, "boxes have only a score")
        labels, scores = found[0]["labels"], found[0]["scores"]
        every = torch.arange(len(labels))
        eligible = every if target is None else (labels == target).nonzero().flatten()
        if not len(eligible):
            what = "no box" if target is None else f"no box of class {target}"
            hint = "choose a different `target`, or `score='sum'`"
            raise NoBoxError(f"the model found {what} in an image", hint)
        best = int(eligible[int(scores[eligible].argmax())])
        return scores[best], int(labels[best]), "score of the best box"

    def score_part(self, found: list[Boxes], kind: str, aim: Aim) -> Part:
        if aim.kind != "box" or aim.number is None:
            return super().score_part(found, kind, aim)
        require_logit(kind, "boxes have only a score")
        boxes, scores, labels = (found[0][name] for name in ("boxes", "scores", "labels"))
        what = f"score of box {aim.number}"
        if aim.found is None:
            order = scores.detach().argsort(descending=True, stable=True)
            if aim.number >= len(order):
                hint = "boxes are counted from 0, the best first"
                raise NoBoxError(f"an image has no box {aim.number}: it has {len(order)}", hint)
            best = int(order[aim.number])
            corners = boxes[best].detach()
            aim = replace(aim, found=torch.cat([corners, labels[best, None].to(corners)]))
            return Part((scores[best], int(labels[best]), what), aim, corners)
        # Another output for the same image: the box of this class that overlaps the first box most,
        # as in D-RISE (Petsiuk et al. 2021, https://arxiv.org/abs/2006.03204), but for its classes.
        corners, label = aim.found[:4].to(boxes), int(aim.found[4])
        overlaps = torchvision.ops.box_iou(corners[None], boxes.detach())[0] * (labels == label)
        if not overlaps.any():
            raise NoBoxError("no box of an image overlaps the one that `target` names")
        best = int((overlaps * scores.detach()).argmax())
        return Part((overlaps[best] * scores[best], label, what), aim, corners)


class Detection(BoxTask):
    nominal = (480, 640)
    takes_any_size = True
    shares_forward = False
    keeps_pictures = True

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        inside: Any = module.transform
        if request.resize is not None or request.interpolation is not None:
            hint = "`size=N`, `mean` and `std` can be changed"
            raise RequestError("a detection model resizes by itself", hint)
        if request.size is not None and inside.fixed_size is not None:
            inside.fixed_size = (request.size, request.size)
        elif request.size is not None:
            inside.max_size = round(inside.max_size * request.size / inside.min_size[-1])
            inside.min_size = (request.size,)
        inside.image_mean = list(request.mean or inside.image_mean)
        inside.image_std = list(request.std or inside.image_std)
        return Preprocessing(self, make(), size=request.size)

    def arguments(self, pixels: Tensor) -> tuple[object, ...]:
        return (list(pixels),)

    def check_mode(self, name: str, module: nn.Module) -> None:
        if module.training:
            what = f"{name} needs labelled boxes in training mode, to compute its losses"
            raise RequestError(what, "`model.mode='eval'`")

    def seen(self, module: nn.Module, pixels: Tensor) -> Tensor:
        inside: Any = module.transform
        device = next(module.parameters()).device
        with torch.inference_mode():
            batch, _ = inside([image.to(device) for image in pixels])
        seen: Tensor = batch.tensors
        return seen

    def normalisation(self, module: nn.Module, transform: object) -> MeanStd:
        inside: Any = module.transform
        return inside.image_mean, inside.image_std

    def find(self, output: object) -> list[Boxes] | None:
        is_found = isinstance(output, list) and output and all(map(_is_boxes, output))
        return cast("list[Boxes]", output) if is_found else None


def _is_boxes(value: object) -> TypeGuard[Boxes]:
    if not isinstance(value, dict):
        return False
    boxes, scores, labels = (value.get(name) for name in ("boxes", "scores", "labels"))
    if not (isinstance(labels, Tensor) and is_floats(boxes, 2) and is_floats(scores, 1)):
        return False
    return scores.shape == labels.shape == boxes.shape[:1]


def _read_boxes(found: Boxes, categories: Sequence[str]) -> tuple[Prediction, ...]:
    scores, boxes = found["scores"].detach().float().cpu(), found["boxes"].detach().float().cpu()
    labels = found["labels"].long().cpu().tolist()
    return tuple(
        Prediction(
            "score",
            name_class(labels[index], categories),
            labels[index],
            value=finite(float(scores[index])),
            box=_finite_box(boxes[index].tolist()),
        )
        for index in _find_top(scores)
    )


def _finite_box(sides: Sequence[float]) -> tuple[float, ...] | None:
    return tuple(round(side, 1) for side in sides) if all(map(math.isfinite, sides)) else None


class OpticalFlow(Task):
    word = "optical_flow"
    nominal = (368, 496)
    takes_pair = True
    keeps_steps = "an optical flow model takes pairs, which keep their ratio"
    stacked = (0, 2)
    takes_any_size = True
    shares_forward = False

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        for name in ("resize", "mean", "std", "interpolation"):
            if getattr(request, name) is not None:
                hint = "leave it out; `size=N` can be set"
                raise RequestError(f"`{name}` does nothing to an optical flow model", hint)
        return Preprocessing(self, make(), size=request.size)

    def to_pixels(self, pictures: Pictures, transform: Transform, size: int | None) -> Tensor:
        sides = _find_sides(pictures[0], size)
        pair = [picture.resize(sides) for picture in (*pictures, *pictures)[:2]]
        return torch.stack(transform(*pair))

    def describe(self, pictures: Pictures, count: int, size: int | None) -> str:
        made = "a pair of images" if count > 1 else "a pair: the same image twice"
        sides = _find_sides(pictures[0], size) if pictures else (0, 0)
        is_other = any(picture.size != sides for picture in pictures[:2])
        return f"{made}, resized to {sides[0]} by {sides[1]} pixels" if is_other else made

    def arguments(self, pixels: Tensor) -> tuple[object, ...]:
        return pixels[:, 0], pixels[:, 1]

    def picture(self, seen: Tensor) -> Tensor:
        return seen[0]

    def normalisation(self, module: nn.Module, transform: object) -> MeanStd:
        return [0.5] * 3, [0.5] * 3  # torchvision's preset does not store them

    def find(self, output: object) -> Tensor | None:
        flows = output if isinstance(output, list) else []
        is_found = flows and all(is_floats(each, 4) and each.shape[1] == 2 for each in flows)
        return flows[-1] if is_found else None

    def read(self, found: Tensor, categories: Sequence[str], sizes: Sizes = ()) -> Predictions:
        lengths = found.detach().float().norm(dim=1).flatten(1).cpu()
        figures = ({"mean flow": each.mean(), "greatest flow": each.max()} for each in lengths)
        return [name_figures("pixels", each) for each in figures]

    def score(self, found: Tensor, kind: str, target: int | None) -> Scored:
        refuse_classes("an optical flow", kind, target)
        return found.norm(dim=1).mean(), None, "mean flow in pixels"


def _find_sides(picture: Image.Image, short: int | None) -> tuple[int, int]:
    # Without a requested ``short`` side, both sides are at most 960.
    scale = short / min(picture.size) if short else min(1.0, _MOST / max(picture.size))
    width, height = (
        max(_LEAST, math.floor(side * scale / _STEP + 0.5) * _STEP) for side in picture.size
    )
    return width, height


CLASSIFICATION, FEATURES = Classification(), FeatureTask()
_OTHERS = (Segmentation(), Detection(), OpticalFlow(), Video(), Quantized())
TASKS: tuple[Task, ...] = (CLASSIFICATION, *_OTHERS)


def find_task(package: str) -> Task:
    return next((task for task in TASKS if f".{task.word}." in package), CLASSIFICATION)


def find_form(output: object, own: Task | None = None) -> tuple[Task, Any] | None:
    for task in TASKS if own is None else (own, *TASKS):
        if (found := task.find(output)) is not None:
            return task, found
    return None


def read_predictions(
    output: object, categories: Sequence[str], sizes: Sizes = (), own: Task | None = None
) -> Predictions:
    form = find_form(output, own)
    if form is None:
        return []
    task, found = form
    return task.read(found, categories, sizes)


def read_features(features: Tensor) -> Predictions:
    count = features.shape[2 if features.dim() == 3 else 1]
    return [(Prediction("features", f"{count} features, no classes", None, None),)] * len(features)


def find_features(output: object) -> Tensor | None:
    """Return the features in an output; None if there are none, or if the output has logits."""
    # Models of transformers return a mapping; the shape may also be (N, tokens, F) or (N, F, H, W).
    if not isinstance(output, Mapping):
        return output if is_floats(output, 2) else None
    if "logits" in output:
        return None
    for name, axes in _FEATURES.items():
        features = output.get(name)
        if isinstance(features, Tensor) and any(is_floats(features, count) for count in axes):
            return features
    return None


def is_floats(value: object, axes: int) -> TypeGuard[Tensor]:
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta:
        return False
    return value.is_floating_point() and value.dim() == axes


def name_class(index: int, categories: Sequence[str], word: str = "class") -> str:
    return categories[index] if 0 <= index < len(categories) else f"{word} {index}"


def read_problem(owner: object) -> Reading:
    problem = str(ask(owner, "problem_type"))
    known: dict[str, Reading] = {"regression": "values", "multi_label_classification": "labels"}
    return known.get(problem, "logits")


def find_probabilities(rows: Tensor, reading: Reading) -> Tensor:
    if rows.shape[1] > 1:
        made = {"logits": lambda: rows.softmax(1), "labels": rows.sigmoid}
        return made[reading]() if reading in made else rows
    pair = [1 - rows, rows] if reading == "probabilities" else [(-rows).sigmoid(), rows.sigmoid()]
    return torch.cat(pair, 1)


def _name_top(measure: str, rows: Tensor, values: Tensor, categories: Sequence[str]) -> Predictions:
    best = values.topk(min(_TOP, values.shape[1]))
    categories = categories if len(categories) == values.shape[1] else ()
    ranked = zip(rows, best.values.tolist(), best.indices.tolist(), strict=True)
    return [_name_classes(measure, row, found, at, categories) for row, found, at in ranked]


def _name_classes(
    measure: str,
    logits: Tensor,
    values: Sequence[float],
    indices: Sequence[int],
    categories: Sequence[str],
) -> tuple[Prediction, ...]:
    if not logits.isfinite().all():
        return (Prediction(measure, "no prediction: the logits are not finite", None, None),)
    word = "output" if measure == "value" else "class"
    return tuple(
        Prediction(measure, name_class(index, categories, word), index, value)
        for index, value in zip(indices, values, strict=True)
    )


def _find_top(values: Tensor) -> list[int]:
    order: list[int] = values.argsort(descending=True, stable=True)[:_TOP].tolist()
    return order


def _score_rows(rows: Tensor, kind: str, index: int, reading: Reading = "logits") -> Tensor:
    is_pair = rows.shape[1] == 1 and reading != "values"
    if index >= (count := 2 if is_pair else rows.shape[1]):
        known = f"classes are 0 to {count - 1}" if count > 1 else "the model returns one value"
        raise RequestError(f"`target`: there is no class {index}", known)
    chosen = rows[:, 0 if is_pair else index]
    if is_pair and not index:  # the opposite of the positive class
        chosen = 1 - chosen if reading == "probabilities" else -chosen
    if kind == "logit":
        return chosen.mean()
    if reading == "probabilities":
        tiny = torch.finfo(chosen.dtype).tiny
        return chosen.mean() if kind == "probability" else -chosen.clamp(min=tiny).log().mean()
    if is_pair or reading == "labels":
        return chosen.sigmoid().mean() if kind == "probability" else -logsigmoid(chosen).mean()
    if kind == "probability":
        return rows.softmax(1)[:, index].mean()
    return cross_entropy(rows, torch.full((len(rows),), index, device=rows.device))


def name_figures(measure: str, figures: Mapping[str, Tensor]) -> tuple[Prediction, ...]:
    values = {name: finite(float(value)) for name, value in figures.items()}
    return tuple(Prediction(measure, name, None, value) for name, value in values.items())


def require_logit(kind: str, why: str) -> None:
    if kind != "logit":
        raise RequestError(f"`score={kind!r}`: {why}", "leave `score` as it is")


def refuse_classes(what: str, kind: str, target: int | None) -> None:
    if target is not None or kind != "logit":
        raise RequestError(f"{what} has no classes", "leave `target` and `score` as they are")


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
