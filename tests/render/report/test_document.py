"""What the page of a run says about attention."""

from __future__ import annotations

import json
import re

import pytest

from tests.render.report.test_page import HOSTILE, TURNED, Page, document, render_report, texts

CALL = "attention:block.attn"
FILE = "attention/cat/001_block.attn.maps.png"


def row(**more):
    known = {
        "order": 1, "call_id": CALL, "module_path": "block.attn", "function": "softmax",
        "images": 1, "windows": 4, "heads": 2, "queries": 5, "keys": 8, "query_grid": [2, 2],
        "key_grid": [2, 2], "prefix": 1, "entropy": [1.0, 2.0], "prefix_share": [0.25, None],
        "distance": [3.0, 4.0], "row_error": 0.0, "broken": 0, "reason": "",
    }  # fmt: skip
    return known | more


def heat(kind, call_id=CALL, image="cat"):
    return {"image": image, "kind": kind, "call_id": call_id, "file": f"{kind}/{image}.png"}


def maps(**more):
    known = {
        "image": "cat", "call_id": CALL, "file": FILE, "heads": 2, "patch_grid": [4, 4],
        "query_grid": [2, 2], "map_grid": [2, 2], "is_thinned": True,
    }  # fmt: skip
    return known | more


def attended(*rows, **more):
    known = {
        "attention": list(rows) or [row()],
        "attention_maps": [maps()],
        "heats": [heat("attention"), heat("rollout", "")],
    }
    return document(**(known | more))


def cells(text):
    table = text.partition('<table id="attention-table">')[2].partition("</table>")[0]
    return [[" ".join(cell.split()) for cell in texts(each, "td")] for each in rows_of(table)]


def rows_of(table):
    return re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)


def facts(text):
    found = re.findall(r'data-attention="(\d+)">(.*?)</script>', text, re.DOTALL)
    return {int(index): json.loads(own) for index, own in found}


def test_the_table_has_means_over_the_heads():
    """Two heads with entropy 1 and 2; of 8 keys it is at most log(8) = 2.08."""
    assert cells(render_report(attended())) == [
        ["1", "block.attn", "2", "5 to 8", "4", "1.50 of 2.08", "25.0%", "3.5"]
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"function": "", "reason": "it shows nothing"}, ["not visible: it shows nothing"]),
        (
            {"distance": [], "reason": "no grid", "prefix": 0, "queries": 8, "broken": 3},
            ["2", "8", "4", "1.50 of 2.08 3 not finite", "none", "unknown: no grid"],
        ),
    ],
)
def test_unknown_facts_of_a_call_are_reported_with_the_reason(more, said):
    assert cells(render_report(attended(row(**more)))) == [["1", "block.attn", *said]]


def test_the_script_knows_the_maps_and_their_layout():
    assert facts(render_report(attended())) == {
        0: [
            {
                "call": "block.attn",
                "entropy": [1.0, 2.0],
                "drawn": "attention/cat.png",
                "maps": {
                    "src": FILE,
                    "file": FILE,
                    "heads": 2,
                    "patch_grid": [4, 4],
                    "query_grid": [2, 2],
                    "map_grid": [2, 2],
                    "is_thinned": True,
                    "has_class_token": False,
                },
            }
        ]
    }


def test_each_of_several_images_has_its_own_maps_and_no_entropy_that_is_not_its_own():
    images = [document()["images"][0] | {"key": key} for key in ("cat", "dog")]
    both = [maps(), maps(image="dog", file="attention/dog/001.maps.png")]
    text = render_report(attended(row(images=2), images=images, attention_maps=both, heats=[]))
    found = facts(text)
    assert [found[index][0]["maps"]["file"] for index in (0, 1)] == [each["file"] for each in both]
    assert [found[index][0]["entropy"] for index in (0, 1)] == [[], []]
    assert re.findall('class="attend" data-image="(.)"', text) == ["0", "1"]


def test_names_of_calls_that_mean_harm_are_text_and_do_not_turn_it_around():
    hidden = row(call_id=f"{HOSTILE} too", function="", reason=HOSTILE)
    own = maps(call_id=TURNED)
    text = render_report(attended(row(call_id=TURNED), hidden, attention_maps=[own]))
    assert "\u202e" not in text
    (call,) = facts(text)[0]
    assert "\u202e" not in call["call"]
    assert len(Page(text).all("script")) == 5  # of the page 3, of attention 2
