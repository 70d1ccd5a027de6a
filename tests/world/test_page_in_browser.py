"""The page in a real browser: opened from disk, without a network, by mouse and by keyboard."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookcli.__main__ import _run
from hookcli.render.draw.attention_grid import draw_maps
from tests.render.report.test_document import maps as attention_maps
from tests.render.report.test_document import row as attention_row
from tests.render.report.test_page import MAPS, document, render_report

pytestmark = pytest.mark.browser

PHOTOS = Path(__file__).parents[2] / "sample_images"


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


@pytest.fixture
def page(browser, folder):
    yield from opened(browser, folder)


@pytest.fixture(scope="module")
def sheets(tmp_path_factory):
    home = tmp_path_factory.mktemp("sheets")
    return inspected(home, PHOTOS / "cat.png", PHOTOS / "coffee.png", "--grids", "sheet")


def opened(browser, folder=None):
    """A page; at the end no error was logged and nothing but files was asked for."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong, asked = [], []
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("dialog", lambda dialog: wrong.append(dialog.message))
    tab.on("request", lambda request: asked.append(request.url))
    if folder is not None:
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


def list_faults(page, scheme):
    """The serious faults of accessibility of a page in a colour scheme."""
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    faults = [(each["id"], each["impact"]) for each in Axe().run(page).response["violations"]]
    return [fault for fault in faults if fault[1] in ("serious", "critical")]


def wait_for_picture(page, selector):
    """Until it is there; the page's policy lets no text be run as a condition."""
    for _ in range(100):
        if page.locator(selector).first.evaluate("each => each.naturalWidth > 0"):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"no picture in {selector}")


def test_the_table_can_be_filtered_by_text_and_type(page):
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


def test_a_name_is_shown_as_it_is_with_what_turns_the_text_around_written_out(page):
    shown = "<img src=x onerror=alert(1)> #?%20%41&'\\u202e.png"
    assert page.locator("#image option").nth(1).inner_text().endswith(shown)
    tiles = page.locator("#contact-sheet .file").all_inner_texts()
    assert any(name.endswith(shown) for name in tiles)
    assert "\u202e" not in page.content()


def test_another_image_is_shown_with_its_own_grids(page):
    before = page.locator("article img").first.get_attribute("src")
    page.select_option("#image", "1")
    assert page.locator("article img").first.get_attribute("src") != before
    page.locator("article img").first.scroll_into_view_if_needed()
    wait_for_picture(page, "article img")


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


def test_on_a_phone_a_menu_leads_to_the_layers(page):
    page.set_viewport_size({"width": 390, "height": 800})
    link = page.locator("#list a", has_text="layer3.0.conv1")
    assert link.is_hidden()
    page.click("#list-open")
    assert link.bounding_box()["height"] > 24
    link.click()
    assert link.is_hidden()
    page.wait_for_function("() => document.getElementById('list-current').textContent")
    assert page.inner_text("#list-current") == "layer3.0.conv1"
    article = page.locator("article:target")
    assert article.locator("h3").inner_text().startswith("layer3.0.conv1")
    menu = page.locator("#list").bounding_box()
    assert article.bounding_box()["y"] >= menu["y"] + menu["height"]  # not below the menu


def test_links_in_the_plot_go_to_the_layer(page):
    page.locator("svg.depth a").nth(4).focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#layer-4"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("opened", ["grid", "menu"])
def test_the_page_has_no_serious_fault_of_accessibility(page, scheme, opened):
    if opened == "grid":
        open_grid(page)
    elif opened == "menu":
        page.set_viewport_size({"width": 390, "height": 800})
        page.click("#list-open")
    assert list_faults(page, scheme) == []


@pytest.fixture(scope="module")
def backwards(tmp_path_factory):
    """A run of gradients of two images with edits and maps over the image."""
    photos = [PHOTOS / name for name in ("cat.png", "coffee.png")]
    words = ("--cam", "layer4", "--saliency", "--edit", "conv1{3}:zero")
    home = tmp_path_factory.mktemp("backwards")
    return inspected(home, *photos, *words, command="gradients")


