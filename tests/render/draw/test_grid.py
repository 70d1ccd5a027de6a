"""Feature maps as files: what a reader of the PNG sees, never what the code meant to draw.

Tiles are looked for in the decoded picture; what they must show is worked out here with numpy.
``HOOKCLI_REWRITE_GOLDEN=1 pytest tests/render/draw/test_grid.py`` rewrites the golden pictures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as fn
from torchvision import models as zoo

from hookcli.activations.feature_maps import Picture, take_tiles
from hookcli.config import GridStyle, ModelRequest
from hookcli.errors import OutputError, RequestError
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layouts import Layout
from hookcli.render.draw.canvas import (
    MARGIN,
    NOTE_SIZE,
    draw_text,
    list_stops,
    load_map_palette,
    load_palette,
    wrap_heading,
)
from hookcli.render.draw.grid import draw_sheet
from hookcli.render.draw.grid_writer import GridWriter
from hookcli.run.pipeline import inspect_images
from hookcli.store.locations.directory import Directory
from tests.configs import inspect_config
from tests.toy_runs import write_into

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hookcli.run.result import RunResult

GOLDEN = Path(__file__).parents[2] / "golden"
CAT = Path(__file__).parents[3] / "sample_images" / "cat.png"
DARKEST, LIGHTEST, NOT_FINITE = 0, 239, 240  # palette indices of the colour map, and of NaN and Inf
CYAN = (0, 229, 255)
GREYS = [round(level / 254 * 255) for level in range(255) for _ in range(3)] + [*CYAN]
STYLE = GridStyle(tile=8, rank="index")

# Two channels of 2 x 3 and, to the right, the levels they must become: minimum to maximum on
# 0..239.
RAMP = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [[10.0, 0.0, 0.0], [0.0, -10.0, 0.0]]])
RAMP_LEVELS = ([[0, 48, 96], [143, 191, 239]], [[239, 120, 120], [120, 0, 120]])


class Run(NamedTuple):
    folder: Path
    result: RunResult


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("grids") / "run"
    forms = ("conv1", "re:^layer1[.]0[.](conv|relu)", "fc")
    return Run(out, inspect(out, forms, GridStyle(top=4, tile=32)))


def test_a_run_writes_one_file_a_call_named_by_order_path_and_call_index(run):
    assert sorted(file.name for file in (run.folder / "grids" / "cat").iterdir()) == [
        "001_conv1.png",
        "002_layer1.0.conv1.png",
        "003_layer1.0.relu.png",
        "004_layer1.0.conv2.png",
        "005_layer1.0.relu#1.png",
        "006_fc.png",
    ]
    files = [(grid.call_id, grid.file) for grid in run.result.grids]
    assert ("layer1.0.relu#1", "grids/cat/005_layer1.0.relu#1.png") in files


def test_a_tile_of_a_run_shows_the_activation_of_its_channel(run):
    """The photo prepared by torchvision, the convolution by hand, the channel of largest spread."""
    torch.manual_seed(0)
    weight = zoo.resnet18(weights=None).conv1.weight
    prepare = zoo.ResNet18_Weights.DEFAULT.transforms(crop_size=64, resize_size=73)
    with Image.open(CAT) as photo, torch.no_grad():
        pixels = prepare(photo.convert("RGB")).unsqueeze(0)
        maps = fn.conv2d(pixels, weight, stride=2, padding=3)[0].double().numpy()
    best = maps[maps.std((1, 2)).argmax()]
    levels = (best - best.min()) / (best.max() - best.min()) * LIGHTEST
    picture = read_indices(run.folder / "grids/cat/001_conv1.png")
    windows = np.lib.stride_tricks.sliding_window_view(picture.astype(float), levels.shape)
    some = np.s_[..., ::8, ::8]  # first a few pixels, since whole windows take gigabytes
    near = np.argwhere(np.abs(windows[some] - levels[some]).max((2, 3)) < 0.51)
    off = {tuple(at): np.abs(windows[tuple(at)] - levels).max() for at in near.tolist()}
    found = min(off, key=off.__getitem__)
    assert off[found] < 0.51  # rounding to whole levels
    assert list(found) == first_tile(picture)


def test_a_sheet_says_where_its_tiles_are():
    """Two layers of tiles of 2 x 3, drawn twice as large; between two tiles are 4 pixels."""
    levels = np.array(RAMP_LEVELS, np.uint8)
    rows = [("conv1", levels, ("0", "1")), ("conv2", levels[::-1], ("0", "1"))]
    sheet, boxes = draw_sheet(rows, ["title"], 6)
    first, second = (enlarged(each, 2) for each in RAMP_LEVELS)
    corners = [[(p.top, p.left), (p.top, p.left + p.step_x)] for p in boxes]
    assert [find(sheet.pixels, first), find(sheet.pixels, second)] == [
        [corners[0][0], corners[1][1]],
        [corners[0][1], corners[1][0]],
    ]
    assert {(p.width, p.height, p.step_x, p.columns) for p in boxes} == {(6, 4, 6 + 4, 2)}


def test_the_columns_of_a_sheet_are_about_equally_high():
    levels = np.zeros((12, 32, 32), np.uint8)
    rows = [(f"layer{number}", levels, [""] * 12) for number in range(20)]
    _, boxes = draw_sheet(rows, ["title"], 64)
    lefts = [each.left for each in boxes]
    assert [lefts.count(left) for left in dict.fromkeys(lefts)] == [11, 9]


def test_each_channel_goes_from_its_own_minimum_to_its_own_maximum(tmp_path):
    pixels = drawn(tmp_path, nchw(RAMP), STYLE)
    for levels in RAMP_LEVELS:
        assert len(find(pixels, enlarged(levels, 2))) == 1


def test_one_scale_a_layer_goes_from_the_least_to_the_largest_of_all_channels(tmp_path):
    pixels = drawn(tmp_path, nchw(RAMP), GridStyle(tile=8, rank="index", scale="layer"))
    # -10 is 0 and 10 is 239, so 0 to 5 is 119.5 to 179.25
    first = enlarged([[120, 131, 143], [155, 167, 179]], 2)
    assert len(find(pixels, first)) == 1
    assert len(find(pixels, enlarged(RAMP_LEVELS[1], 2))) == 1


def test_the_mean_of_a_square_is_drawn_and_not_one_of_its_values(tmp_path):
    checks = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(8, 8)
    checks[:2, :2] = 0.0
    checks[2:4, :2] = 1.0
    pixels = drawn(tmp_path, nchw(checks[None]), STYLE)
    levels = np.full((8, 8), 120)
    levels[:2, 0] = (0, 239)
    assert len(find(pixels, levels)) == 1


TOKENS = torch.cat([torch.full((1, 2), 1000.0), RAMP.flatten(1).T])  # the first is no patch


@pytest.mark.parametrize(
    ("tensor", "layout"),
    [
        (RAMP.permute(1, 2, 0), Layout("NHWC", 3, 2, 3)),
        (TOKENS, Layout("NLC", 2, 2, 3, prefix=1)),
    ],
    ids=["channels last", "tokens"],
)
def test_other_layouts_are_drawn_as_the_channels_they_have(tmp_path, tensor, layout):
    pixels = drawn(tmp_path, (tensor.unsqueeze(0), layout), STYLE)
    assert [len(find(pixels, enlarged(levels, 2))) for levels in RAMP_LEVELS] == [1, 1]


def test_nan_and_inf_have_a_colour_of_their_own_and_a_constant_channel_is_dark(tmp_path):
    broken = torch.tensor([[0.0, 1.0, float("nan")], [float("inf"), -float("inf"), 2.0]])
    pixels = drawn(tmp_path, nchw(torch.stack([broken, torch.full((2, 3), 7.0)])), STYLE)
    levels = [[0, 120, NOT_FINITE], [NOT_FINITE, NOT_FINITE, LIGHTEST]]
    assert len(find(pixels, enlarged(levels, 2))) == 1
    assert len(find(pixels, np.full((4, 6), DARKEST))) == 1
    assert tuple(load_palette("ember")[3 * NOT_FINITE : 3 * NOT_FINITE + 3]) == CYAN


@pytest.mark.parametrize(
    ("style", "levels"),
    [
        (GridStyle(tile=8, top=1, rank="std"), RAMP_LEVELS[1]),
        (GridStyle(tile=8, top=1, rank="mean"), RAMP_LEVELS[0]),
        (GridStyle(tile=8, top=1, rank="max"), RAMP_LEVELS[1]),
        (GridStyle(tile=8, top=1, rank="index"), RAMP_LEVELS[0]),
        (GridStyle(tile=8, channels=(1,)), RAMP_LEVELS[1]),
    ],
    ids=["std", "mean", "max", "index", "channels"],
)
def test_only_the_channels_that_were_asked_for_are_shown(tmp_path, style, levels):
    pixels = drawn(tmp_path, nchw(RAMP), style)
    assert len(find(pixels, enlarged(levels, 2))) == 1
    assert count_tiles(pixels, 6) == 1


def test_a_bar_that_is_not_finite_is_full_and_in_its_own_colour(tmp_path):
    pixels = drawn(tmp_path, nc([1.0, float("nan"), 2.0]), STYLE)
    (top, bottom) = bars_in(pixels)[1]
    tallest = max(low - high for high, low in bars_in(pixels))
    assert bottom - top == tallest
    columns = np.flatnonzero((pixels == NOT_FINITE).any(0))
    assert (pixels[top : bottom + 1, columns] == NOT_FINITE).all()


def test_a_grid_looks_like_the_golden_one(tmp_path):
    style = GridStyle(tile=24, top=2)
    call = Call(LayerInfo("layer1.0.relu", "ReLU"), call_index=1, order=7)
    file = write(tmp_path, [picture_of(nchw(RAMP.repeat(2, 1, 1)), style, call)], style)[0]
    assert_golden("grid.png", file)


def test_bars_look_like_the_golden_ones(tmp_path):
    call = Call(LayerInfo("fc", "Linear"), order=9)
    values = nc([(-1) ** i * i / 10 for i in range(20)])
    file = write(tmp_path, [picture_of(values, STYLE, call)], STYLE)[0]
    assert_golden("bars.png", file)


def test_a_sheet_looks_like_the_golden_one(tmp_path):
    style = GridStyle("sheet", tile=24)
    rows = [
        picture_of(nchw(RAMP.repeat(8, 1, 1)), style, Call(LayerInfo("conv1", "Conv2d"), order=1)),
        picture_of(nchw(RAMP), style, Call(LayerInfo("layer1.0.relu", "ReLU"), 1, order=2)),
        picture_of(nc([0.0, 3.0, -1.0]), style, Call(LayerInfo("fc", "Linear"), order=3)),
    ]
    writer = GridWriter(write_into(tmp_path), style, "model")
    file = writer.write_sheet("cat", rows)
    writer.take()()
    assert_golden("sheet.png", tmp_path / file)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (Call(LayerInfo("a.b", "T"), 1, 1234, "input", "x.0"), "1234_a.b#1.x.0.input.png"),
        (Call(LayerInfo("", "ResNet"), order=1), "001_model.png"),
    ],
)
def test_a_file_is_named_by_order_path_call_key_and_side(tmp_path, call, name):
    (file,) = write(tmp_path, [picture_of(nchw(RAMP), STYLE, call)], STYLE)
    assert file.relative_to(tmp_path) == Path("grids", "cat", name)


@pytest.mark.parametrize(
    "text", ["../../escaped", "/etc/passwd", "..", "a\\..\\b", "a\nb\x00c", "é" * 500]
)
@pytest.mark.parametrize("where", ["module path", "output key"])
def test_a_hostile_name_cannot_leave_the_folder_of_its_image(tmp_path, where, text):
    call = Call(LayerInfo("m" if where == "output key" else text, "Conv2d"), order=1)
    call = Call(call.layer, order=1, output_key=text if where == "output key" else "")
    (file,) = write(tmp_path / "run", [picture_of(nchw(RAMP), STYLE, call)], STYLE)
    assert file.resolve().parent == (tmp_path / "run" / "grids" / "cat").resolve()
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [file]


def test_a_folder_that_cannot_be_written_is_an_error_with_the_files_name(tmp_path):
    (tmp_path / "grids").write_text("in the way")
    writer = GridWriter(Directory(tmp_path).write, STYLE, "model")
    writer.write_grid(picture_of(nchw(RAMP), STYLE))
    with pytest.raises(OutputError, match="001_layer"):
        writer.take()()


def test_a_map_that_does_not_exist_is_refused_by_name():
    with pytest.raises(RequestError, match="there is no colour map 'embers'"):
        load_palette("embers")


def test_signed_tiles_have_their_zero_in_the_grey_middle_of_the_built_in_map(tmp_path):
    style = GridStyle(tile=8, signed=True)
    maps = torch.tensor([[[-2.0, 0.0, 2.0], [0.0, 0.0, 1.0]]])
    (file,) = write(tmp_path, [picture_of(nchw(maps), style)], style)
    levels = enlarged([[1, 120, 239], [120, 120, 180]], 2)
    ((row, column),) = find(read_indices(file), levels)
    colours = np.asarray(Image.open(file).convert("RGB"))[row, column : column + 6 : 2]
    assert colours.tolist() == [[138, 192, 255], [40, 41, 48], [255, 172, 88]]


@pytest.mark.parametrize(
    ("colormap", "note"),
    [
        (None, "blue to orange: minus to plus the layer's largest magnitude; grey is zero"),
        ("gray", "gray from end to end: minus to plus the layer's largest magnitude"),
    ],
)
def test_the_heading_of_a_signed_grid_says_what_its_colours_mean(tmp_path, colormap, note):
    style = GridStyle(signed=True, scale="layer", colormap=colormap)
    (file,) = write(tmp_path, [picture_of(nchw(RAMP), style)], style)
    written = draw_text(wrap_heading(["", note], 0)[1], NOTE_SIZE)  # a small grid: it is broken
    third_line = read_indices(file)[MARGIN + 40 :, MARGIN:]
    assert np.array_equal(third_line[: written.shape[0] - 1, : written.shape[1]], written[:-1])


def test_values_without_form_are_signed_in_a_sheet_too(tmp_path):
    style = GridStyle("sheet", tile=24, signed=True)
    writer = GridWriter(write_into(tmp_path), style, "model")
    file = writer.write_sheet("cat", [picture_of(nc([0.0, -2.0, 1.0, float("nan")]), style)])
    writer.take()()
    pixels = read_indices(tmp_path / file)
    assert set(pixels[pixels <= NOT_FINITE].tolist()) == {120, 1, 180, NOT_FINITE}


def inspect(out: Path, forms: tuple[str, ...], style: GridStyle) -> RunResult:
    request = ModelRequest("resnet18", weights="random", device="cpu", size=64)
    return inspect_images(inspect_config(request, str(CAT), layers=forms, out=out, grids=style))


def nchw(maps: torch.Tensor) -> tuple[torch.Tensor, Layout]:
    return maps.unsqueeze(0), Layout("NCHW", 1, *maps.shape[1:])


def nc(values: list[float]) -> tuple[torch.Tensor, Layout]:
    return torch.tensor([values]), Layout("NC", 1)


def picture_of(
    activation: tuple[torch.Tensor, Layout], style: GridStyle, call: Call | None = None
) -> Picture:
    tensor, layout = activation
    call = call or Call(LayerInfo("layer", "Conv2d"), order=1)
    return Picture("cat", call, layout, tuple(tensor.shape), take_tiles(tensor, layout, style))


def write(folder: Path, pictures: list[Picture], style: GridStyle) -> list[Path]:
    writer = GridWriter(write_into(folder), style, "model")
    files = [folder / writer.write_grid(picture) for picture in pictures]
    writer.take()()
    return files


def drawn(folder: Path, activation: tuple[torch.Tensor, Layout], style: GridStyle) -> NDArray:
    (file,) = write(folder, [picture_of(activation, style)], style)
    return read_indices(file)


def read_indices(file: Path) -> NDArray:
    with Image.open(file) as image:
        return np.asarray(image)


def enlarged(levels: object, factor: int) -> NDArray:
    return np.kron(np.array(levels), np.ones((factor, factor), int))


def find(pixels: NDArray, block: NDArray) -> list[tuple[int, int]]:
    windows = np.lib.stride_tricks.sliding_window_view(pixels, block.shape)
    return [(int(y), int(x)) for y, x in np.argwhere((windows == block).all((2, 3)))]


def first_tile(pixels: NDArray) -> list[int]:
    return [int(index) for index in np.argwhere(pixels <= NOT_FINITE)[0]]


def count_tiles(pixels: NDArray, width: int) -> int:
    columns = (pixels <= NOT_FINITE).any(0).sum()
    return int(columns) // width


def bars_in(pixels: NDArray) -> list[tuple[int, int]]:
    inside = pixels <= NOT_FINITE
    columns = np.flatnonzero(inside.any(0))[4::8]  # bars touch and are 8 wide
    spans = [np.flatnonzero(inside[:, column]) for column in columns]
    return [(int(rows[0]), int(rows[-1])) for rows in spans]


def assert_golden(name: str, file: Path) -> None:
    golden = GOLDEN / name
    if os.environ.get("HOOKCLI_REWRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_bytes(file.read_bytes())
    with Image.open(golden) as expected, Image.open(file) as got:
        assert got.size == expected.size
        assert np.array_equal(np.asarray(got.convert("RGB")), np.asarray(expected.convert("RGB")))


def test_channels_are_side_by_side_as_in_the_grid_at_their_own_resolution(tmp_path):
    """Five channels of 3 x 4 in a grid whose tiles are 2 x 2."""
    values = np.random.default_rng(0).integers(0, 255, (5, 3, 4)).astype(np.float32)
    values[:, 0, 0], values[:, 2, 3] = 0, 254
    style = GridStyle("layers", tile=2, rank="index")
    writer = GridWriter(write_into(tmp_path), style, "model")
    writer.write_grid(picture_of(nchw(torch.tensor(values)), style))
    (grid,) = writer.take()()
    assert grid.maps is not None
    assert grid.places is not None
    assert (grid.maps.file, grid.maps.size) == ("maps/cat/001_layer.png", (3, 4))
    columns = grid.maps.columns
    assert columns == grid.places.columns
    written = read_indices(tmp_path / grid.maps.file)
    assert written.shape == (-(-5 // columns) * 3, columns * 4)
    for index, channel in enumerate(values):
        y, x = index // columns * 3, index % columns * 4
        assert np.array_equal(written[y : y + 3, x : x + 4], channel)


@pytest.mark.parametrize(
    ("colormap", "palette"), [("ember", load_map_palette("ember")), ("gray", GREYS)]
)
def test_channels_have_the_colours_that_the_page_shows_beside_them(tmp_path, colormap, palette):
    style = GridStyle("layers", colormap=colormap)
    write(tmp_path, [picture_of(nchw(RAMP), style)], style)
    with Image.open(tmp_path / "maps/cat/001_layer.png") as image:
        assert image.getpalette() == palette
    stops = [bytes(palette[at : at + 3]).hex() for at in (0, 3 * 127, 3 * 254)]
    assert [list_stops(colormap)[at].lstrip("#") for at in (0, 16, 32)] == stops


def test_the_ends_of_a_narrow_range_far_from_zero_are_distinguished(tmp_path):
    style = GridStyle("layers")
    writer = GridWriter(write_into(tmp_path), style, "model")
    writer.write_grid(picture_of(nchw(torch.tensor([[[1000.125, 1000.25]]])), style))
    (grid,) = writer.take()()
    assert (grid.low, grid.high) == ((1000.125,), (1000.25,))


@pytest.mark.parametrize(("side", "shown"), [(8, False), (16, True)])
def test_numbers_of_a_sheet_are_whole_or_left_out(side, shown):
    """Of 123, cut at the width of its tile, 1 would be seen, another channel."""
    canvas, _ = draw_sheet(
        [("conv", np.zeros((2, side, side), np.uint8), ["123", "7"])], ["t"], side
    )
    labels = [text for text in canvas.texts if text.words in ("123", "7")]
    assert [text.words for text in labels] == ["123", "7"] * shown
    assert all(draw_text(text.words, text.size).shape[1] <= text.width for text in labels)
