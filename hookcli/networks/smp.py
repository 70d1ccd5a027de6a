"""Build models of segmentation_models_pytorch, each of which is an architecture with an encoder."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from PIL.Image import Resampling
from torch import Tensor

from hookcli.errors import ModelError, RequestError, UnknownModelError, hint_near
from hookcli.networks import hub
from hookcli.networks.build import build_random
from hookcli.networks.presets import mean_text
from hookcli.networks.recipe_steps import Steps
from hookcli.networks.source import ModelWithWeights
from hookcli.networks.task import Preprocessing, Task
from hookcli.networks.tasks import Segmentation, is_floats
from hookcli.networks.timm import is_timm_name
from hookcli.networks.weights_file import loading_weights, read_weights_file
from hookcli.networks.without_compiler import import_library
from hookcli.outside.foreign import ask
from hookcli.records.rows import CatalogEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from PIL import Image
    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset

_STRIDE = 32  # without a `size`, sides are multiples of it, as most architectures demand
_SHORT = 512  # the short side, where the user chooses none
_USUAL: dict[str, Any] = {
    "input_space": "RGB",
    "input_range": [0, 1],
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}  # of ImageNet
import_smp = partial(import_library, "segmentation_models_pytorch", "'hookcli[smp]'")


class _Segmentation(Segmentation):
    nominal = (_SHORT, _SHORT)

    def find(self, output: object) -> Tensor | None:
        logits = output[0] if isinstance(output, (tuple, list)) and output else output
        return logits if is_floats(logits, 4) else None


_TASK = _Segmentation()


@dataclass(frozen=True, slots=True)
class Smp(hub.FileSource):
    prefix: ClassVar[str] = "smp:"
    library: ClassVar[str] = "segmentation_models_pytorch"
    reserved: ClassVar[frozenset[str]] = frozenset({"arch", "encoder_name", "encoder_weights"})
    channels_argument: ClassVar[str] = "in_channels"
    weight_names: ClassVar[tuple[str, ...]] = ("model.safetensors",)

    task: Task = _TASK
    encoder: str = ""

    @classmethod
    def list_shelf(cls) -> list[str]:
        smp = import_smp("smp:")
        architectures, encoders = smp.MODEL_ARCHITECTURES_MAPPING, smp.encoders.get_encoder_names()
        return sorted(f"{cls.prefix}{arch}/{each}" for arch in architectures for each in encoders)

    @classmethod
    def describe(cls, name: str) -> CatalogEntry:
        settings = import_smp(name).encoders.encoders[name.partition("/")[2]]["pretrained_settings"]
        repos = {tag: each["repo_id"] for tag, each in settings.items()}
        cached = tuple(tag for tag, repo in repos.items() if hub.is_cached(repo, *cls.weight_names))
        return CatalogEntry(name, "segmentation", tuple(settings), None, None, None, cached)

    @classmethod
    def find(cls, name: str, seed: int) -> Smp:
        smp, rest = import_smp(name), name.removeprefix(cls.prefix)
        if hub.is_folder_or_repository(rest):
            files = hub.find_files(rest)
            _, config = hub.require_config(files, name, "model.save_pretrained(FOLDER) writes it")
            if not isinstance(config.get("_model_class"), str):
                raise ModelError(f"{name} is no model of segmentation_models_pytorch")
            config.pop("encoder_weights", None)
            arch, encoder = config.pop("_model_class").lower(), config.get("encoder_name", "")
            return cls(name, partial(_build, smp, arch, **config), encoder=encoder, files=files)
        arch, _, encoder = rest.partition("/")
        architectures = smp.MODEL_ARCHITECTURES_MAPPING
        if arch.lower() not in architectures:
            known = [f"{cls.prefix}{each}/{encoder or 'resnet34'}" for each in architectures]
            raise UnknownModelError(name, known)
        encoders = smp.encoders.get_encoder_names()
        timm_name = encoder.removeprefix("tu-")
        is_timms = timm_name != encoder and (":" in encoder or is_timm_name(timm_name))
        if encoder not in encoders and not is_timms:
            hint = hint_near(encoder, encoders, f"write {cls.prefix}{arch}/resnet34")
            raise RequestError(f"segmentation_models_pytorch has no encoder {encoder!r}", hint)
        return cls(name, partial(_build, smp, arch, encoder_name=encoder), encoder=encoder)

    @property
    def members(self) -> tuple[str, ...]:
        known = import_smp(self.name).encoders.encoders.get(self.encoder, {})
        return () if self.files is not None else tuple(known.get("pretrained_settings", ()))

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        hub.fail_fast_offline()
        if self.files is None:
            return self._load_encoder(request, name)
        saved = read_weights_file(self.require_weights())
        module = build_random(self, request)
        with loading_weights(f"the weights of {self.name}"):
            module.load_state_dict(saved.tensors)
        return ModelWithWeights(module, self.files.label, sha256=saved.sha256)

    def _load_encoder(self, request: ModelRequest, name: str) -> ModelWithWeights:
        tag = name if name != "pretrained" else next(iter(self.members), "imagenet")
        weights: object = True if self.encoder.startswith("tu-") else tag
        verb = "has no trained weights"
        with loading_weights(f"the encoder {self.encoder}", verb), hub.connection_errors():
            module = build_random(self, request, encoder_weights=weights)
        return ModelWithWeights(
            module,
            f"encoder {self.encoder}: {tag}, decoder random (seed {request.seed})",
            trained=False,
            warning="only the encoder's weights are trained: the decoder and the head are RANDOM "
            f"(seed {request.seed})",
        )

    def prepare_as_trained(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset
    ) -> Preprocessing:
        stride = ask(ask(module, "encoder"), "output_stride") or _STRIDE
        if request.size is not None:
            _check_size(request, stride if ask(module, "requires_divisible_input_shape") else 1)
        side = request.size or request.resize or _SHORT
        smp = import_smp(self.name)
        hub.fail_fast_offline()
        parameters: dict[str, Any] | None = None
        with suppress(OSError, ValueError, LookupError):
            parameters = dict(smp.encoders.get_preprocessing_params(self.encoder))
        is_usual = parameters is None
        parameters = parameters or _USUAL.copy()
        for key in ("mean", "std"):
            if getattr(request, key) is not None:
                parameters[key] = list(getattr(request, key))
        resample = Resampling[(request.interpolation or "bilinear").upper()]
        prepare = smp.encoders.preprocess_input
        step = None if request.size else max(stride, _STRIDE)
        colours = parameters["mean"], parameters["std"]
        transform = _Transform(prepare, parameters, *colours, side, step, resample, is_usual)
        return Preprocessing(self.task, transform, size=side)


@dataclass(frozen=True, repr=False, eq=False)
class _Transform:
    prepare: Callable[..., NDArray[Any]]  # the library's function for (H, W, C)
    parameters: dict[str, Any]
    mean: Sequence[float]
    std: Sequence[float]
    short: int
    stride: int | None  # both sides become multiples of it; without one, both become ``short``
    resample: Resampling
    is_usual: bool  # the parameters are ImageNet's, since the encoder's are not known
    takes_bands: ClassVar[bool] = True

    def __call__(self, picture: Image.Image) -> Tensor:
        height, width = self.list_steps()[0].find_sides(*picture.size)
        resized = np.asarray(picture.resize((width, height), self.resample))
        if resized.shape[2] != len(self.mean):  # a picture that marks a box
            resized = resized[..., :1].repeat(len(self.mean), 2)
        prepared = self.prepare(resized, **self.parameters)
        return torch.from_numpy(np.ascontiguousarray(prepared.transpose(2, 0, 1))).float()

    def list_steps(self) -> list[Steps]:
        how: Any = self.resample.name.lower()
        size = (self.short,) * (1 if self.stride else 2)
        mean, std = tuple(self.mean), tuple(self.std)
        steps = Steps(size=size, stride=self.stride or 0, how=how, mean=mean, std=std)
        return [steps, replace(steps, divisor=1)]

    def __repr__(self) -> str:
        sides = f"{self.short}x{self.short} pixels"
        if self.stride is not None:
            short = f"about {self.short} pixels on the short side"
            sides = f"{short}, both sides multiples of {self.stride}"
        return (
            f"resized to {sides} ({self.resample.name.lower()}), scaled to 0 to "
            f"{self.parameters['input_range'][1]:g}, {mean_text(self.mean, self.std)}"
            + (" (ImageNet's: the encoder's own cannot be reached)" if self.is_usual else "")
        )


def _check_size(request: ModelRequest, stride: int) -> None:
    size = request.size or 0
    if request.resize is not None:
        what = "`size` resizes both sides of a picture, so that no `resize` comes before it"
        raise RequestError(what, "give one of the two")
    if size % stride:
        near = max(1, round(size / stride)) * stride
        hint = f"`size={near}`"
        raise RequestError(f"`size` {size}: {request.name} takes only multiples of {stride}", hint)


def _build(smp: Any, arch: str, /, **arguments: object) -> nn.Module:
    arguments.setdefault("encoder_weights", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: nn.Module = smp.create_model(arch, **arguments)
    return module
