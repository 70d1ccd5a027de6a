"""A variant of a model: prepared, run with its own threads and memory format, and described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hookcli.compare.diff import list_changed
from hookcli.distance.comparison import ChangedFact
from hookcli.errors import ForwardError, RequestError
from hookcli.hooks.change import change
from hookcli.hooks.layers import explain_uncalled
from hookcli.hooks.observe import observe
from hookcli.models.device import use_threads
from hookcli.passes.call import run_model, to_batch
from hookcli.records.calls import Uncalled
from hookcli.records.command import compare_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from hookcli.config import At
    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepared import PreparedModel
    from hookcli.records.calls import Call
    from hookcli.records.edit_effects import EditEffects


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the two variants of a model that are compared.

    Attributes:
        prepared: the model, and the images for it.
        name: the name of the variant, as the user is shown it.
        at: which tensors of a call are compared: ``output``, ``input`` or ``both``.
        channels_last: weights and pixels are laid out channels last in memory.
        threads: how many threads torch uses on the CPU; None for torch's own choice.
    """

    prepared: PreparedModel
    name: str
    at: At = "output"
    channels_last: bool = False
    threads: int | None = None

    @property
    def touches_model(self) -> bool:
        """Whether the variant changes the modules themselves."""
        return self.channels_last or bool(self.prepared.request.prunes)


def make_ready(a: Variant, b: Variant) -> None:
    """Lay out the weights of each variant in its memory format.

    Raises:
        RequestError: the two models share modules that one variant changes, or a model has no
            channels-last form.
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
    effects: EditEffects,
) -> None:
    """Run one forward under hooks; the model draws the same random numbers in every call.

    Args:
        variant: the variant.
        image: the image, whose pixels are known.
        observer: receives each call and its tensor inside the hook.
        called: collects the module paths of the layers that ran.
        effects: what the edits do is noted here.

    Raises:
        RequestError: the pixels have no channels-last form.
        ForwardError: the model raised an exception.
    """
    prepared = variant.prepared
    loaded, edits = prepared.loaded, prepared.edits
    assert image.pixels is not None  # noqa: S101  images without pixels have been skipped
    pixels = to_batch(loaded, image.pixels).contiguous()  # photos are decoded channels last
    if variant.channels_last:
        if pixels.dim() != 4:
            raise _no_channels_last()
        pixels = pixels.contiguous(memory_format=torch.channels_last)
    try:
        with (
            use_threads(variant.threads),
            torch.random.fork_rng(),
            change(loaded.module, edits.changes(effects, loaded.feed.size_of(pixels), 1)),
            observe(loaded.module, prepared.layers, observer, variant.at, called),
        ):
            torch.manual_seed(prepared.request.model.seed)
            run_model(loaded, pixels)
    except ForwardError as error:
        raise ForwardError(f"{variant.name}: {error.message}", error.hint) from error


def list_variant_changes(a: Variant, b: Variant) -> Iterator[ChangedFact]:
    """Yield the facts that differ between the two variants."""
    yield from list_changed(_facts(a), _facts(b))
    formats = ["channels last" if variant.channels_last else "contiguous" for variant in (a, b)]
    if formats[0] != formats[1]:
        yield ChangedFact("memory format", *formats)
    infos = [variant.prepared.loaded.info for variant in (a, b)]
    seeds = [variant.prepared.request.model.seed for variant in (a, b)]
    # random weights have the seed in their name, and have been reported above
    if seeds[0] != seeds[1] and infos[0].weights == infos[1].weights:
        yield ChangedFact("seed", *seeds)
    threads = [variant.threads or torch.get_num_threads() for variant in (a, b)]
    if threads[0] != threads[1]:
        yield ChangedFact("threads", *threads)
    if a.prepared.request.images != b.prepared.request.images:
        yield ChangedFact("image", *(variant.prepared.sources[0].name for variant in (a, b)))


def list_uncalled(prepared: PreparedModel, called: set[str]) -> tuple[Uncalled, ...]:
    """Return the chosen layers that ran in neither variant, with the reason."""
    model = prepared.loaded.module
    return tuple(
        Uncalled(layer, explain_uncalled(model, layer))
        for layer in prepared.layers
        if layer.module_path not in called
    )


def _refuse_shared(a: Variant, b: Variant) -> None:
    """Check that A and B share no modules that one of them changes.

    A factory of the user's may return the same module each time.

    Raises:
        RequestError: they share some.
    """
    alike = a.prepared.request.model == b.prepared.request.model
    if alike and not (a.touches_model or b.touches_model):
        return
    ids_a, ids_b = (
        {id(each) for each in (*module.modules(), *module.parameters())}
        for module in (a.prepared.loaded.module, b.prepared.loaded.module)
    )
    if ids_a & ids_b:
        raise RequestError(
            f"{b.prepared.request.model.name} returns the same modules again, "
            "and each side needs its own",
            "name a function that makes a new model each time: FILE.py:FUNCTION",
        )


def _facts(variant: Variant) -> dict[str, object]:
    info = variant.prepared.loaded.info
    return {
        "model": {name: getattr(info, name) for name in info.__dataclass_fields__},
        "versions": {},
        "command": compare_command(variant.prepared.request, variant.at),
    }


def _no_channels_last() -> RequestError:
    return RequestError(
        "only pictures can be laid out channels last, not clips or pairs", "leave out channels-last"
    )
