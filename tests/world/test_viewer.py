"""The list of layers and the viewer of the page, in a real browser."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import hookcli
from hookcli.reading.report import read_report
from hookcli.reading.run_files import open_files
from hookcli.render.report.page import render_report as render_folder
from tests.world.test_page_in_browser import (
    PHOTOS,
    inspected,
    open_grid,
    opened,
)

pytestmark = pytest.mark.browser

SAVED = ("--save", "tensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return inspected(tmp_path_factory.mktemp("viewer"), PHOTOS / "cat.png", *SAVED)


@pytest.fixture(scope="module")
def backwards(tmp_path_factory):
    home = tmp_path_factory.mktemp("signed")
    return inspected(home, PHOTOS / "cat.png", *SAVED, command="gradients")


@pytest.fixture
def page(browser, folder):
    yield from opened(browser, folder)


def grid_of(folder, call_id):
    grids = json.loads((folder / "report.json").read_text())["grids"]
    (grid,) = [each for each in grids if each["call_id"] == call_id]
    return grid


def in_one_file(folder, home):
    files = open_files(folder)
    home.mkdir(exist_ok=True)
    (home / "report.html").write_text(
        render_folder(*read_report(files), files.read), encoding="utf-8"
    )
    return home


def test_the_list_stays_beside_the_maps_and_marks_the_layer_that_is_looked_at(page):
    page.set_viewport_size({"width": 1400, "height": 900})
    marked = page.locator("#list a[aria-current]")
    link = page.locator("#list a", has_text="layer3.0.conv2")
    link.click()
    page.wait_for_timeout(300)
    assert marked.all_inner_texts() == ["layer3.0.conv2"]
    box = link.bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 900
    page.locator("article", has_text="layer1.0.conv1").first.evaluate("e => e.scrollIntoView()")
    page.wait_for_timeout(300)
    assert marked.all_inner_texts() == ["conv1"]  # in the same row, and before it


def test_what_is_found_is_all_that_is_listed_and_shown(page):
    page.fill("#filter", "layer4.1")
    wanted = ["layer4.1.conv1", "layer4.1.conv2"]
    assert page.locator("#list li:not([hidden])").all_inner_texts() == wanted
    assert page.locator("article:not([hidden])").count() == 2
    for hash_ in ("#layer-10", "#layer3.0.conv1"):  # two names of one layer
        page.fill("#filter", "layer4.1")
        page.evaluate(f"location.hash = '{hash_}'")
        page.wait_for_timeout(200)
        assert page.locator("article:not([hidden])").count() == 21
        y = page.locator("article", has_text="layer3.0.conv1").bounding_box()["y"]
        assert 0 <= y < 100


def test_the_pixels_of_the_stage_are_the_colours_of_the_channels_values(browser, folder, tmp_path):
    """By the colour bar's own colours; only a page with its pictures in it may read a canvas."""
    for page in opened(browser, in_one_file(folder, tmp_path / "alone")):
        page.evaluate("location.hash = '#conv1/7'")
        page.wait_for_selector("#stage-tile[width='112']")
        values = hookcli.load_run(folder)["conv1"][0, 7]
        read = "e => Array.from(e.getContext('2d').getImageData(0, 0, 112, 112).data)"
        pixels = np.reshape(page.locator("#stage-tile").evaluate(read), (112, 112, 4))[..., :3]
        stops = json.loads((folder / "report.json").read_text())["colours"]
        table = np.array([list(bytes.fromhex(stop[1:])) for stop in stops])
        shares = (values - values.min()) / np.ptp(values) * 32
        wanted = np.stack([np.interp(shares, range(33), channel) for channel in table.T], -1)
        assert np.abs(pixels - wanted).max() < 8


def pointed(page, row, column):
    stage = page.locator("#stage-tile")
    stage.scroll_into_view_if_needed()
    height, width = (int(stage.get_attribute(name)) for name in ("height", "width"))
    box = stage.bounding_box()
    x = box["x"] + (column + 0.5) / width * box["width"]
    y = box["y"] + (row + 0.5) / height * box["height"]
    page.mouse.move(x, y)
    page.wait_for_timeout(100)
    return page.inner_text("#pointed")


SAID = re.compile(r"row (\d+), column (\d+): (\S+), in steps of (\S+)")


