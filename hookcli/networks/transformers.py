"""Build vision models of the library transformers, without running code from repositories."""

from __future__ import annotations

import copy
import inspect
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hookcli.errors import ModelError, RequestError, WeightsError, hint_near
from hookcli.networks import hub
from hookcli.networks.build import build_shapes, read_arguments, seeded
from hookcli.networks.elsewhere import suggest_hub_names
from hookcli.networks.processors import choose_task, resize_fields
from hookcli.networks.source import ModelWithWeights
from hookcli.networks.task import COLOURS, Preprocessing, Task
from hookcli.networks.tasks import FEATURES, read_problem
from hookcli.networks.weights import add_weights
from hookcli.networks.weights_file import loading_weights, read_weights_file
from hookcli.networks.without_compiler import import_library
from hookcli.outside.foreign import ForeignCode, ask
from hookcli.records.rows import CatalogEntry
from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset

_CONFIG = "hf-config:"
_LEAST = (5, 4)  # the first version whose image processors compute with torch by default
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.json", "merges.txt", "spiece.model", "added_tokens.json"),
)
# Choices of an implementation, which the library may fetch from the hub
_CHOICES = re.compile(r"_?(attn|experts)_implementation\w*|auto_map|fusion_config|_name_or_path")
_UNSUPPORTED = ("quantization_config", "transformers_weights")  # fields that change the weights
_UNNAMED = re.compile(r"LABEL_\d+")
# What a model reads, by the name of its main input.
_READS = {
    "input_ids": "text",
    "input_features": "audio",
    "input_values": "audio",
    "pixel_values_videos": "video",
}
# The kinds of models that a type can be, in the order in which ``hf-config:`` chooses one of them:
# the name of the library's table, without its beginning and end.
_HEADS = (
    *("OBJECT_DETECTION", "SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION"),
    *("INSTANCE_SEGMENTATION", "DEPTH_ESTIMATION", "IMAGE_CLASSIFICATION", "IMAGE"),
    *("MASK_GENERATION", "ZERO_SHOT_IMAGE_CLASSIFICATION", "BACKBONE"),
)


