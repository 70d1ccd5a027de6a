"""Define ``Source``: where models come from, such as a library or the user's own code."""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hookcli.errors import RequestError, WeightsError
from hookcli.networks.presets import make_imagenet
from hookcli.networks.recipe_steps import apply_recipe
from hookcli.networks.task import COLOURS, find_fixed_size
from hookcli.networks.tasks import CLASSIFICATION
from hookcli.outside.foreign import ask
from hookcli.records.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.networks.presets import MakePreset
    from hookcli.networks.task import Preprocessing, Task
    from hookcli.records.rows import CatalogEntry

CONNECT_SECONDS = 10
UNREACHABLE = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class ModelWithWeights:
    module: nn.Module
    name: str  # of the weights, or the file or code that they come from
    preset: MakePreset = make_imagenet  # makes torchvision's preprocessing for the weights
    categories: tuple[str, ...] = ()  # the class names by index; empty if they are not known
    trained: bool = True  # False if any of the weights are known to be random
    warning: str = ""  # about the weights, for the user
    sha256: str = ""  # of the weights' file, or of the weights that the user's own code made
    # changes that the user did not ask for and that affect what the model computes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    name: str  # as the user wrote it
    builder: Callable[..., nn.Module]  # builds the untrained module
    task: Task = CLASSIFICATION
    preset: MakePreset = make_imagenet  # of the default weights
    # the beginning of all names, such as ``timm:``; without one, a library that hookcli does not
    # know may have the name, too
    prefix: ClassVar[str] = ""
    # the task in manifests, if hookcli does not know the real one of each model
    label: ClassVar[str] = ""
    # the package that the models come from; none for the user's own code
    library: ClassVar[str] = ""
    # whether hookcli knows the inputs and outputs of the models. If not, a model may return any
    # output and raise any exception, and by default it keeps the weights that its code makes.
    is_known: ClassVar[bool] = True
    keeps_format: ClassVar[bool] = False  # whether the model keeps its memory format
    reserved: ClassVar[frozenset[str]] = frozenset(
        {"weights", "weights_backbone", "pretrained", "progress", "quantize"}
    )  # the arguments of the builder that hookcli sets itself
    channels_argument: ClassVar[str] = ""  # the builder's, for the number of channels

    @classmethod
    def takes(cls, name: str) -> bool:
        return name.startswith(cls.prefix)

    @classmethod
    def shelf(cls) -> str:
        return cls.prefix.rstrip(":") or cls.library

    @classmethod
    def list_shelf(cls) -> list[str]:
        return []

    @classmethod
    def describe(cls, name: str) -> CatalogEntry:
        raise NotImplementedError

    @classmethod
    def correct(cls, name: str) -> RequestError | None:
        """Return an error that suggests the right name, or None if ``name`` means no known model.

        ``name`` is a wrong name, such as ``torchvision.models.resnet18`` for ``resnet18``.
        """
        return None

    @classmethod
    def find(cls, name: str, seed: int) -> Source:
        raise NotImplementedError

    @property
    def keeps_dtype(self) -> bool:
        return False

    @property
    def word(self) -> str:
        return self.label or self.task.word

    @property
    def most_values(self) -> int | None:
        return None

    def list_versions(self, module: nn.Module) -> dict[str, str]:
        return find_versions([self.library, *(type(each).__module__ for each in module.modules())])

    def guard(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    guard_output = guard

    def sizes(self, request: ModelRequest) -> dict[str, object]:
        return {}

    @property
    def members(self) -> tuple[str, ...]:
        return ()

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        """Return a model with the trained weights that are called ``name``.

        If a download is needed and fails, this raises one of the errors in ``UNREACHABLE``.
        """
        hint = "let its own code load them, or pass a file: `weights=FILE`"
        raise WeightsError(f"{request.name} has no known pretrained weights", hint)

    def load_as_made(self, request: ModelRequest) -> ModelWithWeights | None:
        """Return the user's model with the weights from its code; None for a library's model."""
        return None

    def explain_untrained(self, request: ModelRequest) -> str:
        """Return why no trained weights fit ``request``, or an empty text if some may fit."""
        return ""

    def list_categories(self, module: nn.Module) -> tuple[str, ...]:
        return ()

    def embed_text(self, request: ModelRequest, text: str) -> Tensor:
        """Return the embedding (F,) of a text, to compare with that of the image."""
        hint = "open_clip:NAME, or hf:NAME of a CLIP or SigLIP"
        raise RequestError(f"`text`: {request.name} takes no texts", hint)

    def adapt(self, request: ModelRequest, module: nn.Module) -> str:
        """Adjust the model to weights from a file; return a note for the user, or an empty text."""
        return ""

    def pin(self, loaded: str) -> str:
        """Return the value of ``weights=`` with which another process loads the same weights.

        ``loaded`` is the name in manifests, such as ``"ResNet18_Weights.IMAGENET1K_V1"``.
        """
        return "auto"

    def find_url(self, weights: str) -> str:
        """Return the URL of ``weights``, or "" if torch does not download them from a URL."""
        return ""

    def count_channels(self, request: ModelRequest) -> int | None:
        asked = dict(request.arguments).get(self.channels_argument, "")
        known = int(asked) if asked.isdecimal() else COLOURS
        return known if self.is_known else None

    def prepare_as_trained(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset
    ) -> Preprocessing:
        return self.task.prepare(request, module, preset)

    def prepare(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset = make_imagenet
    ) -> Preprocessing:
        known, given = self.count_channels(request), len(request.mean or request.std or ())
        if known is not None and given not in (0, known):
            takes = f"{request.name} takes {count(known, 'channel')}: `mean` and `std` are"
            hint = "one number each is for grey models of your own"
            raise RequestError(f"{takes} {count(known, 'number')} each", hint)
        if known is not None and len(request.bands) not in (0, 1, known):
            takes = f"{request.name} takes {count(known, 'channel')}, and `bands` chooses"
            raise RequestError(f"{takes} {len(request.bands)}", f"choose {known}")
        bands = known or given or (len(request.bands) if len(request.bands) > 1 else COLOURS)
        made = self.prepare_as_trained(request, module, preset)
        if bands != len(made.task.normalisation(module, made.transform)[0]):
            # No mean and standard deviation are known, so the values stay from 0 to 1.
            plain = replace(request, mean=(0.0,) * bands, std=(1.0,) * bands)
            made = self.prepare_as_trained(plain, module, preset)
        taken = (ask(each, "in_channels") for each in module.modules() if known is None)
        made = replace(
            made,
            channels=known,
            fixed=find_fixed_size(module),
            grey=bands == 1,
            bands=COLOURS if bands == 1 else bands,
            taken=frozenset(each for each in taken if isinstance(each, int)),
        )
        return apply_recipe(request, made)


def find_versions(names: Iterable[str]) -> dict[str, str]:
    packages = sorted({name.partition(".")[0] for name in names})
    found = ((package, ask(sys.modules.get(package), "__version__")) for package in packages)
    return {package: version for package, version in found if version and isinstance(version, str)}


@contextlib.contextmanager
def connection_timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(CONNECT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
