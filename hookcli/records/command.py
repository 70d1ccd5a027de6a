"""The command that repeats a request, and how two commands differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hookcli.config import DEFAULTS, AblationStyle, BackwardStyle, SaveStyle, ScoreRequest
from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.config import AblationConfig, At, AttentionRequest, RunConfig, RunRequest


_Option: TypeAlias = tuple[str, object, object]
"""An option, its value, and the value for which the option is left out."""

_MOST_WORDS = 8  # how many words of a difference a message shows
# These options change what the layers return and are not among the facts about the model.
_VALUE_OPTIONS = (
    "--mode",
    "--edit",
    "--prune",
    "--model-arg",
    "--batch-size",
    "--pair",
    "--clip",
    "--target",
    "--score",
)
_UNSAID = {"--mode": DEFAULTS.run.model.mode}  # where no option means a value of its own


def to_command(config: RunConfig) -> tuple[str, ...]:
    """Return the command that repeats a run with a run folder.

    Options of the machine and of the run folder (``--threads``, ``-o``) are left out, and so is
    ``--on-error``.
    """
    options: list[_Option] = []
    if config.backward is None:
        options.append(("--at", config.at, DEFAULTS.at))
    options += _request_options(config.run)
    options += _picture_options(config)
    options += _save_options(config.tensors.save)
    if config.backward is not None:
        options += _score_options(config.backward)
    words = [*_begin(config.command, config.run), *_words(options)]
    rules = config.findings.rules
    words += [word for rule, value in rules for word in ("--rule", f"{rule}={value:g}")]
    words += _changes(config.run)
    if config.attention is not None:
        words += _attention_options(config.attention)
    if config.backward is not None:
        words += [word for form in config.backward.cams for word in ("--cam", form)]
    if config.findings.fail_on:
        words += ["--fail-on", ",".join(config.findings.fail_on)]
    style = config.backward or BackwardStyle()
    flags = (
        ("--clip", config.run.images.clip),
        ("--overview", config.overview),
        ("--sketch", config.tensors.sketch is True),
        ("--no-sketch", config.tensors.sketch is False),
        *_name_flags(config.run),
        ("--input-grad", style.input_grad),
        ("--times-activation", style.times_activation),
        ("--saliency", style.saliency),
    )
    return (*words, *(name for name, is_set in flags if is_set))


def ablation_command(config: AblationConfig) -> tuple[str, ...]:
    """Return the command that repeats an ablation."""
    options: list[_Option] = [
        *_request_options(config.run),
        *_score_options(config.score),
        ("--channels", _joined(config.style.channels), None),
        ("--batch-size", config.style.batch_size, AblationStyle().batch_size),
    ]
    flags = (name for name, is_set in _name_flags(config.run) if is_set)
    return (*_begin("ablate", config.run), *_words(options), *flags)


def compare_command(request: RunRequest, at: At) -> tuple[str, ...]:
    """Return the command that describes one of the two variants of a comparison."""
    options: list[_Option] = [("--at", at, DEFAULTS.at), *_request_options(request)]
    flags = (("--clip", request.images.clip), *_name_flags(request))
    given = (name for name, is_set in flags if is_set)
    return (*_begin("compare", request), *_words(options), *_changes(request), *given)


def _begin(command: str, request: RunRequest) -> list[str]:
    """Return the command with the model, the images and the layers."""
    model = request.model
    words = ["hookcli", command, model.name, *map(_as_word, request.images.names)]
    words += [word for form in request.layers for word in ("--layers", form)]
    words += [word for form in request.exclude for word in ("--exclude", form)]
    return words + [w for key, text in model.arguments for w in ("--model-arg", f"{key}={text}")]


def _changes(request: RunRequest) -> list[str]:
    edits = [word for edit in request.edits for word in ("--edit", edit)]
    return edits + [word for each in request.prunes for word in ("--prune", each)]


def _words(options: Sequence[_Option]) -> list[str]:
    """Return the options that do not have their default values, with their values."""
    return [word for name, value, unset in options if value != unset for word in (name, str(value))]


def _name_flags(request: RunRequest) -> tuple[tuple[str, bool], ...]:
    images = request.images
    return (("--no-recursive", not images.recursive), ("-0", images.null_separated))


def list_differences(
    begun: Mapping[str, object], wanted: Mapping[str, object], prefix: str = ""
) -> Iterator[str]:
    """Yield how the request of a run that was begun differs from the one that is wanted.

    Each difference is worded to follow "was begun": ``with --layers conv, not --layers linear``.

    Args:
        begun: the request that the run was begun with.
        wanted: the request to compare it with.
        prefix: comes before the name of each key.
    """
    for key, new in wanted.items():
        old, name = begun.get(key), f"{prefix}{key}"
        if old == new:
            continue
        if key == "code" and isinstance(new, dict) and isinstance(old, dict):
            yield from _list_changed_files(old, new)
        elif isinstance(new, dict) and isinstance(old, dict):
            yield from list_differences(old, new, f"{name} ")
        elif key == "command" and isinstance(new, list) and isinstance(old, list):
            yield _tell_change(old, new)
        elif isinstance(new, list) and isinstance(old, list):
            only_old = [word for word in old if word not in new]
            only_new = [word for word in new if word not in old]
            yield f"with other {name}: {_tell_difference(only_old, only_new)}"
        elif prefix == "versions ":
            yield f"with {key} {old or '(none)'}, not {new or '(none)'}"
        elif name == "model sha256":
            yield f"with other weights: sha256 {old}, not {new}"
        else:
            yield f"with a different {name}: {old}, not {new}"


def _list_changed_files(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    for file in new:
        if file in old and old[file] != new[file]:
            yield f"before {file} changed"
    only_old, only_new = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if only_old or only_new:
        yield f"with other code: {_tell_difference(only_old, only_new)}"


def list_value_options(
    old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the options that change tensors and differ in two commands, with both values."""
    phrases_old, phrases_new = _phrases(old), _phrases(new)
    for name in _VALUE_OPTIONS:
        in_old, in_new = phrases_old.get(name), phrases_new.get(name)
        if in_old != in_new:
            old_value, new_value = _values(name, in_old), _values(name, in_new)
            yield name, old_value or _UNSAID.get(name), new_value or _UNSAID.get(name)


