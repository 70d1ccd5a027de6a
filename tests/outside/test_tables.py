"""Rows as CSV, JSON and Markdown, and names from strangers made harmless in each."""

from __future__ import annotations

import csv
import io
import json
import os
import tracemalloc
from dataclasses import dataclass
from urllib.parse import unquote

import pytest

from hookcli.outside import escape
from hookcli.outside.documents import Document, to_fields
from hookcli.outside.tables import (
    column_names,
    encode_json,
    plain,
    render_csv,
    render_json,
    render_markdown,
)


@dataclass(frozen=True)
class Row:
    name: str
    shape: tuple[int, ...] = ()
    mean: float | None = None
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class Toy(Document):
    value: object


@dataclass(frozen=True, kw_only=True)
class Several(Document):
    empty: object
    rows: object
    named: object
    number: float
    no_rows: object


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


# --- json


def test_json_begins_with_the_schema_version():
    text = '{\n "schema_version": 1,\n "value": "resnet18"\n}\n'
    assert render_json(Toy(value="resnet18")) == text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_null(number):
    document = json.loads(render_json(Toy(value=[Row("a", mean=number)])))
    assert document["value"][0]["mean"] is None


def test_a_number_in_json_is_read_back_exactly():
    assert json.loads(render_json(Toy(value=0.1 + 0.2)))["value"] == 0.30000000000000004


def test_a_row_becomes_an_object_and_a_tuple_a_list():
    row = {"name": "a", "shape": [1, 3], "mean": None, "count": 0}
    assert json.loads(render_json(Toy(value=(Row("a", (1, 3)),))))["value"] == [row]


def test_what_json_can_hold_as_it_is_is_not_copied():
    document = Toy(value=(Row("a", (1, 3), 0.5),))
    assert plain(document) is document


def test_what_json_cannot_hold_is_replaced_in_a_value_of_the_same_type():
    bad = os.fsdecode(b"\xff.png")
    document = Toy(value=(Row(bad, mean=float("nan")), Row("b")))
    assert plain(document) == Toy(value=(Row("%FF.png"), Row("b")))
    assert render_json(document) == render_json(Toy(value=(Row(bad), Row("b"))))


def test_json_is_ascii_whatever_the_names():
    text = render_json(Toy(value="猫\x1b\u2028.png"))
    assert text.isascii()
    assert json.loads(text)["value"] == "猫\x1b\u2028.png"


def test_a_name_that_is_not_utf8_is_percent_escaped_in_json():
    document = json.loads(render_json(Toy(value=os.fsdecode(b"50%\xff\xe4.png"))))
    assert document["value"] == "50%25%FF%E4.png"


def test_a_key_that_is_not_utf8_is_percent_escaped_in_json():
    document = json.loads(render_json(Toy(value={os.fsdecode(b"\xff"): 1})))
    assert document["value"] == {"%FF": 1}


def test_json_is_indented_by_one_space_at_every_depth():
    document = Several(
        empty=[[], {}, ""],
        rows=[{"name": "a\nb", "shape": [1, 2]}, {"of": {"rows": [1, {"x": None}]}}],
        named={"none": {}, "lists": [[1], []]},
        number=0.5,
        no_rows=[],
    )
    text = json.dumps(to_fields(document), indent=1) + "\n"
    assert text.startswith('{\n "schema_version": 1,\n "empty": [\n')
    assert render_json(document) == text
    assert encode_json(document) == text.encode()


def test_many_rows_are_encoded_in_less_memory_than_their_text_takes_twice():
    rows = [Row("a" * 20, (1, 64, 56, 56), 0.1, 3)] * 5000
    tracemalloc.start()
    try:
        length = len(encode_json(plain(Toy(value=rows))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert length < peak < 2 * length


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
