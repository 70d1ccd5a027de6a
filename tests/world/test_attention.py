"""Runs with ``--attention``: the table, the pictures, what is saved, and what is refused."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import hookcli
from hookcli.render.draw.canvas import new_canvas
from tests.conftest import interrupted_after

MODEL = "tests.toy_models:Looks"
WORDS = ("--layers", "head", "--device", "cpu", "--attention", "all", "-o", "out")
AROUND = """
from tests.toy_models import LooksAround
def make(): return LooksAround({order!r})
"""
QUARTERS = np.array([[0.0, 1.0], [2.0, 3.0]], np.float32)


def save_quarters(name="quarters.npy", count=1, add=0.0):
    """Save pictures of 32 by 32 pixels, whose quarters have the brightness 0, 1, 2 and 3."""
    one = np.kron(QUARTERS, np.ones((16, 16), np.float32))
    rows = np.stack([np.stack([one + add * row] * 3) for row in range(count)])
    np.save(name, rows if count > 1 else rows[0])
    return name


def shares():
    """The probabilities by hand, (5, 5): the class token has the brightness 0."""
    bright = np.array([0, 0, 1, 2, 3], np.float64)
    scores = np.exp(1 + bright[:, None] * bright[None])
    scores[0] = scores[:, 0] = np.e
    return scores / scores.sum(1, keepdims=True)


def rows(folder="out"):
    return list(csv.DictReader(Path(folder, "attention.csv").read_text().splitlines()))


def numbers(text):
    return [float(part) for part in text.split("; ")]


def test_a_row_of_the_table_holds_the_figures_of_each_head(run):
    ended = run("inspect", MODEL, save_quarters(), *WORDS)
    assert ended.code == 0, ended.err
    seen, hidden = rows()
    assert (seen["call_id"], seen["module_type"]) == ("attention:attn", "LooksAttention")
    kinds = ("heads", "queries", "keys", "windows", "query_grid", "prefix", "images")
    assert [seen[kind] for kind in kinds] == ["2", "5", "5", "1", "2x2", "1", "1"]
    table = shares()
    entropy = -(table * np.log(table)).sum(1).mean()
    assert numbers(seen["entropy"]) == pytest.approx([entropy] * 2, rel=1e-5)
    assert numbers(seen["prefix_share"]) == pytest.approx([table[:, 0].mean()] * 2, rel=1e-5)
    places = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], float)
    apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(2))
    inside = table[1:, 1:]
    distance = (inside * apart).sum() / inside.sum()
    assert numbers(seen["distance"]) == pytest.approx([distance] * 2, rel=1e-5)
    assert hidden["call_id"] == "attention:gate"
    assert "no visible softmax over a product of queries and keys" in hidden["reason"]
    assert "gate: not visible" in ended.out
    assert f"entropy {entropy:.2f} of {math.log(5):.2f}" in ended.out


def test_the_model_returns_the_same_with_and_without_attention(run):
    save_quarters()
    for folder, more in (("a", ()), ("b", ("--attention", "all", "--rollout"))):
        words = ("--layers", "all", "--save", "tensors", "-o", folder, *more)
        assert run("inspect", MODEL, "quarters.npy", "--device", "cpu", *words).code == 0
    one, two = (Path(folder, "layers.csv").read_bytes() for folder in "ab")
    assert one == two
    one, two = (Path(folder, "tensors/shard-000000.safetensors").read_bytes() for folder in "ab")
    assert one == two


def test_every_probability_is_saved_if_that_is_asked_for(run):
    ended = run("inspect", MODEL, save_quarters(), *WORDS, "--save", "attention")
    assert ended.code == 0, ended.err
    kept = hookcli.load_run("out")["attention:attn"]
    assert kept.shape == (1, 1, 2, 5, 5)
    np.testing.assert_allclose(np.asarray(kept[0, 0, 1]), shares(), atol=1e-5)


def test_the_page_has_the_maps_of_all_queries_and_pictures_of_the_class_token(run):
    assert run("inspect", MODEL, save_quarters(), *WORDS, "--rollout").code == 0
    document = json.loads(Path("out/report.json").read_text())
    (maps,) = document["attention_maps"]
    assert (maps["heads"], maps["query_grid"], maps["map_grid"]) == (2, [2, 2], [2, 2])
    assert (maps["is_thinned"], maps["has_class_token"]) == (False, True)
    with Image.open(Path("out", maps["file"])) as picture:
        assert picture.size == (2 * 2, (2 + 1) * 2 * 2)
    kinds = sorted((heat["kind"], heat["call_id"]) for heat in document["heats"])
    assert kinds == [("attention", "attention:attn"), ("rollout", "")]
    assert all(Path("out", heat["file"]).exists() for heat in document["heats"])


@pytest.mark.parametrize(("pixel", "cell"), [("28,2", 1), ("0,31", 2)])
def test_a_patch_is_found_where_the_network_sees_its_pixel(run, monkeypatch, pixel, cell):
    seen = []
    monkeypatch.setattr(
        "hookcli.render.draw.attention_grid.draw_heads",
        lambda seen_jpeg, maps, labels, heading, mark, tile: (
            seen.append((maps, mark)) or new_canvas(heading, 1, 1)
        ),
    )
    assert run("inspect", MODEL, save_quarters(), *WORDS, "--patch", pixel).code == 0
    ((maps, mark),) = seen
    assert mark == (cell % 2 / 2, cell // 2 / 2, 0.5, 0.5)
    np.testing.assert_allclose(maps[1].flatten(), shares()[1 + cell, 1:], atol=1e-5)


@pytest.mark.usefixtures("small_parts")
def test_figures_of_many_images_are_their_means_also_after_a_resume(run):
    save_quarters("rows.npy", 10, add=0.05)
    words = (MODEL, "rows.npy", *WORDS[:-1])
    assert run("inspect", *words, "whole").code == 0
    with interrupted_after(chunks=1):
        assert run("inspect", *words, "halves").code == 130
    assert run("inspect", *words, "halves", "--resume").code == 0
    assert Path("whole/attention.csv").read_bytes() == Path("halves/attention.csv").read_bytes()
    assert rows("whole")[0]["images"] == "10"


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("--attention", "head"), "--attention head: no attention runs inside", "--attention all"),
        (("--attention", "nothing"), "--attention: no layer matches 'nothing'", "hookcli layers"),
        (("--save", "attention"), "are for attention that is computed", "add --attention all"),
        (("--attention", "all", "--patch", "32,0"), "is not inside the image", ""),
    ],
)
def test_impossible_attention_options_are_refused_before_writing(run, words, error, hint):
    ended = run("inspect", MODEL, save_quarters(), "--device", "cpu", *words, "-o", "out")
    assert ended.code == 2
    assert error in ended.err
    assert hint in ended.err
    assert not Path("out").exists()


def test_a_rollout_through_windows_is_refused(run):
    np.save("pixels.npy", np.zeros((3, 64, 64), np.float32))
    small = "from tests.small_models import build_small\ndef make(): return build_small('swin')\n"
    Path("net.py").write_text(small)
    ended = run("inspect", "net.py:make", "pixels.npy", *WORDS[2:], "--rollout")
    assert ended.code == 2
    assert "--rollout cannot be computed: attention inside windows" in ended.err


@pytest.mark.parametrize("order", ["by chance of NumPy", "by a generator", "by brightness"])
def test_tokens_in_an_order_of_their_own_have_no_places(run, order):
    Path("net.py").write_text(AROUND.format(order=order))
    np.save("noise.npy", np.random.default_rng(0).random((3, 32, 32), np.float32))
    ended = run("inspect", "net.py:make", "noise.npy", *WORDS[2:], "--layers", "patch")
    assert ended.code == 0, ended.err
    (seen,) = rows()
    assert seen["reason"] == "its tokens are chosen at random, or depend on the image"
    assert (seen["queries"], seen["query_grid"]) == ("16", "")