def _values(name: str, phrases: Sequence[str] | None) -> str | None:
    if phrases is None:
        return None
    return " ".join(phrase.removeprefix(name).strip() for phrase in phrases) or "given"


def _tell_change(old: Sequence[str], new: Sequence[str]) -> str:
    """Return how one command differs from another, worded to follow "was begun".

    ``with --layers conv[1:4], not --layers conv[1:3], and without --batch-size 4``.
    """
    phrases_old, phrases_new = _phrases(old), _phrases(new)
    differences = []
    for name in dict.fromkeys((*phrases_old, *phrases_new)):
        in_old, in_new = phrases_old.get(name, []), phrases_new.get(name, [])
        only_old = [each for each in in_old if each not in in_new]
        only_new = [each for each in in_new if each not in in_old]
        if only_old or only_new:
            differences.append(_tell_difference(only_old, only_new))
        elif in_old != in_new:  # in a different order, or not as often
            differences.append(_tell_difference(in_old, in_new))
    return ", and ".join(differences) or "with the same words in another order"


def _tell_difference(only_old: Sequence[object], only_new: Sequence[object]) -> str:
    """Return ``with A, not B``, ``with A`` or ``without B``."""
    if not only_old:
        return f"without {_some(only_new)}"
    with_old = f"with {_some(only_old)}"
    return f"{with_old}, not {_some(only_new)}" if only_new else with_old


def _some(words: Sequence[object]) -> str:
    rest = len(words) - _MOST_WORDS
    return " ".join(map(str, words[:_MOST_WORDS])) + and_more(rest)


def _phrases(words: Sequence[str]) -> dict[str, list[str]]:
    """Group words by their option; those without one by "command", "model" and "images"."""
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


def _request_options(request: RunRequest) -> list[_Option]:
    model, plain = request.model, DEFAULTS.run.model
    return [
        ("--weights", model.weights, plain.weights),
        ("--seed", model.seed, plain.seed),
        ("--device", model.device, plain.device),
        ("--dtype", model.dtype, plain.dtype),
        ("--mode", model.mode, plain.mode),
        ("--size", model.size, plain.size),
        ("--resize", model.resize, plain.resize),
        ("--mean", _joined(model.mean), None),
        ("--std", _joined(model.std), None),
        ("--interpolation", model.interpolation, plain.interpolation),
        ("--pair", request.images.pair, None),
    ]


def _picture_options(config: RunConfig) -> list[_Option]:
    grids, plain = config.grids, DEFAULTS.grids
    options: list[_Option] = []
    if config.backward is None:
        options += [
            ("--focus", _joined(config.focus), None),
            ("--batch-size", config.batch_size, DEFAULTS.batch_size),
            ("--top-images", config.top_images, DEFAULTS.top_images),
        ]
    return [
        *options,
        ("--grids", grids.mode, plain.mode),
        ("--top", grids.top or plain.top, plain.top),
        ("--channels", "all" if grids.top is None else _joined(grids.channels), None),
        ("--rank", grids.rank, plain.rank),
        ("--scale", grids.scale, plain.scale),
        ("--colormap", grids.colormap, plain.colormap),
        ("--tile", grids.tile, plain.tile),
        ("--theme", grids.theme, plain.theme),
        ("--picture-format", grids.format, plain.format),
    ]


def _score_options(score: ScoreRequest) -> list[_Option]:
    plain = ScoreRequest()
    return [("--target", score.target, plain.target), ("--score", score.score, plain.score)]


def _save_options(save: SaveStyle | None) -> list[_Option]:
    if save is None:
        return []
    return [
        ("--save", "tensors", None),
        ("--pool", save.pool, SaveStyle().pool),
        ("--tensor-dtype", save.dtype, None),
        ("--tensor-channels", _joined(save.channels), None),
    ]


def _attention_options(attention: AttentionRequest) -> list[str]:
    words = [word for form in attention.layers for word in ("--attention", form)]
    if attention.patch is not None:
        words += ["--patch", ",".join(map(str, attention.patch))]
    words += ["--save", "attention"] * attention.save
    return words + ["--rollout"] * attention.rollout


def _as_word(file: str) -> str:
    """Return a file name in a form that is not taken for an option."""
    return f"./{file}" if file.startswith("-") else file


def _joined(values: Sequence[float] | None) -> str | None:
    return None if values is None else ",".join(str(value) for value in values)
