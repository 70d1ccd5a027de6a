"""A model that is ready to run: built, with its weights, on its device, and its preprocessing."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import torch
from PIL import Image
from torch import nn
from torch.nn.parameter import is_lazy

from hookcli.config import DEFAULTS, Dtype
from hookcli.errors import ModelError, RequestError
from hookcli.foreign import ForeignCode, ask
from hookcli.models.device import find_device
from hookcli.models.inputs import (
    ALONE,
    ModelInputs,
    seen_pixels,
    seen_size,
    show_pixels,
    to_arguments,
)
from hookcli.models.predictions import read_predictions
from hookcli.models.preprocessing import Preprocessing, make_preprocessing
from hookcli.models.scores import find_target, load_score, score_output
from hookcli.models.zoo.build import SkipInitialisation, build_model, build_random, categories_of
from hookcli.models.zoo.origin import OWN, TIMM, find_origin
from hookcli.models.zoo.torchvision_import import torchvision
from hookcli.models.zoo.weights import add_weights
from hookcli.records.runs import ModelInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hookcli.config import ModelRequest, ScoreRequest
    from hookcli.models.scores import ScoreTensor
    from hookcli.models.zoo.origin import Origin
    from hookcli.records.images import Prediction


_CHANNELS_LAST = ("classification", "segmentation", TIMM, OWN)  # tasks whose batches gain by it


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in evaluation mode on its device.

    Attributes:
        info: the facts.
        module: the model itself.
        prepare: turns upright RGB pictures into pixels on the CPU.
        categories: class names by index; empty when the weights have none that fit.
    """

    info: ModelInfo
    module: nn.Module
    prepare: Preprocessing
    categories: tuple[str, ...] = ()

    @property
    def feed(self) -> ModelInputs:
        """How the model is called with pixels."""
        task = self.info.task
        return ModelInputs(
            arguments_of=partial(to_arguments, task),
            size_of=partial(seen_size, self.module, task),
            alone=task in ALONE,
        )

    def use_channels_last(self) -> bool:
        """Lay the weights out for channels last, where that is faster; whether it was done.

        It is for networks of 2-D convolutions on the CPU or CUDA; the same choice on every machine of a kind.
        """
        convolutions = [m for m in self.module.modules() if isinstance(m, nn.Conv2d)]
        deep = sum(max(m.kernel_size) > 1 for m in convolutions) > 1
        wanted = (
            deep and self.info.task in _CHANNELS_LAST and not self.info.device.startswith("mps")
        )
        if wanted:
            self.module.to(memory_format=torch.channels_last)
        return wanted

    def scorer(
        self, style: ScoreRequest, *, needs_gradient: bool = True
    ) -> Callable[..., ScoreTensor]:
        """What makes the score of one image's output, of the style's target or of another ``target=``.

        Raises:
            RequestError: there is no such target or score, or nothing in the model takes a gradient.
        """
        if ":" in style.score:
            load_score(style.score)
        takes = any(p.is_floating_point() for p in self.module.parameters())
        if not (takes or style.needs_pixels):
            raise RequestError(
                f"{self.info.name} has no parameter that takes a gradient: is it quantized?",
                "use the float model, or --input-grad for the pixels' alone",
            )
        target = find_target(style.target, self.categories)
        lazy = [name for name, each in self.module.named_parameters() if is_lazy(each)]
        if lazy and needs_gradient:
            raise ModelError(
                f"{self.info.name} has parameters without a shape, such as {lazy[0]}",
                "they get it in the first forward: call the model once where it is made",
            )
        unguarded = partial(
            score_output,
            style=style,
            target=target,
            categories=self.categories,
            needs_gradient=needs_gradient,
        )

        def score(output: Any, **options: Any) -> ScoreTensor:
            with self.guard():
                return unguarded(output, **options)

        return score

    def read(self, output: Any) -> list[tuple[Prediction, ...]]:
        """The predictions of each image of a batch; a model of the user's own must end in a classifier.

        Raises:
            ModelError: what a model of the user's own returned cannot be read.
        """
        with self.guard():
            if self.info.task == OWN and not _ends_in_classifier(self.module, output):
                return []
            return read_predictions(output, self.categories)

    def guard(self) -> contextlib.AbstractContextManager[None]:
        """A ``with`` block for looking at what the model returned: one of the user's own may return anything."""
        if self.info.task != OWN:
            return contextlib.nullcontext()
        return ForeignCode(
            f"what {self.info.name} returned",
            hint="let it return tensors, or lists and dicts of them",
        )

    def find_box(
        self, size: tuple[int, int], box: tuple[int, int, int, int], *, as_pixels: bool = False
    ) -> Tensor:
        """(2, H, W) from 0 to 1: what of the layers' view is inside a box of the image, and what outside.

        The picture of a white box is prepared as the image is, so that it is resized and cropped alike.
        What is the same for black and white, such as padding, is neither inside nor outside.

        Args:
            size: width and height of the image.
            box: left, top, width and height in its pixels.
            as_pixels: the image is a tensor file, which is used as it is.
        """
        left, top, width, height = box
        prepare = self.prepare

        def show(colour: str, inside: str) -> Tensor:
            """What the layers see of one picture, which is let go: it may be large."""
            picture = Image.new("RGB", size, colour)
            picture.paste(inside, (left, top, left + width, top + height))
            pixels = (
                prepare.repeat(
                    torchvision.transforms.functional.pil_to_tensor(picture).float() / 255
                )
                if as_pixels
                else prepare.to_pixels([picture])
            )
            return seen_pixels(self.module, self.info.task, pixels.unsqueeze(0))

        black, white = show("black", "black"), show("white", "white")
        drawn = show("black", "white")
        seen = white != black
        inside = ((drawn - black) / (white - black).where(seen, 1)).clamp(0, 1)
        return torch.stack([inside, seen * (1 - inside)])

    def show(self, pixels: Tensor) -> bytes:
        """What the network sees of one image, as a JPEG file."""
        return show_pixels(self.module, self.info.task, self.prepare.transform, pixels)


