"""Malicious names: a shell reads them as the same words, and a page shows them completely."""

from __future__ import annotations

import os
import subprocess
from urllib.parse import unquote

import pytest

from hookcli.outside import escape
from hookcli.outside.escape import for_page, for_shell, reversible

NAMES = [
    *("photos/cat.png", "", " two  spaces ", """it's "so" `so`""", "%20%41 100% %zz"),
    *("one\ntwo\r\t", "\u202egnp.exe", "%41\u202e%41", "a\u200bb\ufeff", "a\xa0b"),
    *("a\\n\\x41\\", "a\\n\n'\\'", "\x1b[31m\x07\x7f", "::error::", "caf\xe9 \u732b \U0001f408"),
    "$(touch x) $HOME ${x} !! ~ * ? [a] {a,b} ; & | < > # ()",
    *map(os.fsdecode, (b"caf\xe9.png", b"%41\xff%zz\xfe4", b"\x0141\xe9ab")),
]


def test_words_pasted_into_bash_are_the_same_words():
    command = for_shell([reversible(word) for word in NAMES])
    assert command.isprintable()
    assert not {"\u202e", "\u200b", "\ufeff", "\xa0", "\n"} & set(command)
    script = f"printf '%s\\0' {command}".encode()
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [*map(os.fsencode, NAMES)]


def test_a_plain_word_is_not_quoted():
    assert for_shell(["hookcli", "--rule", "dead=0.5", "a b"]) == "hookcli --rule dead=0.5 'a b'"


@pytest.mark.parametrize("name", NAMES)
def test_what_was_made_reversible_gives_the_name_back(name):
    assert unquote(reversible(name), errors="surrogateescape") == name


def test_a_surrogate_that_represents_no_byte_is_escaped_too():
    assert reversible("\ud800 \udcff%41") == "%ED%A0%80 %FF%2541"
    assert for_page(reversible("\ud800")) == "\\udced\\udca0\\udc80"


def test_different_names_are_stored_differently():
    assert reversible("猫 50%.png") == "猫 50%.png"
    names = [os.fsdecode(name) for name in (b"a\xff", b"a%FF", b"a%25FF", b"a%", b"a%\xff")]
    assert len({reversible(name) for name in names}) == len(names)


SHOWN = [
    ("\x1b[31mred", r"\x1b[31mred"),
    ("a\nb\r\tc\x00", r"a\nb\r\tc\x00"),
    ("rtl\u202egnp.exe", r"rtl\u202egnp.exe"),
    ("zero\u200bwidth", r"zero\u200bwidth"),
    ("\u2028line", r"\u2028line"),
    ("byte\udcff", r"byte\udcff"),
    *((text, text) for text in ("cat.png", "[bold]x[/bold]", "Kätzchen 猫 ½", "1×64×56×56")),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_what_could_steer_a_terminal_or_a_reader_is_shown_as_an_escape(text, shown):
    assert escape.for_terminal(text) == shown
    assert for_page(reversible(text)) == shown
