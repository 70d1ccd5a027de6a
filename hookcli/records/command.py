"""A request as the command that repeats it, and how it differs from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookcli.config import DEFAULTS, AblationStyle, BackwardStyle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.config import InspectConfig, ModelRequest, SaveStyle


_MOST_WORDS = 8  # that are named of a difference
_VALUE_OPTIONS = (  # those that change what the layers give, and of which the model's facts say nothing
    "--edit", "--prune", "--model-arg", "--batch-size", "--pair", "--clip", "--target", "--score",
)  # fmt: skip


def to_command(config: InspectConfig) -> tuple[str, ...]:
    """The command that repeats the run, without what does not change its result (``-o``, ``--workers``, ``--on-error``)."""
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
    options += _ablation_options(config.ablation)
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
        ("--sketch", config.sketch is True),
        ("--no-sketch", config.sketch is False),
        ("--no-recursive", not config.recursive),
        ("-0", config.null_separated),
        ("--input-grad", style.input_grad),
        ("--times-activation", style.times_activation),
        ("--saliency", style.saliency),
    )
    return (*words, *(name for name, is_set in flags if is_set))


def list_differences(begun: dict[str, Any], wanted: dict[str, Any], of: str = "") -> Iterator[str]:
    """What of a request is not as it was in the one that was begun, to go on after "was begun"."""
    for key, new in wanted.items():
        old, name = begun.get(key), f"{of}{key}"
        if old == new:
            continue
        if isinstance(new, dict) and isinstance(old, dict):
            yield from list_differences(old, new, f"{name} ")
        elif key == "command" and isinstance(old, list):
            yield _tell_change(old, new)
        elif isinstance(new, list) and isinstance(old, list):
            gone, come = ([w for w in a if w not in b] for a, b in ((old, new), (new, old)))
            yield f"with other {name}: {_tell_difference(gone, come)}"
        else:
            yield f"with another {name}: {old}, not {new}"


def list_value_options(
    old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Options that change values and are not the same in two commands: the name and both values."""
    was, now = _phrases(old), _phrases(new)
    for name in _VALUE_OPTIONS:
        one, two = was.get(name), now.get(name)
        if one != two:
            yield name, _values(name, one), _values(name, two)


def _values(name: str, phrases: Sequence[str] | None) -> str | None:
    if phrases is None:
        return None
    return " ".join(phrase.removeprefix(name).strip() for phrase in phrases) or "given"


def _tell_change(old: Sequence[str], new: Sequence[str]) -> str:
    """How one command differs from another, to go on after "was begun".

    ``with --layers conv[1:4], not --layers conv[1:3], and without --batch-size 4``.
    """
    was, now = _phrases(old), _phrases(new)
    told = []
    for name in dict.fromkeys((*was, *now)):
        mine, others = was.get(name, []), now.get(name, [])
        gone = [each for each in mine if each not in others]
        come = [each for each in others if each not in mine]
        if gone or come:
            told.append(_tell_difference(gone, come))
        elif mine != others:  # in another order, or not as often
            told.append(_tell_difference(mine, others))
    return ", and ".join(told) or "with the same words in another order"


def _tell_difference(gone: Sequence[str], come: Sequence[str]) -> str:
    """``with A, not B``, ``with A`` or ``without B``."""
    if not gone:
        return f"without {_some(come)}"
    return f"with {_some(gone)}, not {_some(come)}" if come else f"with {_some(gone)}"


def _some(words: Sequence[str]) -> str:
    rest = len(words) - _MOST_WORDS
    return " ".join(words[:_MOST_WORDS]) + (f" and {rest} more" if rest > 0 else "")


def _phrases(words: Sequence[str]) -> dict[str, list[str]]:
    """Options with their values by the option; the command, the model and the images by what they are."""
    phrases: dict[str, list[str]] = {"command": list(words[1:2]), "model": list(words[2:3])}
    name = "images"
    for word in words[3:]:
        if word.startswith("--") or word == "-0":
            name = word
            phrases.setdefault(name, []).append(word)
        elif name == "images":
            phrases.setdefault(name, []).append(word)
        else:
            phrases[name][-1] += f" {word}"
    return phrases


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


def _ablation_options(style: AblationStyle | None) -> list[tuple[str, object, object]]:
    """Options with their values, and the values that need not be said."""
    if style is None:
        return []
    return [
        ("--channels", _joined(style.channels), None),
        ("--batch-size", style.batch_size, AblationStyle().batch_size),
    ]


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