def _ends_in_classifier(module: nn.Module, output: Any) -> bool:
    """Whether the rows of ``output`` are as long as what the last linear layer or convolution gives."""
    own = [
        part for part in module.modules() if next(part.parameters(recurse=False), None) is not None
    ]
    width = ask(own[-1], "out_features", ask(own[-1], "out_channels")) if own else None
    return isinstance(output, torch.Tensor) and output.dim() > 1 and output.shape[1] == width


def load_model(request: ModelRequest) -> LoadedModel:
    """Build the model, load its weights, and put it on the device.

    ``auto`` weights are the default ones of torchvision or timm or, where neither cache nor network
    has them or another ``num_classes`` was asked for, random ones with a warning. Random weights are
    those of ``torch.manual_seed(seed)`` followed by the builder, torchvision's with ``weights=None``.

    Raises:
        UnknownModelError: no model has this name.
        RequestError: its builder refuses the arguments, or its preprocessing cannot be changed so.
        DeviceError: no such device here.
        WeightsError: weights that were asked for by name cannot be loaded, or a download is damaged.
        ModelError: code of the user's raised.
    """
    device = find_device(request.device)
    origin = find_origin(request.name, request.seed)
    with origin.guard():
        weighted = add_weights(origin, request)
        prepare = make_preprocessing(origin, request, weighted.module, weighted.transforms)
        notes = (*weighted.notes, _note_dtype(weighted.module, request))
        module = _place(weighted.module, request, device)
    info = ModelInfo(
        name=request.name,
        task=origin.task,
        weights=weighted.name,
        trained=weighted.trained,
        warning=weighted.warning,
        sha256=weighted.sha256,
        device=str(device),
        dtype=request.dtype,
        preprocessing=prepare.words,
        input_shape=prepare.nominal_shape,
        notes=tuple(filter(None, notes)),
    )
    return LoadedModel(info, module, prepare, weighted.categories)


def _note_dtype(module: nn.Module, request: ModelRequest) -> str:
    """What there is to say of floats in a model that will run in a dtype that nobody asked for; empty for none."""
    values = itertools.chain(module.parameters(), module.buffers())
    floats = {str(value.dtype) for value in values if value.is_floating_point()}
    others = sorted(name.removeprefix("torch.") for name in floats - {f"torch.{request.dtype}"})
    if not others or request.dtype != DEFAULTS.run.model.dtype:
        return ""
    kept = [f"--dtype {name}" for name in others if name in get_args(Dtype)]
    option = f"{' or '.join(kept)} runs all in that" if kept else "no --dtype keeps it"
    return f"what is {' or '.join(others)} in the model runs in {request.dtype}: {option}"


def _to_dtype(module: nn.Module, dtype: Dtype) -> nn.Module:
    """The floats of a model in one dtype; complex numbers, which ``Module.to`` would cut to their real part, stay."""
    if dtype == "float16":
        return module.half()
    return module.bfloat16() if dtype == "bfloat16" else module.float()


def _place(module: nn.Module, request: ModelRequest, device: torch.device) -> nn.Module:
    """The model in evaluation mode, on its device and in its dtype.

    Raises:
        ModelError: it has no values, or does not fit.
    """
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ModelError(
            f"{request.name} has parameters on the meta device, which have no values",
            "give it values; for shapes alone: hookcli layers MODEL",
        )
    try:
        module = _see_module(request.name, module.eval().to(device))
        return _see_module(request.name, _to_dtype(module, request.dtype))
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{request.name} does not fit into the memory of {device}") from error


def _see_module(name: str, module: Any) -> nn.Module:
    """What ``eval`` and ``to`` of a model returned, which can be anything where they are its own.

    Raises:
        ModelError: it is no module.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"{name}: its own eval or to returned a {type(module).__name__}, not the model",
            "let them return self, as those of nn.Module do",
        )
    return module


def build_skeleton(request: ModelRequest) -> LoadedModel:
    """The model without weights, for looking at its structure.

    On the meta device, where nothing is computed; on the CPU with unset values where a builder needs
    real tensors (regnets), and with random ones where shapes follow from values (detection) or the
    code is the user's own.
    """
    origin = find_origin(request.name, request.seed)
    transforms = None if origin.weights is None else origin.weights.DEFAULT.transforms
    with origin.guard():
        module = _build_bare(origin, request)
        prepare = make_preprocessing(origin, request, module, transforms)
        module = _see_module(request.name, module.eval())
    info = ModelInfo(
        request.name, origin.task, "none", trained=False, input_shape=prepare.nominal_shape
    )
    return LoadedModel(info, module, prepare, categories_of(origin))


def _build_bare(origin: Origin, request: ModelRequest) -> nn.Module:
    if origin.task in ("detection", OWN):
        return build_random(origin, request)
    with SkipInitialisation():
        try:
            with torch.device("meta"):
                return build_model(origin, request)
        except (RuntimeError, NotImplementedError):
            return build_model(origin, request)
