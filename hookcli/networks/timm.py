"""Build and load models of timm, and prepare their images, in timm's own way."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image

from hookcli.config import LARGEST_SIDE
from hookcli.errors import ModelError, RequestError, UnknownModelError
from hookcli.networks import hub
from hookcli.networks.build import build_random
from hookcli.networks.presets import requested_changes
from hookcli.networks.source import ModelWithWeights
from hookcli.networks.task import Preprocessing
from hookcli.networks.weights_file import load_content, loading_weights
from hookcli.networks.without_compiler import import_library
from hookcli.outside.foreign import ask
from hookcli.records.rows import CatalogEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset

_ON_HUB = re.compile(r"(?:hf[-_]hub:|hf:)?timm/([\w.-]+)")
_import_timm = partial(import_library, "timm", "timm")


@dataclass(frozen=True, slots=True)
class Timm(hub.FileSource):
    prefix: ClassVar[str] = "timm:"
    label: ClassVar[str] = "timm"
    library: ClassVar[str] = "timm"
    channels_argument: ClassVar[str] = "in_chans"
    weight_names: ClassVar[tuple[str, ...]] = ("model.safetensors", "pytorch_model.bin")

    @classmethod
    def list_shelf(cls) -> list[str]:
        return sorted(f"{cls.prefix}{name}" for name in _import_timm("timm:NAME").list_models())

    @classmethod
    def describe(cls, name: str) -> CatalogEntry:
        timm, short = _import_timm(name), name.removeprefix(cls.prefix)
        tags = _list_tags(timm).get(short, ())
        repos = {tag: timm.get_pretrained_cfg(f"{short}.{tag}").hf_hub_id for tag in tags}
        on_hub = {tag: repo for tag, repo in repos.items() if repo}
        cached = tuple(t for t, repo in on_hub.items() if hub.is_cached(repo, *cls.weight_names))
        return CatalogEntry(name, "classification", tags, None, None, None, cached)

    @classmethod
    def correct(cls, name: str) -> RequestError | None:
        if on_hub := _ON_HUB.fullmatch(name):
            return RequestError(f"no model is called {name!r}", f"timm:{on_hub[1]}")
        if "/" in name or ":" in name or not is_timm_name(name):
            return None
        return RequestError(f"torchvision has no {name!r}, but timm has", f"timm:{name}")

    @classmethod
    def find(cls, name: str, seed: int) -> Timm:
        rest = name.removeprefix(cls.prefix)
        if not hub.is_folder_or_repository(rest):
            return cls(name, _find_builder(rest))
        files = hub.find_files(rest)
        return cls(name, _find_own_builder(name, files), files=files)

    def explain_named(self, request: ModelRequest) -> str:
        config = _import_timm(self.name).get_pretrained_cfg(self.name.removeprefix(self.prefix))
        has_weights = config is not None and bool(config.has_weights)
        return "" if has_weights else f"timm has no trained weights for {request.name}"

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        hub.fail_fast_offline()
        name, sha256, loading = "", "", loading_weights(self.name, "has no pretrained weights")
        if self.files is not None:
            sha256 = load_content(self.require_weights())[1]
            name, loading = self.files.label, loading_weights(f"the weights of {self.name}")
        with loading, hub.connection_errors():
            module = build_random(self, request, pretrained=True)
        config = ask(module, "pretrained_cfg") or {}
        name = name or f"timm {config.get('tag') or 'default'}"
        categories = self.list_categories(module)
        weighted = ModelWithWeights(module, name, categories=categories, sha256=sha256)
        trained, asked = config.get("num_classes"), getattr(module, "num_classes", 0)
        if not asked or asked == trained:
            return weighted
        text = f"trained weights have {trained} classes, and {asked} were asked for"
        warning = f"{text}: the classifier is RANDOM (seed {request.seed})"
        return replace(weighted, trained=False, warning=warning)

    def list_categories(self, module: nn.Module) -> tuple[str, ...]:
        from timm.data import ImageNetInfo, infer_imagenet_subset

        subset = infer_imagenet_subset(module)
        if not subset:
            names = (ask(module, "pretrained_cfg") or {}).get("label_names")
            return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()
        names = ImageNetInfo(subset)
        return tuple(names.index_to_description(index) for index in range(names.num_classes()))

    def prepare_as_trained(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset
    ) -> Preprocessing:
        from timm.data import create_transform, resolve_model_data_config

        config = resolve_model_data_config(module)
        if request.size is not None:
            config["input_size"] = (config["input_size"][0], request.size, request.size)
        if request.resize is not None:
            # Half a pixel is added because timm divides by this and rounds down.
            config["crop_pct"] = config["input_size"][1] / (request.resize + 0.5)
        config |= requested_changes(request)
        height, width = config["input_size"][1:]
        if max(height, width) / config["crop_pct"] > LARGEST_SIDE:
            raise ModelError(f"{self.name} resizes pictures to more than {LARGEST_SIDE} pixels")
        transform = create_transform(**config, is_training=False)
        transform(Image.new("RGB", (64, 48)))  # a damaged transform raises its exception here
        return Preprocessing(self.task, transform, crop=(height, width))


def _find_builder(name: str) -> Callable[..., nn.Module]:
    timm = _import_timm(f"timm:{name}")
    if not timm.is_model(name):
        raise UnknownModelError(f"timm:{name}", [f"timm:{known}" for known in timm.list_models()])
    try:
        timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # the tag after the dot is unknown
        tagged = timm.list_models(f"{name.partition('.')[0]}.*", pretrained=True)
        raise UnknownModelError(f"timm:{name}", [f"timm:{known}" for known in tagged]) from error
    return partial(timm.create_model, name)


def _find_own_builder(name: str, files: hub.Files) -> Callable[..., nn.Module]:
    timm = _import_timm(name)
    file, config = hub.require_config(files, name, "timm's save_for_hf writes one")
    kind = config.get("architecture")
    if not isinstance(kind, str):
        raise ModelError(f"{name} is no model of timm: config.json names no architecture")
    if not timm.is_model(kind):
        raise ModelError(f"timm {timm.__version__} has no {kind!r}, the architecture of {name}")
    return partial(timm.create_model, f"local-dir:{file.parent}")


@cache
def _list_tags(timm: Any) -> dict[str, tuple[str, ...]]:
    tags: dict[str, tuple[str, ...]] = {}
    for full in timm.list_models(pretrained=True):
        name, _, tag = full.partition(".")
        tags[name] = (*tags.get(name, ()), tag)
    return tags


def is_timm_name(name: str) -> bool:
    try:
        return bool(_import_timm("timm:NAME").is_model(name))
    except RequestError:
        return False
