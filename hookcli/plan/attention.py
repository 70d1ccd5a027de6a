"""What ``--attention`` and ``--patch`` ask for: the layers, and the patch on the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.errors import NoLayerMatchedError, RequestError
from hookcli.hooks.filter import select_layers
from hookcli.passes.attention import AttentionSettings
from hookcli.passes.find_operations import find_named_operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import AttentionRequest
    from hookcli.images.read import ImageSource
    from hookcli.networks.load import LoadedModel
    from hookcli.products.product import Scope
    from hookcli.records.calls import LayerInfo

MOST_MAP_BYTES = 4_000_000  # all maps on the page of a run, uncompressed
_BOX_SHARE = 0.02  # side of the box around the pixel of ``--patch``, as a share of the image side


def choose_attention(
    scope: Scope, loaded: LoadedModel, sources: Sequence[ImageSource], *, has_weights: bool = True
) -> AttentionSettings | None:
    """Return which attention to compute; None if none was asked for, or without weights."""
    # ``sources`` are the run's images; a worker of a cluster passes only one of them.
    request = scope.config.attention
    if request is None:
        return None
    layers = _choose_attention_layers(request, loaded)
    patch = _find_patch(request.patch, loaded, sources)
    if not has_weights:
        return None
    settings = AttentionSettings(
        loaded.module,
        loaded.inputs,
        loaded.pixels_to_try,
        layers=layers,
        point=patch,
        draws=scope.style.mode == "layers",
        rollout=request.rollout,
        keeps=scope.config.tensors.attention,
        limit=MOST_MAP_BYTES // scope.images,
    )
    found = settings.find(loaded.pixels_to_try())
    if not (found.calls or found.hidden):
        raise RequestError(
            f"`attention` {', '.join(request.layers)}: no attention runs inside these layers",
            "this model shows none: `hookcli.layers(MODEL)` lists what it is made of"
            if "all" in request.layers
            else "all of the model's: `attention=AttentionRequest(('all',))`",
        )
    if request.rollout and (reason := found.refuse_rollout()):
        raise RequestError(f"`rollout` cannot be computed: {reason}", "leave `rollout` out")
    return settings


def _choose_attention_layers(
    request: AttentionRequest, loaded: LoadedModel
) -> tuple[LayerInfo, ...]:
    operations = find_named_operations(loaded, request.layers)
    try:
        return select_layers(loaded.module, request.layers, operations=operations)
    except NoLayerMatchedError as error:
        raise RequestError(f"`attention`: {error.message}", error.hint) from error


def _find_patch(
    pixel: tuple[int, int] | None, loaded: LoadedModel, sources: Sequence[ImageSource]
) -> tuple[float, float] | None:
    """Return where a pixel is, as shares of the width and height of the layers' input."""
    if pixel is None:
        return None
    if len(sources) != 1:
        raise RequestError("`patch` is a pixel of one image", "give one image")
    image = sources[0].read()
    width, height = image.size
    across, down = pixel
    if not (0 <= across < width and 0 <= down < height):
        raise RequestError(
            f"`patch` {across},{down} is not inside the image, which is {width} by {height} pixels"
        )
    reach = max(1, round(min(width, height) * _BOX_SHARE / 2))
    left, top = max(0, across - reach), max(0, down - reach)
    box = (left, top, min(2 * reach, width - left), min(2 * reach, height - top))
    inside = loaded.find_box(image.size, box, as_pixels=image.pixels is not None)[0]
    if float(inside.sum()) <= 0:
        raise RequestError(
            f"`patch` {across},{down} is cut away: the network sees the middle of the image",
            "choose a pixel nearer to the middle, or a different `resize`",
        )
    return _mean_place(inside.sum(0).tolist()), _mean_place(inside.sum(1).tolist())


def _mean_place(weights: Sequence[float]) -> float:
    total = sum(weight * (place + 0.5) for place, weight in enumerate(weights))
    return total / sum(weights) / len(weights)
