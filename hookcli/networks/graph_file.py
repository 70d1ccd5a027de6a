"""Read and check ONNX files, and describe models in ONNX or torch.export files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hookcli.config import DEFAULTS, LARGEST_SIDE
from hookcli.errors import ForwardError, ModelError, RequestError
from hookcli.networks.categories import read_categories
from hookcli.networks.description import ModelDescription
from hookcli.networks.hub import join_hashes
from hookcli.networks.inputs import read_inputs
from hookcli.networks.load import build_skeleton
from hookcli.networks.presets import colour_changes, make_imagenet
from hookcli.networks.recipe import read_recipe
from hookcli.networks.recipe_steps import apply_recipe
from hookcli.networks.task import COLOURS, Preprocessing
from hookcli.networks.tasks import CLASSIFICATION, Classification
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.files import hash_file, read_regular
from hookcli.outside.foreign import ForeignCode
from hookcli.records.runs import ASSUMED, ModelInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import Transform
    from hookcli.networks.task import Predictions, Sizes
    from hookcli.networks.tasks import Reading

_ASSUMED = ASSUMED.replace("the model", "the file", 1)
_FLOATS = ("float32", "float16", "float64", "bfloat16")
_WHOLE = ("uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_NOT_SCALED = (
    "the file takes whole numbers: pixels from 0 to 255, without mean and standard deviation"
)
_CHANNELS = (1, 3, 4)  # the usual lengths of the axis of a picture's channels
_LIKE = "name the model that it was made from: `like=MODEL`"


@dataclass(frozen=True, slots=True)
class GraphInput:
    shape: tuple[int | None, ...]  # (N, C, H, W) for a picture; None for a length that may vary
    dtype: str  # such as ``float32``
    name: str = ""
    is_nhwc: bool = False  # whether the graph takes pictures (N, H, W, C)

    def with_layout(self, asked: str | None, axis: int | None = None) -> GraphInput:
        # If the user has not ``asked`` for a layout, the channel ``axis`` that the first operators
        # show decides; if they show none, the lengths of the axes decide.
        if len(self.shape) != 4:
            return self
        count, height, width, channels = self.shape
        is_last = channels in _CHANNELS and height not in _CHANNELS
        is_first = height in _CHANNELS and channels not in _CHANNELS
        if (is_last and axis != 1) if asked == "NCHW" else (asked and is_first and axis != 3):
            hint = f"leave out `input_layout={asked!r}`"
            raise RequestError(f"the shape of the file's input shows that it is not {asked}", hint)
        if asked == "NHWC" if asked else is_last if axis is None else axis == 3:
            return replace(self, shape=(count, channels, height, width), is_nhwc=True)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDescription(ModelDescription):
    predicts: bool  # whether hookcli reads predictions from the model's output

    def read(self, output: object, sizes: Sizes = ()) -> Predictions:
        is_known = self.choose is not None or (
            self.predicts and (isinstance(output, Tensor) or type(self.task) is not Classification)
        )
        return ModelDescription.read(self, output, sizes) if is_known else []


def check_graph_request(request: ModelRequest) -> None:
    default = DEFAULTS.run.model
    for name in ("weights", "seed", "dtype", "mode", "arguments", "inputs_as"):
        if getattr(request, name) != getattr(default, name):
            what = f"`{name}` does not apply to {request.name!r}: the file fixes it"
            raise RequestError(what, f"leave out `{name}`, or name the PyTorch model")
    if request.device not in ("auto", "cpu"):
        is_onnx = request.name.endswith(".onnx")
        hint = "for ONNX files: `provider='cuda'`" if is_onnx else "export the model on that device"
        raise RequestError(f"`device` does not apply to {request.name!r}", hint)


def describe_graph(
    request: ModelRequest, inputs: Sequence[GraphInput], sha256: str, reading: Reading | None
) -> GraphDescription:
    # ``reading`` says what the output is if the graph ends in a linear layer; else None.
    extra = read_inputs(request)
    if extra is not None:
        extra.check(repr(request.name), [each.name for each in inputs])
        given = {name for name, text in request.inputs if text != "pixels"}
        inputs = [each for each in inputs if each.name not in given]
        extra = extra.as_tensors()
    if not inputs or inputs[0].dtype not in (*_FLOATS, *_WHOLE):
        kind = (inputs[0].dtype or "something other than a tensor") if inputs else "nothing"
        hint = f"export the model for one of: {', '.join((*_FLOATS, *_WHOLE))}"
        raise RequestError(f"{request.name!r} takes {kind}, which pixels cannot be", hint)
    _check_picture(request, inputs[0].shape)
    is_whole, notes = inputs[0].dtype in _WHOLE, tuple[str, ...]()
    if is_whole:
        recipe = read_recipe(request.preprocess)
        values = (request.mean, request.std, recipe.mean, recipe.std, recipe.scale)
        if any(each is not None for each in values):
            raise RequestError(
                f"{request.name!r} takes {inputs[0].dtype}, so its pixels are from 0 to 255",
                "leave out `mean` and `std`, or what a recipe says of mean, std and scale",
            )
        bands = (inputs[0].shape[1] if request.like is None else None) or COLOURS
        request = replace(request, mean=(0.0,) * bands, std=(1 / 255,) * bands)
    if request.like is not None:
        prepare, categories, task = _prepare_like(request, request.like, inputs)
    else:
        _check_count(request, inputs, 1)
        prepare, categories, task = _prepare(request, inputs[0]), (), "own"
        notes = () if is_whole or (request.mean and request.std) else (_ASSUMED,)
    prepare = apply_recipe(request, prepare)
    if is_whole:
        notes = (*notes, _NOT_SCALED)
        steps = getattr(prepare.transform, "transforms", [prepare.transform])
        prepare = replace(prepare, transform=torchvision.transforms.Compose([*steps, _Rounding()]))
    if request.categories is not None:
        categories = read_categories(request.categories)
    info = ModelInfo(
        name=request.name,
        task=task,
        weights="those in the file",
        trained=True,
        sha256=sha256,
        dtype=inputs[0].dtype,
        preprocessing=prepare.words + (", channels last" if inputs[0].is_nhwc else ""),
        input_shape=prepare.nominal_shape,
        notes=notes,
    )
    if isinstance(prepare.task, Classification) and reading is not None:
        reading = "values" if len(categories) == 1 else reading
        own = prepare.task.reading if reading == "logits" else reading
        prepare = replace(prepare, task=prepare.task.read_as(own))
    predicts = reading is not None or request.like is not None
    return GraphDescription(info, prepare, categories, extra=extra, predicts=predicts)


def fit_inputs(tensors: Sequence[Tensor], inputs: Sequence[GraphInput]) -> list[Tensor]:
    fitted = list(tensors)
    for index, (tensor, wanted) in enumerate(zip(tensors, inputs, strict=False)):
        if wanted.is_nhwc and tensor.dim() == len(wanted.shape):
            fitted[index] = tensor.permute(0, 2, 3, 1)
        if wanted.dtype in _WHOLE and tensor.is_floating_point():
            most = torch.iinfo(getattr(torch, wanted.dtype)).max
            if not torch.equal(tensor, tensor.round().clamp(0, most)):
                raise ForwardError(
                    f"the file takes {wanted.dtype}, and its input has values other than whole "
                    f"numbers from 0 to {most}",
                    "compare with model=FILE, which prepares pixels from 0 to 255",
                )
    return fitted


class _Rounding:
    def __call__(self, pixels: Tensor) -> Tensor:
        return pixels.round()

    def __repr__(self) -> str:
        return "rounded"


def _prepare_like(
    request: ModelRequest, name: str, inputs: Sequence[GraphInput]
) -> tuple[Preprocessing, tuple[str, ...], str]:
    height, width = inputs[0].shape[-2:]
    side = height if height == width else None
    sized = replace(request, name=name, like=None, device="cpu", size=request.size or side)
    like = build_skeleton(replace(sized, preprocess=None))
    prepare = like.prepare
    _check_count(request, inputs, len(like.task.arguments(torch.zeros(prepare.nominal_shape))))
    if height is not None and width is not None:
        if height != width:
            transform = _make_rectangle(request, (height, width), *like.normalisation())
            prepare = replace(prepare, transform=transform, crop=(height, width))
        prepare = replace(prepare, fixed=(height, width))
    return prepare, like.categories, like.info.task


def _check_count(request: ModelRequest, inputs: Sequence[GraphInput], count: int) -> None:
    if len(inputs) != count:
        raise RequestError(f"{request.name!r} takes {len(inputs)} inputs, not {count}", _LIKE)


def _check_picture(request: ModelRequest, shape: tuple[int | None, ...]) -> None:
    text = "x".join("?" if length is None else str(length) for length in shape)
    if len(shape) != 4 and (request.like is None or len(shape) < 4):
        taken = f"the shape {text}" if shape else "an input of unknown shape"
        raise RequestError(f"{request.name!r} takes {taken}, and a picture is 1xCxHxW", _LIKE)
    if shape[0] not in (None, 1):
        hint = "export the model for one picture, or with a free batch axis"
        raise RequestError(f"{request.name!r} takes {shape[0]} pictures at once, not one", hint)
    if max(length or 0 for length in shape[-2:]) > LARGEST_SIDE:
        raise RequestError(
            f"{request.name!r} takes {text}, and a picture has at most {LARGEST_SIDE} pixels a side"
        )


def _prepare(request: ModelRequest, taken: GraphInput) -> Preprocessing:
    _, channels, height, width = taken.shape
    grey = channels == 1
    bands = 3 if grey or channels is None else channels
    fixed = None if height is None or width is None else (height, width)
    if fixed is not None and request.size is not None and fixed != (request.size, request.size):
        hint = "leave out `size`"
        raise RequestError(f"{request.name!r} takes pictures of {height}x{width} pixels", hint)
    if channels not in (None, 3):
        plain = (0.0,) * channels, (1.0,) * channels
        request = replace(request, mean=request.mean or plain[0], std=request.std or plain[1])
    if fixed is not None and height != width:
        usual: Any = make_imagenet()
        transform = _make_rectangle(request, fixed, usual.mean, usual.std)
        prepare = Preprocessing(CLASSIFICATION, transform, fixed)
    else:
        sized = replace(request, size=request.size or height)
        prepare = CLASSIFICATION.prepare(sized, nn.Identity(), make_imagenet)
    return replace(prepare, channels=channels, fixed=fixed, grey=grey, bands=bands)


def _make_rectangle(
    request: ModelRequest, size: tuple[int, int], mean: Sequence[float], std: Sequence[float]
) -> Transform:
    changes = colour_changes(request)
    transforms = torchvision.transforms
    how = changes.get("interpolation", transforms.InterpolationMode.BILINEAR)
    steps = [
        transforms.Resize(size, how),
        transforms.ToTensor(),
        transforms.Normalize(changes.get("mean", mean), changes.get("std", std)),
    ]
    transform: Transform = transforms.Compose(steps)
    return transform


def read_graph(file: Path) -> Any:
    import onnx

    try:
        content = read_regular(file)
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    with guard_onnx(file):
        model = onnx.load_model_from_string(content)
        if not model.graph.node:
            raise ModelError(f"{str(file)!r} holds no graph", "export the model again")
        for tensor in _list_external(model):
            _check_external(file, tensor)
    return model


def guard_onnx(file: Path) -> ForeignCode:
    verb, hint = "is damaged, or no ONNX file", "export the model again"
    return ForeignCode(repr(str(file)), verb=verb, hint=hint)


def read_small_weights(file: Path, model: Any, most: int) -> None:
    import onnx

    for tensor in _list_external(model):
        if math.prod(tensor.dims) > most:
            continue
        with guard_onnx(file):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(file.parent))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def hash_graph(file: Path) -> str:
    others = []
    if file.suffix == ".onnx":
        others = sorted({_find(tensor).location for tensor in _list_external(read_graph(file))})
    try:
        hashes = [hash_file(file), *(hash_file(file.parent / other) for other in others)]
    except OSError as error:
        raise ModelError(f"cannot read {str(file)!r}: {error.strerror}") from error
    return join_hashes(hashes)


def _list_external(message: Any) -> Iterator[Any]:
    import onnx

    for field, value in message.ListFields():
        parts = value if isinstance(value, Iterable) else [value]
        for part in parts if field.message_type else ():
            if not isinstance(part, onnx.TensorProto):
                yield from _list_external(part)
            elif onnx.external_data_helper.uses_external_data(part):
                yield part


def _find(tensor: Any) -> Any:
    import onnx

    return onnx.external_data_helper.ExternalDataInfo(tensor)


def _check_external(file: Path, tensor: Any) -> None:
    found = _find(tensor)
    name = found.location
    data = (file.parent / name).resolve()
    if not data.is_relative_to(file.parent.resolve()):
        hint = "move them into the folder of the file"
        raise ModelError(f"{str(file)!r} has weights outside its folder, in {name!r}", hint)
    if not data.is_file():
        raise ModelError(f"the weights of {str(file)!r} are missing: {name!r}", "copy both files")
    if (found.offset or 0) + (found.length or 0) > data.stat().st_size:
        raise ModelError(f"the weights of {str(file)!r} are cut short: {name!r}", "copy it again")
