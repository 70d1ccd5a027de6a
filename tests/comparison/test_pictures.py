"""``hookcli diff --pictures``: what is drawn of two runs, pixel by pixel, and the page."""

from __future__ import annotations

import io
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookcli.records.layouts import recall_layout
from hookcli.render.draw.compared_picture import compare_maps, draw_compared_maps, list_labels
from tests.toy_runs import ToyRun, array, run_of
from tests.world.test_page_in_browser import list_faults, opened

NAN, INF = math.nan, math.inf
GREY, WHITE, CYAN = (40, 41, 48), (255, 255, 255), (0, 229, 255)
BLUE, ORANGE = (138, 192, 255), (255, 172, 88)
DARKEST, LIGHTEST = (4, 5, 16), (255, 250, 214)
LONGEST = (248, 129, 55)  # the colour of the longest bar, lighter than that of any other


def maps(*channels):
    """(1, C, h, w) float32."""
    return np.array([channels], "f4")


def compare_arrays(a, b, name="NCHW", pixels=None):
    return compare_maps(a, b, recall_layout(name, a.shape, pixels))


def drawn(compared, **how):
    data, size = draw_compared_maps(compared, ["a heading"], **how)
    image = Image.open(io.BytesIO(data))
    assert image.size == size
    return image.convert("RGB")


def colours(image):
    return {colour for _, colour in image.getcolors(1 << 20)}


def test_the_channels_that_differ_come_first_and_equal_ones_not_at_all():
    a = maps([[1, 2], [3, 4]], [[1, 1], [1, 1]], [[0, 0], [0, 0]])
    b = maps([[1, 2], [3, 5]], [[1, 1], [1, 1]], [[0, 0], [0, -3]])
    compared = compare_arrays(a, b)
    assert compared.channels.tolist() == [2, 0]
    assert compared.difference.tolist() == [[[0, 0], [0, -3]], [[0, 0], [0, 1]]]
    assert (compared.low.tolist(), compared.high.tolist()) == ([-3, 1], [0, 5])
    assert compared.largest.tolist() == [3, 1]
    assert compared.notes == ("2 of 3 channels differ",)
    assert list_labels(compared) == [
        "channel 2:  -3 to 0,  up to 3 apart",
        "channel 0:  1 to 5,  up to 1 apart",
    ]


def test_nan_comes_first_and_inf_at_the_same_place_is_no_difference():
    a = maps([[INF, 1], [1, 1]], [[1, 1], [1, 1]], [[1, 1], [1, 9]])
    b = maps([[INF, 1], [1, 1]], [[NAN, 1], [1, 2]], [[1, 1], [1, 1]])
    compared = compare_arrays(a, b)
    assert compared.channels.tolist() == [1, 2]
    assert (compared.broken.tolist(), compared.largest.tolist()) == ([1, 0], [1, 8])
    assert (
        list_labels(compared)[0] == "channel 1:  1 to 2,  not finite in 1 place, else up to 1 apart"
    )


def test_tokens_are_laid_out_in_rows_and_the_class_token_is_reported():
    a = np.zeros((1, 1 + 4 * 2, 3), "f4")
    b = a.copy()
    b[0, 1 + 5, 1] = 7  # the third row of two
    b[0, 0, 0] = -2
    compared = compare_arrays(a, b, "NLC", (8, 4))
    assert compared.channels.tolist() == [1]
    assert compared.difference.tolist() == [[[0, 0], [0, 0], [0, 7], [0, 0]]]
    assert compared.notes == (
        "1 of 3 channels differ",
        "not shown: the class token, which differs by up to 2",
    )


def test_a_class_token_that_alone_differs_is_drawn_as_bars():
    a = np.zeros((1, 1 + 4, 3), "f4")
    b = a.copy()
    b[0, 0] = [0, -2, 1]
    compared = compare_arrays(a, b, "NLC")
    assert (compared.is_flat, compared.difference.tolist()) == (True, [[[0, -2, 1]]])
    assert compared.notes[0] == (
        "only the class token differs: in 2 of 3 values, the most in value 1, counted from 0"
    )


def test_the_frame_of_a_clip_that_differs_most_is_shown():
    a = np.zeros((1, 4, 6, 6, 2), "f4")
    b = a.copy()
    b[0, 1] += 1
    b[0, 3] += 2
    compared = compare_arrays(a, b, "NDHWC")
    assert compared.notes[1] == "the frame that differs most, 4 of 4"
    assert compared.difference.tolist() == np.full((2, 6, 6), 2).tolist()


