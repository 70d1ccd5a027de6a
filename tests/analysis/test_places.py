"""Components, similarity and matches of places, against the same by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.analysis.components import find_components
from hookcli.analysis.features import open_calls
from hookcli.analysis.images import Geometry
from hookcli.analysis.places import (
    BASIS,
    Basis,
    answer_components,
    answer_matches,
    answer_similarity,
    choose_basis,
    colour_places,
    compare_places,
    find_basis,
    match_places,
    read_bases,
    write_bases,
)
from hookcli.errors import RequestError
from hookcli.reading.load import load_run
from tests.toy_runs import ToyRun

DRAW = np.random.default_rng(0)
MAPS = DRAW.normal(size=(3, 6, 4, 4)).astype(np.float32)


def open_call(folder, maps=MAPS, **facts):
    images = {f"photo{n}": {"conv": maps[n : n + 1]} for n in range(len(maps))}
    (call,) = open_calls(load_run(ToyRun(images, **facts).write(folder)))
    return call


def stack(maps):
    """All places of all images, (places, C)."""
    return np.moveaxis(maps, 1, 3).reshape(-1, maps.shape[1])


def whole(count=3):
    return {f"photo{n}": Geometry(f"{n}.png", (8, 8), (0, 0, 8, 8)) for n in range(count)}


def test_the_basis_is_that_of_all_places_of_all_images(tmp_path):
    basis = find_basis(open_call(tmp_path / "run"))
    rows = stack(MAPS).astype(np.float64)
    centered = rows - rows.mean(0)
    directions = np.linalg.svd(centered, full_matrices=False)[2][:3]
    cosines = np.abs((basis.components.axes * directions).sum(1))
    assert cosines == pytest.approx([1, 1, 1], abs=1e-6)


def test_the_same_region_has_the_same_colour_in_two_photos(tmp_path):
    maps = MAPS[:2].copy()
    maps[1, :, :2, :2] = maps[0, :, 1:3, 2:]  # at another place
    call = open_call(tmp_path / "run", maps)
    assert call.pixels == dict.fromkeys(("photo0", "photo1"), (8, 8))
    one, two = (each.colours.reshape(4, 4, 3) for each in answer_components(call, find_basis(call)))
    assert np.array_equal(two[:2, :2], one[1:3, 2:])
    assert len(np.unique(one.reshape(-1, 3), axis=0)) > 8


def test_colours_reach_from_dark_to_bright_over_two_standard_deviations():
    components = find_components([stack(MAPS)], 3)
    steps = np.array([-9, 0, 1]) * components.spread[0]
    places = components.mean + steps[:, None] * components.axes[0]
    colours, coordinates = colour_places(Basis(components), places)
    assert colours[:, 0].tolist() == pytest.approx([0, 127.5, 191], abs=1)
    assert coordinates[2] == pytest.approx([steps[2], 0, 0], abs=1e-9)


def test_the_foreground_is_the_side_that_is_rare_at_the_edges(tmp_path):
    maps = 0.1 * DRAW.normal(size=(4, 6, 8, 8)).astype(np.float32)
    maps[:, 0] += 1  # the background
    for image in range(4):
        maps[image, 0, 2:6, 2 + image % 2 : 6] = -3
    call = open_call(tmp_path / "run", maps)
    basis = find_basis(call, foreground=True)
    for image, answered in enumerate(answer_components(call, basis)):
        front = answered.colours.reshape(8, 8, 3).any(2)
        expected = maps[image, 0] < -1
        assert np.array_equal(front, expected)
        assert answered.row.foreground == pytest.approx(expected.mean())
        assert np.isnan(answered.columns["component_1"][~expected.ravel()]).all()


def test_bases_are_read_as_they_were_written(tmp_path):
    call = open_call(tmp_path / "run")
    bases = {"conv": find_basis(call), "front": find_basis(call, foreground=True)}
    file = tmp_path / BASIS
    file.write_bytes(write_bases(bases))
    assert write_bases(bases) == file.read_bytes()
    for name, basis in bases.items():
        places = stack(MAPS)
        read = choose_basis(read_bases(str(tmp_path)), name, 6)
        assert np.array_equal(colour_places(read, places)[0], colour_places(basis, places)[0])


@pytest.mark.parametrize(
    ("name", "features", "said"),
    [
        ("fc", 6, "no basis of 'fc'"),
        ("conv", 7, "has 6 features, and the layer 7"),
    ],
)
def test_a_basis_of_another_layer_or_width_is_refused(tmp_path, name, features, said):
    file = tmp_path / BASIS
    file.write_bytes(write_bases({"conv": find_basis(open_call(tmp_path / "run"))}))
    with pytest.raises(RequestError, match=said):
        choose_basis(read_bases(str(tmp_path)), name, features)


def test_a_basis_that_is_missing_or_damaged_is_refused(tmp_path):
    with pytest.raises(RequestError, match="has no basis of components"):
        read_bases(str(tmp_path))
    file = tmp_path / BASIS
    whole_file = write_bases({"conv": find_basis(open_call(tmp_path / "run"))})
    for data in (b"", whole_file[:100], whole_file[:-8], b"x" * 200):
        file.write_bytes(data)
        with pytest.raises(RequestError, match="is damaged"):
            read_bases(str(tmp_path))


def test_similarity_is_the_cosine():
    rows = stack(MAPS).astype(np.float64)
    by_hand = [row @ rows[5] / np.linalg.norm(row) / np.linalg.norm(rows[5]) for row in rows]
    assert compare_places(rows[5], rows) == pytest.approx(by_hand)
    assert compare_places(rows[5], np.zeros((1, 6))) == [0]


def test_the_most_similar_place_of_every_image_is_found_from_a_pixel(tmp_path):
    maps = MAPS.copy()
    maps[2, :, 3, 0] = 2 * maps[1, :, 0, 2]  # the same direction
    call = open_call(tmp_path / "run", maps)
    answers = {each.row.image: each for each in answer_similarity(call, "photo1", (5, 1), whole())}
    assert (answers["photo2"].row.x, answers["photo2"].row.y) == (0.5, 6.5)
    assert answers["photo2"].row.similarity == pytest.approx(1)
    assert answers["photo2"].marks == ((0.125, 0.875),)
    own = answers["photo1"]  # its mark is the place itself, and its row the next best
    assert own.marks == ((0.625, 0.125),)
    assert own.values.max() == pytest.approx(1)
    assert own.row.similarity < 1


@pytest.mark.parametrize("at_once", [3, 1 << 22])
def test_matches_are_the_largest_cosines_and_mutual_ones_choose_each_other(monkeypatch, at_once):
    monkeypatch.setattr("hookcli.analysis.places._MATCHED_AT_ONCE", at_once)
    a, b = stack(MAPS[:1]), stack(MAPS[1:2])
    products = (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (
        b / np.linalg.norm(b, axis=1, keepdims=True)
    ).T
    found = match_places(a, b)
    assert np.array_equal(found.places, products.argmax(1))
    assert found.similarity == pytest.approx(products.max(1))
    mutual = products.argmax(0)[products.argmax(1)] == np.arange(16)
    assert np.array_equal(found.is_mutual, mutual)


def test_a_shifted_copy_matches_the_places_where_they_went(tmp_path):
    large = DRAW.normal(size=(1, 6, 12, 12)).astype(np.float32)
    maps = np.concatenate([large[:, :, :10, :10], large[:, :, 2:, 1:11]])
    call = open_call(tmp_path / "run", maps)
    one, two = answer_matches(call, ("photo0", "photo1"), None, whole(2))
    rows, columns = one.columns["match_row"].reshape(10, 10), one.columns["match_column"]
    assert np.array_equal(rows[2:, 1:], np.indices((8, 9))[0])
    assert np.array_equal(columns.reshape(10, 10)[2:, 1:], np.indices((8, 9))[1])
    assert one.row.matched == 100
    assert 72 <= one.row.mutual < 100
    assert len(one.marks) == len(two.marks) > 3


def test_one_match_is_asked_for_with_a_pixel_and_mutual_leaves_the_others_out(tmp_path):
    maps = MAPS[:2].copy()
    maps[1, :, 2, 3] = maps[0, :, 1, 1]
    call = open_call(tmp_path / "run", maps)
    one, two = answer_matches(call, ("photo0", "photo1"), (3, 3), whole(2), mutual=True)
    assert (one.row.x, one.row.y, one.row.similarity) == pytest.approx((6.5, 4.5, 1))
    assert one.marks == ((0.375, 0.375),)
    assert two.marks == ((0.875, 0.625),)
    assert one.row.matched == one.row.mutual == np.isfinite(one.values).sum()


def test_too_few_places_are_refused_by_the_layer(tmp_path):
    maps = np.ones((1, 2, 2, 2), np.float32)
    with pytest.raises(RequestError, match="'conv': 3 components need more than 3 rows"):
        find_basis(open_call(tmp_path / "run", maps))


@pytest.mark.parametrize("scale", [1e-30, 1e60])
def test_the_scale_of_features_changes_no_answer_about_places(tmp_path, scale):
    scaled = (MAPS * np.array(scale)).astype("f4" if scale < 1e38 else "f8")
    one, two = open_call(tmp_path / "one"), open_call(tmp_path / "two", scaled)
    bases = [find_basis(call, foreground=True).components.explained for call in (one, two)]
    assert bases[0] == pytest.approx(bases[1], rel=1e-4)
    plain, far = (stack(maps) for maps in (MAPS, scaled))
    assert compare_places(far[0], far) == pytest.approx(compare_places(plain[0], plain), abs=1e-6)
    assert np.array_equal(match_places(far, far).places, match_places(plain, plain).places)
