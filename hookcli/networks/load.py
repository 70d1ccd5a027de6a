"""Load a model with its weights and preprocessing, and read or score its output."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self, get_args

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hookcli.config import DEFAULTS, Dtype
from hookcli.errors import ModelError, RequestError
from hookcli.networks.build import build_random, build_shapes
from hookcli.networks.categories import read_categories
from hookcli.networks.code_files import hash_code
from hookcli.networks.description import ModelDescription
from hookcli.networks.device import find_device
from hookcli.networks.inputs import ModelInputs, last_two_axes, list_parameters, read_inputs
from hookcli.networks.mode import note_switched, set_mode
from hookcli.networks.modules import copy_taken, note_compiled, unwrap
from hookcli.networks.recipe_steps import apply_recipe
from hookcli.networks.scores import load_score, read_aim, score_output
from hookcli.networks.sources import LIBRARIES, find_model
from hookcli.networks.task import COLOURS, Aim, find_fixed_size
from hookcli.networks.tasks import (
    FeatureTask,
    find_features,
    is_floats,
    read_features,
    read_predictions,
)
from hookcli.networks.weights import add_weights
from hookcli.outside.foreign import ask
from hookcli.outside.urls import IN_MEMORY
from hookcli.records.runs import GREY, ModelInfo
from hookcli.records.text import count

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Collection, Sequence

    from torch import Tensor

    from hookcli.config import ModelRequest, ScoreRequest
    from hookcli.networks.inputs import ExtraInputs
    from hookcli.networks.scores import ScoreTensor
    from hookcli.networks.source import ModelWithWeights, Source
    from hookcli.networks.task import MeanStd, Predictions, Preprocessing, Sizes


_WHOLE = "images run one at a time, each with the whole of inputs whose first axis is not 1: "
_UNUSED = "the image is not used: every input of the model has a value of its own"
_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel(ModelDescription):
    module: nn.Module
    source: Source
    seed: int = 0  # of the random numbers that the model draws in training mode

    def convert(self, pixels: Tensor) -> Tensor:
        like = next(self.module.parameters(), torch.empty(0))
        return pixels.to(device=like.device, dtype=like.dtype)

    def for_bands(self, request: ModelRequest, bands: int) -> Self:
        if self.knows_input or bands == COLOURS or request.mean or request.bands:
            return self
        plain = replace(request, mean=(0.0,) * bands, std=(1.0,) * bands)
        prepare = self.source.prepare(plain, self.module, self.source.preset)
        info = replace(self.info, preprocessing=prepare.words, input_shape=prepare.nominal_shape)
        notes = (*info.notes, GREY) if bands == 1 else info.notes
        return replace(self, info=replace(info, notes=notes), prepare=prepare)

    def seen(self, pixels: Tensor) -> Tensor:
        return self.task.seen(self.module, pixels)

    def normalisation(self) -> MeanStd:
        return self.task.normalisation(self.module, self.prepare.transform)

    @property
    def inputs(self) -> ModelInputs:
        is_training = any(ask(module, "training") for module in self.module.modules())
        arguments_of, extra = self.task.arguments, self.extra
        if extra is not None:
            parameters = list_parameters(self.module, extra)
            arguments_of = partial(extra.bind, self.task.arguments, parameters)
        is_shared = extra is not None and bool(extra.shared)
        return ModelInputs(
            arguments_of=arguments_of,
            size_of=lambda pixels: last_two_axes(self.seen(pixels)),
            alone=is_training or is_shared or not self.task.shares_forward,
            seed=self.seed,
        )

    def use_channels_last(self) -> bool:
        # It is faster for 2-D convolutions on the CPU and on CUDA, whatever the machine.
        modules = self.module.modules()
        convolutions = [m for m in modules if isinstance(m, nn.Conv2d) and not is_lazy(m.weight)]
        if self.source.keeps_format:
            weights, last = [m.weight for m in convolutions], torch.channels_last
            wide = [each for each in weights if each.shape[1] > 1]
            return any(each.is_contiguous(memory_format=last) for each in wide)
        is_deep = sum(max(m.kernel_size) > 1 for m in convolutions) > 1
        is_faster = self.task.is_faster_channels_last and not self.info.device.startswith("mps")
        if is_deep and is_faster:
            self.module.to(memory_format=torch.channels_last)
        return is_deep and is_faster

    def scorer(
        self, style: ScoreRequest, target: str, *, needs_gradient: bool = True
    ) -> Callable[..., ScoreTensor]:
        if ":" in style.score:
            load_score(style.score)
        if needs_gradient and not style.needs_pixels:
            self._require_float_parameters()
        wanted = read_aim(target, self.categories)
        if needs_gradient:
            self._require_gradients()
        is_of_class = style.score != "sum" and ":" not in style.score
        if isinstance(wanted, Aim) and not is_of_class:
            hint = "leave one of them out"
            raise RequestError(f"`target={target!r}` has a score of its own: `score`", hint)

        def score(output: object, *, aim: int | Aim | None = wanted) -> ScoreTensor:
            with self.guard():
                features = find_features(output) if self.choose is None else None
                is_features = is_floats(features, 2) and self._lacks_classifier(output)
                output = self.pick(output)
                if is_features and aim is None and is_of_class:
                    raise RequestError(
                        f"{self.info.name} has no classifier: it returns features and predicts "
                        "no class",
                        "`target=INDEX` for one feature, counted from 0, or `score='sum'`",
                    )
                scored = score_output(
                    features if is_features and is_of_class else output,
                    style,
                    aim,
                    self.categories,
                    needs_gradient=needs_gradient,
                    own=self.task,
                )
            if is_features and scored.score.target is not None:
                kind = "value" if style.score == "logit" else style.score
                named = f"feature {scored.score.target}"
                return replace(scored, score=replace(scored.score, kind=kind, category=named))
            return scored

        return score

    def find_embedding(self, output: object) -> Tensor | None:
        """Return an output's features; None if it has none or if the model has a classifier."""
        if isinstance(self.task, FeatureTask) and isinstance(output, tuple) and output:
            output = output[0]  # open_clip's CoCa also returns tokens
        features = find_features(output)
        return features if features is not None and self._lacks_classifier(output) else None

    def _lacks_classifier(self, output: object) -> bool:
        # Models without a classifier: transformers' models without a head, timm's with
        # ``num_classes`` 0, and a user's own model that ends in a norm.
        if isinstance(self.task, FeatureTask):
            return True
        if isinstance(output, Mapping) or ask(self.module, "num_classes") == 0:
            return True
        last = _last_with_parameters(self.module)
        if self.source.is_known or not isinstance(last, _NORMS):
            return False
        return isinstance(output, torch.Tensor) and output.shape[1:] == (last.weight.numel(),)

    def _require_float_parameters(self) -> None:
        if not any(parameter.is_floating_point() for parameter in self.module.parameters()):
            what = f"{self.info.name} has no parameter that takes a gradient: is it quantized?"
            hint = "use the float model, or `input_grad=True` for the gradients of the pixels alone"
            raise RequestError(what, hint)

    def _require_gradients(self) -> None:
        for name, parameter in self.module.named_parameters():
            if is_lazy(parameter):
                raise ModelError(
                    f"{self.info.name} has parameters without a shape, such as {name}",
                    "the first forward pass gives them one: call the model once where you build it",
                )
            if parameter.is_inference():
                raise ModelError(
                    f"{self.info.name} was made in inference mode, in which it takes no gradients",
                    "make it outside of torch.inference_mode()",
                )

    def read(self, output: object, sizes: Sizes = ()) -> Predictions:
        with self.guard():
            if self.choose is not None:
                return ModelDescription.read(self, output, sizes)
            if (features := self.find_embedding(output)) is not None:
                return read_features(features)
            width = (*output.shape, 1, 1)[1] if isinstance(output, torch.Tensor) else -1
            if not self.source.is_known and width != count_outputs(self.module):
                return []
            return read_predictions(output, self.categories, sizes, self.task)

    def hash_code(self, score: str) -> dict[str, str]:
        own = "" if self.source.is_known else self.source.name
        hashes = hash_code(self.module, [own, score], LIBRARIES)
        return {**hashes, **ModelDescription.hash_code(self, score)}

    def guard(self) -> contextlib.AbstractContextManager[None]:
        return self.source.guard_output()