def test_large_maps_are_means_and_their_differences_the_largest():
    a = np.zeros((1, 1, 150, 4), "f4")
    b = a.copy()
    b[0, 0, :2, :2] = [[1, -4], [2, 3]]
    b[0, 0, 148, 2] = NAN
    compared = compare_arrays(a, b)
    assert compared.b.shape == (1, 75, 2)
    # 2 over 4, and the largest
    assert (compared.b[0, 0, 0], compared.difference[0, 0, 0]) == (0.5, -4)
    assert np.isnan(compared.b[0, 74, 1])
    assert np.isnan(compared.difference[0, 74, 1])
    assert compared.broken.tolist() == [1]
    assert compared.notes[1] == (
        "maps of 150x4: a pixel is the mean of 2x2 values, and in B - A the largest of them"
    )
    a = np.ones((1, 1, 113, 1), "f4")  # only half a square at the edge
    compared = compare_arrays(a, a * 3)
    assert (compared.b[0, 56, 0], compared.difference[0, 56, 0]) == (3, 2)


def test_values_without_height_and_width_are_bars():
    compared = compare_arrays(array([1, 2, 3]), array([1, 4, 2]), "NC")
    assert compared.is_flat
    assert (compared.a.tolist(), compared.difference.tolist()) == ([[[1, 2, 3]]], [[[0, 2, -1]]])
    assert compared.notes == (
        "2 of 3 values differ, the most in value 1, counted from 0",
        "no spatial form: one bar per value",
    )
    assert list_labels(compared) == ["A   0 to 4", "B   0 to 4", "B - A   -2 to 2,  up to 2 apart"]


def test_a_tensor_of_unknown_axes_is_drawn_as_bars_of_consecutive_values():
    a = np.zeros((1, 3, 1000), "f4")
    b = a.copy()
    b[0, 1, 3] = 6
    compared = compare_arrays(a, b, "unknown")
    assert compared.a.shape == (1, 1, 1000)  # 3 values to a bar
    assert compared.b[0, 0, 334] == 2  # index 1003, and the mean of 0, 6 and 0
    assert compared.difference[0, 0, 334] == 6
    assert compared.notes == (
        "1 of 3,000 values differ, the most in value 1003, counted from 0",
        (
            "no spatial form: a bar is the mean of 3 of 3,000 values in order, and in B - A the "
            "largest difference of them"
        ),
    )


def test_where_one_of_the_two_is_complex_both_are_magnitudes():
    """From -3 to -3 + 4i, it is 4."""
    compared = compare_arrays(array([-3, -3]), array([-3 + 4j, -3], "c8"), "NC")
    assert (compared.a.tolist(), compared.b.tolist()) == ([[[3, 3]]], [[[5, 3]]])
    assert compared.difference.tolist() == [[[4, 0]]]
    assert compared.notes[2].startswith("complex numbers: ")


def test_a_and_b_are_on_one_scale_and_their_difference_is_around_zero():
    """One channel of 1 x 2 pixels, each drawn as 56 x 56: in A 0 and 1, in B 0 and 3; B - A 0 and
    2."""
    image = drawn(compare_arrays(maps([[0, 1]]), maps([[0, 3]])))
    row = [image.getpixel((x, image.height - 30)) for x in range(image.width)]
    seen = [colour for i, colour in enumerate(row) if i == 0 or colour != row[i - 1]]
    a_low, a_high, b_low, b_high, none, more = [c for c in seen if c != row[0]]
    assert (a_low, b_low, b_high) == (DARKEST, DARKEST, LIGHTEST)
    assert sum(a_low) < sum(a_high) < sum(b_high)  # a third of the way
    assert (none, more) == (GREY, ORANGE)
    assert [row.count(colour) for colour in (b_high, more)] == [56, 56]


def test_nan_has_a_colour_of_its_own_in_either_map():
    pixels = np.array(drawn(compare_arrays(maps([[1, 2, 1]]), maps([[1, 3, NAN]]))))
    cyan, orange, white = (
        np.flatnonzero((pixels == colour).all(2)[-20]) for colour in (CYAN, ORANGE, WHITE)
    )
    assert cyan[-1] < orange[0] < white[0]  # in B, and then in B - A


