"""The images that fire each channel most: against sorting everything by hand, and in a run."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hookcli.images.read import ImageSource
from hookcli.outside import escape
from hookcli.products.top_images import choose_best, rank_images, render_top_rows
from hookcli.records.layer_records import ChannelRange
from hookcli.records.report import RankedImages, TopChannel
from hookcli.store.chunks import read_top, write_top
from hookcli.summary.top_images import TopTally, list_tops
from tests.summary.test_findings import record
from tests.toy_models import outputs, seeded_squeezed

NAN, INF = math.nan, math.inf


def fires(image, *high, path="conv", **other):
    """A record of which each channel reaches these values."""
    return record(path, image=image, channels=ChannelRange((-9.0,) * len(high), high), **other)


def indices_of(*parts):
    """Position of each image by its key, in the order in which they came."""
    return {key: at for at, key in enumerate(dict.fromkeys(r.image for p in parts for r in p))}


def top_of(count, *parts):
    top = TopTally(count)
    for part in parts:
        top.add(part, indices_of(*parts))
    return top


def by_hand(count, *parts):
    """The rows by sorting, for each channel, all images at once."""
    positions, seen = indices_of(*parts), {}
    for one in (one for part in parts for one in part):
        for channel, value in enumerate(one.channels.high):
            seen.setdefault(one.call.id, {}).setdefault(channel, []).append((one.image, value))
    rows = []
    for call_id, channels in seen.items():
        for channel, pairs in channels.items():
            numbers = [
                (-value, positions[image]) for image, value in pairs if not math.isnan(value)
            ]
            first = sorted(numbers)[:count]
            rows += [(call_id, channel, rank, at, -v) for rank, (v, at) in enumerate(first, 1)]
    return rows


def noise(seed, images, *, channels=3, values=8):
    """Records of two calls; few values, so that many are alike, and some NaN."""
    dice = np.random.default_rng(seed)

    def value():
        return NAN if dice.random() < 0.1 else float(dice.integers(-values, values)) / 4

    return [
        fires(f"i{image}", *(value() for _ in range(channels + (path == "late"))), path=path)
        for image in range(images)
        for path in ("conv", "late")
    ]


def cut(records, dice):
    """Several parts, whole images in each."""
    images = len(records) // 2
    ends = sorted(dice.choice(range(1, images), min(3, images - 1), replace=False).tolist())
    return [records[2 * a : 2 * b] for a, b in zip([0, *ends], [*ends, images], strict=True)]


@pytest.mark.parametrize("count", [1, 5, 50])
def test_parts_one_after_the_other_give_what_sorting_everything_gives(count):
    for seed in range(10):
        dice = np.random.default_rng(seed)
        parts = cut(noise(seed, int(dice.integers(2, 30))), dice)
        assert list(top_of(count, *parts).rows()) == by_hand(count, *parts), seed
        sum_of_parts = TopTally(count)
        for part in parts:
            own = TopTally(count)
            own.add(part, indices_of(*parts))
            sum_of_parts.merge(own)
        assert list(sum_of_parts.rows()) == by_hand(count, *parts), seed
        assert sum_of_parts.chunks == len(parts)


@pytest.mark.parametrize("seed", range(3))
def test_the_top_images_of_parts_add_up_where_the_number_of_channels_varies(seed):
    dice = np.random.default_rng(seed)
    records = [
        fires(f"i{image}", *dice.integers(9, size=dice.integers(1, 4)).astype(float).tolist())
        for image in range(20)
        for _ in range(2)
    ]
    parts = cut(records, dice)
    sum_of_parts = TopTally(3)
    for part in parts:
        for top in list_tops(3, part, indices_of(*parts)):
            sum_of_parts.merge(top)
    assert list(sum_of_parts.rows()) == list(top_of(3, *parts).rows())
    assert sum_of_parts.chunks == len(parts)


def test_an_image_with_another_number_of_channels_is_left_out():
    top = top_of(9, [fires("a", 1.0, 2.0)], [fires("b", 9.0), fires("c", 3.0, 4.0)])
    assert [row[3] for row in top.rows()] == [2, 0, 2, 0]


def test_what_goes_in_and_what_has_no_channels_is_left_out():
    into = fires("a", 1.0)
    into = replace(into, call=replace(into.call, side="input"))
    assert top_of(3, [into, record("fc", channels=None)]).values == {}


def test_channels_are_chosen_by_how_far_their_best_value_exceeds_the_others():
    # the best values have the mean 6.5: 1 of 15.5, 9 of 7.5, 1 of 9.5, and nothing
    top = top_of(2, [fires("a", 10.0, 10.0, 4.0, 2.0), fires("b", 9.0, 1.0, 3.0, 2.0)])
    assert top.strongest("conv", 3) == [1, 2, 0]
    assert top.strongest("conv", 9) == [1, 2, 0, 3]


def test_a_best_value_near_zero_does_not_stand_out_whatever_the_last_is():
    # near zero beside far below it, a real standout, a loud channel, a faint one
    best = fires("a", 1e-6, 10.71, 100.0, 0.5)
    last = fires("b", -3.0, 2.98, 90.0, 0.1)
    assert top_of(2, [best, last]).strongest("conv", 9) == [1, 2, 3, 0]


def test_a_channel_that_is_never_positive_or_never_finite_is_not_chosen():
    top = top_of(2, [fires("a", NAN, 1.0, INF, -1.0, 0.0), fires("b", NAN, 2.0, INF, -9.0, -1.0)])
    assert top.strongest("conv", 9) == [1]
    assert top_of(2, [fires("a", -1.0), fires("b", NAN)]).strongest("conv", 9) == []


# Put away


@pytest.fixture
def kept():
    """A run folder with the top images of two images."""
    files = {}
    folder: Any = SimpleNamespace(files=files, write=files.__setitem__, read=files.get)
    write_top(folder, top_of(2, [fires("a", 1.0, NAN), fires("b", 2.0, NAN)]))
    return folder


def test_top_images_are_read_back_and_added_to(kept):
    back = read_top(kept, 2)
    assert (back.count, back.chunks, list(back.rows())) == (
        *(2, 1),
        [("conv", 0, 1, 1, 2.0), ("conv", 0, 2, 0, 1.0)],
    )
    back.add([fires("c", 3.0, NAN)], {"c": 2})
    assert [row[3] for row in back.rows()] == [2, 1]


def test_top_images_that_were_changed_or_are_beyond_the_run_are_not_read(kept):
    (name, data), *_ = kept.files.items()
    assert read_top(kept, 1) is None
    for index in range(0, len(data), 7):
        for damaged in (data[:index], data[:index] + b"x" + data[index + 1 :]):
            kept.files[name] = damaged
            assert read_top(kept, 2) is None


# Through the command

MODEL = "tests.toy_models:Squeezed"
WORDS = ("--weights", "random", "--device", "cpu", "--size", "32", "--resize", "32")
WORDS += (
    *("--layers", "features.0", "--layers", "classifier.1", "--grids", "none", "-o"),
    *("run", "-q"),
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


@pytest.fixture
def photos():
    """12 images of 32 by 32 pixels, which the network sees as they are."""
    Path("photos").mkdir()
    drawn = [np.random.default_rng(seed).integers(0, 256, (32, 32, 3)) for seed in range(12)]
    for number, noise in enumerate(drawn):
        Image.fromarray(noise.astype(np.uint8)).save(f"photos/p{number:02}.png")
    return drawn


def largest_by_hooks(drawn, layer):
    """(image, channel) the largest value of each channel, seen through a hook of torch."""
    arrays = [((pixels / 255 - MEAN) / STD).astype(np.float32) for pixels in drawn]
    seen = outputs(seeded_squeezed(), layer, [array.transpose(2, 0, 1) for array in arrays])
    return np.array([values.max((1, 2)) for values in seen])


def table():
    with Path("run/top_images.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_table_of_a_run_is_what_hooks_of_torch_see(run, photos):
    layer = "classifier.1"
    assert run("inspect", MODEL, "photos", *WORDS, "--top-images", "4").code == 0
    expected = largest_by_hooks(photos, layer)
    rows = [row for row in table() if row["call_id"] == layer]
    assert len(rows) == 4 * expected.shape[1]
    for channel in (0, 5, expected.shape[1] - 1):
        mine = [row for row in rows if row["channel"] == str(channel)]
        order = np.argsort(-expected[:, channel])[:4]
        assert [row["rank"] for row in mine] == ["1", "2", "3", "4"]
        assert [row["image"] for row in mine] == [f"p{image:02}" for image in order]
        assert [row["file"] for row in mine] == [f"photos/p{image:02}.png" for image in order]
        near = 1e-4 * abs(expected[:, channel]).max()
        assert [float(row["value"]) for row in mine] == pytest.approx(
            expected[order, channel].tolist(), rel=0, abs=near
        )


def test_the_page_shows_the_channels_that_were_asked_for():
    keys = ["a", "b"]
    values = {"conv": np.array([[5.0, 1.0], [2.0, 2.0], [4.0, 3.0]])}
    indices = {"conv": np.array([[0, 1], [1, 0], [0, 1]])}
    top = TopTally(2, values=values, indices=indices)
    best = choose_best(keys, top, ["conv"], asked=(1, 7))
    assert best == {"conv": (TopChannel(1, ("b", "a"), (2.0, 2.0)),)}


@pytest.mark.parametrize(
    ("most", "ranked"),
    [
        (99, RankedImages(2, (1, 0, 0, None), (5.0, 1.235, 2.0, None))),
        (2, RankedImages(1, (1, 0), (5.0, 2.0))),
        (1, None),
    ],
)
def test_every_channel_has_as_many_images_as_the_page_has_room_for(most, ranked):
    """Of three images the second was skipped; minus infinity and -1 stand for no image."""
    top = TopTally(2)
    top.values["conv"] = np.array([[5.0, 1.23456], [2.0, -np.inf]])
    top.indices["conv"] = np.array([[2, 0], [0, -1]])
    totals: Any = SimpleNamespace(
        calls=["conv", "none"],
        images=[SimpleNamespace(key="a"), SimpleNamespace(key="c")],
    )
    found = rank_images(["a", "b", "c"], top, totals, most)
    assert found == ({"conv": ranked} if ranked else {})


def test_the_page_shows_the_images_that_fire_a_channel_most(run, photos):
    assert run("inspect", MODEL, "photos", *WORDS, "--top-images", "5").code == 0
    assert "top_images.csv" in json.loads(Path("run/manifest.json").read_text())["files"]
    page = Path("run/report.html").read_text()
    held = json.loads(re.search('id="top">(.*?)<', page)[1])
    assert [(index, len(channels)) for index, channels in held] == [(0, 3), (1, 3)]
    for index, channels in held:
        call_id = ("features.0", "classifier.1")[index]
        for channel, images in channels:
            mine = [r for r in table() if (r["call_id"], r["channel"]) == (call_id, str(channel))]
            shown = [(f"p{image:02}", f"{value:.4g}") for image, value in images]
            assert shown == [(r["image"], f"{float(r['value']):.4g}") for r in mine]


def test_the_table_is_as_csv_writes_it_whatever_the_names_are():
    names = ["plain.png", "a,b.png", 'a"b.png', "a\nb.png", "=1+1.png", "a\udcff.png"]
    top = TopTally(count=6)
    top.values["layer,1"] = np.array([[np.inf, 3.5, 1e-300, 0.1, -2.0, -np.inf]])
    top.indices["layer,1"] = np.array([[5, 4, 3, 2, 1, 0]])
    sources = [ImageSource(f"key {name}", name) for name in names]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["call_id", "channel", "rank", "image", "file", "value"])
    for rank, index in enumerate(top.indices["layer,1"][0], 1):
        words = (escape.for_csv(f"key {names[index]}"), escape.for_csv(names[index]))
        value = float(top.values["layer,1"][0][rank - 1])
        writer.writerow(["layer,1", 0, rank, *words, repr(value)])
    assert render_top_rows(sources, top) == stream.getvalue().encode()
