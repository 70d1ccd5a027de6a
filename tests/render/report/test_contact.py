"""The page of several images in a real browser: found, sorted, opened, gone through by keyboard."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from hookcli.reading.run_files import open_files
from hookcli.render.draw.thumbnails import draw_thumbnails, shrink
from tests.render.report.test_page import TRAINED, document, render_report
from tests.world.test_page_in_browser import opened, wait_for_picture

pytestmark = pytest.mark.browser

NAMES = ["a10.png", "a9.png", "b.png", "c.png", "d.png"]
SAID = [("zebra", 0.5), ("ant", 0.2), ("ant", 0.9), ("cat", 0.3), ("zebra", 0.6)]
COLORS = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 0), (200, 0, 200)]
# Of 12 channels two images each, but of the last one only one: 2 and 0 of channel 5.
RANKED = {
    "each": 2,
    "images": [3, 1] * 5 + [2, 0] + [3, 1] * 5 + [4, None],
    "values": [9.0, 8.0] * 5 + [1.25, None] + [9.0, 8.0] * 5 + [0.5, None],
}
CHANNELS = {"places": {"left": 10, "top": 20, "width": 30, "height": 30}, "channels": [7, 4]}


def picture(color, size=(112, 112), kind="JPEG"):
    stream = io.BytesIO()
    Image.new("RGB", size, color).save(stream, kind)
    return stream.getvalue()


def write(folder, count=5, *, single=False):
    whole = document(model=TRAINED)
    image, layer, grid = whole["images"][0], whole["layers"][0], whole["grids"][0]
    places = grid["places"] | CHANNELS["places"] | {"step_x": 40, "step_y": 40, "columns": 2}
    tile = grid | {"places": places, "channels": CHANNELS["channels"], "size": [100, 130]}
    keys = [f"i{number}" for number in range(count)]
    images, grids, small = [], [], []
    for number, key in enumerate(keys):
        name, (category, value) = NAMES[number % 5], SAID[number % 5]
        color = COLORS[number % 5]
        seen, drawn = picture(color, (224, 224)), picture(color, (100, 130), "PNG")
        for file, data in {f"seen/{key}.jpg": seen, f"sheets/{key}.png": drawn}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
        said = image["predictions"][0] | {"category": category, "value": value}
        file = name if count == 5 else f"{number:04}-{name}"
        images.append(image | {"key": key, "file": f"photos/{file}", "predictions": [said]})
        images[-1]["seen"] = f"seen/{key}.jpg"
        small.append(shrink(picture(color)))
        sheet = tile | {"image": key, "file": f"sheets/{key}.png"}
        below = sheet | {"call_id": "last", "places": places | {"top": 70}}
        grids += [sheet, below]
    sheets = []
    (folder / "thumbnails").mkdir()
    for start in range(0, count, 32):
        file = f"thumbnails/{start:06}.jpg"
        (folder / file).write_bytes(draw_thumbnails(small[start : start + 32]))
        sheets.append({"file": file, "columns": 8, "images": keys[start : start + 32]})
    found = {"number": 1.0, "threshold": 0.0, "sentence": "it is so"}
    findings = [
        found | {"rule": "nan", "layer": "last", "images": ["i3"]},
        found | {"rule": "small", "layer": "", "images": ["i0", "i2", "i3", "i4"]},
    ]
    top = [{"channel": 4, "images": ["i1", "i4"], "values": [3.0, 2.5]}]
    whole |= {
        "images": images,
        "layers": [
            layer | {"channels": 12},
            layer | {"order": 2, "call_id": "last", "channels": 12},
        ],
        "grids": grids,
        "thumbnails": sheets,
        "findings": findings,
        "top_images": {"conv": top, "last": [top[0] | {"channel": 9}]},
        "ranked_images": {"conv": RANKED},
    }
    text = render_report(whole, open_files(folder) if single else None)
    home = folder / "alone" if single else folder
    home.mkdir(exist_ok=True)
    (home / "report.html").write_text(text, encoding="utf-8")
    return home


@pytest.fixture(scope="module", params=[False, True], ids=["links", "one file"])
def five(request, tmp_path_factory):
    return write(tmp_path_factory.mktemp("five"), single=request.param)


@pytest.fixture
def page(browser, five):
    yield from opened(browser, five)


def names(page):
    return page.locator("#contact-sheet li:not([hidden]) .file").all_inner_texts()


def open_image(page, name):
    page.locator("#contact-sheet button", has_text=name).click()


def color_of(page, locator):
    locator.scroll_into_view_if_needed()
    shot = np.asarray(Image.open(io.BytesIO(locator.screenshot())).convert("RGB"), int)
    return shot[shot.shape[0] // 2, shot.shape[1] // 2]


def is_dialog_open(page, name):
    return page.evaluate(f"document.getElementById('{name}').open")


def focused(page):
    return page.evaluate("document.activeElement.id")


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("name", ["a9.png", "a10.png", "b.png", "c.png", "d.png"]),
        ("sure", ["a9.png", "c.png", "a10.png", "d.png", "b.png"]),
        ("finding", ["c.png", "a10.png", "b.png", "d.png", "a9.png"]),
    ],
)
def test_the_images_are_sorted(page, order, wanted):
    page.select_option("#image-sort", order)
    assert names(page) == wanted


@pytest.mark.parametrize(
    ("text", "finding", "wanted"),
    [
        ("A1", "", ["a10.png"]),
        ("", "none", ["a9.png"]),
        ("zeb", "1", ["a10.png", "d.png"]),
        ("nothing", "", []),
    ],
)
def test_the_images_are_found_by_name_prediction_and_finding(page, text, finding, wanted):
    page.fill("#image-filter", text)
    page.select_option("#image-finding", finding)
    assert names(page) == wanted
    assert page.inner_text("#image-count") == f"{len(wanted)} of 5"


def test_an_image_opens_by_keyboard_and_escape_goes_back_to_it(page):
    page.locator("#image-1").focus()
    page.keyboard.press("Enter")
    assert is_dialog_open(page, "panel")
    assert page.inner_text("#panel-title") == "photos/a9.png"
    assert page.inner_text("#panel-place") == "1 of 5"
    wait_for_picture(page, "#panel .large img")
    assert abs(color_of(page, page.locator("#panel .large img")) - COLORS[1]).max() < 12
    assert "ant 20.0%" in page.inner_text("#panel-inside")
    page.keyboard.press("Escape")
    assert not is_dialog_open(page, "panel")
    assert focused(page) == "image-1"


def test_the_arrows_go_through_the_images_that_were_found_in_their_order(page):
    page.select_option("#image-finding", "1")
    page.select_option("#image-sort", "prediction")
    open_image(page, "b.png")
    seen = [page.inner_text("#panel-title")]
    for key in ("ArrowLeft", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
        seen.append(page.inner_text("#panel-title"))
    wanted = ["b", "b", "c", "d", "a10", "a10"]
    assert seen == [f"photos/{name}.png" for name in wanted]
    assert page.inner_text("#panel-place") == "4 of 4"
    assert page.locator("#panel-next").is_disabled()
    page.locator("#panel-before").click()
    assert page.inner_text("#panel-title") == "photos/d.png"


def test_a_tile_of_an_image_opens_its_channel_and_escape_goes_back_step_by_step(page):
    open_image(page, "d.png")
    button = page.locator("#panel button.grid")
    assert button.count() == 1  # one sheet for both layers
    button.scroll_into_view_if_needed()
    wait_for_picture(page, "#panel button.grid img")
    box = button.locator("img").bounding_box()
    scale = box["width"] / 100  # the picture is 100 by 130; the second tile of the second layer
    button.locator("img").click(position={"x": 65 * scale, "y": 85 * scale})
    assert page.inner_text("#viewer-title").startswith("last")
    assert "channel 4" in page.locator("#viewer").inner_text()
    page.keyboard.press("Escape")
    assert not is_dialog_open(page, "viewer")
    assert is_dialog_open(page, "panel")
    assert page.evaluate("document.activeElement.className") == "grid"
    page.keyboard.press("Escape")
    assert not is_dialog_open(page, "panel")
    assert focused(page) == "image-4"


def test_the_images_that_fire_a_channel_most_open_it(page):
    shown = page.locator("#top-channels button")
    assert shown.locator(".value").all_inner_texts() == ["3", "2.5"]
    assert abs(color_of(page, shown.nth(1).locator(".thumb")) - COLORS[4]).max() < 12
    shown.nth(1).click()
    assert page.inner_text("#viewer-title").startswith("conv")
    assert "channel 4" in page.locator("#viewer").inner_text()
    page.keyboard.press("Escape")
    page.locator("#top-next").click()
    assert page.input_value("#top-layer") == "1"
    page.locator("#top-channels button").nth(1).click()  # of channel 9 no tile was drawn
    assert page.inner_text("#panel-title") == "photos/d.png"


def test_the_images_of_the_channel_that_is_typed_are_shown(page):
    page.fill("#top-channel", "5")
    shown = page.locator("#top-channels button")
    page.wait_for_selector("#top-channels h3:has-text('channel 5')")
    assert shown.locator(".value").all_inner_texts() == ["1.25", "not finite"]
    for index, image in enumerate((2, 0)):
        assert abs(color_of(page, shown.nth(index).locator(".thumb")) - COLORS[image]).max() < 12
    page.wait_for_url(lambda url: url.endswith("#conv/5"))
    page.fill("#top-channel", "")
    page.wait_for_selector("#top-channels h3:has-text('channel 4')")  # which stands out
    page.wait_for_url(lambda url: "#" not in url)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("opens", [False, True])
def test_the_page_of_many_images_has_no_fault_of_accessibility(page, scheme, opens):
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    if opens:
        open_image(page, "c.png")
    faults = Axe().run(page).response["violations"]
    assert [(each["id"], each["impact"]) for each in faults] == []


def test_60_of_1000_images_are_visible_until_the_reader_asks_for_all(browser, tmp_path):
    for page in opened(browser, write(tmp_path, 1000)):
        assert len(names(page)) == 60
        assert page.inner_text("#image-all") == "Show all 1,000"
        page.click("#image-all")
        assert len(names(page)) == 1000
        assert focused(page) == "image-60"
        assert page.locator("#image-all").is_hidden()
        page.fill("#image-filter", "0999")
        assert names(page) == ["0999-d.png"]
        thumb = page.locator("#image-999 .thumb")
        assert abs(color_of(page, thumb) - COLORS[4]).max() < 12
