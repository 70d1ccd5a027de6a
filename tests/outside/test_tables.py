"""Rows as CSV and Markdown, and names from strangers made harmless in each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote

import pytest

from hookcli.outside import escape
from hookcli.outside.tables import render_csv, render_markdown


@dataclass(frozen=True)
class Row:
    name: str
    shape: tuple[int, ...] = ()
    mean: float | None = None
    count: int = 0


@dataclass(frozen=True)
class Words:
    traps: tuple[str | float | None, ...]


# --- csv


def test_a_csv_has_the_fields_as_header_and_a_line_a_row():
    rows = [Row("layer1.0-conv=1", (1, 64, 56, 56), 0.1 + 0.2, 3), Row(os.fsdecode(b"b\xff"))]
    expected = "layer1.0-conv=1,1x64x56x56,0.30000000000000004,3\nb%FF,,,0\n"
    assert render_csv(Row, rows) == f"name,shape,mean,count\n{expected}"
    words = [Words(("called 2 times", "channels last")), Words((0.5, None, 2.0))]
    assert render_csv(Words, words) == "traps\ncalled 2 times; channels last\n0.5; ; 2.0\n"


def test_no_control_character_of_a_name_reaches_the_terminal_by_way_of_a_csv():
    name = "\x1b[31m%1B\x9b\x7f\n\r\t\0caf\xe9\u202f"
    shown = "%1B[31m%251B%C2%9B%7F%0A%0D%09%00caf\xe9\u202f"
    assert render_csv(Row, [Row(name)]).splitlines()[1].split(",")[0] == shown
    assert unquote(shown) == name


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_a_spreadsheet_takes_no_name_for_a_formula(name):
    assert escape.for_csv(name) == "'" + name.replace("\r", "%0D").replace("\t", "%09")


# --- markdown


def test_markdown_is_a_table_with_a_rule_under_the_header():
    assert render_markdown(["call", "mean"], [["conv1", "0.5"], ["fc", "1"]]) == (
        "| call | mean |\n| --- | --- |\n| conv1 | 0.5 |\n| fc | 1 |\n"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b*c", r"a\_b\*c"),
        ("x|y\nz", "x\\|y\\\\nz"),
        ("`rm`", r"\`rm\`"),
        ("<b>", r"\<b\>"),
        ("[x](y)", r"\[x\](y)"),
        ("a\\|", r"a\\\|"),
        ("a&lt;b", "a&amp;lt;b"),
        ("layer1.0.conv1", "layer1.0.conv1"),
    ],
)
def test_a_markdown_cell_is_plain_text(text, shown):
    assert escape.for_markdown(text) == shown