@pytest.mark.parametrize(
    ("a", "b", "name", "signed", "expected"),
    [
        (array([1, 2]), array([3, NAN]), "NC", False, {CYAN, WHITE, ORANGE}),
        (maps([[3, 0]]), maps([[1, 0]]), "NCHW", False, {BLUE, DARKEST, LIGHTEST}),
        (maps([[-2, 0, 2]]), maps([[-2, 0, 1]]), "NCHW", True, {BLUE, GREY, ORANGE}),
        (maps([[NAN, NAN]]), maps([[NAN, NAN]]), "NCHW", False, {CYAN}),
    ],
    ids=["NaN in bars", "less in B", "gradients", "all NaN"],
)
def test_values_have_the_colours_of_their_kind(a, b, name, signed, expected):
    seen = colours(drawn(compare_arrays(a, b, name), signed=signed))
    assert expected <= seen
    assert not (signed and {DARKEST, LIGHTEST} & seen)


def test_bars_start_at_zero_and_point_up_or_down():
    """B - A is 2, -2, 0: one bar up, one down, nothing."""
    image = drawn(compare_arrays(array([1, 1, 1]), array([3, -1, 1]), "NC"))
    pixels = np.array(image)
    up, down = ((pixels == colour).all(2) for colour in (ORANGE, BLUE))
    assert (up.sum(), down.sum()) == (48 * 24, 49 * 24)  # 96 pixels, one of them zero, 24 wide
    assert np.flatnonzero(up.any(1))[-1] <= np.flatnonzero(down.any(1))[0]
    assert np.flatnonzero(up.any(0))[-1] + 1 == np.flatnonzero(down.any(0))[0]


def bars_of(compared):
    """The colours at the feet of the bars of A and of B: 96 pixels each, from 68 and from 188."""
    image = drawn(compared)
    columns = range(10 + 12, 10 + 24 * compared.a.shape[2], 24)
    return [[image.getpixel((x, foot)) for x in columns] for foot in (68 + 95, 188 + 95)]


def test_bars_of_almost_one_length_have_one_colour():
    compared = compare_arrays(array([1, 1]), array([1.0000005, 1.0000005]), "NC")
    assert bars_of(compared) == [[LONGEST, LONGEST], [LONGEST, LONGEST]]


def test_a_bar_is_the_lighter_the_longer_it_is():
    a, b = bars_of(compare_arrays(array([3, 4, 1]), array([3, 2, 1]), "NC"))
    assert (a[0], a[1], a[2]) == (b[0], LONGEST, b[2])
    assert sum(a[2]) < sum(b[1]) < sum(a[0]) < sum(a[1])


RNG = np.random.default_rng(0)
CONV = RNG.standard_normal((1, 3, 8, 8)).astype("f4")


def two_runs(**other):
    """A and B: bn is the same, conv differs in its second channel, fc by much."""
    moved = CONV.copy()
    moved[0, 1] += 0.5
    one = {"bn": CONV, "conv": CONV, "fc": array([1, 2])}
    two = one | {"conv": moved, "fc": array([1, 9])}
    for name, calls in (("a", one), ("b", two)):
        ToyRun({"cat": calls}, **other).write(name)


def pictures(run, *words):
    ended = run("diff", "a", "b", "--pictures", "p", *words)
    return ended, sorted(file.name for file in Path().glob("p/[!.]*"))


def test_the_first_that_differs_is_drawn_first_and_equal_calls_are_not(run):
    two_runs()
    ended, files = pictures(run)
    assert (ended.code, ended.err) == (7, "open first: p/report.html\n")
    assert files == ["01_conv.png", "02_fc.png", "report.html"]
    made = {name: Path("p", name).read_bytes() for name in files}
    page = made["report.html"].decode()
    assert re.findall(r'<img [^>]*src="([^"]*)"', page) == ["01_conv.png", "02_fc.png"]
    found = [
        page.index(text)
        for text in ("conv differs first", "nothing else changed", "<h2>Calls", "<h2>Pictures")
    ]
    assert found == sorted(found)
    assert page.count("<tr id=") == 3
    pictures(run)
    assert {name: Path("p", name).read_bytes() for name in files} == made


