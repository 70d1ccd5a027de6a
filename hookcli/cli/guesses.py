"""Guess what to type instead of an unknown word; a wrong guess is worse than none."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_FEW = 3
_NEAR = 0.75  # names are as near as inspct and inspect, but not as extract and export
_PICTURE = re.compile(r"(?i).+\.(bmp|gif|jpe?g|png|tiff?|webp)")
_MODEL = re.compile(r"[\w.:/-]*[\d:][\w.:/-]*")  # resnet18, timm:NAME, net.py:make


@cache
def _read_table() -> dict[str, str]:
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    rows = (line.partition(" <- ") for line in text.split("\n\n")[1].splitlines())
    return {word: meant for meant, _, words in rows for word in words.split()}


def guess_option(word: str, command: str, options: Mapping[str, Sequence[str]]) -> str:
    own = options.get(command, ())
    meant = _read_table().get(word, "")
    if meant and (not meant.startswith("--") or meant.split()[0] in own):
        return meant
    near = [f"--{name}" for name in _list_near(word.strip("-"), [each[2:] for each in own])]
    elsewhere = [f"hookcli {name} {word}" for name, has in options.items() if word in has]
    return f"{' or '.join(elsewhere[:_FEW])} has it" if elsewhere else " or ".join(near)


def guess_command(words: Sequence[str], commands: Iterable[str]) -> str:
    if form := _read_table().get(words[0].lower()):
        if form.endswith(" IMAGE") and words[1:] and os.path.lexists(f"{words[1]}/manifest.json"):
            form = "hookcli report RUN --open"
        return _fill(form, words[1:])
    if near := _list_near(words[0], list(commands)):
        return shlex.join(["hookcli", near[0], *words[1:]])
    if _MODEL.fullmatch(words[0]) or any(map(_PICTURE.fullmatch, words)):
        has_image = words[1:] or _PICTURE.fullmatch(words[0])
        return _fill("hookcli inspect MODEL IMAGE" if has_image else "hookcli layers MODEL", words)
    return ""


def guess_words(words: Sequence[str], message: str) -> str:
    """Guess what to type instead if ``words`` begins with a command and Typer refuses the rest."""
    table, command, given = _read_table(), words[0], words[1:]
    if wrong := re.search(r"'(--[\w-]+)': '(.*)' is not one of (.*)", message):
        meant = table.get(f"--{wrong[2]}", "")
        near = _list_near(wrong[2].lower(), re.findall(r"'(.+?)'", wrong[3]))
        return meant if meant.startswith(wrong[1]) else " ".join([wrong[1], *near[:1]] * bool(near))
    second = given[1] if given[1:] else ""
    is_model = _MODEL.fullmatch(second) and not _PICTURE.fullmatch(second)
    if command == "compare" and second.endswith(".py"):
        return "FILE.py:FUNCTION IMAGE --against model=FILE.py:FUNCTION"
    if is_model and command in ("compare", "diff") and not os.path.lexists(second):
        form = f"hookcli compare MODEL IMAGE --against model={second}"
        return _fill(form, [given[0], *given[2:]])
    if lacks := re.search(r"'(--\w+|IMAGE|MODEL|RUN)'|extra", message):
        key = lacks[0].strip("'")
        form = table.get(f"{command}:{key}") or table.get(f":{key}", "")
        return _fill(form.replace("COMMAND", command), given)
    return ""


def _list_near(word: str, names: Sequence[str]) -> list[str]:
    begun = [name for name in names if len(word) >= _FEW and name.startswith(word)]
    return begun[:_FEW] or difflib.get_close_matches(word, names, n=_FEW, cutoff=_NEAR)


def _fill(form: str, given: Sequence[str]) -> str:
    """Replace a word such as MODEL in ``form`` by the first of ``given``, and IMAGE by the rest."""
    pictures = list(filter(_PICTURE.fullmatch, given))
    others = [word for word in given if word not in pictures] or ["resnet18"] * bool(pictures)
    first, *others = [*others, *pictures] or [""]
    if first and not first.startswith("-"):
        form = re.sub(r"\b(MODEL|RUN|COMMAND|NAME)\b", lambda _: shlex.quote(first), form)
    return form.replace("IMAGE", shlex.join(others) or "photo.jpg")


def list_options(commands: Iterable[Any]) -> dict[str, list[str]]:
    return {
        command.name: [
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--")
        ]
        for command in commands
    }
