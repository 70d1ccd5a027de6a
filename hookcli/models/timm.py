"""Models of timm, if it is installed: built, loaded and preprocessed in timm's own way."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from hookcli.errors import RequestError, UnknownModelError, WeightsError
from hookcli.models.build import build_random
from hookcli.models.source import CONNECT_SECONDS, ModelWithWeights, Source
from hookcli.models.task import Preprocessing
from hookcli.models.without_compiler import call_without_compiler
from hookcli.outside.foreign import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.models.presets import MakePreset

_ON_HUB = re.compile(r"(?:hf[-_]hub:|hf:)?timm/([\w.-]+)")
_HUB = ("huggingface.co", 443)
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class Timm(Source):
    """A model of timm, named ``timm:NAME``."""

    prefix: ClassVar[str] = "timm:"
    label: ClassVar[str] = "timm"
    library: ClassVar[str] = "timm"
    listing: ClassVar[str] = "python -c 'import timm; print(*timm.list_models())'"

    @classmethod
    def correct(cls, name: str) -> RequestError | None:
        """Return an error with the right name if ``name`` is a hub name or lacks ``timm:``."""
        if on_hub := _ON_HUB.fullmatch(name):
            return RequestError(f"no model is called {name!r}", f"timm:{on_hub[1]}")
        if "/" in name or ":" in name or not _is_timm_name(name):
            return None
        return RequestError(f"torchvision has no {name!r}, but timm has", f"timm:{name}")

    @classmethod
    def find(cls, name: str, seed: int) -> Timm:
        return cls(name, _find_builder(name.removeprefix(cls.prefix)))

    def explain_untrained(self, request: ModelRequest) -> str:
        config = _import_timm().get_pretrained_cfg(self.name.removeprefix(self.prefix))
        has_weights = config is not None and bool(config.has_weights)
        return "" if has_weights else f"timm has no trained weights for {request.name}"

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        """Load the weights with timm, from timm's cache or the network."""
        _fail_fast_offline()
        try:
            module = build_random(self, request, pretrained=True)
        except (RuntimeError, ValueError) as error:  # timm has no weights for this model
            raise WeightsError(
                f"{request.name} has no pretrained weights: {first_line(error)}"
            ) from error
        config = getattr(module, "pretrained_cfg", {})
        name = f"timm {config.get('tag') or 'default'}"
        weighted = ModelWithWeights(module, name, categories=self.list_categories(module))
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
            return ()
        names = ImageNetInfo(subset)
        return tuple(names.index_to_description(index) for index in range(names.num_classes()))

    def pin(self, loaded: str) -> str:
        """Return ``pretrained``: the model's name already chooses one set of timm's weights."""
        return "pretrained"

    def count_channels(self, request: ModelRequest) -> int | None:
        asked = dict(request.arguments).get("in_chans", "")
        return int(asked) if asked.isdecimal() else super().count_channels(request)

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
        for key in ("mean", "std", "interpolation"):
            if getattr(request, key) is not None:
                config[key] = getattr(request, key)
        height, width = config["input_size"][1:]
        transform = create_transform(**config, is_training=False)
        return Preprocessing(self.task, transform, crop=(height, width))


def _find_builder(name: str) -> Callable[..., nn.Module]:
    """Return timm's builder of a model; the builder loads weights if given ``pretrained=True``."""
    try:
        timm = _import_timm()
    except ImportError as error:
        raise RequestError(f"timm:{name} needs timm", "install it: pip install timm") from error
    if not timm.is_model(name):
        raise UnknownModelError(f"timm:{name}", [f"timm:{known}" for known in timm.list_models()])
    try:
        timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # the tag after the dot is unknown
        tagged = timm.list_models(f"{name.partition('.')[0]}.*", pretrained=True)
        raise UnknownModelError(f"timm:{name}", [f"timm:{known}" for known in tagged]) from error
    return partial(timm.create_model, name)


def _is_timm_name(name: str) -> bool:
    """Return whether timm is installed and has a model called ``name`` (without ``timm:``)."""
    try:
        return bool(_import_timm().is_model(name))
    except ImportError:
        return False


def _import_timm() -> Any:
    return call_without_compiler(partial(import_module, "timm"))


def _fail_fast_offline() -> None:
    """Make timm use only its cache if the Hugging Face hub cannot be reached.

    By default, timm would try to connect for most of a minute. With a proxy, hookcli does not check
    the connection.
    """
    from huggingface_hub import constants

    if any(os.environ.get(name) for name in _PROXIES):
        return
    try:
        socket.create_connection(_HUB, CONNECT_SECONDS).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
