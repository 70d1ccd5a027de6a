"""The ways in which a model can be run: with other threads or another memory format, and what makes two of them differ."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hookcli.compare.diff import list_changed
from hookcli.distance.comparison import ChangedFact
from hookcli.errors import ForwardError, RequestError
from hookcli.hooks.change import change
from hookcli.hooks.layers import explain_uncalled
from hookcli.hooks.observe import observe
from hookcli.passes.call import run_model, to_batch
from hookcli.records.calls import Uncalled
from hookcli.records.command import compare_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from hookcli.config import At
    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepare import PreparedModel
    from hookcli.records.calls import Call


@dataclass(frozen=True, slots=True)
class Variant:
    """One side: a model made ready, and what is not the model's.

    Attributes:
        prepared: the model, and the images for it.
        name: what the user calls it.
        at: which tensors of a call are compared: ``output``, ``input`` or ``both``.
        channels_last: weights and pixels are laid out channels last in memory.
        threads: how many threads torch uses on the CPU; None for as many as it chose.
    """

    prepared: PreparedModel
    name: str
    at: At = "output"
    channels_last: bool = False
    threads: int | None = None

    @property
    def touches_model(self) -> bool:
        """Whether the modules themselves are another than those of a plain run."""
        return self.channels_last or bool(self.prepared.request.prunes)


def make_ready(a: Variant, b: Variant) -> None:
    """Lay the weights as both ways want them.

    Raises:
        RequestError: the models share what is done to one of them, or have no channels-last form.
    """
    _refuse_shared(a, b)
    for variant in (a, b):
        if variant.channels_last:
            model = variant.prepared.loaded.module
            if any(parameter.dim() == 5 for parameter in model.parameters()):
                raise _no_channels_last()
            model.to(memory_format=torch.channels_last)


def run_variant(
    variant: Variant,
    image: PreparedImage,
    observer: Callable[[Call, Tensor], None],
    called: set[str],
) -> None:
    """One forward under hooks; random numbers that the model draws are the same in each.

    Raises:
        RequestError: the pixels have no channels-last form.
        ForwardError: the model raised.
    """
    prepared = variant.prepared
    loaded, edits = prepared.loaded, prepared.edits
    assert image.pixels is not None  # noqa: S101  the others are skipped
    pixels = to_batch(loaded, image.pixels).contiguous()  # those of photos lie channels last
    if variant.channels_last:
        if pixels.dim() != 4:
            raise _no_channels_last()
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    try:
        with (
            _threads(variant.threads),
            torch.random.fork_rng(),
            change(loaded.module, edits.changes(loaded.feed.size_of(pixels), 1)),
            observe(loaded.module, prepared.layers, observer, variant.at, called),
        ):
            torch.manual_seed(prepared.request.model.seed)
            run_model(loaded, pixels)
    except ForwardError as error:
        raise ForwardError(f"{variant.name}: {error.message}", error.hint) from error


def list_variant_changes(a: Variant, b: Variant) -> Iterator[ChangedFact]:
    """What is not the same in B."""
    yield from list_changed(_facts(a), _facts(b))
    formats = ["channels last" if variant.channels_last else "contiguous" for variant in (a, b)]
    if formats[0] != formats[1]:
        yield ChangedFact("memory format", *formats)
    infos = [variant.prepared.loaded.info for variant in (a, b)]
    seeds = [variant.prepared.request.model.seed for variant in (a, b)]
    if (
        seeds[0] != seeds[1] and infos[0].weights == infos[1].weights
    ):  # these name it where it made them
        yield ChangedFact("seed", *seeds)
    threads = [variant.threads or torch.get_num_threads() for variant in (a, b)]
    if threads[0] != threads[1]:
        yield ChangedFact("threads", *threads)
    if a.prepared.request.images != b.prepared.request.images:
        yield ChangedFact("image", *(_name_of(variant.prepared.sources[0]) for variant in (a, b)))


def list_uncalled(prepared: PreparedModel, called: set[str]) -> tuple[Uncalled, ...]:
    """The chosen layers that ran in neither."""
    model = prepared.loaded.module
    return tuple(
        Uncalled(layer, explain_uncalled(model, layer))
        for layer in prepared.layers
        if layer.module_path not in called
    )


def _refuse_shared(a: Variant, b: Variant) -> None:
    """See that what is done to the model of B is not done to that of A: a module of the user's may be one and the same.

    Raises:
        RequestError: it would be.
    """
    alike = a.prepared.request.model == b.prepared.request.model
    if alike and not (a.touches_model or b.touches_model):
        return
    mine, others = (
        {id(part) for part in (*module.modules(), *module.parameters())}
        for module in (a.prepared.loaded.module, b.prepared.loaded.module)
    )
    if mine & others:
        raise RequestError(
            f"{b.prepared.request.model.name} gives the same modules again, and each side needs its own",
            "name a function that makes a new model each time: FILE.py:FACTORY",
        )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _facts(variant: Variant) -> dict[str, Any]:
    info = variant.prepared.loaded.info
    return {
        "model": {name: getattr(info, name) for name in info.__dataclass_fields__},
        "versions": {},
        "command": compare_command(variant.prepared.request, variant.at),
    }


def _name_of(source: Any) -> str:
    name: str = getattr(source, "name", source.file)
    return name


def _no_channels_last() -> RequestError:
    return RequestError(
        "only pictures can lie channels last, not clips or pairs", "leave out channels-last"
    )
