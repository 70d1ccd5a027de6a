"""Malicious names: a shell reads them as the same words, and a page shows them completely."""

from __future__ import annotations

import os
import subprocess
from urllib.parse import unquote

import pytest

from hookcli.outside.escape import for_page, for_shell, reversible

NAMES = {
    "plain": "photos/cat.png",
    "nothing": "",
    "spaces": " two  spaces ",
    "quotes": """it's "so" `so`""",
    "percent": "%20%41 100% %zz",
    "newline": "one\ntwo\r",
    "tab": "one\ttwo",
    "turned around": "\u202egnp.exe",
    "turned around beside an escape": "%41\u202e%41",
    "no width": "a\u200bb\ufeff",
    "no-break space": "a\xa0b",
    "backslash": "a\\n\\x41\\",
    "backslash beside a newline": "a\\n\n'\\'",
    "escape": "\x1b[31m\x07\x7f",
    "shell": "$(touch x) $HOME ${x} !! ~ * ? [a] {a,b} ; & | < > # ()",
    "tilde": "~",
    "option": "-rf",
    "log command": "::error::",
    "letters and pictures": "caf\xe9 \u732b \U0001f408",
    "not UTF-8": os.fsdecode(b"caf\xe9.png"),
    "not UTF-8 beside an escape": os.fsdecode(b"%41\xff%zz\xfe4"),
    "hex digits after a byte": os.fsdecode(b"\x0141\xe9ab"),
}


def pasted(command):
    """What bash makes of the words of a command."""
    script = f"printf '%s\\0' {command}".encode()
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_word_pasted_into_bash_is_the_same_word(name):
    assert pasted(for_shell([reversible(NAMES[name])])) == [os.fsencode(NAMES[name])]


def test_the_shell_reads_each_word_of_a_command_separately():
    words = ["hookcli", "inspect", *NAMES.values()]
    assert pasted(for_shell([reversible(word) for word in words])) == [*map(os.fsencode, words)]


def test_a_command_is_one_line_of_what_can_be_seen():
    command = for_shell([reversible(name) for name in NAMES.values()])
    assert command.isprintable()
    assert not {"\u202e", "\u200b", "\ufeff", "\xa0", "\n"} & set(command)


def test_a_plain_word_is_not_quoted():
    assert for_shell(["hookcli", "--rule", "dead=0.5", "a b"]) == "hookcli --rule dead=0.5 'a b'"


@pytest.mark.parametrize("name", NAMES)
def test_what_was_made_reversible_gives_the_name_back(name):
    assert unquote(reversible(NAMES[name]), errors="surrogateescape") == NAMES[name]


def test_a_surrogate_that_represents_no_byte_is_escaped_too():
    assert reversible("\ud800 \udcff%41") == "%ED%A0%80 %FF%2541"
    assert for_page(reversible("\ud800")) == "\\udced\\udca0\\udc80"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("%20%41", "%20%41"),
        ("100% %zz", "100% %zz"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb\xad", "a\\u200bb\\xad"),
        ("one\ntwo\t\x1b\x7f", "one\\ntwo\\t\\x1b\\x7f"),
        ("\u2028\xa0", "\\u2028\\xa0"),
        ("\U000e0041", "\\U000e0041"),
        (os.fsdecode(b"caf\xe9"), "caf\\udce9"),
        ("caf\xe9 \u732b \U0001f408 <&'\">", "caf\xe9 \u732b \U0001f408 <&'\">"),
    ],
)
def test_a_page_shows_a_name_as_it_is_and_writes_out_what_would_not_be_seen(name, shown):
    assert for_page(reversible(name)) == shown
