"""Build the image encoders of open_clip's models, which return an embedding of the picture."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from PIL import Image

from hookcli.errors import RequestError, UnknownModelError, WeightsError
from hookcli.networks import hub
from hookcli.networks.build import build_random
from hookcli.networks.presets import requested_changes
from hookcli.networks.source import ModelWithWeights, connection_timeout
from hookcli.networks.task import Preprocessing, Task
from hookcli.networks.tasks import FEATURES
from hookcli.networks.weights import add_weights
from hookcli.networks.weights_file import load_content, loading_weights
from hookcli.networks.without_compiler import import_library
from hookcli.outside.files import hash_file
from hookcli.outside.foreign import ask, first_line
from hookcli.records.rows import CatalogEntry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset

import_open_clip = partial(import_library, "open_clip", "'hookcli[open-clip]'")


@dataclass(frozen=True, slots=True)
class OpenClip(hub.FileSource):
    """Builds the model ``open_clip:NAME/TAG``, where TAG names trained weights.

    The model may also come from files: in a folder, ``open_clip:FOLDER``, or in a repository on the
    Hugging Face hub at a revision, ``open_clip:hf-hub:ORG/NAME@REV``.
    """

    prefix: ClassVar[str] = "open_clip:"
    label: ClassVar[str] = "features"
    library: ClassVar[str] = "open_clip"
    weight_names: ClassVar[tuple[str, ...]] = (
        *("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors"),
        *("open_clip_pytorch_model.bin", "open_clip_pytorch_model.pth", "model.safetensors"),
    )

    task: Task = FEATURES
    model: str = ""  # the name in the library, without a tag
    tag: str = ""  # of the weights

    @classmethod
    def list_shelf(cls) -> list[str]:
        names = import_open_clip("open_clip:").list_models()
        return sorted(f"{cls.prefix}{each}" for each in names)

    @classmethod
    def describe(cls, name: str) -> CatalogEntry:
        library, model = import_open_clip(name), name.removeprefix(cls.prefix)
        tags = tuple(library.list_pretrained_tags_by_model(model))
        cached = [tag for tag in tags if _is_cached(library.get_pretrained_cfg(model, tag))]
        return CatalogEntry(name, "features", tags, None, None, None, tuple(cached))

    @classmethod
    def find(cls, name: str, seed: int) -> OpenClip:
        library, rest = import_open_clip(name), name.removeprefix(cls.prefix)
        if hub.is_folder_or_repository(rest):
            files = hub.find_files(rest)
            hint = "open_clip's push_to_hf_hub writes one"
            config, _ = hub.require_config(files, name, hint, "open_clip_config.json")
            model = f"local-dir:{config.parent}"
            return cls(name, partial(_build, library, model), model=model, files=files)
        model, _, tag = rest.partition("/")
        known = library.list_models()
        if model not in known:
            raise UnknownModelError(name, [f"{cls.prefix}{each}" for each in known])
        tags = library.list_pretrained_tags_by_model(model)
        if tag and tag not in tags:
            raise UnknownModelError(name, [f"{cls.prefix}{model}/{each}" for each in tags])
        return cls(name, partial(_build, library, model), model=model, tag=tag)

    @property
    def members(self) -> tuple[str, ...]:
        if self.files is not None:
            return ()
        return tuple(import_open_clip(self.name).list_pretrained_tags_by_model(self.model))

    def explain_named(self, request: ModelRequest) -> str:
        if not self.members:
            return f"open_clip has no trained weights for {self.model}"
        if self.tag:
            return ""
        some = ", ".join(f"{self.prefix}{self.model}/{tag}" for tag in self.members[:3])
        return f"{self.name} names no weights, such as {some}"

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        tag = self.tag if name == "pretrained" else name
        if self.files is None and not tag:
            hint = f"its weights: {', '.join(self.members)}"
            raise WeightsError(f"{self.name} names no weights", hint)
        loading = loading_weights(f"the weights of {self.name}")
        if self.files is None:
            file = _download(import_open_clip(self.name), self.model, tag)
            with loading:
                module = build_random(self, request, pretrained=tag, load_weights=True)
            return ModelWithWeights(module, tag, sha256=hash_file(file))
        found = self.require_weights()
        sha256 = load_content(found)[1]
        with loading:
            module = build_random(self, request, file=found)
        return ModelWithWeights(module, self.files.label, sha256=sha256)

    def pin(self, loaded: str) -> str:
        return "pretrained" if self.files is not None else loaded

    def prepare_as_trained(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset
    ) -> Preprocessing:
        if request.resize is not None:
            hint = "use `size`, not `resize`"
            raise RequestError("open_clip resizes pictures to the size of the crop", hint)
        from open_clip.transform import PreprocessCfg, image_transform_v2

        sizes = {} if request.size is None else {"size": request.size}
        own = ask(module, "preprocess_cfg") or {}
        config: Any = PreprocessCfg(**{**own, **sizes, **requested_changes(request)})
        transform = image_transform_v2(config, is_train=False)
        transform(Image.new("RGB", (64, 48)))  # a damaged transform raises its exception here
        size = config.size if isinstance(config.size, (tuple, list)) else (config.size,) * 2
        return Preprocessing(self.task, transform, crop=(int(size[0]), int(size[1])))

    def embed_text(self, request: ModelRequest, text: str) -> Tensor:
        library = import_open_clip(self.name)
        builder = partial(_build, library, self.model, "")
        whole: Any = add_weights(replace(self, builder=builder), request).module
        tokens = library.get_tokenizer(self.model)([text])
        with torch.inference_mode():
            embedding: Tensor = whole.eval().encode_text(tokens)[0]
        return embedding

    def sizes(self, request: ModelRequest) -> dict[str, object]:
        return {} if request.size is None else {"force_image_size": request.size}


def _build(library: Any, model: str, part: str = "visual", /, **arguments: object) -> nn.Module:
    file = arguments.pop("file", None)
    options: dict[str, object] = {"load_weights": False, "pretrained_text": False, **arguments}
    with hub.quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = library.create_model(model, **options)
        if file is not None:
            library.load_checkpoint(made, str(file))
    built: nn.Module = made.get_submodule(part)
    return built


def _is_cached(config: dict[str, str]) -> bool:
    if location := config.get("hf_hub"):
        names = (*OpenClip.weight_names, Path(location).name)
        return hub.is_cached(location.rpartition("/")[0], *filter(None, names))
    return (Path("~/.cache/clip").expanduser() / Path(config.get("url", "")).name).is_file()


def _download(library: Any, model: str, tag: str) -> Path:
    hub.fail_fast_offline()
    try:
        with hub.quiet(), hub.connection_errors(), connection_timeout():
            return Path(library.download_pretrained(library.get_pretrained_cfg(model, tag)))
    except RuntimeError as error:
        what = f"the download of open_clip's {model}/{tag} is damaged: {first_line(error)}"
        raise WeightsError(what, "try again") from error
