"""Rows as CSV and Markdown, and names from strangers made harmless in each."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from urllib.parse import unquote

import pytest

from hookcli.outside import escape
from hookcli.outside.tables import column_names, render_csv, render_markdown


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
    rows = [Row("a", (1, 64, 56, 56), 0.1, 3), Row("b", (7,), -2.0, 0)]
    assert render_csv(Row, rows) == "name,shape,mean,count\na,1x64x56x56,0.1,3\nb,7,-2.0,0\n"


def test_a_csv_without_rows_is_its_header():
    assert render_csv(Row, []) == "name,shape,mean,count\n"


def test_a_missing_value_is_an_empty_cell():
    assert render_csv(Row, [Row("a")]) == "name,shape,mean,count\na,,,0\n"


def test_a_figure_in_a_csv_keeps_every_digit():
    assert render_csv(Row, [Row("a", mean=0.1 + 0.2)]).endswith("a,,0.30000000000000004,0\n")


def test_several_words_share_a_cell():
    assert render_csv(Words, [Words(("called 2 times", "channels last"))]) == (
        "traps\ncalled 2 times; channels last\n"
    )


def test_a_missing_figure_among_several_leaves_its_place_empty():
    assert render_csv(Words, [Words((0.5, None, 2.0))]) == "traps\n0.5; ; 2.0\n"


def test_a_name_with_commas_quotes_and_line_breaks_is_read_back_whole():
    name = 'a,"b"\nc'
    read = next(csv.DictReader(io.StringIO(render_csv(Row, [Row(name)]))))["name"]
    assert unquote(read) == name


def test_no_control_character_of_a_name_reaches_the_terminal_by_way_of_a_csv():
    name = "\x1b[31m%1B\x9b\x7f\n\r\t\0caf\xe9\u202f"
    shown = "%1B[31m%251B%C2%9B%7F%0A%0D%09%00caf\xe9\u202f"
    assert render_csv(Row, [Row(name)]).splitlines()[1].split(",")[0] == shown
    assert unquote(shown) == name


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_a_spreadsheet_takes_no_name_for_a_formula(name):
    assert escape.for_csv(name) == "'" + name.replace("\r", "%0D").replace("\t", "%09")


def test_a_plain_name_goes_into_a_csv_as_it_is():
    assert escape.for_csv("layer1.0-conv=1") == "layer1.0-conv=1"


@pytest.mark.parametrize("name", [b"a\xff.png", b"=\xff.png"])
def test_a_name_that_is_not_utf8_can_be_written_into_a_csv(name):
    assert "%FF.png" in render_csv(Row, [Row(os.fsdecode(name))]).encode().decode()


def test_the_columns_are_the_fields_in_order():
    assert column_names(Row) == ["name", "shape", "mean", "count"]


# --- markdown


def test_markdown_is_a_table_with_a_rule_under_the_header():
    assert render_markdown(["call", "mean"], [["conv1", "0.5"], ["fc", "1"]]) == (
        "| call | mean |\n| --- | --- |\n| conv1 | 0.5 |\n| fc | 1 |\n"
    )


def test_a_cell_cannot_break_out_of_its_column_or_row():
    assert render_markdown(["a"], [["x|y\nz"]]) == "| a |\n| --- |\n| x\\|y\\\\nz |\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b*c", r"a\_b\*c"),
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


# --- escapes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\r\tc\x00", r"a\nb\r\tc\x00"),
        ("\x9b31m", r"\x9b31m"),
        ("rtl\u202egnp.exe", r"rtl\u202egnp.exe"),
        ("mark\u200f", r"mark\u200f"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\u2028line", r"\u2028line"),
        ("byte\udcff", r"byte\udcff"),
        ("tag\U000e0041", r"tag\U000e0041"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_as_an_escape(text, shown):
    assert escape.for_terminal(text) == shown


@pytest.mark.parametrize("text", ["cat.png", "[bold]x[/bold]", "Kätzchen 猫 ½", "1×64×56×56"])
def test_what_can_be_read_is_shown_as_it_is(text):
    assert escape.for_terminal(text) == text


def test_a_utf8_name_is_stored_as_it_is():
    assert escape.reversible("猫 50%.png") == "猫 50%.png"


def test_different_names_are_stored_differently():
    names = [os.fsdecode(name) for name in (b"a\xff", b"a%FF", b"a%25FF", b"a%", b"a%\xff")]
    assert len({escape.reversible(name) for name in names}) == len(names)