def count_outputs(module: nn.Module) -> int | None:
    last = _last_with_parameters(module)
    width: int | None = ask(last, "out_features", ask(last, "out_channels"))
    return width


def _last_with_parameters(module: nn.Module) -> nn.Module | None:
    layers = [m for m in module.modules() if any(True for _ in m.parameters(recurse=False))]
    return layers[-1] if layers else None


def load_model(request: ModelRequest, taken: Collection[int] = ()) -> LoadedModel:
    """Build the model on its device, with its weights and its preprocessing.

    ``taken`` has the Python ids of modules and parameters that another model uses. If the new model
    contains some of them, hookcli replaces these with copies.
    """
    device = find_device(request.device)
    named = None if request.categories is None else read_categories(request.categories)
    extra = read_inputs(request)
    source = find_model(request.name, request.seed)
    if taken:
        source = replace(source, builder=partial(copy_taken, request.name, source.builder, taken))
    with source.guard():
        weighted = add_weights(source, request)
        if request.like is None or not source.keeps_format:
            prepare = source.prepare(request, weighted.module, weighted.preset)
        else:
            weighted, prepare = _prepare_like(request, request.like, weighted)
        notes = (
            *weighted.notes,
            note_compiled(weighted.module),
            "" if source.keeps_dtype else _note_dtype(weighted.module, request),
            "" if source.is_known or request.mode != "eval" else note_switched(weighted.module),
            "" if named is None else _note_count(weighted.module, named),
        )
        module = unwrap(weighted.module)
        _move(module, request, device, source)
        source.task.check_mode(request.name, module)
    info = ModelInfo(
        name=request.name,
        task=source.word,
        weights=weighted.name,
        trained=weighted.trained,
        warning=weighted.warning,
        sha256=weighted.sha256,
        device=str(device),
        dtype=request.dtype,
        preprocessing=prepare.words,
        input_shape=prepare.nominal_shape,
        notes=tuple(filter(None, (*notes, *_note_inputs(module, extra)))),
    )
    categories = weighted.categories if named is None else named
    return LoadedModel(
        info, prepare, categories, extra=extra, module=module, source=source, seed=request.seed
    )


