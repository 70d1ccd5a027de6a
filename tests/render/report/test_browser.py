"""The page in a real browser: opened from disk, without a network, by mouse and by keyboard."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from hookcli.__main__ import _run
from hookcli.render.report.document import read_report
from hookcli.render.report.page import render_report as render_folder
from hookcli.store.run_files import RunFiles
from tests.render.report.test_page import SEEN, TURNED, all_named, document, render_report

pytestmark = pytest.mark.browser

PHOTOS = Path(__file__).parents[3] / "sample_images"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two images, one of them with a name that means harm."""
    home = tmp_path_factory.mktemp("page")
    hostile = home / "<img src=x onerror=alert(1)> #?%20%41&'\u202e.png"
    shutil.copy(PHOTOS / "coffee.png", hostile)
    return inspected(home, PHOTOS / "cat.png", hostile)


def inspected(home, *words, command="inspect"):
    words = [command, "resnet18", *map(str, words), "--weights", "random", "-q"]
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "argv", ["hookcli", *words, "--layers", "conv,fc", "-o", str(home / "run")])
    assert _run() == 0
    patch.undo()
    return home / "run"


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A page of 200 images with 36 layers each, which share one picture."""
    home = tmp_path_factory.mktemp("many")
    Image.new("RGB", (100, 60)).save(home / "grid.png")
    whole = document()
    keys = [f"i{n}" for n in range(200)]
    calls = [f"layer{n}" for n in range(36)]
    figures = {name: [0.1234] * 64 for name in ("low", "high", "mean", "spread")}
    grid = whole["grids"][0] | figures | {"channels": list(range(64)), "file": "grid.png"}
    whole |= {
        "images": [whole["images"][0] | {"key": key, "file": f"{key}.png"} for key in keys],
        "layers": [whole["layers"][0] | {"call_id": call} for call in calls],
        "histograms": {},
        "grids": [
            grid | {"image": key, "call_id": call, "file": f"grid.png?{key}-{call}"}
            for key in keys
            for call in calls
        ],
    }
    text = render_report(whole).replace("%3F", "?")
    (home / "report.html").write_text(text, encoding="utf-8")
    return home


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
    yield from opened(browser, folder)


@pytest.fixture(scope="module")
def sheets(tmp_path_factory):
    """A run that drew one sheet an image."""
    home = tmp_path_factory.mktemp("sheets")
    return inspected(home, PHOTOS / "cat.png", PHOTOS / "coffee.png", "--grids", "sheet")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A run of one image with three channels a layer: grids of one short row."""
    return inspected(tmp_path_factory.mktemp("one"), PHOTOS / "cat.png", "--channels", "0,1,2")


@pytest.fixture(params=[False, True], ids=["links", "one file"])
def page_of_two(request, browser, sheets):
    """The page of two images, and the same with its pictures in it."""
    files = RunFiles(sheets)
    text = render_folder(*read_report(files), files if request.param else None)
    home = sheets.parent / "alone" if request.param else sheets
    home.mkdir(exist_ok=True)
    (home / "report.html").write_text(text, encoding="utf-8")
    yield from opened(browser, home)


@pytest.fixture
def turned(tmp_path):
    """A page in which every name turns the text around, and holds what looks like an escape."""
    Image.new("RGB", (100, 60)).save(tmp_path / "picture.png")
    text = render_report(all_named(TURNED))
    for file in ("grids/cat/001_conv.png", "seen/cat.jpg"):
        text = text.replace(file, "picture.png")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    return tmp_path


def opened(browser, folder):
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


def wait_for_picture(page, selector):
    """Until it is there; the page's policy lets no text be run as a condition."""
    for _ in range(100):
        if page.locator(selector).first.evaluate("each => each.naturalWidth > 0"):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"no picture in {selector}")


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


