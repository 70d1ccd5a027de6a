"""Make the command that repeats a run, and describe how the requests of two runs differ."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from hookcli.config import DEFAULTS, FolderRequest, GradientsConfig, MachineRequest
from hookcli.outside.flags import list_values
from hookcli.outside.urls import HELD, IN_MEMORY
from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.config import AblationConfig, RunConfig, SensitivityConfig

_LEFT_OUT = (FolderRequest, MachineRequest)  # the result does not depend on their options
_DTYPE = "--tensor-dtype"
SAVED_IN_PART = ("--pool", _DTYPE, "--tensor-channels")  # options that change tensors before saving
_MOST_WORDS = 8  # how many words of a difference a message shows
_UNSAID = {"--mode": DEFAULTS.run.model.mode}  # the value that a command without the option means


def command_words(
    command: str, config: RunConfig | AblationConfig | SensitivityConfig, *requests: object
) -> tuple[str, ...]:
    """Return the words of the command that repeats a run, such as ``hookcli inspect net a.png``.

    ``command`` is the verb. The dataclasses ``requests`` hold the verb's options that ``config``
    lacks. Options with default values, and options of the machine and the folder, are left out.
    """
    # ``Flag.repeats`` leaves out more options; ``Flag.always`` keeps an option with its default.
    options = [
        flag.list_words(value)
        for request in (config, *requests)
        for field, flag, value in list_values(request, left_out=_LEFT_OUT)
        if not flag.is_argument and flag.repeats and (flag.always or value != field.default)
    ]
    options.sort(key=lambda words: words[:1] != ("--layers",))
    run = config.run
    files = [f"./{file}" if file.startswith("-") else file for file in run.images.names]
    return ("hookcli", command, run.model.name, *files, *chain.from_iterable(options))


def repeatable(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return ``words``, or None if they name a model or an image that exists only in memory."""
    models = (words[2], *(word for word in words if word.startswith("model=")))
    is_held = any(name.endswith(IN_MEMORY) for name in models)
    return None if is_held or any(word.startswith(HELD) for word in words) else words


def list_options(config: RunConfig) -> tuple[str, ...]:
    """Return a run's verb and options if no command can repeat the run; otherwise, return ()."""
    words = command_words(config.command, config)
    named = {config.run.model.name, *config.run.images.names, "--pair", config.run.images.pair}
    return () if repeatable(words) else tuple(word for word in words[1:] if word not in named)


def read_command(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a manifest's command; for a null command, ``hookcli`` and the saved ``options``."""
    return tuple(document["command"] or ("hookcli", *document.get("options", ())))


def list_saved_options(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command's options that change tensors before saving, such as ``--pool mean``.

    Raise a ValueError if the last word is such an option, without a value.
    """
    if command[-1] in SAVED_IN_PART:
        raise ValueError(f"its command ends in {command[-1]}, without a value")
    return tuple(f"{word} {value}" for word, value in pairwise(command) if word in SAVED_IN_PART)


def split_saved(saved: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the result of ``list_saved_options`` into options that reduce tensors, and dtypes.

    ``("--pool mean", "--tensor-dtype float16")`` becomes ``("--pool mean",)`` and ``("float16",)``.
    """
    left_out = tuple(words for words in saved if not words.startswith(_DTYPE))
    return left_out, tuple(words.partition(" ")[2] for words in saved if words not in left_out)


def saving_command(command: Sequence[str], pool: str) -> tuple[str, ...]:
    """Return ``command`` with ``--save tensors`` and, unless ``pool`` is "none", ``--pool``."""
    changed, pairs = ("--save", "--pool", "--tensor-channels"), pairwise(("", *command))
    kept = [word for before, word in pairs if before not in changed and word not in changed]
    pooled = () if pool == "none" else ("--pool", pool)
    return (*kept, "--save", "tensors", *pooled)


def list_differences(
    old_request: Mapping[str, object], new_request: Mapping[str, object], prefix: str = ""
) -> Iterator[str]:
    """Yield a phrase for each difference, such as ``with --layers conv, not --layers linear``.

    A phrase completes "the earlier run was started". hookcli compares only the new request's keys.
    If the requests are parts of others, ``prefix`` names the part, for example ``"versions "``.
    """
    for key, new in new_request.items():
        old, name = old_request.get(key), f"{prefix}{key}"
        if old == new:
            continue
        if key == "code" and isinstance(new, dict) and isinstance(old, dict):
            for file in new:
                if file in old and old[file] != new[file]:
                    yield f"before {file} changed"
            if old.keys() != new.keys():
                yield f"with other code: {_tell_difference(sorted(old), sorted(new))}"
        elif isinstance(new, dict) and isinstance(old, dict):
            yield from list_differences(old, new, f"{name} ")
        elif key == "command" and isinstance(new, list) and isinstance(old, list):
            if difference := _tell_change(old, new):
                yield difference
        elif key == "command" and old is None:
            yield "in Python, with things in memory"
        elif isinstance(new, list) and isinstance(old, list):
            yield f"with other {name}: {_tell_difference(old, new)}"
        elif prefix == "versions ":
            yield f"with {key} {old or '(none)'}, not {new or '(none)'}"
        elif name == "model sha256":
            yield f"with other weights: sha256 {old}, not {new}"
        else:
            yield f"with a different {name}: {old}, not {new}"


def list_value_options(
    old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield (name, old value, new value) of each option that differs between two commands.

    Only options that change the model's outputs count. An option that a command lacks has the value
    None, except ``--mode``, which has its default.
    """
    phrases_old, phrases_new = _phrases(old), _phrases(new)
    both = (DEFAULTS, GradientsConfig(DEFAULTS.run))
    flags = (flag for config in both for _, flag, _ in list_values(config) if flag.in_diff)
    for name in dict.fromkeys(flag.names[0] for flag in flags):
        in_old, in_new = phrases_old.get(name), phrases_new.get(name)
        if in_old != in_new:
            yield name, _values(name, in_old), _values(name, in_new)


def _values(name: str, phrases: Sequence[str] | None) -> str | None:
    if phrases is None:
        return _UNSAID.get(name)
    return " ".join(phrase.removeprefix(name).strip() for phrase in phrases) or "given"


def _tell_change(old_words: Sequence[str], new_words: Sequence[str]) -> str:
    """Describe how two commands differ, as ``with --pool OLD, not --pool NEW``; empty if equal."""
    # The order of options does not count, since two versions of hookcli may write them differently.
    phrases_old, phrases_new = _phrases(old_words), _phrases(new_words)
    names = dict.fromkeys((*phrases_old, *phrases_new))
    pairs = ((phrases_old.get(name, []), phrases_new.get(name, [])) for name in names)
    return ", and ".join(_tell_difference(old, new) for old, new in pairs if old != new)


def _tell_difference(old: Sequence[object], new: Sequence[object]) -> str:
    only_old = [each for each in old if each not in new]
    only_new = [each for each in new if each not in old]
    if not only_old and not only_new:  # the same values in a different order, or not as often
        only_old, only_new = [*old], [*new]
    if not only_old:
        return f"without {_some(only_new)}"
    without_new = f", not {_some(only_new)}" if only_new else ""
    return f"with {_some(only_old)}{without_new}"


def _some(words: Sequence[object]) -> str:
    return " ".join(map(str, words[:_MOST_WORDS])) + and_more(len(words) - _MOST_WORDS)


def _phrases(words: Sequence[str]) -> dict[str, list[str]]:
    # Each option has its uses, as ``{'--layers': ['--layers conv']}``. The words before the first
    # option are under ``command``, ``model`` and ``images``.
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
