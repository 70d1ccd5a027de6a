"""Make names safe to show in a terminal, CSV, Markdown, shell or page, but do not escape HTML."""

from __future__ import annotations

import codecs
import functools
import os
import re
import shlex
import unicodedata
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def for_terminal(text: str) -> str:
    # Logs of continuous integration take ``::`` at the start for a command.
    shown = "".join(_visible(character) for character in text)
    return f"\\x3a{shown[1:]}" if shown.startswith("::") else shown


@functools.lru_cache(maxsize=1 << 14)  # tables name the same layers and images again and again
def for_csv(text: str) -> str:
    """Escape control characters, and texts that a spreadsheet would take for a formula."""
    shown = _CONTROL.sub(lambda match: _quote(match[0].encode()), reversible(text))
    return f"'{shown}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else shown


def for_markdown(text: str) -> str:
    shown = for_terminal(text)
    for character in "\\|`*_<>[]":
        shown = shown.replace(character, f"\\{character}")
    return shown.replace("&", "&amp;")


def for_page(text: str) -> str:
    """Decode a name that ``reversible`` encoded; escape invisible characters, but not HTML."""
    name = unquote(text, errors="surrogateescape")
    return name if name.isascii() and name.isprintable() else "".join(map(_visible, name))


def for_shell(words: Sequence[str]) -> str:
    """Decode words that ``reversible`` encoded, and quote them as one command line for a shell."""
    return " ".join(_shell_word(unquote(word, errors="surrogateescape")) for word in words)


def _shell_word(word: str) -> str:
    if word == for_terminal(word):
        return shlex.quote(word)
    shown = "".join(
        c
        if c.isascii() and c.isprintable() and c not in "'\\"
        else "".join(f"\\x{b:02x}" for b in os.fsencode(c))
        for c in word
    )
    return f"$'{shown}'"


def reversible(text: str) -> str:
    """Replace each byte of a file name that is not UTF-8 (a surrogate in Python) by ``%XX``.

    A ``%`` that could be taken for such an escape becomes ``%25``, so that unquoting restores every
    possible file name.
    """
    if text.isascii() and "%" not in text:
        return text
    is_utf8 = not any("\ud800" <= character <= "\udfff" for character in text)
    plain = re.sub("%(?=[0-9A-Fa-f]{2})" if is_utf8 else "%", "%25", text)
    return plain.encode("utf-8", "percent_escape").decode()


def _visible(character: str) -> str:
    if character.isprintable() and unicodedata.category(character) != "Cf":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _percent(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    try:
        raw = part.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = part.encode("utf-8", "surrogatepass")
    return _quote(raw), error.end


def _quote(raw: bytes) -> str:
    return "".join(f"%{byte:02X}" for byte in raw)


codecs.register_error("percent_escape", _percent)