@dataclass(frozen=True, slots=True)
class Transformers(hub.FileSource):
    prefix: ClassVar[str] = "hf:"
    library: ClassVar[str] = "transformers"
    reserved: ClassVar[frozenset[str]] = frozenset({"model_type", "architectures"})
    weight_names: ClassVar[tuple[str, ...]] = ("model.safetensors", "pytorch_model.bin")

    kind: Any = None  # the library's class
    config: Any = None  # before the user's arguments
    outer: Any = None  # of a model of pictures and text, with the configurations of both parts
    task: Task = FEATURES

    @classmethod
    def takes(cls, name: str) -> bool:
        return name.startswith((cls.prefix, _CONFIG))

    @classmethod
    def list_shelf(cls) -> list[str]:
        types = list_types(import_transformers("hf:NAME"))
        cached = (
            f"{cls.prefix}{name}"
            for name, folder in hub.list_cached()
            if _read_cached(folder).get("model_type") in types
        )
        return [*cached, *(f"{_CONFIG}{each}" for each in types)]

    @classmethod
    def describe(cls, name: str) -> CatalogEntry:
        transformers = import_transformers(name)
        if name.startswith(_CONFIG):
            heads = _list_heads(transformers, name.removeprefix(_CONFIG))
            return CatalogEntry(name, choose_task(heads[0]).word, (), None, None, None, ())
        folder = dict(hub.list_cached())[name.removeprefix(cls.prefix)]
        content = _read_cached(folder)
        heads = content.get("architectures") or []
        if not (isinstance(heads, list) and heads and isinstance(heads[0], str)):
            heads = _list_heads(transformers, content["model_type"])
        has_weights = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
        weights = ("pretrained",) if has_weights else ()
        return CatalogEntry(name, choose_task(heads[0]).word, weights, None, None, None, weights)

    @classmethod
    def find(cls, name: str, seed: int) -> Transformers:
        transformers = import_transformers(name)
        is_type = name.startswith(_CONFIG)
        location = name.removeprefix(cls.prefix)
        if not hub.is_folder_or_repository(location) and (hint := suggest_hub_names(location)):
            raise RequestError(hub.NAMED, hint)
        files = None if is_type else hub.find_files(location)
        with hub.guard_library(name, files), _using(name):
            if files is None:
                asked, known = name.removeprefix(_CONFIG), list_types(transformers)
                if asked not in known:
                    hint = hint_near(
                        asked.lower(), known, "a type is named as in config.json: dinov2"
                    )
                    what = f"transformers has no vision models of the type {asked!r}"
                    raise RequestError(what, hint)
                config = transformers.AutoConfig.for_model(asked)
            else:
                config = _read_config(transformers, name, files)
            kind, config, outer = _choose_class(transformers, name, config)
        task = choose_task(kind.__name__)(partial(_load_processor, files, outer, name), config)
        builder = partial(_build, kind, config)
        return cls(name, builder, task, files=files, kind=kind, config=config, outer=outer)

    def list_categories(self, module: nn.Module) -> tuple[str, ...]:
        names = ask(ask(module, "config"), "id2label") or {}
        named = tuple(str(names.get(index, "")) for index in range(len(names)))
        if all(map(_UNNAMED.fullmatch, named)):
            return ()
        is_pair = len(named) == 1 and read_problem(ask(module, "config")) != "values"
        return (f"not {named[0]}", *named) if is_pair else named

    def explain_named(self, request: ModelRequest) -> str:
        return f"{self.name} is a configuration without weights"

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        found = self.find_weights()
        if self.files is None or not found:
            hint = "use `weights='random'`, or a file: `weights=FILE`"
            raise WeightsError(f"{self.name} has no weights, as .safetensors or .bin", hint)
        if found[0].with_name("adapter_config.json").exists():
            hint = "merge it into the weights: model.merge_and_unload()"
            raise WeightsError(f"{self.name} has an adapter, which is not loaded here", hint)
        build_shapes(self, request)  # is refused here if it is too large
        parts = [read_weights_file(file) for file in found]
        config = _with_fields(self.config, read_arguments(self, request))
        loading = loading_weights(f"the weights of {self.name}")
        with loading, _using(self.name), seeded(request.seed):
            # The library gets tensors, and not the folder, in which it might find other files.
            module, info = self.kind.from_pretrained(
                None,
                config=config,
                state_dict={key: each for part in parts for key, each in part.tensors.items()},
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        absent = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
        if 2 * len(absent) > len(module.state_dict()):
            raise WeightsError(
                f"the weights of {self.name} are not for a {type(module).__name__}: they lack "
                f"{len(absent)} of its {len(module.state_dict())} tensors"
            )
        some = ", ".join(absent[:3]) + and_more(len(absent) - 3, " and {} more")
        verb = "is" if len(absent) == 1 else "are"
        warning = f"{some} {verb} not in the weights: RANDOM (seed {request.seed})"
        return ModelWithWeights(
            module,
            self.files.label,
            categories=self.list_categories(module),
            trained=not absent,
            warning=warning if absent else "",
            sha256=hub.join_hashes([part.sha256 for part in parts]),
        )

    def embed_text(self, request: ModelRequest, text: str) -> Tensor:
        transformers = import_transformers(self.name)
        kind = transformers.MODEL_MAPPING.get(type(self.outer), None)
        if self.outer is self.config or not hasattr(kind, "get_text_features"):
            return hub.FileSource.embed_text(self, request, text)
        config = self.files and self.files.find("config.json")
        if self.files is None or not config:
            hint = "name a repository or a folder, which has one"
            raise RequestError(f"`text`: {self.name} is a type without a tokenizer", hint)
        builder = partial(_build, kind, self.outer)
        whole = replace(self, builder=builder, kind=kind, config=self.outer)
        module: Any = add_weights(whole, request).module
        with ForeignCode(f"the tokenizer of {self.name}", hint=""), _using(self.name):
            for name in _TOKENIZERS:
                self.files.find(name)  # this may download it
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                str(config.parent), local_files_only=True, trust_remote_code=False
            )
            tokens = tokenizer(
                [text],
                padding="max_length",  # SigLIP has learned from texts of one length
                max_length=self.outer.text_config.max_position_embeddings,
                truncation=True,
                return_tensors="pt",
            )
        with torch.inference_mode():
            found = module.eval().get_text_features(**tokens)
        embedding: Tensor = ask(found, "pooler_output", found)[0]
        return embedding

    def find_weights(self) -> list[Path]:
        if self.files is None:
            return []
        return next(filter(None, map(self.files.find_parts, self.weight_names)), [])

    def count_channels(self, request: ModelRequest) -> int | None:
        return ask(self.config, "num_channels") or COLOURS

    def prepare_as_trained(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset
    ) -> Preprocessing:
        if request.size is not None:
            forward = module.forward
            if "interpolate_pos_encoding" in inspect.signature(forward).parameters:
                vars(module)["forward"] = partial(forward, interpolate_pos_encoding=True)
        return self.task.prepare(request, module, preset)