@pytest.fixture
def gradients(browser, backwards):
    yield from opened(browser, backwards)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_gradients_has_no_serious_fault_of_accessibility(gradients, scheme):
    assert list_faults(gradients, scheme) == []


def test_maps_over_the_image_are_seen(gradients):
    gradients.locator("#contact-sheet button").first.click()
    pictures = gradients.locator("#panel .heats img")
    assert pictures.count() == 2
    for index in range(2):
        pictures.nth(index).scroll_into_view_if_needed()
        gradients.wait_for_function(
            "n => document.querySelectorAll('#panel .heats img')[n].naturalWidth > 400", arg=index
        )

    assert gradients.locator("main .heats .framed").count() == 4  # of two images


def test_the_only_layer_of_a_page_is_a_wall_of_its_channels(browser, tmp_path):
    drawn = np.repeat(np.array([0, 255], np.uint8), 4)[None].repeat(4, 0)  # two maps of 4 x 4
    Image.fromarray(drawn).save(tmp_path / "maps.png")
    whole = document()
    whole["images"][0]["seen"] = ""
    whole["grids"][0] |= {"file": "maps.png", "maps": MAPS | {"file": "maps.png"}}
    (tmp_path / "report.html").write_text(render_report(whole), encoding="utf-8")
    for page in opened(browser, tmp_path):
        tiles = page.locator("#maps [data-tile]")
        assert tiles.all_inner_texts() == ["1", "0"]
        page.wait_for_timeout(200)
        for tile, level in ((0, 0), (1, 255)):
            shot = Image.open(io.BytesIO(tiles.nth(tile).locator("canvas").screenshot()))
            assert shot.convert("L").getpixel((40, 40)) == level
        tiles.nth(1).click()
        assert page.inner_text("#facts").startswith("channel 0:")


HEADS, ROWS, COLUMNS = 2, 2, 3  # heads, and the rows and columns of patches and of maps


def lit(row, column, head):
    """The cell of the map of a query and a head that is the only one that is not 0."""
    return divmod((COLUMNS * row + column + head + 1) % (ROWS * COLUMNS), COLUMNS)


def lit_maps():
    levels = np.zeros((ROWS * HEADS * ROWS, COLUMNS * COLUMNS), np.uint8)
    for row, column, head in np.ndindex(ROWS, COLUMNS, HEADS):
        down, across = lit(row, column, head)
        levels[ROWS * (HEADS * row + head) + down, COLUMNS * column + across] = 255
    return draw_maps(levels)


def with_class_token(maps):
    """The maps with a row of blocks below: of the class token, with cell (1, head) lit."""
    above = np.asarray(Image.open(io.BytesIO(maps)))
    below = np.zeros((HEADS * ROWS, above.shape[1]), np.uint8)
    for head in range(HEADS):
        below[ROWS * head + 1, head] = 255
    return draw_maps(np.concatenate([above, below]))


def write_attended(home, *, token=False):
    whole = document()
    (home / "attention").mkdir()
    Image.new("RGB", (300, 200), (120, 120, 120)).save(home / "seen.jpg")
    Image.new("RGB", (100, 60)).save(home / "grid.png")
    drawn = with_class_token(lit_maps()) if token else lit_maps()
    (home / "attention/0.png").write_bytes(drawn)
    maps = attention_maps(
        image="cat",
        call_id="attention:block0",
        file="attention/0.png",
        patch_grid=[ROWS, COLUMNS],
        query_grid=[ROWS, COLUMNS],
        map_grid=[ROWS, COLUMNS],
        is_thinned=False,
        has_class_token=token,
    )
    whole |= {
        "images": [whole["images"][0] | {"key": "cat", "seen": "seen.jpg"}],
        "grids": [whole["grids"][0] | {"image": "cat", "file": "grid.png"}],
        "attention": [attention_row(order=1, call_id="attention:block0")],
        "attention_maps": [maps],
    }
    (home / "report.html").write_text(render_report(whole), encoding="utf-8")


