"""Values of more than 8 bits become intensities by one rule, the same for all pictures."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookcli.config import ImageRequest, ModelRequest, RunRequest
from hookcli.errors import RequestError
from hookcli.images.decode import decode
from hookcli.images.intensities import draw, put_bands_first, put_bands_last
from hookcli.images.read import read_images
from hookcli.images.style import NoRangeError, ReadStyle, UndecodableError
from hookcli.plan.images import find_images
from tests.images.test_decode import tiff

RANDOM = ("--weights", "random", "--device", "cpu", "--grids", "none", "--layers", "conv1")
RANDOM += ("--size", "32")


def save(name, values):
    Image.fromarray(values).save(name)
    return name


def read(name, **style):
    """The reds of a picture, row by row, and the range of its values."""
    ((source,), skipped) = read_images([name], style=ReadStyle(**style))
    assert not skipped
    content = source.read()
    return np.asarray(content.pictures[0])[..., 0].ravel().tolist(), content.intensities


def reason(name, **style):
    _, (skipped,) = read_images([name], style=ReadStyle(**style))
    return skipped.reason


def find(*names, **words):
    return find_images(RunRequest(ModelRequest("resnet18"), ImageRequest(names, **words)))


@pytest.mark.parametrize(
    ("values", "range_", "expected"),
    [
        (np.array([[0, 257, 65535]], "u2"), "full", [0, 1, 255]),
        (np.array([[0, 0.2, 1]], "f4"), "full", [0, 51, 255]),
        (np.array([[-1024, 0, 3071]], "i4"), (-1024, 3071), [0, 64, 255]),  # 255 * 1024 / 4095
        (np.array([[-2000, 0, 9000]], "i4"), (-1000, 1000), [0, 128, 255]),
        (np.array([[800, 1000, 1200]], "u2"), "minmax", [0, 128, 255]),
        (np.array([list(range(101))], "u2"), "percent:10", [0] * 11),
    ],
)
def test_the_range_gives_black_and_white(values, range_, expected):
    assert read(save("a.tif", values), range=range_)[0][: len(expected)] == expected


def test_percentiles_leave_out_values_at_both_ends():
    _, found = read(save("a.tif", np.arange(101, dtype="u2")[None]), range="percent:10")
    assert (found.low, found.high, found.clipped, found.rule) == (10, 90, 20, "percent:10")


def test_what_lies_outside_is_clipped_and_counted():
    values = np.array([[-5, 0, 7, 300, np.inf, np.nan]], "f4")
    greys, found = read(save("a.tif", values), range=(0, 255))
    assert greys == [0, 0, 7, 255, 255, 0]
    assert (found.clipped, found.nan_count, found.smallest, found.largest) == (3, 1, -5, 300)


def test_the_lower_bytes_of_the_colours_of_a_tiff_count():
    values = np.array([[[1000, 1050, 1100]]], "u2")
    Path("a.tif").write_bytes(tiff(1, [16] * 3, values.tobytes(), t262=[2]))
    ((source,), _) = read_images(["a.tif"], style=ReadStyle((1000, 1100)))
    assert source.read().pictures[0].getpixel((0, 0)) == (0, 128, 255)


def test_one_picture_without_a_natural_range_is_drawn_from_its_own_values():
    save("a.tif", np.array([[-1000, 3000]], "i4"))
    assert find("a.tif").sources[0].read().intensities.rule == "own"


@pytest.mark.parametrize("count", [2, 12])  # read at once, and one by one
def test_several_pictures_without_a_natural_range_are_refused_with_theirs(count):
    for number in range(count):
        save(f"{number:02}.tif", np.array([[-1000 - number, 3000]], "i4"))
    with pytest.raises(RequestError) as error:
        find(*(f"{number:02}.tif" for number in range(count)))
    first = min(count, 8) - 1
    assert f"`range=({-1000 - first}, 3000)`" in error.value.hint


def test_several_pictures_with_a_range_of_their_own_are_told_apart(run):
    save("a.tif", np.array([[-1000, 3000]] * 2, "i4"))
    save("b.tif", np.array([[-1000, 300]] * 2, "i4"))
    code, _, err = run("inspect", "resnet18", "a.tif", "b.tif", *RANDOM, "--range", "minmax")
    assert code == 0
    assert "pictures cannot be compared (-1000 to 300 or -1000 to 3000)" in err


@pytest.mark.parametrize("value", [np.float32(1.5)])
def test_a_late_picture_without_a_natural_range_is_refused_before_the_run(run, value):
    Path("f").mkdir()
    for number in range(12):
        save(f"f/{number:02}.tif", np.full((8, 8), number, "u2"))
    save("f/12.tif", np.full((8, 8), value))
    code, _, err = run("inspect", "resnet18", "f", *RANDOM)
    assert code == 2
    assert f"'f/12.tif' holds values from {value:g} to {value:g}, which have no natural" in err
    assert f"--range 0,{value:g} holds the values of the pictures read first" in err


def test_a_later_frame_without_a_natural_range_counts():
    Path("clip").mkdir()
    frames = [Image.fromarray(np.array([each], "f4")) for each in ([0, 1], [-1, 3])]
    frames[0].save("a.tif", save_all=True, append_images=frames[1:])
    for number, frame in enumerate(frames):
        frame.save(f"clip/{number}.tif")
    with pytest.raises(RequestError) as error:
        find("clip", clip=True)
    assert "`range=(-1, 3)`" in error.value.hint
    with pytest.raises(NoRangeError), Path("a.tif").open("rb") as stream:
        decode(stream, 2)


def test_the_second_picture_of_a_pair_counts():
    save("a.tif", np.array([[-1, 3]], "i4"))
    with pytest.raises(RequestError, match="no natural range"):
        find("a.tif", pair="a.tif")


def test_a_run_says_the_rule_everywhere(run):
    save("a.png", np.array([[800, 1200]] * 2, "u2"))
    code, _, err = run("inspect", "resnet18", "a.png", *RANDOM, "--range=0,1000", "-o", "out")
    assert code == 0
    assert "values of more than 8 bits: black to white are 0 to 1000" in err
    assert "warning: values of" not in err
    assert "warning: 2 values were clipped to --range, in 1 picture" in err
    words = json.loads(Path("out/run.json").read_text())["command"]
    assert words[words.index("--range") + 1] == "0,1000"
    image = json.loads(Path("out/manifest.json").read_text())["images"][0]
    assert image["intensities"]["rule"] == "0,1000"
    assert "black to white are 0 to 1000" in Path("out/report.html").read_text()


def test_another_range_is_refused_on_resume_and_told_by_diff(run):
    save("a.png", np.array([[800, 1200]] * 2, "u2"))
    for name, more in (("one", ()), ("two", ("--range", "0,1200"))):
        assert run("inspect", "resnet18", "a.png", *RANDOM, *more, "-o", name)[0] == 0
    again = run(
        "inspect", "resnet18", "a.png", *RANDOM, "--range", "minmax", "-o", "one", "--resume"
    )
    assert (again[0], "without --range minmax" in again[2]) == (2, True)
    assert "--range: none, now 0,1200" in run("diff", "one", "two")[1]


def test_a_picture_that_uses_little_of_the_range_is_a_finding(run):
    save("a.png", np.array([[800, 1200]] * 2, "u2"))
    code, out, _ = run("inspect", "resnet18", "a.png", *RANDOM, "--fail-on", "narrow")
    assert code == 7
    assert "0.6% of the range from 0 to 65535; --range 800,1200 would suit" in " ".join(out.split())


def test_nan_in_a_picture_is_a_finding(run):
    save("a.tif", np.array([[0, 1], [np.nan, 0.5]], "f4"))
    code, out, _ = run("inspect", "resnet18", "a.tif", *RANDOM, "--fail-on", "nan")
    assert code == 7
    assert "nan: 'a.tif' holds 1 NaN, which were made black" in out


def test_a_range_without_effect_is_told(run, cat):
    _, _, err = run("inspect", "resnet18", str(cat), *RANDOM, "--range", "minmax")
    assert "--range has no effect: no picture has more than 8 bits" in err


@pytest.mark.parametrize("range_", ["half", "percent:50", "3,1", "1,inf", "1,2,3"])
def test_a_range_that_makes_no_sense_is_refused(run, cat, range_):
    code, _, err = run("inspect", "resnet18", str(cat), *RANDOM, f"--range={range_}")
    assert (code, f"--range cannot read {range_!r}" in err) == (2, True)


def test_bands_that_are_no_colours_are_not_rounded():
    picture, _ = draw(np.array([[[0, 1, 65535, 13107]]], "u2"), ReadStyle())
    assert picture.values.ravel().tolist() == pytest.approx([0, 255 / 65535, 255, 51])


def test_chosen_bands_come_in_the_order_of_the_user():
    picture, _ = draw(np.array([[[10, 20, 30, 40]]], "u1"), ReadStyle(bands=(3, 0, 0)))
    assert picture.getpixel((0, 0)) == (40, 10, 10)


def test_a_band_that_is_not_there_is_named():
    Image.new("RGB", (1, 1)).save("a.png")
    assert reason("a.png", bands=(0, 7, 1)) == "has 3 bands, and no band 7 (counted from 0)"


@pytest.mark.parametrize("shape", [(20, 30, 12), (12, 20, 30)])
def test_the_bands_of_an_array_are_first_or_last(shape):
    assert put_bands_last(np.zeros(shape)).shape == (20, 30, 12)
    assert put_bands_first(np.zeros(shape), 12, ()).shape == (12, 20, 30)
    assert put_bands_first(np.zeros(shape), 3, (2, 1, 0)).shape == (3, 20, 30)


@pytest.mark.parametrize("shape", [(8, 8, 20), (20, 8, 8)])
def test_the_equal_sides_of_an_array_are_no_bands(shape):
    assert put_bands_last(np.zeros(shape)).shape == (8, 8, 20)
    assert put_bands_first(np.zeros(shape), 3, (19, 1, 0)).shape == (3, 8, 8)


@pytest.mark.parametrize("shape", [(8, 8, 8), (8, 5, 8)])
def test_an_array_with_equal_end_axes_is_refused_when_its_bands_matter(shape):
    np.save("a.npy", np.zeros(shape, "u2"))
    assert reason("a.npy") == f"is 8x{shape[1]}x8: the bands may be the first or last axis"
    with pytest.raises(UndecodableError, match="the bands may be the first or last axis"):
        put_bands_first(np.zeros(shape), 3, (2, 1, 0))


def twelve(tmp_path):
    Path("own.py").write_text("from torch import nn\ndef make(): return nn.Conv2d(12, 1, 1)\n")
    return np.arange(12 * 32 * 32, dtype="u2").reshape(32, 32, 12)


@pytest.mark.parametrize("order", ["HWC", "CHW", "floats HWC"])
def test_all_bands_reach_a_model_that_takes_as_many(run, tmp_path, order):
    values = twelve(tmp_path)
    expected = values.mean((0, 1)) / 65535
    if order == "CHW":
        values = values.transpose(2, 0, 1)
    np.save("a.npy", (values / 65535).astype("f4") if "floats" in order else values)
    words = ("--layers", "all", "--at", "input", "--size", "32", "--resize", "32")
    words += ("--save", "tensors", "--pool", "mean", "--device", "cpu", "--grids", "none")
    code, _, err = run("inspect", "own.py:make", "a.npy", *words, "-o", "out")
    assert code == 0, err
    from safetensors.numpy import load_file

    (file,) = Path("out/tensors").rglob("*.safetensors")
    (saved,) = load_file(file).values()
    assert saved.ravel() == pytest.approx(expected, abs=1e-6)


def test_bands_that_do_not_fit_are_named_with_what_to_type(run, tmp_path):
    np.save("a.npy", twelve(tmp_path))
    code, _, err = run("inspect", "resnet18", "a.npy", *RANDOM)
    assert code == 3
    assert (
        "has 12 bands of 32 by 32 pixels, and the network takes 3: choose with --bands 2,1,0" in err
    )
    assert run("inspect", "resnet18", "a.npy", *RANDOM, "--bands", "2,1,0")[0] == 0


@pytest.fixture
def stack():
    pages = [Image.new("L", (8, 8), value) for value in (10, 120, 250)]
    pages[0].save("stack.tif", save_all=True, append_images=pages[1:])


def test_the_pages_of_a_file_are_images_of_their_own(stack):
    found = find("stack.tif", page="all").sources
    assert [source.name for source in found] == ["stack.tif[0]", "stack.tif[1]", "stack.tif[2]"]
    assert [source.read().pictures[0].getpixel((0, 0))[0] for source in found] == [10, 120, 250]


def test_one_page_can_be_chosen(stack):
    (source,) = find("stack.tif", page=2).sources
    assert (source.name, source.read().pictures[0].getpixel((0, 0))[0]) == ("stack.tif[2]", 250)
    assert reason("stack.tif", page=3) == "has 3 pages, and no page 3 (counted from 0)"


def test_pages_that_are_not_read_are_told(run, stack):
    _, _, err = run("inspect", "resnet18", "stack.tif", *RANDOM)
    assert "the model saw only page 0 of 3: --page chooses others" in err


def test_a_folder_names_pictures_that_it_cannot_read(run):
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)
    nifti = struct.pack("<i", 348) + bytes(340) + b"n+1\0" + bytes(100)
    Path("f").mkdir()
    for name, data in (("a.heic", heic), ("b", heic), ("c.nii", nifti), ("d.txt", b"hello")):
        Path("f", name).write_bytes(data)
    Image.new("L", (8, 8)).save("f/e.dat", "PNG")
    code, _, err = run("inspect", "resnet18", "f", *RANDOM)
    assert code == 6
    assert "skipped 2 images ('f/a.heic', 'f/b'): is a HEIC picture" in err
    assert "skipped 'f/c.nii': is a NIfTI volume" in err
    assert "1 layer, 1 image" in err or "2 images" in err
    assert "d.txt" not in err


@pytest.mark.parametrize(
    ("package", "data", "said"),
    [
        ("pillow_heif", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64), "pillow-heif"),
        ("pydicom", bytes(128) + b"DICM" + bytes(99), "pydicom"),
        ("tifffile", tiff(1, [16] * 12, bytes(24), t338=[0] * 11), "tifffile"),
    ],
)
def test_a_missing_package_is_named(monkeypatch, package, data, said):
    import sys

    from hookcli.images import decode

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(decode, "find_spec", lambda _: None)
    Path("a").write_bytes(data)
    assert said in reason("a")
    assert reason("a").endswith("pip install 'hookcli[images]'")
