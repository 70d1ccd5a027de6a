"""Text from strangers (file, layer and category names) made harmless where it is shown."""

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


def for_terminal(text: str) -> str:
    """Control, formatting and undecodable characters as visible escapes; one line.

    A leading ``::``, which continuous-integration logs take for a command, is escaped too.
    """
    shown = "".join(_visible(character) for character in text)
    return f"\\x3a{shown[1:]}" if shown.startswith("::") else shown


@functools.lru_cache(maxsize=1 << 14)  # tables name the same layers and images again and again
def for_csv(text: str) -> str:
    """Text that a spreadsheet does not take for a formula: a leading ``= + - @`` gets a quote before it."""
    shown = reversible(text).replace("\r", "%0D")  # Python's csv module would not quote it
    return f"'{shown}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else shown


def for_markdown(text: str) -> str:
    """A table cell: no column breaks, no markup, no HTML."""
    shown = for_terminal(text)
    for character in "\\|`*_<>[]":
        shown = shown.replace(character, f"\\{character}")
    return shown.replace("&", "&amp;")


def for_page(text: str) -> str:
    """What ``reversible`` made of a name, as a person sees it: control and turning characters written out."""
    return "".join(_visible(c) for c in unquote(text, errors="surrogateescape"))


def for_shell(words: Sequence[str]) -> str:
    """A command, of words that went through ``reversible``, that gives the same words when it is pasted."""
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
    """Bytes that are not UTF-8 (surrogates, as Python names files) as ``%XX``.

    A ``%`` that could be taken for such an escape becomes ``%25``, so that unquoting gives every name back.
    """
    is_utf8 = not any("\udc80" <= character <= "\udcff" for character in text)
    plain = re.sub("%(?=[0-9A-Fa-f]{2})" if is_utf8 else "%", "%25", text)
    return plain.encode("utf-8", "surrogateescape").decode("utf-8", "percent_escape")


def _visible(character: str) -> str:
    if character.isprintable() and unicodedata.category(character) != "Cf":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _percent(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    raw = error.object[error.start : error.end]
    return "".join(f"%{byte:02X}" for byte in raw), error.end


codecs.register_error("percent_escape", _percent)
