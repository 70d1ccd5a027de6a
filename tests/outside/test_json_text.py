"""Documents and rows as JSON, and what JSON cannot hold as it is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

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


def test_what_json_can_hold_as_it_is_is_not_copied():
    document = Toy(value=(Row("a", (1, 3), 0.5),))
    assert plain(document) is document


def test_what_json_cannot_hold_is_replaced_in_a_value_of_the_same_type():
    bad = os.fsdecode(b"\xff.png")
    document = Toy(value=(Row(bad, mean=float("nan")), Row("b", mean=float("-inf"))))
    assert plain(document) == Toy(value=(Row("%FF.png"), Row("b")))
    assert plain(Toy(value={bad: 1})) == Toy(value={"%FF.png": 1})


def test_json_is_ascii_whatever_the_names():
    text = render_json(Toy(value="猫\x1b\u2028.png"))
    assert text.isascii()
    assert json.loads(text)["value"] == "猫\x1b\u2028.png"


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