@pytest.mark.parametrize("layer", [0, 19])  # 112 by 112 and 7 by 7 values
def test_the_mark_is_on_the_tile_that_is_enlarged_of_a_grid_that_is_short(browser, one, layer):
    grid = json.loads((one / "report.json").read_text())["grids"][layer]
    places = grid["places"]
    for page in opened(browser, one):
        open_grid(page, layer)
        assert len(grid["channels"]) == 3
        for number, channel in enumerate(grid["channels"]):
            facts = page.inner_text("#facts")
            assert facts.startswith(f"channel {channel}: ")
            mark, whole = (page.locator(each).bounding_box() for each in ("#mark", "#whole"))
            scale = whole["width"] / grid["size"][0]
            row, column = divmod(number, places["columns"])
            left = places["left"] + column * places["step_x"]
            top = places["top"] + row * places["step_y"]
            drawn = (mark["x"] - whole["x"], mark["y"] - whole["y"], mark["width"], mark["height"])
            wanted = [scale * part for part in (left, top, places["width"], places["height"])]
            assert drawn == pytest.approx(wanted, abs=1.5)
            page.mouse.click(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
            assert page.inner_text("#facts") == facts
            page.keyboard.press("ArrowRight")


def test_the_images_that_fire_a_channel_most_are_seen(page_of_two):
    page = page_of_two
    shown = page.locator("#top-images details[open] figure img")
    assert shown.count() == 3 * 2  # channels of the first layer, and both images of each
    for number in range(6):
        shown.nth(number).scroll_into_view_if_needed()
        for _ in range(100):
            if shown.nth(number).evaluate("each => each.naturalWidth > 0"):
                break
            page.wait_for_timeout(50)
        assert shown.nth(number).evaluate("each => each.naturalWidth") == 224


def test_all_pictures_of_one_image_are_there_to_be_printed(browser, one):
    for page in opened(browser, one):
        shown = page.locator("article img").evaluate_all(
            "all => all.map(each => each.complete && each.naturalWidth > 0)"
        )
        assert shown == [True] * 21
        assert page.evaluate("scrollY") == 0


def test_a_name_is_shown_as_it_is_with_what_turns_the_text_around_written_out(page):
    shown = "<img src=x onerror=alert(1)> #?%20%41&'\\u202e.png"
    assert page.locator("#image option").nth(1).inner_text().endswith(shown)
    assert page.locator("summary .file").nth(1).inner_text().endswith(shown)
    assert "\u202e" not in page.content()


def test_no_name_turns_the_text_around_in_the_table_the_choices_and_the_viewer(browser, turned):
    for page in opened(browser, turned):
        assert calls(page) == [SEEN]
        assert page.locator("#type option").nth(1).inner_text() == SEEN
        assert page.locator("#image option").nth(1).inner_text() == SEEN
        assert page.locator("article h3").inner_text().startswith(SEEN)
        open_grid(page)
        assert page.inner_text("#viewer-title") == SEEN
        page.keyboard.press("Escape")
        assert "\u202e" not in page.content()


def test_the_command_as_it_is_seen_names_the_files_when_it_is_pasted(browser, tmp_path):
    words = ["hookcli", "inspect", "two  spaces", "%2520%2541", "it's\t\u202e\\"]
    text = render_report(document(command=words, images=[], grids=[]))
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    for page in opened(browser, tmp_path):
        script = f"printf '%s\\0' {page.inner_text('.command')}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
        words[3] = "%20%41"
        assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


def test_a_tile_is_laid_over_the_image(page):
    open_grid(page)
    page.check("#overlay")
    assert page.locator(".stage.over img").is_visible()
    assert page.evaluate("document.getElementById('stage-tile').style.opacity") == "0.6"


def test_another_image_is_shown_with_its_own_grids(page):
    before = page.locator("article img").first.get_attribute("src")
    page.select_option("#image", "1")
    assert page.locator("article img").first.get_attribute("src") != before
    page.locator("article img").first.scroll_into_view_if_needed()
    wait_for_picture(page, "article img")


def test_an_image_has_a_section_that_opens_with_its_pictures(page):
    section = page.locator("details.image").nth(1)
    assert section.locator("button.grid").count() == 0
    section.locator("summary").click()
    page.wait_for_selector("#image-1 button.grid")
    assert section.locator("button.grid").count() == 21
    section.locator("button.grid").nth(2).click()
    assert page.inner_text("#viewer-title") == "layer1.0.conv2"
    wait_for_picture(page, "#stage-image")
    shown = page.get_attribute("#stage-image", "src")
    assert shown == section.locator("img[data-seen]").evaluate("each => each.src")


def test_a_link_to_an_image_opens_its_section(page):
    page.evaluate("location.hash = '#image-1'")
    page.wait_for_selector("#image-1[open]")


def test_a_tile_of_a_sheet_is_that_of_its_layer(browser, sheets):
    for page in opened(browser, sheets):
        page.locator("#sheet").scroll_into_view_if_needed()
        page.locator("#sheet").focus()
        page.keyboard.press("Enter")
        assert page.inner_text("#viewer-title") == "conv1"
        page.keyboard.press("ArrowDown")
        assert page.inner_text("#viewer-title") == "layer1.0.conv1"
        mark, first = page.locator("#mark").bounding_box(), page.inner_text("#facts")
        page.mouse.click(mark["x"] + mark["width"] + 12, mark["y"] + 5)  # the tile to the right
        assert page.inner_text("#viewer-title") == "layer1.0.conv1"
        assert page.inner_text("#facts") != first
        page.keyboard.press("Escape")
        assert page.locator("#table tbody tr[id=layer-3]").count() == 1


def test_of_200_images_only_what_is_looked_at_is_loaded(browser, many):
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((many / "report.html").as_uri())
    assert tab.locator("details.image").count() == 200
    assert len(asked) < 100
    assert tab.evaluate("read.size") == 1
    tab.evaluate("document.getElementById('image-150').open = true")
    tab.wait_for_selector("#image-150 button.grid")
    assert tab.locator("#image-150 button.grid").count() == 36
    assert tab.evaluate("read.size") == 2
    tab.select_option("#image", "199")
    assert tab.locator("article img").first.get_attribute("src").endswith("grid.png?i199-layer0")
    tab.close()


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


@pytest.fixture(scope="module", params=[1, 2])
def backwards(request, tmp_path_factory):
    """A run of gradients of one image, or of two, with edits and maps over the image."""
    photos = [PHOTOS / name for name in ("cat.png", "coffee.png")][: request.param]
    words = ("--cam", "layer4", "--saliency", "--edit", "conv1{3}:zero")
    home = tmp_path_factory.mktemp("backwards")
    return inspected(home, *photos, *words, command="gradients")


@pytest.fixture
def gradients(browser, backwards):
    yield from opened(browser, backwards)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_gradients_has_no_serious_fault_of_accessibility(gradients, scheme):
    from axe_playwright_python.sync_playwright import Axe

    gradients.emulate_media(color_scheme=scheme)
    faults = Axe().run(gradients).response["violations"]
    assert [(f["id"], f["impact"]) for f in faults if f["impact"] in ("serious", "critical")] == []


def test_the_page_of_gradients_fits_a_phone(gradients):
    gradients.set_viewport_size({"width": 390, "height": 800})
    assert gradients.evaluate("document.documentElement.scrollWidth") <= 390


def test_links_in_the_flow_of_gradients_go_to_the_layer(gradients):
    link = gradients.locator("svg.flow a").nth(2)
    target = link.get_attribute("href")
    link.focus()
    gradients.keyboard.press("Enter")
    assert gradients.evaluate("location.hash") == target
    place = gradients.locator(target)
    assert place.locator("h3").inner_text().startswith("grad_output:")
    assert place.locator("img").count() == 1


def test_a_tile_of_gradients_is_enlarged(gradients):
    open_grid(gradients)
    assert "grad_output:conv1" in gradients.locator("#viewer-title").inner_text()
    assert (
        gradients.locator("#stage-image").is_visible()
        or gradients.locator("#stage-tile").is_visible()
    )


def test_maps_over_the_image_are_seen(gradients, backwards):
    several = len(list((backwards / "saliency").iterdir())) > 1
    if several:
        gradients.locator("details.image").first.locator("summary").click()
    pictures = gradients.locator(".heats").first.locator("img")
    assert pictures.count() == 2
    for index in range(2):
        pictures.nth(index).scroll_into_view_if_needed()
        gradients.wait_for_function(
            "n => document.querySelectorAll('.heats img')[n].naturalWidth > 400", arg=index
        )
