"""The pages of analyses in a real browser, opened from disk, by mouse and by keyboard."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from tests.conftest import PHOTOS, run_in
from tests.world.test_page_in_browser import list_faults, opened

pytestmark = pytest.mark.browser

NAMES = ("astronaut.png", "camera.png", "cat.png", "coffee.png", "rocket.jpg")
HOSTILE = "<img src=x onerror=alert(1)> &' #%41.png"
VERBS = {
    "places": (),
    "map": ("--labels", "labels.csv", "--neighbours", "3"),
    "probe": ("--labels", "labels.csv", "--folds", "2"),
    "similarity": (),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "photos").mkdir()
    for name in NAMES:
        shutil.copy(PHOTOS / name, home / "photos" / name)
    shutil.copy(PHOTOS / "cat.png", home / "photos" / HOSTILE)
    words = ("squeezenet1_1", "photos", "--weights", "random", "--layers", "features.3,features.12")
    assert run_in(home, "inspect", *words, "--save", "tensors", "-o", "run", "-q").code == 0
    labels = [f'"{name}",{"ab"[n % 2]}<i>' for n, name in enumerate((*NAMES, HOSTILE))]
    (home / "labels.csv").write_text("\n".join(["image,label", *labels]) + "\n")
    for verb, more in VERBS.items():
        ended = run_in(home, verb, "run", *more, "-o", verb, "-q")
        assert ended.code == 0, ended.err
    ended = run_in(
        home, "places", "run", "--similar", "200,100", "--image", "cat.png", "-o", "near"
    )
    assert ended.code == 0, ended.err
    return home


@pytest.fixture
def tab(browser):
    yield from opened(browser)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_has_no_serious_fault_of_accessibility(tab, home, verb, scheme):
    tab.goto((home / verb / "report.html").as_uri())
    if tab.locator("#contact-sheet").count():
        tab.click("#contact-sheet li:first-child button")
    assert list_faults(tab, scheme) == []


def test_the_similarity_under_the_pointer_is_said(tab, home):
    tab.goto((home / "similarity/report.html").as_uri())
    box = tab.locator("#matrix canvas").bounding_box()
    assert min(box["width"], box["height"]) >= 200  # two layers are not a small square
    tab.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.25 * box["height"])
    said = tab.inner_text("#told")
    assert re.fullmatch(r"features\.3 and features\.12: -?[\d.]+", said)
    value = float(said.rpartition(" ")[2])
    lines = (home / "similarity/similarity.csv").read_text().splitlines()
    assert float(lines[1].split(",")[2]) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("width", [390, 1400])
def test_a_page_is_as_wide_as_the_window_and_its_axes_stay_in_view(tab, home, verb, width):
    tab.set_viewport_size({"width": width, "height": 800})
    tab.goto((home / verb / "report.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.set_viewport_size({"width": 240, "height": 800})
    tab.evaluate("document.querySelectorAll('.wide').forEach((each) => each.scrollBy(999, 0))")
    for axis in tab.locator(".axis, .matrix .rows").all():
        assert axis.bounding_box()["x"] >= 0


def test_a_click_chooses_the_place_whose_similarity_is_shown(tab, home):
    tab.goto((home / "places/report.html").as_uri())
    assert tab.locator(".shot").first.locator("img, canvas").count() == 3
    photo, colours = (each.bounding_box() for each in tab.locator(".shot .frame").all()[:2])
    assert (photo["y"], photo["height"]) == (colours["y"], colours["height"])
    assert tab.locator(".ring").count() == 0
    tab.locator(".shot button").nth(2).click(position={"x": 100, "y": 60})
    assert tab.input_value("#shown") == "similarity"
    assert tab.locator("button .ring.chosen").count() == 1
    assert tab.locator("button .ring").count() == tab.locator("div.frame .ring").count() == 6
    assert re.search(r"row \d+, column \d+ of \d+ x \d+", tab.inner_text("#told"))
    before = tab.inner_text("#told")
    tab.locator(".shot button").nth(2).press("ArrowRight")
    assert tab.inner_text("#told") != before


def test_the_similarity_on_the_page_is_the_cosine_within_a_hundredth(tab, home):
    """The page computes it from features that are stored as whole numbers."""
    import pyarrow.parquet as pq

    tab.goto((home / "near/report.html").as_uri())
    shown = tab.evaluate("data.seen.map((_, index) => [...similarities(data.maps[0][index])])")
    table = pq.read_table(home / "near/places.parquet").to_pylist()
    exact = [row["similarity"] for row in table if row["layer"] == "features.3"]
    assert np.concatenate(shown) == pytest.approx(np.array(exact), abs=0.01)


def test_an_image_of_the_map_opens_with_its_neighbours(tab, home):
    tab.goto((home / "map/report.html").as_uri())
    assert tab.locator("#map button").count() == 6
    tab.locator("#map button").nth(0).focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#panel[open] .near li").count() == 3
    title = tab.inner_text("#panel-title")
    tab.locator("#panel .near button").first.click()
    assert tab.inner_text("#panel-title") != title
    tab.keyboard.press("Escape")
    assert tab.locator("#panel[open]").count() == 0


def test_images_are_found_by_label_and_sorted_by_outlier_score(tab, home):
    tab.goto((home / "map/report.html").as_uri())
    labels = tab.locator("#image-finding option").all_inner_texts()
    assert "a<i> (3)" in labels
    tab.select_option("#image-finding", label="a<i> (3)")
    assert tab.inner_text("#image-count") == "3 of 6"
    assert tab.locator("#image-sort option").first.inner_text() == "outlier score"
