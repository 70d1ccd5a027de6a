"""The words of a command, in which a later option replaces an earlier one.

Tests share words such as ``--size 32``, and hookcli refuses an option that is given twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookcli.verbs.subjects import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def find_option(command: str, word: str) -> Any:
    """Return the option of a command to which a word belongs; None if the word is no option."""
    from hookcli.__main__ import build_command

    name = word.partition("=")[0] if word.startswith("--") else word
    options = (each for each in build_command(command).params if each.param_type_name == "option")
    return next((each for each in options if name in (*each.opts, *each.secondary_opts)), None)


def list_parts(command: str, words: Sequence[str]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield each option of a command line with its words, and None with each other word."""
    left = list(words)
    while left:
        word = left.pop(0)
        option = find_option(command, word) if word.startswith("-") and word != "-" else None
        takes_next = option is not None and not option.is_flag and "=" not in word
        yield option, (word, left.pop(0)) if takes_next and left else (word,)


def replace_options(words: Sequence[object], *more: object) -> list[str]:
    """Return the words of a command, without options that come again later.

    An option that can be given several times stays, unless it is also in ``more``, the words to
    add.
    """
    if not words or str(words[0]) not in COMMANDS:
        return [*map(str, words), *map(str, more)]
    command, *rest = map(str, words)
    added = [*list_parts(command, [*map(str, more)])]
    replaced = {id(option) for option, _ in added}
    before = [
        (option, part)
        for option, part in list_parts(command, rest)
        if option is None or id(option) not in replaced
    ]
    parts = [*before, *added]
    last = {id(option): index for index, (option, _) in enumerate(parts)}
    kept = (
        part
        for index, (option, part) in enumerate(parts)
        if option is None or option.multiple or last[id(option)] == index
    )
    return [command, *(word for part in kept for word in part)]