@pytest.fixture
def attended(browser, tmp_path):
    write_attended(tmp_path)
    yield from opened(browser, tmp_path)


def lit_cell(page, head):
    tile = page.locator(".attend .tile").nth(head)
    tile.scroll_into_view_if_needed()
    shot = np.asarray(Image.open(io.BytesIO(tile.screenshot())).convert("L"), float)
    middles = [
        [
            shot[int((r + 0.5) * len(shot) / ROWS), int((c + 0.5) * shot.shape[1] / COLUMNS)]
            for c in range(COLUMNS)
        ]
        for r in range(ROWS)
    ]
    return divmod(int(np.argmax(middles)), COLUMNS)


def pick(page, row, column):
    page.wait_for_selector(".attend .map")
    box = page.locator(".picked").bounding_box()
    at = {"x": (column + 0.5) / COLUMNS * box["width"], "y": (row + 0.5) / ROWS * box["height"]}
    page.locator(".picked").click(position=at)


def test_a_patch_is_clicked_and_the_map_of_every_head_is_that_of_the_patch(attended):
    for row, column in [(0, 0), (0, 2), (1, 1)]:
        pick(attended, row, column)
        assert attended.inner_text(".where") == f"patch row {row + 1}, column {column + 1} of 2 x 3"
        for head in range(HEADS):
            style = (
                attended.locator(".attend .map")
                .nth(head)
                .evaluate(
                    "each => [each.style.left, each.style.top, each.style.width, each.style.height]"
                )
            )
            assert style == [f"{-100 * column}%", f"{-100 * (2 * row + head)}%", "300%", "400%"]
            assert lit_cell(attended, head) == lit(row, column, head)


def test_the_arrow_keys_go_from_patch_to_patch_and_stop_at_the_edge(attended):
    attended.wait_for_selector(".attend .map")
    attended.locator(".which").focus()
    attended.keyboard.press("Tab")
    outline = attended.locator(".picked").evaluate("each => getComputedStyle(each).outlineStyle")
    said = [attended.inner_text(".where")]
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "ArrowRight", "ArrowRight", "ArrowRight"):
        attended.keyboard.press(key)
        said.append(attended.inner_text(".where"))
    assert outline == "solid"  # the ring of what has the focus
    places = [(2, 2), (1, 2), (1, 2), (1, 1), (1, 2), (1, 3), (1, 3)]
    assert said == [f"patch row {row}, column {column} of 2 x 3" for row, column in places]
    assert lit_cell(attended, 0) == lit(0, 2, 0)


def test_the_viewer_begins_with_the_class_token_and_a_button_leads_back_to_it(browser, tmp_path):
    write_attended(tmp_path, token=True)
    for page in opened(browser, tmp_path):
        page.wait_for_selector(".attend .map")
        button = page.get_by_role("button", name="Class token")
        assert page.inner_text(".where") == "class token"
        assert button.get_attribute("aria-pressed") == "true"
        assert page.get_by_role("img", name="What the class token looks at, head 1").count() == 1
        assert [lit_cell(page, head) for head in range(HEADS)] == [(1, 0), (1, 1)]
        assert page.locator(".attend .frame").first.is_hidden()
        pick(page, 0, 1)
        assert page.inner_text(".where") == "patch row 1, column 2 of 2 x 3"
        assert button.get_attribute("aria-pressed") == "false"
        assert lit_cell(page, 0) == lit(0, 1, 0)
        button.click()
        assert lit_cell(page, 1) == (1, 1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_attention_has_no_serious_fault_of_accessibility(attended, scheme):
    pick(attended, 0, 1)
    assert list_faults(attended, scheme) == []
