"""Build models of torchvision, read the metadata of their weights, and download the weights."""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError

import torch

from hookcli.errors import RequestError, UnknownModelError, WeightsError
from hookcli.networks.build import SkipInitialisation, build_model
from hookcli.networks.source import UNREACHABLE, ModelWithWeights, Source, connection_timeout
from hookcli.networks.tasks import find_task
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.files import hash_file
from hookcli.outside.foreign import ForeignCode, first_line
from hookcli.records.rows import CatalogEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from hookcli.config import ModelRequest

_MIB = 1.048576  # torchvision states sizes in units of 2**20 bytes
_HASH = re.compile(r"-([a-f0-9]*)\.")  # the start of the sha256, in torchvision's file names


class Torchvision(Source):
    library: ClassVar[str] = "torchvision"

    @classmethod
    def list_shelf(cls) -> list[str]:
        return sorted(torchvision.models.list_models())

    @classmethod
    def describe(cls, name: str) -> CatalogEntry:
        weights = find_weights(name)
        default = weights.DEFAULT
        members = [default, *(member for member in weights if member is not default)]
        operations, size = default.meta.get("_ops"), default.meta.get("_file_size")
        return CatalogEntry(
            name=name,
            task=find_task(find_builder(name).__module__).word,
            weights=tuple(member.name for member in members),
            params=default.meta.get("num_params"),
            gflops=None if operations is None else round(2 * operations, 3),
            file_mb=None if size is None else round(size * _MIB, 3),
            cached=tuple(member.name for member in members if cache_file(member.url).is_file()),
        )

    @classmethod
    def correct(cls, name: str) -> RequestError | None:
        short, shelf = name.removeprefix("torchvision.models.").lower(), cls.list_shelf()
        near = (short, short.replace("-", "_"), short.replace("-", ""))
        found = next((each for each in near if each in shelf), None)
        return RequestError(f"no model is called {name!r}", found) if found else None

    @classmethod
    def find(cls, name: str, seed: int) -> Torchvision:
        builder, preset = find_builder(name), find_weights(name).DEFAULT.transforms
        return cls(name, partial(_build, builder), find_task(builder.__module__), preset)

    def sizes(self, request: ModelRequest) -> dict[str, object]:
        package = find_builder(self.name).__module__
        if request.size is None:
            return {}
        if package.endswith("vision_transformer"):
            return {"image_size": request.size}
        return {"input_size": (request.size, request.size)} if package.endswith("maxvit") else {}

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(find_weights(self.name).__members__)

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        # torchvision's builder loads the weights, since it may rename keys or drop heads.
        member = find_weights(self.name)["DEFAULT" if name == "pretrained" else name]
        file = cache_weights(str(member), member.url, progress=request.progress)
        arguments: dict[str, object] = {"weights": member}
        if member.meta.get("backend") is not None:
            arguments["quantize"] = True
        what, hint = f"the cached weights {file}", f"if they are damaged, remove them: rm '{file}'"
        loading = ForeignCode(what, hint=hint, verb="cannot be loaded", error=WeightsError)
        with loading, SkipInitialisation():
            module = build_model(self, request, **arguments)
        categories = tuple(member.meta.get("categories", ()))
        sha256 = hash_file(file)
        return ModelWithWeights(module, str(member), member.transforms, categories, sha256=sha256)

    def explain_untrained(self, request: ModelRequest) -> str:
        classes = len(self.list_categories())
        if not classes or dict(request.arguments).get("num_classes", str(classes)) == str(classes):
            return ""
        return f"trained weights have {classes} classes, and a different num_classes was asked for"

    def list_categories(self, module: nn.Module | None = None) -> tuple[str, ...]:
        return tuple(find_weights(self.name).DEFAULT.meta.get("categories", ()))

    def adapt(self, request: ModelRequest, module: nn.Module) -> str:
        if not hasattr(module, "transform_input") or "transform_input" in dict(request.arguments):
            return ""
        vars(module)["transform_input"] = True
        return (
            "transform_input=True, with which torchvision's own weights were trained, rescales the"
            " input: weights that were trained without it need the argument transform_input=False"
        )

    def pin(self, loaded: str) -> str:
        return loaded.rpartition(".")[2]

    def find_url(self, weights: str) -> str:
        members = find_weights(self.name).__members__
        return members[weights].url if weights in members else ""


def _build(builder: Callable[..., nn.Module], /, **arguments: object) -> nn.Module:
    arguments.setdefault("weights", None)
    if "weights_backbone" in inspect.signature(builder).parameters:
        arguments["weights_backbone"] = None
    return builder(**arguments)


def find_builder(name: str) -> Callable[..., nn.Module]:
    names = Torchvision.list_shelf()
    if name not in names:
        raise UnknownModelError(name, names)
    builder: Callable[..., nn.Module] = torchvision.models.get_model_builder(name)
    return builder


def find_weights(name: str) -> Any:
    return torchvision.models.get_model_weights(name)


def cache_file(url: str) -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


def cache_weights(name: str, url: str, *, progress: bool) -> Path:
    file = cache_file(url)
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    found = _HASH.search(url)
    digest = found[1] if found else None
    try:
        with connection_timeout():
            torch.hub.download_url_to_file(url, str(file), digest, progress=progress)
    except UNREACHABLE as error:
        if isinstance(error, HTTPError):
            error.close()
        raise
    except RuntimeError as error:
        what = f"the download of {name} is not what torchvision published: {first_line(error)}"
        raise WeightsError(what, "try again, or pass a file you trust: `weights=FILE`") from error
    return file
