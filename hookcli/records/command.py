"""Make the command that repeats a run, and tell how the requests of two runs differ."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from hookcli.config import DEFAULTS, FolderRequest, GradientsConfig, MachineRequest
from hookcli.outside.flags import list_values
from hookcli.outside.urls import HELD, IN_MEMORY
from hookcli.records.text import and_more

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.config import AblationConfig, RunConfig


_LEFT_OUT = (FolderRequest, MachineRequest)  # the result does not depend on their options
_DTYPE = "--tensor-dtype"
SAVED_IN_PART = ("--pool", _DTYPE, "--tensor-channels")  # options that change tensors before saving
_MOST_WORDS = 8  # how many words of a difference a message shows
_UNSAID = {"--mode": DEFAULTS.run.model.mode}  # the value that a command without the option means


def command_words(
    command: str, config: RunConfig | AblationConfig, *requests: object
) -> tuple[str, ...]:
    """Return the words of the command that repeats a run. ``requests`` hold further options."""
    # Left out are options of the machine and the folder, options whose ``Flag.repeats`` is False,
    # and default values, unless ``Flag.always`` is True.
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
    """Return the verb and the options of a run that no command can repeat. Otherwise, return ()."""
    words = command_words(config.command, config)
    named = {config.run.model.name, *config.run.images.names, "--pair", config.run.images.pair}
    return () if repeatable(words) else tuple(word for word in words[1:] if word not in named)


def read_command(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a manifest's command. If it is null, return ``hookcli`` and the saved ``options``."""
    return tuple(document["command"] or ("hookcli", *document.get("options", ())))


def list_saved_options(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command's options that change tensors before saving, such as ``--pool mean``."""
    found = []
    for index, word in enumerate(command):
        if word in SAVED_IN_PART:
            if index + 1 == len(command):
                raise ValueError(f"its command ends in {word}, without a value")
            found.append(f"{word} {command[index + 1]}")
    return tuple(found)


def split_saved(saved: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split ``saved``: first options that reduce tensors, then the values of ``--tensor-dtype``."""
    left_out = tuple(words for words in saved if not words.startswith(_DTYPE))
    return left_out, tuple(words.partition(" ")[2] for words in saved if words not in left_out)


def saving_command(command: Sequence[str], pool: str) -> tuple[str, ...]:
    """Return ``command`` with options that save tensors; ``pool`` says how to reduce them."""
    kept: list[str] = []
    words = iter(command)
    for word in words:
        if word in ("--save", "--pool", "--tensor-channels"):
            next(words, "")
        else:
            kept.append(word)
    pooled = () if pool == "none" else ("--pool", pool)
    return (*kept, "--save", "tensors", *pooled)


def list_differences(
    old_request: Mapping[str, object], new_request: Mapping[str, object], prefix: str = ""
) -> Iterator[str]:
    """Yield differences, such as ``with torch OLD, not NEW``. ``prefix`` has the outer keys."""
    # A phrase continues "the earlier run was started", and has the old value first: ``with --layers
    # conv, not --layers linear``. Only the keys of the new request are compared.
    for key, new in new_request.items():
        old, name = old_request.get(key), f"{prefix}{key}"
        if old == new:
            continue
        if key == "code" and isinstance(new, dict) and isinstance(old, dict):
            yield from _list_changed_files(old, new)
        elif isinstance(new, dict) and isinstance(old, dict):
            yield from list_differences(old, new, f"{name} ")
        elif key == "command" and isinstance(new, list) and isinstance(old, list):
            if difference := _tell_change(old, new):
                yield difference
        elif key == "command" and old is None:
            yield "in Python, with things in memory"
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
    """Yield (name, old value, new value) of each option that two commands give differently.

    Only options that change the model's outputs count. The value of an option that a command does
    not give is None; for ``--mode``, it is the default.
    """
    phrases_old, phrases_new = _phrases(old), _phrases(new)
    both = (DEFAULTS, GradientsConfig(DEFAULTS.run))
    flags = (flag for config in both for _, flag, _ in list_values(config) if flag.in_diff)
    for name in dict.fromkeys(flag.names[0] for flag in flags):
        in_old, in_new = phrases_old.get(name), phrases_new.get(name)
        if in_old != in_new:
            old_value, new_value = _values(name, in_old), _values(name, in_new)
            yield name, old_value or _UNSAID.get(name), new_value or _UNSAID.get(name)


def _values(name: str, phrases: Sequence[str] | None) -> str | None:
    if phrases is None:
        return None
    return " ".join(phrase.removeprefix(name).strip() for phrase in phrases) or "given"


def _tell_change(old: Sequence[str], new: Sequence[str]) -> str:
    """Tell how two commands differ: ``with --pool OLD, not --pool NEW``. Equal commands give ""."""
    # The order of options does not count, since two versions of hookcli may write them differently.
    phrases_old, phrases_new = _phrases(old), _phrases(new)
    differences = []
    for name in dict.fromkeys((*phrases_old, *phrases_new)):
        in_old, in_new = phrases_old.get(name, []), phrases_new.get(name, [])
        only_old = [each for each in in_old if each not in in_new]
        only_new = [each for each in in_new if each not in in_old]
        if only_old or only_new:
            differences.append(_tell_difference(only_old, only_new))
        elif in_old != in_new:  # the same values in a different order, or not as often
            differences.append(_tell_difference(in_old, in_new))
    return ", and ".join(differences)


def _tell_difference(only_old: Sequence[object], only_new: Sequence[object]) -> str:
    if not only_old:
        return f"without {_some(only_new)}"
    with_old = f"with {_some(only_old)}"
    return f"{with_old}, not {_some(only_new)}" if only_new else with_old


def _some(words: Sequence[object]) -> str:
    rest = len(words) - _MOST_WORDS
    return " ".join(map(str, words[:_MOST_WORDS])) + and_more(rest)


def _phrases(words: Sequence[str]) -> dict[str, list[str]]:
    """Map each option of a command to its uses, such as ``{'--layers': ['--layers conv']}``.

    The words before the first option are under ``command``, ``model`` and ``images``.
    """
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