def _build(kind: Callable[[Any], nn.Module], config: Any, /, **fields: object) -> nn.Module:
    return kind(_with_fields(config, fields))


def _with_fields(config: Any, fields: Mapping[str, object]) -> Any:
    config = copy.deepcopy(config)
    if ask(config, "use_pretrained_backbone"):
        config.use_pretrained_backbone = False  # it would download other weights
    if not fields:
        return config
    given = {("num_labels" if key == "num_classes" else key): v for key, v in fields.items()}
    known = config.to_dict()
    for key in given:
        if key not in known and not hasattr(config, key):
            hint = hint_near(key, known, f"its fields: {', '.join(sorted(known)[:8])}, …")
            raise RequestError(f"{type(config).__name__} has no field {key!r}", hint)
    derived = set[str]()
    if "num_labels" in given:
        derived |= {"id2label", "label2id"}
    if ask(config, "out_features") == (ask(config, "stage_names") or [])[-1:]:  # by default
        derived |= {"out_features", "out_indices", "stage_names"}
    known = {key: value for key, value in known.items() if key not in derived}
    return type(config).from_dict({**known, **given})


def list_types(transformers: Any) -> list[str]:
    of_video = _table(transformers, "VIDEO_CLASSIFICATION")
    return sorted({kind for head in _HEADS for kind in _table(transformers, head)} - set(of_video))


def _table(transformers: Any, head: str) -> Mapping[str, Any]:
    return getattr(transformers.models.auto.modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {})


def _list_heads(transformers: Any, kind: str) -> list[str]:
    found = (_table(transformers, head).get(kind) for head in _HEADS)
    return [each if isinstance(each, str) else each[0] for each in found if each]


