"""Documents and rows as JSON, and what JSON cannot hold as it is."""

from __future__ import annotations

import json
import os
import tracemalloc
from dataclasses import dataclass

import pytest

from hookcli.outside.documents import Document, to_fields
from hookcli.outside.json_text import encode_json, plain, render_json
from tests.outside.test_tables import Row


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