def _note_inputs(module: nn.Module, extra: ExtraInputs | None) -> tuple[str, ...]:
    if extra is None:
        return ()
    parameters, shared = list_parameters(module, extra), ", ".join(extra.shared)
    is_unused = parameters and not (extra.uses_pixels or extra.find_pixel_names(parameters))
    whole = shared and f"{_WHOLE}{shared}; a row for each image: `inputs` NAME=[[…]]"
    return (_UNUSED if is_unused and not extra.as_dict else "", whole)


def _prepare_like(
    request: ModelRequest, name: str, weighted: ModelWithWeights
) -> tuple[ModelWithWeights, Preprocessing]:
    plain = replace(request, name=name, like=None, arguments=(), inputs=(), preprocess=None)
    like = build_skeleton(plain)
    if count_outputs(weighted.module) == len(like.categories):
        weighted = replace(weighted, categories=like.categories)
    prepare = replace(like.prepare, fixed=find_fixed_size(weighted.module))
    return weighted, apply_recipe(request, prepare)


def _note_dtype(module: nn.Module, request: ModelRequest) -> str:
    values = itertools.chain(module.parameters(), module.buffers())
    floats = {str(value.dtype) for value in values if value.is_floating_point()}
    others = sorted(name.removeprefix("torch.") for name in floats - {f"torch.{request.dtype}"})
    kept = [f"`dtype={name!r}`" for name in others if name in get_args(Dtype)]
    is_asked = request.name.endswith(IN_MEMORY) and kept and len(floats) == 1  # else it runs as is
    if not others or is_asked or request.dtype != DEFAULTS.run.model.dtype:
        return ""
    whole = f"{' or '.join(kept)} runs the whole model in that type"
    option = whole if kept else "no `dtype` preserves them"
    return f"the model has {' and '.join(others)} values, which run in {request.dtype}: {option}"


def _note_count(module: nn.Module, names: Sequence[str]) -> str:
    outputs = count_outputs(module)
    if outputs is None or outputs == len(names) or (outputs, len(names)) == (1, 2):
        return ""
    return (
        f"`categories` has {count(len(names), 'name')}, and the model's last layer has "
        f"{count(outputs, 'output')}: classes appear as numbers"
    )


def _move(module: nn.Module, request: ModelRequest, device: torch.device, source: Source) -> None:
    if any(parameter.is_meta for parameter in module.parameters()):
        what = f"{request.name} has parameters on the meta device, which have no values"
        raise ModelError(what, "give it values; for shapes alone: `hookcli.layers(MODEL)`")
    try:
        set_mode(module, request.mode)
        module.to(device)
        if not source.keeps_dtype:  # by methods that keep complex numbers, unlike ``Module.to``
            {"float16": module.half, "bfloat16": module.bfloat16}.get(request.dtype, module.float)()
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{request.name} does not fit into the memory of {device}") from error


def build_skeleton(request: ModelRequest) -> LoadedModel:
    source = find_model(request.name, request.seed)
    with source.guard():
        needs_values = source.task.needs_values or not source.is_known
        built = (build_random if needs_values else build_shapes)(source, request)
        module = unwrap(built)
        prepare = source.prepare(request, module, source.preset)
        set_mode(module, request.mode)
        categories = source.list_categories(module)
    info = ModelInfo(
        request.name,
        source.word,
        "none",
        trained=False,
        dtype="float32",
        input_shape=prepare.nominal_shape,
        notes=tuple(filter(None, [note_compiled(built)])),
    )
    extra = read_inputs(request)
    return LoadedModel(info, prepare, categories, extra=extra, module=module, source=source)