def _read_cached(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_config(transformers: Any, name: str, files: hub.Files) -> Any:
    location = name.removeprefix(Transformers.prefix)
    location = f"{hub.ON_HUB}{location}" if files.is_remote else location
    key = re.sub(r"\W", "_", location.rpartition("/")[2].lower())
    kinds = (kind for kind in list_types(transformers) if kind in key)
    near = max(kinds, key=lambda kind: (key.startswith(kind), len(kind)), default="TYPE")
    offline = f"; without one: {_CONFIG}{near}, with random weights"
    config = hub.find_config(files, name, hint=offline)
    if config is None and files.find("open_clip_config.json") is not None:
        raise RequestError(f"{name} is a model of open_clip", f"open_clip:{location}")
    hint = "model.save_pretrained(FOLDER) writes it beside the weights"
    _, content = hub.require_config(files, name, hint)
    kind = content.get("model_type")
    if kind is None and "architecture" in content:
        raise RequestError(f"{name} is a model of timm", f"timm:{location}")
    if not isinstance(kind, str):
        raise ModelError(f"{name}: config.json names no model_type, as transformers needs")
    if kind not in transformers.CONFIG_MAPPING:
        if "auto_map" in content:
            what = f"{name} needs code of its repository (trust_remote_code), which is not run here"
            raise RequestError(what, "read that code; then FILE.py:FUNCTION can make the model")
        what = f"transformers {transformers.__version__} has no models of the type {kind!r}"
        raise RequestError(what, "a later version may have them: pip install -U transformers")
    if used := [key for key in _UNSUPPORTED if content.get(key)]:
        hint = "name a model whose weights are plain floats, under their usual names"
        raise ModelError(f"{name}: config.json has {used[0]}, which is not supported here", hint)
    return transformers.CONFIG_MAPPING[kind].from_dict(_without_choices(content))


def _without_choices(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    kept = {key: _without_choices(v) for key, v in content.items() if not _CHOICES.fullmatch(key)}
    return kept | ({"use_pretrained_backbone": False} if "use_pretrained_backbone" in kept else {})


def _choose_class(transformers: Any, name: str, config: Any) -> tuple[Any, Any, Any]:
    # hookcli runs the vision part of a model of pictures and text.
    kind = _find_class(transformers, config)
    if kind is None:
        what = f"{name} is of the type {config.model_type}, which has no vision models"
        hint = "vision models: https://huggingface.co/models?pipeline_tag=image-classification"
        raise RequestError(what, hint)
    vision = ask(config, "vision_config")
    if type(vision) in transformers.MODEL_MAPPING:
        tower = transformers.MODEL_MAPPING[type(vision)]
        tower = getattr(transformers, f"{tower.__name__}WithProjection", tower)
        if (width := ask(config, "projection_dim")) is not None:
            vision.projection_dim = width
        return tower, vision, config
    reads = _READS.get(kind.main_input_name)
    if reads is None and kind.main_input_name != "pixel_values":
        reads = kind.main_input_name
    if reads is None and (ask(config, "num_frames") or ask(config, "tubelet_size")):
        reads = "video"
    if reads is not None:
        what = f"{name} takes {reads}, and images are all that can be shown to a model here"
        raise RequestError(what, "choose a vision model")
    return kind, config, config


def _find_class(transformers: Any, config: Any) -> Any:
    for architecture in config.architectures or ():
        kind = getattr(transformers, architecture, None)
        if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
            return kind
    for name in _list_heads(transformers, config.model_type):
        return getattr(transformers, name)
    return transformers.MODEL_MAPPING.get(type(config), None)


def _load_processor(files: hub.Files | None, config: Any, name: str) -> Any:
    transformers = import_transformers(name)
    loading = ForeignCode(f"the image processor of {name}", hint="", verb="cannot be loaded")
    with loading, _using(name):
        found = files and next(filter(None, map(files.find, _PROCESSORS)), None)
        if files is None or not found:
            return _make_processor(transformers, config)
        for file in map(found.with_name, _PROCESSORS):
            if file.is_file():
                hub.read_config(file, name, files)  # checks it; the library reads it again
        return transformers.AutoImageProcessor.from_pretrained(
            str(found.parent), local_files_only=True, trust_remote_code=False
        )


def _make_processor(transformers: Any, config: Any) -> Any:
    kinds = transformers.IMAGE_PROCESSOR_MAPPING.get(type(config), {})
    kind = kinds.get("torchvision") or transformers.ViTImageProcessor
    vision = ask(config, "vision_config") or config
    side = ask(vision, "image_size") or ask(ask(vision, "backbone_config"), "image_size")
    if not side:
        return kind()
    height, width = side if isinstance(side, (list, tuple)) else (side, side)
    return kind(**resize_fields(kind(), height, width))


def import_transformers(name: str) -> Any:
    transformers = import_library("transformers", "'hookcli[hf]'", name)
    version = transformers.__version__
    if tuple(map(int, version.split(".")[:2])) < _LEAST:
        least = ".".join(map(str, _LEAST))
        what = f"{name} needs transformers {least} or later, and {version} is installed"
        raise RequestError(what, "pip install -U transformers")
    return transformers


@contextmanager
def _using(name: str) -> Iterator[None]:
    logging = import_transformers(name).logging
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()  # and those of the hub
    try:
        yield
    except ImportError as error:
        package = error.name or "a package"
        hint = f"install it: pip install {package}"
        raise RequestError(f"{name} needs {package}, which is not installed", hint) from error
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()
