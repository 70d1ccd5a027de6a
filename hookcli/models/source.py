"""What has to be known of a source of models; each source changes what differs."""

from __future__ import annotations

import contextlib
import http.client
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hookcli.errors import RequestError, WeightsError
from hookcli.models.presets import make_imagenet
from hookcli.models.task import COLOURS, find_fixed_size
from hookcli.models.tasks import CLASSIFICATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from hookcli.config import ModelRequest
    from hookcli.models.presets import MakePreset
    from hookcli.models.task import Preprocessing, Task

CONNECT_SECONDS = 10
UNREACHABLE = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class ModelWithWeights:
    """A model with its weights, and what has to be reported about them.

    Attributes:
        name: where the weights came from.
        preset: makes the preprocessing of torchvision for the weights.
        categories: the class names by index.
        trained: False if any of the weights are known to be random.
        warning: what the user must know about the weights.
        sha256: the hash of the weights' file or, for the user's own models without a file, of the
            weights themselves; empty otherwise.
        notes: changes to the model that the user did not ask for and that affect what it computes.
    """

    module: nn.Module
    name: str
    preset: MakePreset = make_imagenet
    categories: tuple[str, ...] = ()
    trained: bool = True
    warning: str = ""
    sha256: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be built, of a source that each subclass stands for.

    Attributes:
        name: the name as the user wrote it.
        builder: builds the module, untrained, from keyword arguments.
        prefix: how all names of this source begin, such as ``timm:``; empty for the names that
            models of other libraries have, too.
        is_known: hookcli knows what models of this source take and return. Of other models nothing
            is known but what they show: what they return may have any form, they may raise any
            exception, and they are used as they were made.
        word: what manifests call the task of its models; empty if their tasks are known.
        reserved: the arguments of the builder that hookcli sets itself.
    """

    name: str
    builder: Callable[..., nn.Module]
    prefix: ClassVar[str] = ""
    is_known: ClassVar[bool] = True
    word: ClassVar[str] = ""
    reserved: ClassVar[frozenset[str]] = frozenset(
        {"weights", "weights_backbone", "pretrained", "progress", "quantize"}
    )

    # The model

    @classmethod
    def find(cls, name: str, seed: int) -> Source:
        """Return the model called ``name``.

        Code of the user's own is run after ``torch.manual_seed(seed)``.

        Raises:
            UnknownModelError: no model has this name.
            RequestError: a library, a file or a function is not there.
            ModelError: the code raised an exception.
        """
        raise NotImplementedError

    @property
    def task(self) -> Task:
        """The task of the model."""
        return CLASSIFICATION

    @property
    def code(self) -> str:
        """The name of the user's own code that makes the model, as ``FILE.py:NAME``; or empty."""
        return "" if self.is_known else self.name

    def guard(self) -> contextlib.AbstractContextManager[None]:
        """Return a ``with`` block for using the model in any way."""
        return contextlib.nullcontext()

    def guard_output(self) -> contextlib.AbstractContextManager[None]:
        """Return a ``with`` block for reading what the model returned."""
        return contextlib.nullcontext()

    def sizes(self, request: ModelRequest) -> dict[str, object]:
        """Return the arguments of the builder that make the network for the size of a request."""
        return {}

    # Its weights

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the trained weights."""
        return ()

    def has_weights(self, name: str) -> bool:
        """Return whether ``name`` means trained weights, and not a file."""
        return name == "pretrained"

    def load_trained(self, request: ModelRequest, name: str) -> ModelWithWeights:
        """Return the model with trained weights.

        Raises:
            WeightsError: there are none of this name, or they are damaged.
            OSError: they are neither cached nor reachable.
        """
        raise WeightsError(
            f"{request.name} has no pretrained weights that hookcli knows of",
            "let its own code load them, or pass a file: --weights FILE",
        )

    def load_as_made(self, request: ModelRequest) -> ModelWithWeights | None:
        """Return the model with the weights that its builder gives it; None if these are random."""
        return None

    def explain_untrained(self, request: ModelRequest) -> str:
        """Return why no trained weights fit what was asked for; empty if they may fit."""
        return ""

    def list_categories(self, module: nn.Module) -> tuple[str, ...]:
        """Return the class names by index; empty if they are not known."""
        return ()

    def adapt(self, request: ModelRequest, module: nn.Module) -> str:
        """Change a model as weights of this source need it, and return a note on that."""
        return ""

    @classmethod
    def pin(cls, loaded: str) -> str:
        """Return the name by which another process loads the same trained weights."""
        return "auto"

    @classmethod
    def find_url(cls, request: ModelRequest) -> str:
        """Return from where the file of pinned weights was loaded into torch's cache."""
        return ""

    # Its preprocessing

    @property
    def preset(self) -> MakePreset:
        """The maker of the preprocessing for the default weights: that of ImageNet, if unknown."""
        return make_imagenet

    def count_channels(self, request: ModelRequest) -> int | None:
        """Return the number of channels that the model accepts; None if it is not known."""
        return COLOURS if self.is_known else None

    def prepare_as_trained(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset
    ) -> Preprocessing:
        """Return the preprocessing that comes with the weights, with the changes of a request."""
        return self.task.prepare(request, module, preset)

    def prepare(
        self, request: ModelRequest, module: nn.Module, preset: MakePreset = make_imagenet
    ) -> Preprocessing:
        """Return the preprocessing of a model, with the changes that ``request`` asks for.

        A detection model, which resizes by itself, is changed.

        Raises:
            RequestError: a change was asked for that does not apply to this model's preprocessing.
        """
        grey = 1 in (len(request.mean or ()), len(request.std or ()))
        if grey and self.is_known:
            raise RequestError(
                f"{request.name} takes colours: --mean and --std are three numbers each",
                "one number each is for grey models of your own",
            )
        return replace(
            self.prepare_as_trained(request, module, preset),
            channels=self.count_channels(request),
            fixed=find_fixed_size(module),
            grey=grey,
        )
