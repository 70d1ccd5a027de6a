"""Models of timm, if it is installed: built, loaded and preprocessed as timm does it."""

from __future__ import annotations

import os
import socket
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hookcli.errors import RequestError, UnknownModelError
from hookcli.models.zoo.state_dict import CONNECT_SECONDS
from hookcli.without_compiler import call_without_compiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.models.zoo.catalog import Transform

_HUB = ("huggingface.co", 443)
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def find_timm_builder(name: str) -> Callable[..., nn.Module]:
    """Return timm's builder of a model; it loads weights if called with ``pretrained=True``.

    Raises:
        RequestError: timm is not installed.
        UnknownModelError: timm has no such model.
    """
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


def is_timm_name(name: str) -> bool:
    """Return whether timm is installed and has a model of this name, without ``timm:``."""
    try:
        return bool(_import_timm().is_model(name))
    except ImportError:
        return False


def _import_timm() -> Any:
    return call_without_compiler(partial(import_module, "timm"))


def has_timm_weights(name: str) -> bool:
    """Return whether timm has trained weights for ``timm:NAME``."""
    config = _import_timm().get_pretrained_cfg(name.removeprefix("timm:"))
    return config is not None and bool(config.has_weights)


def fail_fast_offline() -> None:
    """Make timm use only its cache if its hub cannot be reached.

    Otherwise timm would keep trying to connect for most of a minute.
    """
    from huggingface_hub import constants

    if any(os.environ.get(name) for name in _PROXIES):
        return
    try:
        socket.create_connection(_HUB, CONNECT_SECONDS).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True


def timm_categories(module: nn.Module) -> tuple[str, ...]:
    """Return the class names by index; empty if timm does not know them."""
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(module)
    if not subset:
        return ()
    names = ImageNetInfo(subset)
    return tuple(names.index_to_description(index) for index in range(names.num_classes()))


def timm_transform(module: nn.Module, request: ModelRequest) -> tuple[Transform, tuple[int, int]]:
    """Return timm's own preprocessing, and the height and width that it produces.

    It has the changes that ``request`` asks for.
    """
    from timm.data import create_transform, resolve_model_data_config

    config = resolve_model_data_config(module)
    if request.size is not None:
        config["input_size"] = (config["input_size"][0], request.size, request.size)
    if request.resize is not None:
        # Half a pixel is added since timm divides by this and rounds down.
        config["crop_pct"] = config["input_size"][1] / (request.resize + 0.5)
    for key in ("mean", "std", "interpolation"):
        if getattr(request, key) is not None:
            config[key] = getattr(request, key)
    height, width = config["input_size"][1:]
    return create_transform(**config, is_training=False), (height, width)