def test_the_page_names_what_changed_and_every_figure_of_a_picture(run):
    run_of({"cat": {"bn": CONV, "conv": CONV, "fc": array([1, 2])}}).write("a")
    other = run_of({"cat": {"conv": CONV + 1}})
    replace(other, model={"device": "cuda"}, command=("--edit", "a<b:zero")).write("b")
    pictures(run)
    page = Path("p/report.html").read_text()
    assert "nothing else changed" not in page
    assert page.index("<h2>What changed") < page.index("<h2>Calls")
    assert '<tr><th scope="row">model device</th><td>cpu</td><td>cuda</td></tr>' in page
    assert '<tr><th scope="row">--edit</th><td>none</td><td>a&lt;b:zero</td></tr>' in page
    low, high = CONV[0, 0].min(), CONV[0, 0].max() + 1
    assert f"channel 0:  {low:.3g} to {high:.3g},  up to 1 apart" in page
    assert "only in A" in page


def test_equal_runs_have_a_page_without_pictures(run):
    two_runs()
    ended = run("diff", "a", "a", "--pictures", "p")
    assert (ended.code, [file.name for file in Path("p").glob("[!.]*")]) == (0, ["report.html"])
    assert "None: all tensors of B equal those of A." in Path("p/report.html").read_text()


def test_hostile_names_are_text_on_the_page_and_safe_on_disk(run):
    name = "<img src=x onerror=alert(1)>/../\u202e"
    run_of({"cat": {name: array([1])}}).write("a")
    run_of({"cat": {name: array([2])}}).write("b")
    _, files = pictures(run)
    assert re.fullmatch(r"01_[A-Za-z0-9._-]+\.png report\.html", " ".join(files))
    page = Path("p/report.html").read_text()
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;/../\\u202e" in page


@pytest.mark.parametrize("kind", ["run", "page"])
def test_files_of_others_are_protected(run, kind):
    two_runs()
    if kind == "run":
        shutil.copytree("a", "p")
    else:
        Path("p").mkdir()
        Path("p/report.html").write_text("<html>mine")
    before = [(file, file.stat().st_mtime_ns) for file in Path().rglob("p/**/*")]
    ended = run("diff", "a", "b", "--pictures", "p")
    message = "is a run's folder" if kind == "run" else "holds files that no comparison wrote"
    assert (ended.code, ended.out) == (5, "")
    assert ended.err == f"error: 'p' {message}\nhint: choose another folder for --pictures\n"
    assert [(file, file.stat().st_mtime_ns) for file in Path().rglob("p/**/*")] == before


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (
            ("--pool", "mean"),
            "needs whole tensors, and 'b' has them with --pool mean",
            "save whole tensors in both runs: --save tensors without --pool and --tensor-channels",
        ),
        (
            ("--tensor-dtype", "float16"),
            "needs tensors of one kind: 'a' none and 'b' --tensor-dtype float16",
            "run both with the same --tensor-dtype",
        ),
    ],
)
def test_without_whole_tensors_nothing_is_compared_and_nothing_written(run, command, message, hint):
    run_of(conv=[3, 4]).write("a")
    replace(run_of(conv=[3, 4.5]), command=command).write("b")
    ended, files = pictures(run)
    assert (ended.code, ended.out, files) == (2, "", [])
    assert ended.err == f"error: --pictures {message}\nhint: {hint}\n"


def test_a_picture_of_somebody_else_that_is_in_the_way_is_named(run):
    run_of(conv=[3, 4]).write("a")
    run_of(conv=[3, 5]).write("b")
    assert run("diff", "a", "b", "--pictures", "p").code == 7
    page = Path("p/report.html").read_bytes()
    Path("p/01_conv.png").unlink()
    Path("mine.png").write_text("mine")
    Path("p/01_conv.png").symlink_to(Path("mine.png").resolve())
    ended = run("diff", "a", "b", "--pictures", "p")
    assert ended.code == 5
    assert "error: 'p/01_conv.png' was not written by a comparison" in ended.err
    assert (Path("p/report.html").read_bytes(), Path("mine.png").read_text()) == (page, "mine")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_sound_in_a_browser(run, browser, scheme):
    two_runs()
    pictures(run)
    for page in opened(browser, Path("p").resolve()):
        page.set_viewport_size({"width": 360, "height": 800})
        page.get_by_role("link", name="See it").click()
        assert page.locator("article:target h3").inner_text().startswith("conv")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert list_faults(page, scheme) == []
