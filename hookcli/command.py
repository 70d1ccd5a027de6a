"""A request as the command that repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.config import DEFAULTS, BackwardStyle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import InspectConfig, ModelRequest, SaveStyle


def to_command(config: InspectConfig) -> tuple[str, ...]:
    """The command that repeats the run, without what does not change its result (``-o``, ``--workers``)."""
    model, grids = config.model, config.grids
    default = DEFAULTS.grids
    words = ["hookcli", config.command, model.name, *map(_as_word, config.images)]
    words += [word for form in config.layers for word in ("--layers", form)]
    words += [word for form in config.exclude for word in ("--exclude", form)]
    words += [word for key, text in model.arguments for word in ("--model-arg", f"{key}={text}")]
    channels = None if grids.channels is None else ",".join(str(c) for c in grids.channels)
    channels = "all" if grids.top is None else channels
    options: list[tuple[str, object, object]] = [
        ("--at", config.at, DEFAULTS.at),
        *_model_options(model),
        ("--pair", config.pair, DEFAULTS.pair),
        ("--focus", None if config.focus is None else ",".join(map(str, config.focus)), None),
        ("--batch-size", config.batch_size, DEFAULTS.batch_size),
        ("--top-images", config.top_images, DEFAULTS.top_images),
        ("--grids", grids.mode, default.mode),
        ("--top", grids.top or default.top, default.top),
        ("--channels", channels, default.channels),
        ("--rank", grids.rank, default.rank),
        ("--scale", grids.scale, default.scale),
        ("--colormap", grids.colormap, default.colormap),
        ("--tile", grids.tile, default.tile),
    ]
    options += _save_options(config.save)
    options += _backward_options(config.backward)
    for name, value, unset in options:
        if value != unset:
            words += [name, str(value)]
    words += [word for rule, value in config.rules for word in ("--rule", f"{rule}={value:g}")]
    words += [word for edit in config.edits for word in ("--edit", edit)]
    words += [word for each in config.prunes for word in ("--prune", each)]
    if config.backward is not None:
        words += [word for form in config.backward.cams for word in ("--cam", form)]
    if config.fail_on:
        words += ["--fail-on", ",".join(config.fail_on)]
    style = config.backward or BackwardStyle()
    flags = (
        ("--clip", config.clip),
        ("--overview", config.overview),
        ("--no-recursive", not config.recursive),
        ("-0", config.null_separated),
        ("--input-grad", style.input_grad),
        ("--times-activation", style.times_activation),
        ("--saliency", style.saliency),
    )
    return (*words, *(name for name, is_set in flags if is_set))


def _model_options(model: ModelRequest) -> list[tuple[str, object, object]]:
    """Options with their values, and the values that need not be said."""
    plain = DEFAULTS.model
    return [
        ("--weights", model.weights, plain.weights),
        ("--seed", model.seed, plain.seed),
        ("--device", model.device, plain.device),
        ("--dtype", model.dtype, plain.dtype),
        ("--size", model.size, plain.size),
        ("--resize", model.resize, plain.resize),
        ("--mean", _joined(model.mean), None),
        ("--std", _joined(model.std), None),
        ("--interpolation", model.interpolation, plain.interpolation),
    ]


def _backward_options(style: BackwardStyle | None) -> list[tuple[str, object, object]]:
    """Options with their values, and the values that need not be said."""
    if style is None:
        return []
    plain = BackwardStyle()
    return [("--target", style.target, plain.target), ("--score", style.score, plain.score)]


def _save_options(save: SaveStyle | None) -> list[tuple[str, object, object]]:
    """Options with their values, and the values that need not be said."""
    if save is None:
        return []
    return [
        ("--save", "tensors", None),
        ("--pool", save.pool, "none"),
        ("--tensor-dtype", save.dtype, None),
        ("--tensor-channels", _joined(save.channels), None),
    ]


def _as_word(file: str) -> str:
    """A file name that is not taken for an option."""
    return f"./{file}" if file.startswith("-") else file


def _joined(values: Sequence[float] | None) -> str | None:
    return None if values is None else ",".join(str(value) for value in values)
