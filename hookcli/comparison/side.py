"""Run one of two compared models on an image, and list how the settings of the two differ."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from hookcli.comparison.diff import list_changed
from hookcli.config import InspectConfig
from hookcli.distance.comparison import ChangedFact
from hookcli.errors import ForwardError
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import to_dense
from hookcli.passes.eager import EagerRunner
from hookcli.passes.runner import Batch
from hookcli.records.command import command_words
from hookcli.records.text import and_more, count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.images.prepare import PreparedImage
    from hookcli.passes.runner import Side
    from hookcli.records.calls import Call
    from hookcli.records.edit_effects import EditEffects

_NUMPY_FLOATS = (torch.float64, torch.float32, torch.float16)


def run_side(
    side: Side,
    image: str,
    pixels: Tensor,
    observer: Callable[[Call, Tensor], None],
    called: dict[str, str],
    effects: EditEffects,
) -> object:
    """Run an image through one of two compared models, and return the model's output.

    ``image`` is the image's key. The last of ``pixels`` (N, …) are those of the image. The observer
    gets each call with its tensor. The function adds the layers that the model called to
    ``called``, as ``hooks.observe`` does, and merges the effects of edits into ``effects``.
    """
    batch = Batch([image] * len(pixels), side.runner.to_device(pixels))
    with naming(side):
        outcome = side.runner.run(batch, observer)
    called |= outcome.called
    effects.merge(outcome.effects)
    return outcome.output


def pixels_of(image: PreparedImage) -> Tensor:
    """Return an image's pixels as a contiguous tensor (1, …); photos are decoded channels last."""
    assert image.pixels is not None  # noqa: S101  the caller skips images without pixels
    return image.pixels.unsqueeze(0).contiguous()


@contextmanager
def naming(side: Side) -> Iterator[None]:
    try:
        yield
    except ForwardError as error:
        raise ForwardError(f"{side.request.name}: {error.message}", error.hint) from error


def list_side_changes(a: Side, b: Side) -> Iterator[ChangedFact]:
    yield from list_changed(_facts(a), _facts(b))
    one, two = a.request, b.request
    formats = ["channels last" if each.channels_last else "contiguous" for each in (one, two)]
    if formats[0] != formats[1]:
        yield ChangedFact("memory format", *formats)
    seeds = [each.run.model.seed for each in (one, two)]
    # the name of random weights contains the seed, so the difference was reported above
    if seeds[0] != seeds[1] and a.info.weights == b.info.weights:
        yield ChangedFact("seed", *seeds)
    threads = [each.threads or torch.get_num_threads() for each in (one, two)]
    if threads[0] != threads[1]:
        yield ChangedFact("threads", *threads)
    if one.among != two.among:
        yield ChangedFact("batch", "1 image", f"among {count(two.among, 'other')}")
    if one.autocast != two.autocast:
        yield ChangedFact("autocast", "off", two.autocast)
    if two.repeats:
        yield ChangedFact("run", "first", "second")
    if two.export is not None:
        file = "" if two.export.file is None else f", from {str(two.export.file)!r}"
        yield ChangedFact("runner", "PyTorch", f"{two.export.way}{file}")
    types = [
        {layer.module_path: layer.module_type for layer in list_watchable(each.runner.module)}
        if isinstance(each.runner, EagerRunner)
        else {}
        for each in (a, b)
    ]
    other = [(p, kind) for p, kind in types[0].items() if p and types[1].get(p, kind) != kind]
    if two.export is None and other:
        path, kind = other[0]
        name = f"type of {path}{and_more(len(other) - 1, ' and of {} more layer{s}')}"
        yield ChangedFact(name, kind, types[1][path])
    if one.run.images != two.run.images:
        yield ChangedFact("image", a.sources[0].name, b.sources[0].name)


def _facts(side: Side) -> dict[str, object]:
    info = side.info
    return {
        "model": {name: getattr(info, name) for name in info.__dataclass_fields__},
        "versions": {},
        "command": command_words("compare", InspectConfig(side.request.run)),
    }


def to_array(tensor: Tensor) -> NDArray[np.generic]:
    """Convert a tensor to an array, which may share memory with it; bfloat16 becomes float32."""
    dense = to_dense(tensor)
    dense = dense.dequantize() if dense.is_quantized else dense
    if dense.is_floating_point() and dense.dtype not in _NUMPY_FLOATS:
        dense = dense.float()
    dense = dense.to(torch.complex64) if dense.dtype == torch.complex32 else dense
    array: NDArray[np.generic] = dense.cpu().resolve_conj().resolve_neg().numpy()
    return array