@pytest.mark.parametrize("side", ["", "grad_output:"])
def test_the_value_under_the_pointer_is_that_of_the_tensor_within_a_step(
    browser, folder, backwards, tmp_path, side
):
    run = hookcli.load_run(backwards if side else folder)
    for page in opened(browser, in_one_file(run.folder, tmp_path / "alone")):
        for call, places in {
            "conv1": [(0, 0), (57, 3), (111, 111)],  # 112 x 112
            "layer2.0.conv1": [(0, 27), (13, 5)],  # 28 x 28, smaller than a tile
            "layer4.1.conv2": [(6, 0)],  # 7 x 7
        }.items():
            channel = grid_of(run.folder, side + call)["channels"][9]  # in the second row
            tensor = run[side + call][0, channel].astype(float)
            span = 2 * np.abs(tensor).max() if side else np.ptp(tensor)
            page.evaluate(f"location.hash = '#{side}{call}/{channel}'")
            page.wait_for_selector(f"#stage-tile[width='{tensor.shape[1]}']")
            for row, column in places:
                said = SAID.fullmatch(pointed(page, row, column))
                assert said is not None
                assert (int(said[1]), int(said[2])) == (row, column)
                assert float(said[4]) == pytest.approx(span / 254, rel=0.05)
                assert float(said[3]) == pytest.approx(tensor[row, column], abs=span / 254)
            page.keyboard.press("Escape")


def test_the_colour_bar_spans_the_channel_with_zero_in_the_middle_if_signed(browser, backwards):
    grid = grid_of(backwards, "grad_output:conv1")
    for page in opened(browser, backwards):
        open_grid(page)
        largest = max(-grid["low"][0], grid["high"][0])
        ends = [float(page.inner_text(f"#scale-{end}")) for end in ("top", "middle", "bottom")]
        assert ends == pytest.approx([largest, 0, -largest], rel=1e-3)


@pytest.mark.parametrize("width", [1400, 390])
def test_the_mark_is_exactly_on_the_tile(browser, folder, width):
    grid = grid_of(folder, "conv1")
    places = grid["places"]
    for page in opened(browser, folder):
        page.set_viewport_size({"width": width, "height": 900})
        for number in (0, 11, 63):
            page.evaluate(f"location.hash = '#conv1/{grid['channels'][number]}'")
            page.wait_for_timeout(200)
            page.locator("#whole").scroll_into_view_if_needed()
            mark, whole = (page.locator(each).bounding_box() for each in ("#mark", "#whole"))
            scale = whole["width"] / grid["size"][0]
            row, column = divmod(number, places["columns"])
            left = places["left"] + column * places["step_x"]
            top = places["top"] + row * places["step_y"]
            drawn = (mark["x"] - whole["x"], mark["y"] - whole["y"], mark["width"], mark["height"])
            wanted = [scale * part for part in (left, top, places["width"], places["height"])]
            assert drawn == pytest.approx(wanted, abs=1)


@pytest.mark.parametrize(("width", "shown"), [(1400, 496), (390, 370)])
def test_a_tile_in_the_row_of_a_layer_opens_its_channel(browser, folder, width, shown):
    for page in opened(browser, folder):
        page.set_viewport_size({"width": width, "height": 900})
        row = page.locator("article", has_text="layer3.0.conv1").locator("button.grid")
        box = row.bounding_box()
        row.click(position={"x": 252 / shown * box["width"], "y": box["height"] / 2})
        channel = grid_of(folder, "layer3.0.conv1")["channels"][4]
        assert page.inner_text("#facts").startswith(f"channel {channel}:")


def test_a_link_to_a_channel_opens_it_and_the_address_follows(browser, folder):
    grid = grid_of(folder, "layer1.0.conv2")
    tab = browser.new_page()
    tab.goto((folder / "report.html").as_uri() + "#layer1.0.conv2/17")
    assert tab.inner_text("#viewer-title") == "layer1.0.conv2"
    assert tab.inner_text("#facts").startswith("channel 17: ")
    index = grid["channels"].index(17)
    tab.keyboard.press("ArrowRight")
    tab.wait_for_timeout(400)
    assert tab.evaluate("location.hash") == f"#layer1.0.conv2/{grid['channels'][index + 1]}"
    tab.keyboard.press("Escape")
    tab.wait_for_url(lambda url: url.endswith("#layer1.0.conv2"))  # set when the dialog closes
    assert tab.locator("article", has_text="layer1.0.conv2").bounding_box()["y"] < 300
    tab.close()


def test_a_channel_is_looked_at_by_keyboard_alone(page, folder):
    page.set_viewport_size({"width": 1400, "height": 900})
    page.locator("#list a", has_text="layer1.0.conv1").focus()
    page.keyboard.press("Enter")  # goes to the layer, from where Tab goes on
    page.keyboard.press("Tab")
    label = "e => e.getAttribute('aria-label')"
    assert page.locator(":focus").evaluate(label) == "Open the feature maps of layer1.0.conv1"
    page.keyboard.press("Enter")
    assert page.inner_text("#viewer-title") == "layer1.0.conv1"
    first = page.inner_text("#facts")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#facts") != first
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#facts") == first
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#viewer-title") == "layer1.0.conv2"
    passed = []
    for _ in range(3):
        page.keyboard.press("Tab")
        passed.append(page.evaluate("document.activeElement.id"))
    assert passed == ["before", "channel", "after"]
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#facts").startswith(
        f"channel {grid_of(folder, 'layer1.0.conv2')['channels'][0]}:"
    )
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('viewer').open")
    assert page.locator(":focus").evaluate(label) == "Open the feature maps of layer1.0.conv1"
