"""The page in a real browser: opened from disk, without a network, by mouse and by keyboard."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from hookcli.cli.entry import _run

pytestmark = pytest.mark.browser

PHOTOS = Path(__file__).parent.parent / "sample_images"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two images, one of them with a name that means harm."""
    home = tmp_path_factory.mktemp("page")
    hostile = home / "<img src=x onerror=alert(1)> #?%&'\u202e.png"
    shutil.copy(PHOTOS / "coffee.png", hostile)
    words = ["inspect", "resnet18", str(PHOTOS / "cat.png"), str(hostile), "--weights", "random"]
    patch = pytest.MonkeyPatch()
    patch.setattr(
        sys, "argv", ["hookcli", *words, "--layers", "conv,fc", "-o", str(home / "run"), "-q"]
    )
    assert _run() == 0
    patch.undo()
    return home / "run"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        started = play.chromium.launch(executable_path=chromium, args=QUIET)
        yield started
        started.close()


@pytest.fixture
def page(browser, folder):
    """The page, open; at the end no error was logged and nothing but files was asked for."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong, asked = [], []
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("dialog", lambda dialog: wrong.append(dialog.message))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((folder / "report.html").as_uri())
    yield tab
    tab.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def calls(page):
    return page.locator("#table tbody tr:not([hidden]) td:nth-child(2)").all_inner_texts()


def open_grid(page, index=0):
    button = page.locator("article button.grid").nth(index)
    button.scroll_into_view_if_needed()
    button.focus()
    page.keyboard.press("Enter")


def test_the_table_is_found_in_by_text_and_type(page):
    page.fill("#filter", "layer4.1")
    assert calls(page) == ["layer4.1.conv1", "layer4.1.conv2"]
    assert page.inner_text("#count") == "2 of 21"
    page.fill("#filter", "")
    page.select_option("#type", "Linear")
    assert calls(page) == ["fc"]


def test_the_table_is_sorted_by_numbers_up_and_down(page):
    head = page.locator("th", has_text="parameters").locator("button")
    head.click()
    up = calls(page)
    head.click()
    assert up[0] == "layer2.0.downsample.0"  # 64 * 128 parameters, the fewest of all
    assert calls(page)[-1] == "layer2.0.downsample.0"


def test_a_tile_is_enlarged_and_the_arrows_go_on(page):
    open_grid(page)
    assert page.inner_text("#viewer-title") == "conv1"
    first = page.inner_text("#facts")
    assert first.startswith("channel ")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#facts") != first
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#viewer-title") == "layer1.0.conv1"
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('viewer').open")


def test_the_mark_is_on_the_tile_that_is_enlarged(page):
    open_grid(page)
    page.keyboard.press("ArrowRight")
    mark, whole = page.locator("#mark").bounding_box(), page.locator("#whole").bounding_box()
    assert whole["x"] < mark["x"] < whole["x"] + whole["width"]
    before = page.inner_text("#facts")
    page.mouse.click(mark["x"] + 5, mark["y"] + 5)
    assert page.inner_text("#facts") == before


def test_a_tile_is_laid_over_the_image(page):
    open_grid(page)
    page.check("#overlay")
    assert page.locator(".stage.over img").is_visible()
    assert page.evaluate("document.getElementById('stage-tile').style.opacity") == "0.6"


def test_another_image_is_shown_with_its_own_grids(page):
    before = page.locator("article img").first.get_attribute("src")
    page.select_option("#image", "1")
    assert page.locator("article img").first.get_attribute("src") != before
    assert page.locator(".predictions:not([hidden])").count() == 1
    page.wait_for_function("document.querySelector('article img').naturalWidth > 0")


def test_the_page_fits_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_links_in_the_plot_go_to_the_layer(page):
    page.locator("svg.depth a").nth(4).focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#layer-4"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("opened", [False, True])
def test_the_page_has_no_serious_fault_of_accessibility(page, scheme, opened):
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    if opened:
        open_grid(page)
    faults = Axe().run(page).response["violations"]
    assert [(f["id"], f["impact"]) for f in faults if f["impact"] in ("serious", "critical")] == []
