"""Saved tensors as features: which axes are places, and what is pooled over them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hookcli.analysis import features
from hookcli.analysis.features import open_calls
from hookcli.errors import RequestError
from hookcli.reading.load import load_run
from tests.toy_runs import ToyRun

DRAW = np.random.default_rng(0)
MAPS = DRAW.normal(size=(2, 3, 4, 4)).astype(np.float32)
TOKENS = DRAW.normal(size=(2, 17, 5)).astype(np.float32)  # a class token, and 4 x 4 places


def open_toy(folder, *, command=(), layouts=None, **calls):
    images = {
        f"photo{n}": {name: values[n : n + 1] for name, values in calls.items()} for n in range(2)
    }
    toy = ToyRun(images, command=command, layouts=layouts or {})
    return {call.call_id: call for call in open_calls(load_run(toy.write(folder)))}


def places_of(call):
    return {each.key: each for each in call.read_places()}


def test_places_are_pixels_or_tokens_row_by_row_without_the_prefix(tmp_path):
    last = np.moveaxis(MAPS, 1, 3)
    layouts = {"tokens": "NLC", "last": "NHWC"}
    calls = open_toy(tmp_path / "run", maps=MAPS, tokens=TOKENS, last=last, layouts=layouts)
    places = {name: places_of(call)["photo1"] for name, call in calls.items()}
    assert (places["maps"].grid, places["tokens"].grid) == ((4, 4), (4, 4))
    assert places["tokens"].prefix == 1
    assert np.array_equal(places["tokens"].values, TOKENS[1, 1:])
    for name in ("maps", "last"):
        assert np.array_equal(places[name].values, last[1].reshape(16, 3))


def test_maps_saved_with_a_pooled_side_are_places_whatever_the_layout_was(tmp_path):
    pooled = DRAW.normal(size=(2, 5, 2, 2)).astype(np.float32)
    call = open_toy(
        tmp_path / "run", command=("--pool", "2"), tokens=pooled, layouts={"tokens": "NLC"}
    )["tokens"]
    assert places_of(call)["photo0"].values.shape == (4, 5)
    assert np.allclose(call.pool_features("mean"), pooled.mean((2, 3)))


@pytest.mark.parametrize("block", [1, features._BLOCK])
def test_features_are_pooled_over_the_places(tmp_path, monkeypatch, block):
    monkeypatch.setattr(features, "_BLOCK", block)
    given = {"maps": MAPS, "tokens": TOKENS, "vectors": TOKENS[:, :, 0], "unknown": TOKENS}
    calls = open_toy(tmp_path / "run", **given, layouts={"tokens": "NLC"})
    assert {len(each.keys) for each in calls["maps"].read()} == {1}
    assert np.array_equal(calls["vectors"].pool_features(), TOKENS[:, :, 0])
    assert np.array_equal(calls["unknown"].pool_features(), TOKENS.reshape(2, -1))
    assert np.allclose(calls["maps"].pool_features("mean"), MAPS.mean((2, 3)))
    assert np.allclose(calls["maps"].pool_features("max"), MAPS.max((2, 3)))
    assert np.allclose(calls["tokens"].pool_features("mean"), TOKENS[:, 1:].mean(1))
    assert np.allclose(calls["tokens"].pool_features("class"), TOKENS[:, 0])


def test_all_values_are_read_in_parts(tmp_path):
    call = open_toy(tmp_path / "run", maps=MAPS)["maps"]
    for most in (1, 4 * 2 * 5, 4 * 2 * 16, 1 << 20):
        parts = [*call.read_columns(most)]
        assert np.array_equal(np.concatenate(parts, 1), MAPS.reshape(2, -1))
        assert max(part.nbytes for part in parts) <= max(most, 4 * 2 * 4)


def test_calls_come_in_the_order_in_which_they_ran(tmp_path):
    toy = ToyRun({"a": {"late": MAPS[:1], "early": MAPS[:1]}}).write(tmp_path / "run")
    (toy / "layers.csv").write_text("order,call_id,layout\n2,late,NCHW\n1,early,NCHW\n")
    assert [call.call_id for call in open_calls(load_run(toy))] == ["early", "late"]


@pytest.mark.parametrize(
    ("command", "pool", "said"),
    [
        (("--pool", "mean"), "max", "'maps' was saved with `pool='mean'`, which has no maximum"),
        (("--pool", "max"), "mean", "which has no mean"),
        ((), "class", "'maps' has no class token"),
    ],
)
def test_what_was_not_saved_is_said(tmp_path, command, pool, said):
    saved = MAPS.mean((2, 3)) if command else MAPS
    call = open_toy(tmp_path / "run", maps=saved, command=command)["maps"]
    with pytest.raises(RequestError, match=said):
        call.pool_features(pool)


def test_an_error_names_the_command_that_saves_what_is_missing(tmp_path):
    command = ("--layers", "conv", "--save", "tensors", "--pool", "mean")
    call = open_toy(tmp_path / "run", maps=MAPS.mean((2, 3)), command=command)["maps"]
    assert call.places == 0
    with pytest.raises(RequestError, match="so it has no places") as caught:
        next(call.read_places())
    again = "hookcli inspect toy photo.png --layers conv --save tensors"
    assert caught.value.hint == f"save them: {again}"
    bare = ToyRun({"a": {"maps": MAPS[:1]}}, kept="nothing").write(tmp_path / "bare")
    with pytest.raises(RequestError, match="saved no tensors") as caught:
        open_calls(load_run(bare), pool="mean")
    assert caught.value.hint.endswith("photo.png --save tensors --pool mean")


def test_features_that_are_not_finite_are_refused_by_the_image(tmp_path):
    broken = MAPS.copy()
    broken[1, 0, 2, 2] = np.inf
    call = open_toy(tmp_path / "run", maps=broken)["maps"]
    with pytest.raises(RequestError, match="'maps' has NaN or Inf, first for 'photo1'"):
        call.pool_features()
    with pytest.raises(RequestError, match="first for 'photo1'"):
        [*call.read_places()]


def test_images_of_one_shape_may_have_different_proportions(tmp_path):
    """24 tokens are 4 x 6 places of a wide image and 6 x 4 of a tall one."""
    tokens = DRAW.normal(size=(2, 24, 3)).astype(np.float32)
    call = open_toy(tmp_path / "run", tokens=tokens, layouts={"tokens": "NLC"})["tokens"]
    call = replace(call, pixels={"photo0": (64, 96), "photo1": (96, 64)})
    assert {key: each.grid for key, each in places_of(call).items()} == {
        "photo0": (4, 6),
        "photo1": (6, 4),
    }
